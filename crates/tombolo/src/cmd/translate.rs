//! `tombolo translate`: captures through the engine, offline.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tombolo_engine::packet::{Offload, Packet};
use tombolo_io::pcap::{CaptureReader, CaptureWriter, LinkType};
use tombolo_io::queue::Buffer;

use super::format::Format;
use super::output::Output;
use super::print;
use crate::offline::{Offline, Side};

/// Captures in, captures out.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Packets that come from inside (pcap)
    #[arg(long, value_name = "PCAP", required_unless_present = "outside")]
    inside: Option<PathBuf>,
    /// Packets that come from outside (pcap); merged with those from inside by time
    #[arg(long, value_name = "PCAP")]
    outside: Option<PathBuf>,
    /// Where packets that leave on the inside go (pcap)
    #[arg(long, value_name = "PCAP")]
    inside_out: Option<PathBuf>,
    /// Where packets that leave on the outside go (pcap)
    #[arg(long, value_name = "PCAP")]
    outside_out: Option<PathBuf>,
    /// Seed of ports and identifications
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    pub(super) output: Output,
}

/// What became of one packet.
#[derive(Serialize)]
struct Line {
    from: &'static str,
    packet: u64,
    seconds: f64,
    bytes: usize,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    sent_inside: usize,
    sent_outside: usize,
}

/// The names of its members.
const LINE: &str = "from,packet,seconds,bytes,verdict,reason,sent_inside,sent_outside";

/// Runs the captures through the engine.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (mut gateway, warnings) = Offline::load(&arguments.config, arguments.seed)?;
    for warning in warnings {
        print::warning(&warning);
    }
    let mut sources = [
        Source::open(Side::Inside, arguments.inside.as_deref())?,
        Source::open(Side::Outside, arguments.outside.as_deref())?,
    ];
    let mut inside = Sink::create(arguments.inside_out.as_deref())?;
    let mut outside = Sink::create(arguments.outside_out.as_deref())?;
    let mut first = None;
    if arguments.output.format() == Format::Csv {
        print::line(LINE)?;
    }
    while let Some(source) = earliest(&mut sources) {
        let (side, number) = (source.side, source.number);
        let Some((at, mut packet)) = source.packet() else { break };
        let bytes = packet.len();
        let begin = *first.get_or_insert(at);
        let outcome = gateway.pass(side, at, &mut packet);
        let mut sent = [0, 0];
        for packet in &outcome.sent {
            let (sink, count) = match packet.side {
                Side::Inside => (&mut inside, &mut sent[0]),
                Side::Outside => (&mut outside, &mut sent[1]),
            };
            *count += 1;
            sink.write(at, &packet.bytes)?;
        }
        let (verdict, reason) = (outcome.verdict.name(), outcome.verdict.reason());
        let line = Line {
            from: side.name(),
            packet: number,
            seconds: at.saturating_sub(begin).as_secs_f64(),
            bytes,
            verdict,
            reason: reason.map(tombolo_engine::DropReason::name),
            sent_inside: sent[0],
            sent_outside: sent[1],
        };
        source.advance()?;
        line.print(arguments.output.format())?;
    }
    inside.finish()?;
    outside.finish()?;
    for source in &sources {
        source.report();
    }
    Ok(())
}

impl Line {
    fn print(&self, format: Format) -> anyhow::Result<()> {
        let Self { from, packet, seconds, bytes, verdict, sent_inside, sent_outside, reason } = self;
        match format {
            Format::Table => {}
            Format::Json => return print::line(&serde_json::to_string(self)?),
            Format::Csv => {
                let reason = reason.unwrap_or_default();
                return print::line(&format!(
                    "{from},{packet},{seconds},{bytes},{verdict},{reason},{sent_inside},{sent_outside}"
                ));
            }
        }
        let reason = self.reason.map(|reason| format!(" {reason}")).unwrap_or_default();
        print::line(&format!(
            "{from:<7} {packet:>6} {seconds:>12.6} {bytes:>6} bytes  {verdict}{reason}, {sent_inside} inside, \
             {sent_outside} outside"
        ))
    }
}

/// One capture, with its next packet read ahead.
struct Source {
    side: Side,
    reader: Option<CaptureReader<std::fs::File>>,
    buffer: Box<Buffer>,
    next: Option<(Duration, usize, usize)>,
    /// Of the frame, as whoever shows the capture counts them.
    number: u64,
}

impl Source {
    fn open(side: Side, path: Option<&Path>) -> anyhow::Result<Self> {
        let reader = path.map(CaptureReader::open).transpose()?;
        let mut source = Self { side, reader, buffer: Buffer::new(), next: None, number: 0 };
        source.advance()?;
        Ok(source)
    }

    fn advance(&mut self) -> anyhow::Result<()> {
        self.next = match &mut self.reader {
            None => None,
            Some(reader) => {
                reader.next_packet(&mut self.buffer)?.map(|(at, packet)| (at, packet.headroom(), packet.len()))
            }
        };
        self.number = self.reader.as_ref().map_or(0, CaptureReader::frames);
        Ok(())
    }

    /// The packet read ahead, and its time.
    fn packet(&mut self) -> Option<(Duration, Packet<'_>)> {
        let (at, headroom, length) = self.next?;
        Some((at, Packet::new(self.buffer.bytes_mut(), headroom, length, Offload::default())?))
    }

    fn report(&self) {
        let Some(reader) = &self.reader else { return };
        let skipped = reader.skipped();
        if skipped.not_ip + skipped.cut_short > 0 {
            let (not_ip, cut) = (skipped.not_ip, skipped.cut_short);
            print::warning(&format!(
                "{}: {not_ip} frames were not IP and {cut} were captured in part",
                self.side.name()
            ));
        }
    }
}

/// The capture whose next packet came first.
fn earliest(sources: &mut [Source; 2]) -> Option<&mut Source> {
    let at = |source: &Source| source.next.map(|(at, ..)| at);
    let [inside, outside] = sources;
    match (at(inside), at(outside)) {
        (None, None) => None,
        (Some(_), None) => Some(inside),
        (None, Some(_)) => Some(outside),
        (Some(a), Some(b)) => Some(if a <= b { inside } else { outside }),
    }
}

/// A capture that is written, or none.
struct Sink(Option<CaptureWriter<BufWriter<std::fs::File>>>);

impl Sink {
    fn create(path: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self(path.map(|path| CaptureWriter::create(path, LinkType::RawIp)).transpose()?))
    }

    fn write(&mut self, at: Duration, packet: &[u8]) -> anyhow::Result<()> {
        self.0.as_mut().map_or(Ok(()), |writer| Ok(writer.write(at, packet)?))
    }

    fn finish(self) -> anyhow::Result<()> {
        self.0.map_or(Ok(()), |writer| Ok(writer.finish().map(drop)?))
    }
}
