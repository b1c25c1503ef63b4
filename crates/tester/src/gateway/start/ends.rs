//! The configuration of this project's gateway as one end of a technology, alone between the tester's
//! ports: the tester plays the other end, or all customers.
//!
//! Only addresses come from the tester's side of the work ([`Addresses`]); how they are mapped is
//! computed by each on its own.

use std::fmt::Write as _;

use crate::gateway::addresses::{Addresses, MapRule};
use crate::gateway::technology::Technology;

/// The hosts behind a customer's edge.
const INSIDE: &str = r#"inside = ["10.0.0.0/8"]"#;

/// The keys of its `[[service]]`; nothing for what is no end of a technology.
pub(super) fn service(technology: Technology, addresses: &Addresses, subscribers: u32) -> String {
    match technology {
        Technology::Clat => clat(addresses),
        Technology::B4 => {
            format!("kind = \"b4\"\n{INSIDE}\naddress = \"{}\"\n{}", addresses.inside_ipv6, aftr_of(addresses))
        }
        Technology::Lwb4 => lwb4(addresses),
        Technology::Aftr => aftr(addresses),
        Technology::Lwaftr => lwaftr(addresses, subscribers),
        Technology::MapECe => edge("map-e", &format!("br = \"{}\"", addresses.softwire_concentrator), addresses),
        Technology::MapTCe => edge("map-t", &default_rule(addresses), addresses),
        Technology::MapEBr => relay("map-e", &format!("br = \"{}\"", addresses.softwire_concentrator), &addresses.rule),
        Technology::MapTBr => relay("map-t", &default_rule(addresses), &addresses.rule),
        _ => String::new(),
    }
}

/// Subscribers have 10.a.b.c at the address with the same four bytes at its end.
fn clat(addresses: &Addresses) -> String {
    let (prefix, length) = addresses.translation_prefix;
    let first = addresses.inside_ipv6.to_bits() - u128::from(addresses.inside_ipv4.to_bits()) + (10 << 24);
    let own = std::net::Ipv6Addr::from_bits(first);
    format!(
        "kind = \"clat\"\nprefix = \"{prefix}/{length}\"\neam = [{{ ipv4 = \"10.0.0.0/8\", ipv6 = \"{own}/104\" }}]\n"
    )
}

fn aftr_of(addresses: &Addresses) -> String {
    format!("aftr = \"{}\"\n", addresses.softwire_concentrator)
}

fn lwb4(addresses: &Addresses) -> String {
    let rule = &addresses.rule;
    let (ipv4, psid) = rule.share(addresses.edge);
    format!(
        "kind = \"lwb4\"\n{INSIDE}\nipv4 = \"{ipv4}\"\npsid_offset = {}\npsid_length = {}\npsid = {psid}\naddress = \"{}\"\n{}",
        rule.psid_offset,
        rule.psid_bits(),
        addresses.inside_ipv6,
        aftr_of(addresses)
    )
}

fn aftr(addresses: &Addresses) -> String {
    format!(
        "kind = \"aftr\"\naddress = \"{}\"\nb4s = [\"2001:db8:1::/48\"]\n\
         pool = [{{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }}]\n",
        addresses.softwire_concentrator
    )
}

/// A row for each subscriber, as the tester numbers them.
fn lwaftr(addresses: &Addresses, subscribers: u32) -> String {
    let rule = &addresses.rule;
    let mut text = format!(
        "kind = \"lwaftr\"\naddresses = [\"{}\"]\nipv4 = [\"{}/{}\"]\nsoftwires = [\n",
        addresses.softwire_concentrator, rule.ipv4.0, rule.ipv4.1
    );
    for subscriber in 0..subscribers {
        let (ipv4, psid) = rule.share(subscriber);
        let b4 = std::net::Ipv6Addr::from_bits(addresses.inside_ipv6.to_bits() + u128::from(subscriber));
        let (offset, length) = (rule.psid_offset, rule.psid_bits());
        let row =
            format!("b4 = \"{b4}\", ipv4 = \"{ipv4}\", psid_offset = {offset}, psid_length = {length}, psid = {psid}");
        let _ = writeln!(text, "{{ {row} }},");
    }
    text + "]\n"
}

fn default_rule(addresses: &Addresses) -> String {
    let (prefix, length) = addresses.translation_prefix;
    format!("dmr = \"{prefix}/{length}\"")
}

fn rules(rule: &MapRule) -> String {
    let ((ipv6, ipv6_length), (ipv4, ipv4_length)) = (rule.ipv6, rule.ipv4);
    format!(
        "rules = [{{ ipv6 = \"{ipv6}/{ipv6_length}\", ipv4 = \"{ipv4}/{ipv4_length}\", ea_bits = {}, psid_offset = {} }}]\n",
        rule.ea_bits, rule.psid_offset
    )
}

fn relay(kind: &str, relay: &str, rule: &MapRule) -> String {
    format!("kind = \"{kind}\"\nrole = \"br\"\n{relay}\n{}", rules(rule))
}

fn edge(kind: &str, relay: &str, addresses: &Addresses) -> String {
    let (prefix, length) = addresses.rule.end_user_prefix(addresses.edge);
    let rules = rules(&addresses.rule);
    format!("kind = \"{kind}\"\nrole = \"ce\"\n{relay}\nend_user_prefix = \"{prefix}/{length}\"\n{INSIDE}\n{rules}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_service_and_nothing_else_has() {
        for technology in Technology::ALL {
            let text = service(technology, &Addresses::default(), 3);
            assert_eq!(!text.is_empty(), technology.is_one_end(), "{technology}");
        }
        let rows = service(Technology::Lwaftr, &Addresses::default(), 3);
        assert_eq!(rows.matches("psid = ").count(), 3);
    }
}
