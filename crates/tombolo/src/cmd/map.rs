//! `tombolo map`: the arithmetic of MAP, in both directions.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::map_rule::{
    Assignment, DEFAULT_OFFSET_BITS, GivenPsid, InterfaceIdentifier, MapRule, Share,
};
use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

use super::output::Output;
use super::print;

/// Port ranges that are printed on each line of text.
const RANGES_PER_LINE: usize = 8;

/// Arguments of `tombolo map`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// What a rule gives to a subscriber, or whose an IPv4 address and port are
    ///
    /// From the End-user prefix of a subscriber: its IPv4 address or prefix, PSID, ports and MAP
    /// address. From an IPv4 address and a port: the same of the subscriber that has them.
    ///
    /// tombolo map calc --ipv6 2001:db8::/40 --ipv4 192.0.2.0/24 --ea-bits 16 --end-user
    /// 2001:db8:12:3400::/56
    #[command(verbatim_doc_comment)]
    Calc(Calc),
}

#[derive(Debug, Args)]
struct Calc {
    /// Rule IPv6 prefix
    #[arg(long, value_name = "PREFIX")]
    ipv6: String,
    /// Rule IPv4 prefix
    #[arg(long, value_name = "PREFIX")]
    ipv4: String,
    /// Embedded address bits behind the Rule IPv6 prefix
    #[arg(long, value_name = "BITS")]
    ea_bits: u8,
    /// Bits of a port in front of the PSID
    #[arg(long, value_name = "BITS", default_value_t = DEFAULT_OFFSET_BITS)]
    psid_offset: u8,
    /// Bits of a PSID that is given and not embedded, for a rule without EA bits
    #[arg(long, value_name = "BITS", requires = "psid")]
    psid_length: Option<u8>,
    /// That PSID
    #[arg(long, requires = "psid_length", value_parser = parse_number)]
    psid: Option<u16>,
    /// MAP addresses of draft-ietf-softwire-map-03 (3) instead of RFC 7597's
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(3..=3))]
    draft: Option<u8>,
    /// Default Mapping Rule of MAP-T: also print how it embeds --remote
    #[arg(long, value_name = "PREFIX", requires = "remote")]
    dmr: Option<String>,
    /// An IPv4 address outside the domain
    #[arg(long, value_name = "ADDRESS", requires = "dmr")]
    remote: Option<Ipv4Addr>,
    /// The End-user prefix of a subscriber
    #[arg(long, value_name = "PREFIX", conflicts_with = "address", required_unless_present = "address")]
    end_user: Option<String>,
    /// An IPv4 address in the rule's prefix
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Ipv4Addr>,
    /// A port or ICMP identifier of that address
    #[arg(long, requires = "address")]
    port: Option<u16>,
}

#[derive(Serialize)]
struct Report {
    assignment: &'static str,
    ipv4: String,
    /// Where the address is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    psid: Option<Psid>,
    ports: Ports,
    end_user_prefix: String,
    map_address: Ipv6Addr,
    /// False if others cannot compute the MAP address from IPv4 address and port.
    computable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<Ipv6Addr>,
}

#[derive(Serialize)]
struct Psid {
    value: u16,
    bits: u8,
    offset_bits: u8,
    subscribers_per_address: u32,
}

#[derive(Serialize)]
struct Ports {
    count: u32,
    ranges: Vec<[u16; 2]>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Action::Calc(calc) = &arguments.action;
    let report = Report::of(calc)?;
    arguments.output.answer(&report, || report.print())
}

