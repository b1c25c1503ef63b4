//! `tombolo explain`: one packet, and the whole decision about it.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use tombolo_daemon::control::client::ask;
use tombolo_daemon::control::explain::{bytes_of, digits_of};
use tombolo_daemon::control::request::{Asked, Flow, Request};
use tombolo_daemon::rehearsal::flow::{Ends, Segment};
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::{Trace, Verdict};
use tombolo_io::pcap::CaptureReader;
use tombolo_io::queue::Buffer;
use tombolo_wire::{FragmentHeader, Ipv4View, Ipv6View, Protocol};

use super::control::Gateway;
use super::output::Output;
use super::print;
use crate::offline::{Offline, Sent, Side};

/// The packet, and where it comes from.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML); the tables are empty
    #[arg(short, long, value_name = "FILE", required_unless_present = "live")]
    config: Option<PathBuf>,
    /// Ask a running gateway, with what its tables have; nothing of it changes
    #[arg(long, conflicts_with_all = ["config", "from"])]
    live: bool,
    #[command(flatten)]
    gateway: Gateway,
    /// The side that the packet comes from; found out by its addresses if left out
    #[arg(long)]
    from: Option<Side>,
    /// The packet: hexadecimal digits from the IP header on, a pcap file, or protocol, source and
    /// destination: `tcp [2001:db8::7]:50000 203.0.113.9:443`
    #[arg(required = true, num_args = 1..=3)]
    packet: Vec<String>,
    /// A packet in the middle of a connection instead of its first
    #[arg(long)]
    later: bool,
    /// The B4 or lwB4 that the sender is behind, by its address
    #[arg(long, value_name = "ADDRESS")]
    softwire: Option<Ipv6Addr>,
    /// Which packet of the file
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    number: u64,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Serialize)]
struct Report {
    /// The side; a running gateway does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    received: String,
    /// What the tables have about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    known: Vec<String>,
    steps: Vec<Step>,
    verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    sent: Vec<Leaving>,
}

#[derive(Serialize)]
struct Step {
    text: String,
    clause: String,
}

#[derive(Serialize)]
struct Reason {
    name: String,
    cause: String,
    remedy: String,
}

#[derive(Serialize)]
struct Leaving {
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<&'static str>,
    packet: String,
    hex: String,
}

/// Passes the packet and says why what became of it did.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let report = match &arguments.config {
        Some(file) => of_file(file, arguments)?,
        None => of_gateway(arguments)?,
    };
    arguments.output.answer(&report, || report.print())
}

/// What a gateway with empty tables would do.
fn of_file(file: &Path, arguments: &Arguments) -> anyhow::Result<Report> {
    let (mut gateway, warnings) = Offline::load(file, 1)?;
    for warning in warnings {
        print::warning(&warning);
    }
    let received = match wanted(arguments)? {
        Asked::Packet(digits) => bytes_of(&digits).unwrap_or_default(),
        Asked::Flow(Flow { protocol, source, destination, softwire, later }) => {
            let segment = if later { Segment::Later } else { Segment::First };
            let ends = Ends { protocol: &protocol, source, destination, softwire };
            ends.packet(gateway.plan(), segment).map_err(anyhow::Error::msg)?
        }
    };
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
        trace.steps().iter().map(|step| Step { text: step.text.clone(), clause: step.clause.to_owned() }).collect();
    if outcome.verdict == Verdict::Forward {
        outcome.sent.iter().take(1).for_each(|sent| headers(&received, &sent.bytes, &mut steps));
    }
    let verdict = outcome.verdict.name().to_owned();
    let reason = outcome.verdict.reason().map(|r| Reason {
        name: r.name().to_owned(),
        cause: r.cause().trim().to_owned(),
        remedy: r.remedy().to_owned(),
    });
    let sent = outcome.sent.iter().map(|Sent { side, bytes }| Leaving::of(Some(*side), bytes)).collect();
    let (from, known) = (Some(from.name()), Vec::new());
    Ok(Report { from, received: describe(&received), known, steps, verdict, reason, sent })
}

