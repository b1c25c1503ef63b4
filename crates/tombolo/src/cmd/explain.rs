//! `tombolo explain`: one packet, and the whole decision about it.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::{Trace, Verdict};
use tombolo_io::pcap::CaptureReader;
use tombolo_io::queue::Buffer;
use tombolo_wire::{FragmentHeader, Ipv4View, Ipv6View, Protocol};

use super::print;
use crate::offline::{Offline, Sent, Side, verdict_words};

/// The packet, and where it comes from.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The side that the packet comes from; found out by its addresses if left out
    #[arg(long)]
    from: Option<Side>,
    /// The packet: hexadecimal digits from the IP header on, or a pcap file
    packet: String,
    /// Which packet of the file
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    number: u64,
    /// For machines
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    from: &'static str,
    received: String,
    steps: Vec<Step>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    sent: Vec<Leaving>,
}

#[derive(Serialize)]
struct Step {
    text: String,
    clause: &'static str,
}

#[derive(Serialize)]
struct Reason {
    name: &'static str,
    cause: &'static str,
    remedy: &'static str,
}

#[derive(Serialize)]
struct Leaving {
    side: &'static str,
    packet: String,
    hex: String,
}

/// Passes the packet and says why what became of it did.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (mut gateway, warnings) = Offline::load(&arguments.config, 1)?;
    for warning in warnings {
        print::warning(&warning);
    }
    let received = bytes_of(&arguments.packet, arguments.number)?;
    let mut buffer = Buffer::new();
    let place = HEADROOM..HEADROOM + received.len();
    buffer
        .bytes_mut()
        .get_mut(place)
        .context("the packet is longer than an IP packet can be")?
        .copy_from_slice(&received);
    let packet = Packet::new(buffer.bytes_mut(), HEADROOM, received.len(), Offload::default());
    let mut packet = packet.context("the packet is longer than an IP packet can be")?;
    let mut trace = Trace::default();
    let from = arguments.from.unwrap_or_else(|| gateway.side_of(&received));
    let outcome = gateway.explain(from, &mut packet, &mut trace);
    let mut steps: Vec<Step> =
        trace.steps().iter().map(|step| Step { text: step.text.clone(), clause: step.clause }).collect();
    if outcome.verdict == Verdict::Forward {
        outcome.sent.iter().take(1).for_each(|sent| headers(&received, &sent.bytes, &mut steps));
    }
    let (verdict, reason) = verdict_words(outcome.verdict);
    let reason = reason.map(|r| Reason { name: r.name(), cause: r.cause().trim(), remedy: r.remedy() });
    let sent = outcome.sent.iter().map(Leaving::of).collect();
    let report = Report { from: from.name(), received: describe(&received), steps, verdict, reason, sent };
    if arguments.json { print::json(&report) } else { report.print() }
}

/// The packet of the argument: digits, or the file of that name.
fn bytes_of(argument: &str, number: u64) -> anyhow::Result<Vec<u8>> {
    let path = Path::new(argument);
    if path.exists() {
        return from_capture(path, number);
    }
    let digits: Vec<char> = argument.chars().filter(|digit| !digit.is_whitespace() && *digit != ':').collect();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.iter().all(char::is_ascii_hexdigit) {
        bail!("{argument} is neither a file nor a packet in hexadecimal digits, two for each byte");
    }
    let text: String = digits.into_iter().collect();
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

fn from_capture(path: &Path, number: u64) -> anyhow::Result<Vec<u8>> {
    let mut reader = CaptureReader::open(path)?;
    let mut buffer = Buffer::new();
    // Frames that are no IP count, as they do wherever the capture is looked at.
    while let Some((_, packet)) = reader.next_packet(&mut buffer)? {
        let bytes = packet.bytes().to_vec();
        match reader.frames().cmp(&number) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(bytes),
            Ordering::Greater => bail!("{}: frame number {number} holds no whole IP packet", path.display()),
        }
    }
    bail!("{} has no packet number {number}", path.display())
}

impl Leaving {
    fn of(sent: &Sent) -> Self {
        let hex = sent.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { side: sent.side.name(), packet: describe(&sent.bytes), hex }
    }
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        print::line(&format!("from {}: {}", self.from, self.received))?;
        for Step { text, clause } in &self.steps {
            let clause = if clause.is_empty() { String::new() } else { format!("  [{clause}]") };
            print::line(&format!("  {text}{clause}"))?;
        }
        match &self.reason {
            Some(Reason { name, cause, remedy }) => {
                print::line(&format!("{}: {name}\n  {cause}\n  remedy: {remedy}", self.verdict))?;
            }
            None => print::line(self.verdict)?,
        }
        for Leaving { side, packet, hex } in &self.sent {
            print::line(&format!("to {side}: {packet}\n  {hex}"))?;
        }
        Ok(())
    }
}

