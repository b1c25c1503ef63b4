//! Router advertisements, which tell hosts inside the resolver (RDNSS, RFC 8106) and the prefix (PREF64, RFC 8781).

use std::fmt::Write as _;

use crate::answers::Answers;
use crate::file::File;
use crate::gateway;
use crate::survey::{Interface, Survey};

/// The file of the program that this host has; none where no interface is known.
pub(crate) fn file(survey: &Survey, answers: &Answers) -> Option<File> {
    if answers.inside.is_empty() {
        return None;
    }
    Some(if survey.programs.odhcpd { odhcpd(answers) } else { radvd(survey, answers) })
}

fn radvd(survey: &Survey, answers: &Answers) -> File {
    let prefix = gateway::prefix(answers);
    let mut text = String::from("# By \"tombolo init\": what hosts inside learn from this router.\n");
    for interface in &answers.inside {
        let _ = writeln!(text, "interface {} {{\n    AdvSendAdvert on;", interface.name);
        for network in interface.networks(true) {
            let _ = writeln!(text, "    prefix {network} {{ }};");
        }
        if let Some(address) = interface.address(true) {
            let _ = writeln!(text, "    RDNSS {address} {{ }};");
        }
        let _ = match survey.programs.radvd {
            Some(false) => writeln!(text, "    # radvd 2.20 and later: nat64prefix {prefix} {{ }};"),
            _ => writeln!(text, "    nat64prefix {prefix} {{ }};"),
        };
        text.push_str("};\n");
    }
    let next: &[&str] = match survey.programs.radvd {
        Some(_) => &["install -m 644 {} /etc/radvd.conf && systemctl restart radvd"],
        None => &["apt install radvd && install -m 644 {} /etc/radvd.conf && systemctl restart radvd"],
    };
    File { name: "gateway.radvd.conf", text, about: "for radvd: prefixes, resolver, PREF64", next }
}

/// For OpenWrt, where interfaces have names of their own.
fn odhcpd(answers: &Answers) -> File {
    let mut text =
        String::from("# By \"tombolo init\", for /etc/config/dhcp: in the section of the interface inside.\n");
    for interface in &answers.inside {
        let Interface { name, .. } = interface;
        let _ = writeln!(text, "config dhcp 'lan'    # for {name}\n\toption interface 'lan'\n\toption ra 'server'");
        if let Some(address) = interface.address(true) {
            let _ = writeln!(text, "\tlist dns '{address}'");
        }
        let _ = writeln!(text, "\toption ra_pref64 '{}'", gateway::prefix(answers));
    }
    let next = &["editor /etc/config/dhcp    # with the lines of {}; then: service odhcpd restart"];
    File { name: "gateway.odhcpd", text, about: "for odhcpd: resolver, PREF64", next }
}