/// What a running gateway would do.
fn of_gateway(arguments: &Arguments) -> anyhow::Result<Report> {
    let mut answer = ask(arguments.gateway.name(), &Request::Explain { asked: wanted(arguments)? })?;
    let (mut known, mut steps) = (Vec::new(), Vec::new());
    while let Some(line) = answer.next_row()? {
        let row: Value = serde_json::from_slice(line)?;
        let text = |key: &str| print::word(&row[key]).to_owned();
        if row["known"].is_string() {
            known.push(text("known"));
        } else if row["step"].is_string() {
            steps.push(Step { text: text("step"), clause: text("clause") });
        } else {
            let received = bytes_of(&text("received")).unwrap_or_default();
            let sent: Vec<Vec<u8>> =
                row["sent"].as_array().into_iter().flatten().filter_map(|sent| bytes_of(print::word(sent))).collect();
            if row["verdict"] == "forward" {
                sent.iter().take(1).for_each(|sent| headers(&received, sent, &mut steps));
            }
            let reason = row["reason"].is_string();
            let reason = reason.then(|| Reason { name: text("reason"), cause: text("cause"), remedy: text("remedy") });
            let (received, verdict) = (describe(&received), text("verdict"));
            let sent = sent.iter().map(|sent| Leaving::of(None, sent)).collect();
            // The last one.
            while answer.next_row()?.is_some() {}
            return Ok(Report { from: None, received, known, steps, verdict, reason, sent });
        }
    }
    bail!("the gateway did not say what becomes of the packet")
}

/// What is asked about, in the words of the command line.
fn wanted(arguments: &Arguments) -> anyhow::Result<Asked> {
    let end = |text: &str| {
        // An address alone is an end of ICMP, or of what has no ports.
        let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
        text.parse::<SocketAddr>().or(address).with_context(|| format!("{text} is no address with a port"))
    };
    match arguments.packet.as_slice() {
        [packet] => Ok(Asked::Packet(digits_of(&bytes_of_argument(packet, arguments.number)?))),
        [protocol, source, destination] => Ok(Asked::Flow(Flow {
            protocol: protocol.clone(),
            source: end(source)?,
            destination: end(destination)?,
            softwire: arguments.softwire,
            later: arguments.later,
        })),
        _ => bail!("a packet is one word, or three: protocol, source, destination"),
    }
}

/// The packet of the argument: digits, or the file of that name.
fn bytes_of_argument(argument: &str, number: u64) -> anyhow::Result<Vec<u8>> {
    let path = Path::new(argument);
    if path.exists() {
        return from_capture(path, number);
    }
    let digits: String = argument.chars().filter(|digit| !digit.is_whitespace() && *digit != ':').collect();
    bytes_of(&digits)
        .with_context(|| format!("{argument} is neither a file nor a packet in hexadecimal digits, two for each byte"))
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
    fn of(side: Option<Side>, bytes: &[u8]) -> Self {
        Self { side: side.map(Side::name), packet: describe(bytes), hex: digits_of(bytes) }
    }
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        let from = self.from.map(|from| format!("from {from}: ")).unwrap_or_default();
        print::line(&format!("{from}{}", self.received))?;
        for known in &self.known {
            print::line(&format!("  in the tables: {known}"))?;
        }
        for Step { text, clause } in &self.steps {
            let clause = if clause.is_empty() { String::new() } else { format!("  [{clause}]") };
            print::line(&format!("  {text}{clause}"))?;
        }
        match &self.reason {
            Some(Reason { name, cause, remedy }) => {
                print::line(&format!("{}: {name}\n  {cause}\n  remedy: {remedy}", self.verdict))?;
            }
            None => print::line(&self.verdict)?,
        }
        for Leaving { side, packet, hex } in &self.sent {
            let to = side.map_or_else(|| "sent".to_owned(), |side| format!("to {side}"));
            print::line(&format!("{to}: {packet}\n  {hex}"))?;
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
    let mut add = |clause: &str, text: String| steps.push(Step { text, clause: clause.to_owned() });
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