impl Report {
    fn of(calc: &Calc) -> anyhow::Result<Self> {
        let rule = calc.rule()?;
        let end_user = match (&calc.end_user, calc.address) {
            (Some(text), _) => parse_prefix(text).with_context(|| format!("--end-user {text}"))?,
            (None, Some(address)) => rule.end_user_prefix(calc.share(&rule, address)?),
            (None, None) => bail!("give --end-user or --address"),
        };
        let ce = rule.provision(end_user).with_context(|| format!("--end-user {end_user}"))?;
        let assignment = rule.assignment();
        let ipv4 = ce.ipv4();
        let ranges: Vec<[u16; 2]> = ce.ports().map(|range| [*range.start(), *range.end()]).collect();
        let division = rule.division();
        Ok(Self {
            assignment: match assignment {
                Assignment::Prefix => "prefix",
                Assignment::Address => "address",
                Assignment::Shared => "shared address",
            },
            ipv4: if ipv4.prefix_len() == 32 { Ipv4Addr::from_bits(ipv4.key()).to_string() } else { ipv4.to_string() },
            psid: (assignment == Assignment::Shared).then(|| Psid {
                value: ce.share().psid,
                bits: division.psid_bits(),
                offset_bits: division.offset_bits(),
                subscribers_per_address: division.sets(),
            }),
            ports: Ports { count: ranges.iter().map(|[first, last]| u32::from(last - first) + 1).sum(), ranges },
            end_user_prefix: ce.end_user_prefix().to_string(),
            map_address: ce.address(),
            computable: ce.is_computable(),
            remote: calc.embedded_remote()?,
        })
    }

    fn print(&self) -> anyhow::Result<()> {
        print::line(&format!("{}: {}", self.assignment, self.ipv4))?;
        if let Some(Psid { value, bits, offset_bits, subscribers_per_address }) = self.psid {
            print::line(&format!(
                "PSID {value:#x} of {bits} bits, offset {offset_bits} bits, {subscribers_per_address} subscribers share \
                 the address"
            ))?;
        }
        print::line(&format!("{} ports in {} ranges:", self.ports.count, self.ports.ranges.len()))?;
        for line in self.ports.ranges.chunks(RANGES_PER_LINE) {
            let words: Vec<_> = line.iter().map(|[first, last]| format!("{first}-{last}")).collect();
            print::line(&format!("  {}", words.join(" ")))?;
        }
        print::line(&format!("End-user prefix {}\nMAP address {}", self.end_user_prefix, self.map_address))?;
        if !self.computable {
            print::line(
                "others cannot compute this address: bits behind the EA bits are set that the rule does not know",
            )?;
        }
        self.remote.map_or(Ok(()), |remote| print::line(&format!("the remote address is {remote} in the domain")))
    }
}

impl Calc {
    fn rule(&self) -> anyhow::Result<MapRule> {
        let ipv6 = parse_prefix(&self.ipv6).with_context(|| format!("--ipv6 {}", self.ipv6))?;
        let ipv4 = parse_prefix(&self.ipv4).with_context(|| format!("--ipv4 {}", self.ipv4))?;
        let given = self.psid_length.zip(self.psid).map(|(bits, psid)| GivenPsid { bits, psid });
        let rule = MapRule::new(ipv6, ipv4, self.ea_bits, self.psid_offset, given)?;
        Ok(rule.with_identifier(self.draft.map_or(InterfaceIdentifier::Rfc7597, |_| InterfaceIdentifier::Draft3)))
    }

    /// The subscriber that has the address and port.
    fn share(&self, rule: &MapRule, address: Ipv4Addr) -> anyhow::Result<Share> {
        if !rule.ipv4().contains(address.to_bits()) {
            bail!("--address {address} does not lie in the rule's IPv4 prefix {}", rule.ipv4());
        }
        let port = match (self.port, rule.assignment()) {
            (Some(port), _) => port,
            (None, Assignment::Shared) => bail!("{address} is shared: add --port to say whose part of it"),
            (None, _) => 0,
        };
        rule.share_of(address, port).with_context(|| format!("port {port} of {address} belongs to nobody"))
    }

    fn embedded_remote(&self) -> anyhow::Result<Option<Ipv6Addr>> {
        let Some((dmr, remote)) = self.dmr.as_ref().zip(self.remote) else { return Ok(None) };
        let prefix: Prefix<u128> = parse_prefix(dmr).with_context(|| format!("--dmr {dmr}"))?;
        let prefix = Prefix64::new(Ipv6Addr::from_bits(prefix.key()), prefix.prefix_len());
        Ok(Some(prefix.with_context(|| format!("--dmr {dmr}"))?.embed(remote)))
    }
}

/// A number, also in hexadecimal digits behind 0x, as PSIDs are often written.
fn parse_number(text: &str) -> Result<u16, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "not a number from 0 to 65535, or 0x0 to 0xffff".to_owned())
}
