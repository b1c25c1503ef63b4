//! Packets as they pass, in rows: who wants to see them, and for how long.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use humantime::format_rfc3339_micros;
use serde::Serialize;
use serde_json::json;
use tombolo_engine::side::Side;
use tombolo_engine::{Plan, Verdict};
use tombolo_io::clock::monotonic_nanos;

use super::explain::digits_of;
use super::filter;
use super::request::Watched;
use super::rows::{Failure, Rows};
use crate::running::Running;
use crate::table_rows::service_name;
use crate::tap::seen::{End, Seen};
use crate::tap::summary::Summary;
use crate::tap::wanted::Wanted;
use crate::tap::{MOST, Tap};

/// How often what was seen is written.
const PERIOD: Duration = Duration::from_millis(50);
/// An hour, unless something else is asked for; a day at most.
const SECONDS: u64 = 3600;
const MOST_SECONDS: u64 = 86_400;
/// Lines a second.
const RATE: u32 = 1000;
const MOST_RATE: u32 = 20_000;

/// A packet, in a row.
#[derive(Debug, Serialize)]
struct PacketRow<'p> {
    time: String,
    /// `engine`, `xdp` or `tc`.
    path: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'p str>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
    #[serde(flatten)]
    received: Option<Received>,
    #[serde(flatten)]
    sent: Option<Sent>,
    /// In hexadecimal digits, and how many bytes it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_length: Option<usize>,
}

