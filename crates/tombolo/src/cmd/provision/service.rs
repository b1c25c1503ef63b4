//! The service at the customer's end that an option of DHCPv6 is for, as a table of a configuration.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use anyhow::bail;
use tombolo_wire::dhcpv6_softwire::{PortParameters, S46Bind, S46Option, S46Rule};

/// What is known beside the options.
pub(super) struct Given<'a> {
    /// Hosts inside.
    pub(super) inside: &'a str,
    /// The delegated prefix.
    pub(super) prefix: Option<String>,
    /// Address of the AFTR.
    pub(super) aftr: Option<Ipv6Addr>,
    /// An address of the delegated prefix that no interface has.
    pub(super) address: Option<String>,
}

/// The service that an option is for.
pub(super) fn of(option: &S46Option, given: &Given<'_>) -> anyhow::Result<String> {
    let mut text = String::from("[[service]]\n");
    match option {
        S46Option::MapE { rules, relays } => {
            map(&mut text, "map-e", given, rules);
            let _ = writeln!(text, "br = \"{}\"", relays[0]);
        }
        S46Option::MapT { rules, dmr } => {
            map(&mut text, "map-t", given, rules);
            let _ = writeln!(text, "dmr = \"{dmr}\"");
        }
        S46Option::Lw4o6 { bind: Some(bind), relays } => lwb4(&mut text, bind, relays[0], given),
        S46Option::Lw4o6 { bind: None, .. } => {
            bail!("the binding is not in the DHCPv6 options: it comes with DHCPv4 over DHCPv6 (RFC 7598 section 5.3)")
        }
        S46Option::AftrName(name) => b4(&mut text, name, given),
        other => bail!("a {other} alone says nothing; give the container that it is in"),
    }
    Ok(text)
}

fn map(text: &mut String, kind: &str, given: &Given<'_>, rules: &[S46Rule]) {
    let _ = writeln!(text, "kind = \"{kind}\"\nrole = \"ce\"");
    end_user_prefix(text, "end_user_prefix", given.prefix.as_deref());
    let _ = writeln!(text, "inside = [\"{}\"]\nrules = [", given.inside);
    for rule in rules {
        let S46Rule { forwarding, ea_bits, ipv4, ipv6, ports } = rule;
        let _ = write!(text, "    {{ ipv6 = \"{ipv6}\", ipv4 = \"{ipv4}\", ea_bits = {ea_bits}");
        if let Some(PortParameters { offset, psid_length, psid }) = ports {
            let _ = write!(text, ", psid_offset = {offset}");
            // An explicit PSID counts only where the rule gives the whole address (RFC 7598 section
            // 4.5).
            if let Some(psid) = psid.filter(|_| *ea_bits == 0 && ipv4.prefix_len() == 32) {
                let _ = write!(text, ", psid_length = {psid_length}, psid = {psid}");
            }
        }
        let _ = writeln!(text, "{} }},", if *forwarding { ", forwarding = true" } else { "" });
    }
    text.push_str("]\n");
}

fn lwb4(text: &mut String, bind: &S46Bind, relay: Ipv6Addr, given: &Given<'_>) {
    let _ = writeln!(text, "kind = \"lwb4\"\ninside = [\"{}\"]\nipv4 = \"{}\"", given.inside, bind.ipv4);
    if let Some(PortParameters { offset, psid_length, psid: Some(psid) }) = bind.ports {
        let _ = writeln!(text, "psid_offset = {offset}\npsid_length = {psid_length}\npsid = {psid}");
    }
    end_user_prefix(text, "bind_prefix", Some(given.prefix.as_deref().unwrap_or(&bind.bind_prefix.to_string())));
    let _ = writeln!(text, "aftr = \"{relay}\"");
}

fn b4(text: &mut String, name: &str, given: &Given<'_>) {
    let _ = writeln!(text, "kind = \"b4\"\ninside = [\"{}\"]", given.inside);
    let _ = match &given.address {
        Some(address) => writeln!(text, "address = \"{address}\""),
        None => writeln!(text, "# address = an address of the delegated prefix that no interface has"),
    };
    let _ = match given.aftr {
        Some(aftr) => writeln!(text, "aftr = \"{aftr}\"    # {name}"),
        // Files of hosts know no names with a dot at their end.
        None => writeln!(text, "aftr = \"{}\"", name.trim_end_matches('.')),
    };
}

fn end_user_prefix(text: &mut String, key: &str, prefix: Option<&str>) {
    let _ = match prefix {
        Some(prefix) => writeln!(text, "{key} = \"{prefix}\""),
        None => writeln!(text, "# {key} = the delegated prefix"),
    };
}
