//! What lets pass what the gateway serves: rules of nftables, or commands of firewalld.

use std::fmt::Write as _;

use tombolo_io::netfilter::Selector;

use crate::answers::{Answers, Outside, Purpose};
use crate::file::{DEVICE, File};
use crate::gateway;
use crate::survey::Survey;

pub(crate) fn file(survey: &Survey, answers: &Answers) -> File {
    if survey.firewalld {
        return firewalld();
    }
    let (text, next): (String, &[&str]) = match survey.dropping.is_empty() {
        true => (own(survey, answers), &["nft -f {}    # a firewall, if this host is to have one: see there"]),
        false => (admissions(survey), &["nft -f {}    # after the firewall's own rules, at each start"]),
    };
    File { name: "gateway.nft", text, about: "for nftables", next }
}

/// firewalld has its tables for itself, and makes them anew.
fn firewalld() -> File {
    let text = format!(
        "#!/bin/sh\n\
         # By \"tombolo init\": firewalld lets pass what is routed to the gateway's device, {DEVICE}, and what comes from it.\n\
         set -e\n\
         firewall-cmd --permanent --zone=trusted --add-interface={DEVICE}\n\
         firewall-cmd --permanent --get-policies | grep -qw to-gateway || firewall-cmd --permanent --new-policy=to-gateway\n\
         firewall-cmd --permanent --policy=to-gateway --add-ingress-zone=ANY\n\
         firewall-cmd --permanent --policy=to-gateway --add-egress-zone=trusted\n\
         firewall-cmd --permanent --policy=to-gateway --set-target=ACCEPT\n\
         firewall-cmd --reload\n"
    );
    File { name: "gateway.firewalld.sh", text, about: "for firewalld", next: &["sh {}"] }
}

/// Rules for chains that drop what they do not know.
fn admissions(survey: &Survey) -> String {
    let mut text = format!(
        "#!/usr/sbin/nft -f\n\
         # By \"tombolo init\": the firewall of this host drops what it does not know. These rules let pass what is routed to the\n\
         # gateway's device, {DEVICE}, and what comes from it: each packet is seen twice, as it came and as it is translated.\n"
    );
    for chain in &survey.dropping {
        let ways = [Selector::LeavesBy(DEVICE), Selector::ComesInBy(DEVICE)].map(|way| chain.admission(None, &way));
        let _ = writeln!(text, "\n# The {chain}.");
        for line in ways {
            // What another program keeps is changed by it.
            let _ = match line.strip_prefix("nft '").and_then(|rule| rule.strip_suffix('\'')) {
                Some(rule) => writeln!(text, "{rule}"),
                None => writeln!(text, "# Not for nftables: run  {line}"),
            };
        }
    }
    text
}

/// A firewall for a host that has none.
fn own(survey: &Survey, answers: &Answers) -> String {
    let mut text = format!(
        "#!/usr/sbin/nft -f\n\
         # By \"tombolo init\". No firewall of this host stands in the gateway's way, and it needs none: what comes from outside passes\n\
         # by a binding alone. This one keeps all else that is forwarded from coming in. With rules on the way of packets the\n\
         # gateway leaves them all to its engine; fastpath_netfilter = true in gateway.toml uses the kernel's programs nevertheless, for\n\
         # which the last two rules are.\n\
         table inet gateway\n\
         delete table inet gateway\n\
         table inet gateway {{\n\
         \tchain forward {{\n\
         \t\ttype filter hook forward priority filter; policy drop;\n\
         \t\tct state established,related accept\n\
         \t\t# Each packet is seen twice: as it came, on its way to {DEVICE}, and translated, on its way from it.\n\
         \t\toifname \"{DEVICE}\" accept\n\
         \t\tiifname \"{DEVICE}\" accept\n"
    );
    let mut inside: Vec<&str> = answers.inside.iter().map(|interface| interface.name.as_str()).collect();
    inside.dedup();
    for name in &inside {
        let _ = writeln!(text, "\t\tiifname \"{name}\" accept");
    }
    let translated = match (answers.purpose, &answers.outside) {
        (Purpose::Nat64, _) => format!("ip6 saddr {} accept", gateway::prefix(answers)),
        (_, _) => {
            let networks: Vec<String> = answers.networks.iter().map(ToString::to_string).collect();
            format!("ip daddr {{ {} }} accept", networks.join(", "))
        }
    };
    let _ = writeln!(text, "\t\t{translated}");
    let from = match &answers.outside {
        Outside::Pool(pool) => Some(format!("ip saddr {pool} accept")),
        Outside::Interface(name) => survey
            .interface(name)
            .and_then(|interface| interface.address(false))
            .map(|address| format!("ip saddr {address} accept")),
        Outside::Address(address) => Some(format!("ip6 saddr {address} accept")),
    };
    if let Some(rule) = from {
        let _ = writeln!(text, "\t\t{rule}");
    }
    text + "\t}\n}\n"
}
