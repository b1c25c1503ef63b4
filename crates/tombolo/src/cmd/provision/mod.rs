//! `tombolo provision`: what a DHCPv6 client or a router advertisement says, as a configuration. `odhcp6c`, `networkd`:
//! what clients tell their scripts. `lease`: that as a configuration. `service`: what an option stands for.

mod lease;
mod networkd;
mod odhcp6c;
mod service;

use std::io::Read as _;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_wire::Pref64Option;
use tombolo_wire::dhcpv6_softwire::S46Option;

use self::lease::{Lease, Wanted};
use self::service::Given;
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
    /// What odhcp6c tells its script in the variables PREFIXES, MAPE, MAPT, LW4O6 and AFTR: the service that the server
    /// offers, with the prefix that it has delegated
    Odhcp6c(AsWanted),
    /// What `networkctl status LINK --json=short` says of a link, on the standard input: the prefix that was delegated to
    /// it, put into a template
    Networkd(AsWanted),
    /// The PREF64 option of a router advertisement (RFC 8781): prefix and lifetime
    Pref64 {
        /// The 16 bytes of the option in hexadecimal digits
        hex: String,
    },
}

/// How a lease becomes a configuration.
#[derive(Debug, Args)]
struct AsWanted {
    /// Hosts inside
    #[arg(long, value_name = "PREFIX", default_value = "192.168.1.0/24")]
    inside: String,
    /// A further line of the service, for example 'native_ipv4 = "preferred"'
    #[arg(long, value_name = "LINE")]
    set: Vec<String>,
    /// Where the server offers nothing, a CLAT that asks the network for its prefix, behind a NAT44
    #[arg(long)]
    clat: bool,
    /// Print this file, with {service} replaced by the service, {prefix} by the delegated prefix and {network} by the
    /// last /64 of it (as in "{network}::464")
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::S46 { hex, inside, prefix, aftr } => {
            let prefix = prefix.as_deref().map(|text| parse_prefix::<u128>(text).context("--prefix")).transpose()?;
            let prefix = prefix.map(|prefix| prefix.to_string());
            s46(&bytes(hex)?, &Given { inside, prefix, aftr: *aftr, address: None })
        }
        Action::Odhcp6c(wanted) => configure(&odhcp6c::lease(|name| std::env::var(name).ok())?, wanted),
        Action::Networkd(wanted) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading the standard input")?;
            configure(&networkd::lease(&text)?, wanted)
        }
        Action::Pref64 { hex } => pref64(&bytes(hex)?, arguments.output),
    }
}

fn configure(lease: &Lease, AsWanted { inside, set, clat, template }: &AsWanted) -> anyhow::Result<()> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let template = template.as_ref().map(read).transpose()?;
    let wanted = Wanted { inside, set, clat: *clat, template: template.as_deref() };
    print::line(lease.configuration(&wanted)?.trim_end())
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
        texts.push(service::of(option, given)?);
    }
    if texts.is_empty() {
        bail!("no container of RFC 7598 and no AFTR name of RFC 6334 among the options");
    }
    print::line(texts.join("\n").trim_end())
}

fn pref64(bytes: &[u8], output: Output) -> anyhow::Result<()> {
    let option = Pref64Option::parse(bytes).context(
        "not a PREF64 option: 16 bytes that begin with 26 02, with a length code below 6 (RFC 8781 section 4)",
    )?;
    let Pref64Option { prefix, lifetime } = option;
    let answer = json!({ "prefix": prefix.to_string(), "lifetime_seconds": lifetime });
    output.answer(&answer, || print::line(&format!("prefix = \"{prefix}\"    # for {lifetime} seconds")))
}