/// Headers of a packet, as members of a row whose names begin with some word.
macro_rules! headers {
    ($(#[doc = $doc:literal])* $name:ident: $($field:ident = $member:literal: $type:ty),+) => {
        $(#[doc = $doc])*
        #[derive(Debug, Serialize)]
        struct $name {
            $(#[serde(rename = $member, skip_serializing_if = "is_absent")] $field: Option<$type>,)+
        }

        impl From<Summary> for $name {
            fn from(packet: Summary) -> Self {
                let (ports, outer) = (packet.ports.unzip(), packet.outer.unzip());
                Self {
                    protocol: Some(packet.protocol_name()),
                    source: Some(packet.source),
                    source_port: ports.0,
                    destination: Some(packet.destination),
                    destination_port: ports.1,
                    softwire_source: outer.0,
                    softwire_destination: outer.1,
                    length: Some(packet.length),
                    hop_limit: Some(packet.hop_limit),
                    remarks: packet.remarks(),
                }
            }
        }
    };
}

headers! {
    /// Of the packet as it came.
    Received: protocol = "protocol": String, source = "source": IpAddr, source_port = "source_port": u16,
    destination = "destination": IpAddr, destination_port = "destination_port": u16,
    softwire_source = "softwire_source": Ipv6Addr, softwire_destination = "softwire_destination": Ipv6Addr,
    length = "length": usize, hop_limit = "hop_limit": u8, remarks = "remarks": String
}

headers! {
    /// Of what was sent for it.
    Sent: protocol = "sent_protocol": String, source = "sent_source": IpAddr, source_port = "sent_source_port": u16,
    destination = "sent_destination": IpAddr, destination_port = "sent_destination_port": u16,
    softwire_source = "sent_softwire_source": Ipv6Addr,
    softwire_destination = "sent_softwire_destination": Ipv6Addr,
    length = "sent_length": usize, hop_limit = "sent_hop_limit": u8, remarks = "sent_remarks": String
}

fn is_absent<T>(member: &Option<T>) -> bool {
    member.is_none()
}

/// Shows packets until there were enough, the time is over, or the client is gone.
pub(crate) fn trace(running: &Running, plan: &Plan, watched: &Watched, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let wanted = wanted(plan, watched).map_err(Failure::Refused)?;
    let until = Instant::now() + Duration::from_secs(watched.seconds.unwrap_or(SECONDS).min(MOST_SECONDS));
    let rate = watched.rate.unwrap_or(RATE).min(MOST_RATE);
    let (looking, seen, kernel) = Looking::begin(running, wanted)?;
    let mut queue = Queue { seen, young: Vec::new() };
    let mut left = watched.count.unwrap_or(u64::MAX);
    rows.row(&json!({ "begun": { "rate": rate, "kernel": kernel } }))?;
    rows.flush()?;
    let mut second = Instant::now();
    looking.tap.allow(rate);
    rows.follow(until, PERIOD, |rows| {
        if second.elapsed() >= Duration::from_secs(1) {
            second = Instant::now();
            looking.tap.allow(rate);
        }
        let until = monotonic_nanos();
        running.show_sightings();
        left -= queue.show(running, until, left, watched.packets, rows)?;
        Ok((looking.tap.take_lost(), left > 0))
    })
}

/// Lines on their way to the client.
struct Queue {
    seen: Receiver<Seen>,
    /// Those that are younger than what has been written.
    young: Vec<Seen>,
}

impl Queue {
    /// Writes what was seen until the moment `until`, the first one first, at most so many lines; says how
    /// many. Workers and programs have seen them each for itself, so what is younger may not be the next.
    fn show(
        &mut self,
        running: &Running,
        until: u64,
        most: u64,
        packets: bool,
        rows: &mut Rows<'_>,
    ) -> Result<u64, Failure> {
        self.young.extend(self.seen.try_iter());
        self.young.sort_by_key(|seen| seen.time);
        let ripe = self.young.partition_point(|seen| seen.time <= until);
        let count = ripe.min(usize::try_from(most).unwrap_or(usize::MAX));
        let plan = running.plan.load();
        for seen in self.young.drain(..count) {
            rows.row(&row(running, &plan, &seen, packets))?;
        }
        Ok(count as u64)
    }
}

fn row<'p>(running: &Running, plan: &'p Plan, seen: &Seen, packets: bool) -> PacketRow<'p> {
    let age = Duration::from_nanos(monotonic_nanos().saturating_sub(seen.time));
    let (verdict, reason, cause, remedy) = match seen.end {
        End::Verdict(verdict) => {
            let reason = verdict.reason();
            (verdict.name(), reason.map(|r| r.name()), reason.map(|r| r.cause().trim()), reason.map(|r| r.remedy()))
        }
        End::Passed(miss) => ("pass", Some(miss.name()), Some(miss.meaning().trim()), None),
    };
    let is_sent = !matches!(seen.end, End::Verdict(Verdict::ToHost));
    PacketRow {
        time: format_rfc3339_micros(SystemTime::now() - age).to_string(),
        path: seen.path.name(),
        interface: seen.interface.and_then(|number| running.accelerator.as_ref()?.name_of(number)),
        side: seen.side.map(|side| match side {
            Side::Inside => "inside",
            Side::Outside => "outside",
        }),
        service: seen.service.map(|number| service_name(plan, number)),
        verdict,
        reason,
        cause,
        remedy,
        received: seen.received.map(Received::from),
        sent: seen.sent.filter(|_| is_sent).map(Sent::from),
        packet: seen.bytes.as_ref().filter(|_| packets).map(|bytes| digits_of(&bytes.first)),
        packet_length: seen.bytes.as_ref().filter(|_| packets).map(|bytes| bytes.length),
    }
}

fn wanted(plan: &Plan, watched: &Watched) -> Result<Wanted, String> {
    let net = |name: &str, text: &Option<String>| text.as_deref().map(|text| filter::prefix(name, text)).transpose();
    Ok(Wanted {
        service: watched.service.as_deref().map(|name| filter::service(plan, name)).transpose()?,
        space: watched.protocol.as_deref().map(filter::protocol).transpose()?,
        port: watched.port,
        address: net("address", &watched.address)?,
        inside: net("inside", &watched.inside)?,
        outside: net("outside", &watched.outside)?,
        remote: net("remote", &watched.remote)?,
        drops: watched.drops,
        bytes: watched.packets,
    })
}

/// Packets are shown to somebody, until it is dropped.
struct Looking<'r> {
    running: &'r Running,
    tap: Arc<Tap>,
}

impl<'r> Looking<'r> {
    /// Begins. What is seen comes out of the receiver; the words say what the kernel's programs do about it.
    fn begin(running: &'r Running, wanted: Wanted) -> Result<(Self, Receiver<Seen>, String), Failure> {
        let asks_kernel = !wanted.drops;
        let (tap, seen) = Tap::new(wanted);
        if !running.taps.add(&tap) {
            return Err(Failure::Refused(format!("{MOST} clients look on already, and no more may at a time")));
        }
        let looking = Self { running, tap };
        let kernel = match (asks_kernel, &running.accelerator, running.follow_taps()) {
            (false, ..) => "it drops nothing".to_owned(),
            (_, None, _) => "there is no fast path".to_owned(),
            (.., Ok(())) => "shown".to_owned(),
            (.., Err(why)) => {
                tracing::warn!("a trace does not show what the fast path takes: {why}");
                format!("what the fast path takes is not shown: {why}")
            }
        };
        Ok((looking, seen, kernel))
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.running.taps.remove(&self.tap);
        if let Err(why) = self.running.follow_taps() {
            tracing::warn!("the programs of a trace stay until the next reload: {why}");
        }
    }
}
