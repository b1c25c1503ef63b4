//! `tombolo trace`, and `show drops --follow`: packets as they pass a running gateway.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use tombolo_daemon::control::client::ask;
use tombolo_daemon::control::explain::bytes_of;
use tombolo_daemon::control::request::{Request, Watched};
use tombolo_io::pcap::{CaptureWriter, LinkType};

use super::control::Gateway;
use super::format::Format;
use super::named::Named;
use super::output::Output;
use super::print;
use super::rows::{Cell, follow_rows};

/// Arguments of `tombolo trace`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    gateway: Gateway,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Which packets are shown, and how many.
#[derive(Debug, Args)]
pub(crate) struct Which {
    #[command(flatten)]
    named: Named,
    /// At most so many packets
    #[arg(long, value_name = "PACKETS")]
    count: Option<u64>,
    /// For so many seconds [default: 3600]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// At most so many packets a second [default: 1000]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: Option<u32>,
}

impl Which {
    /// Nothing is named.
    pub(crate) fn is_any(&self) -> bool {
        self.watched(false, false) == Watched::default()
    }

    fn watched(&self, drops: bool, packets: bool) -> Watched {
        let Named { service, protocol, address, inside, outside, remote, port } = self.named.clone();
        Watched {
            service,
            protocol,
            address,
            inside,
            outside,
            remote,
            port,
            drops,
            packets,
            count: self.count,
            seconds: self.seconds,
            rate: self.rate,
        }
    }
}

const TIME: Cell = Cell::Time("time");
const FROM: Cell = Cell::Endpoint { name: "from", address: "source", port: "source_port" };
const TO: Cell = Cell::Endpoint { name: "to", address: "destination", port: "destination_port" };
const PACKETS: &[Cell] = &[
    TIME,
    Cell::Text("path"),
    Cell::Text("interface"),
    Cell::Text("side"),
    Cell::Text("service"),
    Cell::Text("verdict"),
    Cell::Text("protocol"),
    FROM,
    TO,
    Cell::Number("length"),
    Cell::Text("remarks"),
    Cell::Endpoint { name: "sent_from", address: "sent_source", port: "sent_source_port" },
    Cell::Endpoint { name: "sent_to", address: "sent_destination", port: "sent_destination_port" },
    Cell::Number("sent_length"),
    Cell::Text("reason"),
    Cell::Text("remedy"),
];
const DROPS: &[Cell] = &[
    TIME,
    Cell::Text("side"),
    Cell::Text("service"),
    Cell::Text("verdict"),
    Cell::Text("protocol"),
    FROM,
    TO,
    Cell::Number("length"),
    Cell::Text("remarks"),
    Cell::Text("reason"),
    Cell::Text("remedy"),
];

/// Shows packets with what becomes of them.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { gateway, which, output } = arguments;
    let request = Request::Trace(which.watched(false, false));
    follow_rows(ask(gateway.name(), &request)?, PACKETS, output.format(), &mut note).map(drop)
}

/// Shows packets that are dropped, and writes them into a capture file.
pub(crate) fn drops(gateway: &Gateway, which: &Which, pcap: Option<&Path>, format: Format) -> anyhow::Result<()> {
    let mut capture = pcap.map(Capture::create).transpose()?;
    let request = Request::Trace(which.watched(true, capture.is_some()));
    let mut each = |row: &mut Value| {
        let is_note = note(row)?;
        if let (false, Some(capture)) = (is_note, &mut capture) {
            capture.write(row)?;
        }
        Ok(is_note)
    };
    follow_rows(ask(gateway.name(), &request)?, DROPS, format, &mut each).map(drop)
}

/// Says what is no packet to the standard error.
fn note(row: &mut Value) -> anyhow::Result<bool> {
    if let Some(begun) = row["begun"].as_object() {
        let kernel = begun.get("kernel").and_then(Value::as_str).unwrap_or_default();
        // Where the kernel's part is shown, or there is none, nothing is missing.
        if kernel.starts_with("what ") {
            print::warning(kernel);
        }
        return Ok(true);
    }
    if let Some(count) = row["not_shown"].as_u64() {
        print::warning(&format!("{count} more packets, which are not shown"));
        return Ok(true);
    }
    Ok(false)
}

/// A capture file that is written packet by packet, so that it is whole whenever this ends.
struct Capture {
    path: PathBuf,
    writer: CaptureWriter<File>,
}

impl Capture {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("{} cannot be made", path.display()))?;
        let writer = CaptureWriter::new(&path.display().to_string(), file, LinkType::RawIp)?;
        Ok(Self { path: path.to_owned(), writer })
    }

    /// Takes the packet out of its row, and writes it.
    fn write(&mut self, row: &mut Value) -> anyhow::Result<()> {
        let members = row.as_object_mut().context("the gateway has sent no row")?;
        let packet = members.remove("packet").as_ref().and_then(Value::as_str).and_then(bytes_of);
        let length = members.remove("packet_length").as_ref().and_then(Value::as_u64);
        let (Some(packet), Some(length)) = (packet, length) else { return Ok(()) };
        let time = humantime::parse_rfc3339(print::word(&row["time"]))?;
        let at = time.duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let length = usize::try_from(length)?;
        self.writer.write_part(at, &packet, length).with_context(|| format!("{}", self.path.display()))
    }
}
