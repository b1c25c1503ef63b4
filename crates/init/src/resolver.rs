//! unbound as DNS64.

use std::fmt::Write as _;

use crate::answers::{Answers, Outside};
use crate::file::File;
use crate::gateway;
use crate::survey::Survey;

pub(crate) fn file(survey: &Survey, answers: &Answers) -> File {
    let mut text = String::from(
        "# By \"tombolo init\": a resolver that answers the hosts inside with IPv6 addresses for everything (DNS64, RFC 6147).\nserver:\n",
    );
    let own = answers.inside.iter().filter_map(|interface| interface.address(true));
    let mut listens = false;
    for address in own {
        listens = true;
        let _ = writeln!(text, "    interface: {address}");
    }
    if !listens {
        text.push_str("    interface: ::0\n    interface-automatic: yes\n");
    }
    for network in &answers.networks {
        let _ = writeln!(text, "    access-control: {network} allow");
    }
    text.push_str("    module-config: \"dns64 validator iterator\"\n");
    let _ = writeln!(text, "    dns64-prefix: {}", gateway::prefix(answers));
    if matches!(answers.outside, Outside::Interface(_)) {
        text.push_str(
            "    # Ports of the shared address that are the gateway's.\n    outgoing-port-avoid: 10000-29999\n",
        );
    }
    if survey.resolvers.is_empty() {
        text.push_str("# It asks the root's servers. Another resolver: forward-zone, name \".\", forward-addr.\n");
    } else {
        text.push_str("# Whom this host has asked so far.\nforward-zone:\n    name: \".\"\n");
        for address in &survey.resolvers {
            let _ = writeln!(text, "    forward-addr: {address}");
        }
    }
    let next: &[&str] = match survey.programs.unbound {
        true => &["install -m 644 {} /etc/unbound/unbound.conf.d/gateway.conf && systemctl restart unbound"],
        false => &[
            "apt install unbound && install -m 644 {} /etc/unbound/unbound.conf.d/gateway.conf && systemctl restart unbound",
        ],
    };
    File { name: "gateway.unbound.conf", text, about: "for unbound: DNS64", next }
}
