//! `tombolo provision`: what a DHCPv6 client or a router advertisement says, as a configuration.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_wire::Pref64Option;
use tombolo_wire::dhcpv6_softwire::{PortParameters, S46Bind, S46Option, S46Rule};

use super::output::Output;
use super::print;

/// Arguments of `tombolo provision`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// DHCPv6 options of MAP-E, MAP-T and Lightweight 4over6 (RFC 7598), and of DS-Lite (RFC 6334):
    /// the service at the customer's end
    S46 {
        /// The options, code and length included, in hexadecimal digits
        hex: String,
        /// Hosts inside
        #[arg(long, value_name = "PREFIX", default_value = "192.168.1.0/24")]
        inside: String,
        /// The delegated prefix (MAP; else the prefix that the options name)
        #[arg(long, value_name = "PREFIX")]
        prefix: Option<String>,
        /// Address of the AFTR, which the DHCPv6 option only names (DS-Lite)
        #[arg(long, value_name = "ADDRESS")]
        aftr: Option<Ipv6Addr>,
    },
    /// The PREF64 option of a router advertisement (RFC 8781): prefix and lifetime
    Pref64 {
        /// The 16 bytes of the option in hexadecimal digits
        hex: String,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::S46 { hex, inside, prefix, aftr } => {
            let prefix = prefix.as_deref().map(|text| parse_prefix::<u128>(text).context("--prefix")).transpose()?;
            let prefix = prefix.map(|prefix| prefix.to_string());
            s46(&bytes(hex)?, &Given { inside, prefix, aftr: *aftr })
        }
        Action::Pref64 { hex } => pref64(&bytes(hex)?, arguments.output),
    }
}

/// What the command line adds to the options.
struct Given<'a> {
    inside: &'a str,
    prefix: Option<String>,
    aftr: Option<Ipv6Addr>,
}

/// Bytes from hexadecimal digits; blanks and colons between them do no harm.
fn bytes(hex: &str) -> anyhow::Result<Vec<u8>> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b':').collect();
    if !digits.len().is_multiple_of(2) {
        bail!("an odd number of hexadecimal digits; every byte has two");
    }
    let pairs = digits.chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let text = text.with_context(|| format!("\"{}\" are no hexadecimal digits", String::from_utf8_lossy(pair)))?;
        Ok(u8::from_str_radix(text, 16)?)
    });
    pairs.collect()
}

fn s46(bytes: &[u8], given: &Given<'_>) -> anyhow::Result<()> {
    let (options, errors) = S46Option::decode_received(bytes);
    for error in &errors {
        print::line(&format!("# ignored: {error}"))?;
    }
    let mut texts = Vec::new();
    for option in &options {
        texts.push(service(option, given)?);
    }
    if texts.is_empty() {
        bail!("no container of RFC 7598 and no AFTR name of RFC 6334 among the options");
    }
    print::line(texts.join("\n").trim_end())
}

/// The service that an option is for.
fn service(option: &S46Option, given: &Given<'_>) -> anyhow::Result<String> {
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
    text.push_str("# address = an address of the delegated prefix that no interface has\n");
    match given.aftr {
        Some(aftr) => {
            let _ = writeln!(text, "aftr = \"{aftr}\"    # {name}");
        }
        None => {
            let _ = writeln!(text, "# aftr = the IPv6 address of {name}");
        }
    }
}

fn end_user_prefix(text: &mut String, key: &str, prefix: Option<&str>) {
    let _ = match prefix {
        Some(prefix) => writeln!(text, "{key} = \"{prefix}\""),
        None => writeln!(text, "# {key} = the delegated prefix"),
    };
}

fn pref64(bytes: &[u8], output: Output) -> anyhow::Result<()> {
    let option = Pref64Option::parse(bytes).context(
        "not a PREF64 option: 16 bytes that begin with 26 02, with a length code below 6 (RFC 8781 section 4)",
    )?;
    let Pref64Option { prefix, lifetime } = option;
    let answer = json!({ "prefix": prefix.to_string(), "lifetime_seconds": lifetime });
    output.answer(&answer, || print::line(&format!("prefix = \"{prefix}\"    # for {lifetime} seconds")))
}