/// A packet in one line.
fn describe(bytes: &[u8]) -> String {
    if let Ok(view) = Ipv4View::parse(bytes) {
        let flags = if view.dont_fragment() { ", DF" } else { "" };
        let (source, destination, ttl, length) = (view.source(), view.destination(), view.ttl(), bytes.len());
        return format!(
            "IPv4 {source} to {destination}, protocol {}, TTL {ttl}{flags}, {length} bytes",
            view.protocol().0
        );
    }
    if let Ok(view) = Ipv6View::parse(bytes) {
        let (source, destination, hops, length) = (view.source(), view.destination(), view.hop_limit(), bytes.len());
        return format!(
            "IPv6 {source} to {destination}, next header {}, hop limit {hops}, {length} bytes",
            view.next_header().0
        );
    }
    format!("{} bytes that are no IP packet", bytes.len())
}

/// Says how the fields of the first packet that left came to be.
fn headers(received: &[u8], sent: &[u8], steps: &mut Vec<Step>) {
    let mut add = |clause, text: String| steps.push(Step { text, clause });
    match (Ipv4View::parse(received), Ipv6View::parse(received), Ipv4View::parse(sent), Ipv6View::parse(sent)) {
        (Ok(old), _, _, Ok(new)) => {
            add(
                "RFC 7915 section 4.1",
                format!("traffic class {:#04x} from TOS {:#04x}, flow label 0", new.traffic_class(), old.tos()),
            );
            add("RFC 7915 section 4.1", format!("hop limit {} from TTL {}", new.hop_limit(), old.ttl()));
            if old.header_length() > tombolo_wire::ipv4::HEADER_LENGTH {
                add("RFC 7915 section 4.1", format!("{} bytes of IPv4 options are dropped", old.header_length() - 20));
            }
            add("RFC 7915 section 4.1, RFC 8021", fragment_words(sent, new));
        }
        (_, Ok(old), Ok(new), _) => {
            add(
                "RFC 7915 section 5.1",
                format!("TOS {:#04x} from traffic class {:#04x}", new.tos(), old.traffic_class()),
            );
            add("RFC 7915 section 5.1", format!("TTL {} from hop limit {}", new.ttl(), old.hop_limit()));
            let why = if old.next_header() == Protocol::IPV6_FRAGMENT {
                "from the Fragment header; DF is clear".to_owned()
            } else if new.dont_fragment() {
                format!("of the gateway's own; DF is set, the packet is over 1260 bytes ({})", new.total_length())
            } else {
                "of the gateway's own; DF is clear, the packet has at most 1260 bytes".to_owned()
            };
            add("RFC 7915 section 5.1, RFC 6864", format!("identification {:#06x} {why}", new.identification()));
        }
        (_, Ok(old), _, Ok(new)) => {
            let (from, to) = (old.hop_limit(), new.hop_limit());
            add("RFC 7757 section 4.2.2", format!("hop limit {to} from {from}: one decrement for both translations"));
        }
        _ => {}
    }
    let addresses = |bytes: &[u8]| -> Option<(IpAddr, IpAddr)> {
        let v4 = Ipv4View::parse(bytes).ok().map(|view| (view.source().into(), view.destination().into()));
        v4.or_else(|| Ipv6View::parse(bytes).ok().map(|view| (view.source().into(), view.destination().into())))
    };
    if addresses(received) != addresses(sent) {
        add("RFC 7915 sections 4.5, 5.5; RFC 1624", "checksums of TCP, UDP and ICMP follow the addresses".into());
    }
}

fn fragment_words(sent: &[u8], view: Ipv6View<'_>) -> String {
    if view.next_header() != Protocol::IPV6_FRAGMENT {
        return "no Fragment header: the packet is whole and fits".into();
    }
    match FragmentHeader::parse(sent, tombolo_wire::ipv6::HEADER_LENGTH) {
        Ok(header) => format!("a Fragment header with identification {:#010x}", header.identification),
        Err(_) => "a Fragment header".into(),
    }
}
