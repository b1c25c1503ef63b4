//! Metrics over HTTP, in Prometheus' text format 0.0.4. They derive from the same counters as
//! `tombolo show counters`, and reasons from the one list of [`DropReason`].

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tombolo_engine::{DropReason, Plan};
use tombolo_fastpath::Miss;
use tombolo_io::queue::{QueueTotals, Refusal};

use crate::accelerator::{Accelerator, Taken};
use crate::health::State;
use crate::listener::{self, Stream, Within};
use crate::running::Running;
use crate::table_rows::{protocol_name, service_name};

/// How long a client may take for its whole request, and for nothing of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest head of an HTTP request in bytes.
const LONGEST: usize = 8192;

/// Serves the metrics of a running gateway.
#[derive(Debug)]
pub struct Metrics(pub Arc<Running>);

impl listener::Service for Metrics {
    fn serve(&self, stream: &mut dyn Stream, crowded: bool) {
        // Whoever went away needs no answer.
        let _ = self.answer(stream, crowded);
    }
}

impl Metrics {
    fn answer(&self, stream: &mut dyn Stream, crowded: bool) -> io::Result<()> {
        if crowded {
            return respond(stream, "503 Service Unavailable", "too many clients\n");
        }
        let head = read_head(&mut Within::new(stream, PATIENCE))?;
        stream.set_deadlines(PATIENCE, PATIENCE)?;
        match requested(&head) {
            Ok(()) => respond(stream, "200 OK", &render(&self.0)),
            Err(status) => respond(stream, status, "metrics are at /metrics\n"),
        }
    }
}

/// The head of a request, up to the empty line.
fn read_head(stream: &mut impl io::Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST {
        match stream.read(&mut piece)? {
            0 => break,
            length => head.extend_from_slice(&piece[..length]),
        }
    }
    Ok(head)
}

/// Whether the metrics are asked for, or the status of the refusal.
fn requested(head: &[u8]) -> Result<(), &'static str> {
    let line = head.split(|&byte| byte == b'\r').next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or("");
    let mut words = line.split(' ');
    match (words.next(), words.next().map(|target| target.split('?').next()), words.next()) {
        (Some("GET"), Some(Some("/metrics")), Some(version)) if version.starts_with("HTTP/1.") => Ok(()),
        (Some("GET"), Some(_), Some(version)) if version.starts_with("HTTP/") => Err("404 Not Found"),
        (Some(_), Some(_), Some(version)) if version.starts_with("HTTP/") => Err("405 Method Not Allowed"),
        _ => Err("400 Bad Request"),
    }
}

fn respond(stream: &mut dyn Stream, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())
}

/// The page under construction.
struct Page(String);

impl Page {
    /// A metric: its samples are labels, in braces or empty, and values.
    fn metric(&mut self, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        let _ = write!(self.0, "# HELP tombolo_{name} {help}\n# TYPE tombolo_{name} {kind}\n");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "tombolo_{name}{labels} {value}");
        }
    }
}

fn one(value: u64) -> [(String, u64); 1] {
    [(String::new(), value)]
}

/// Samples by side, of the engine and of the kernel's fast path.
fn sides(engine: [u64; 2], kernel: [u64; 2]) -> impl Iterator<Item = (String, u64)> {
    let paths = [("engine", engine), ("kernel", kernel)].into_iter();
    paths.flat_map(|(path, values)| {
        ["inside", "outside"]
            .into_iter()
            .zip(values)
            .map(move |(side, value)| (format!("{{side=\"{side}\",path=\"{path}\"}}"), value))
    })
}

/// All metrics of a running gateway.
#[must_use]
pub fn render(running: &Running) -> String {
    let mut page = Page(String::with_capacity(8192));
    let plan = running.plan.load_full();
    packets(&mut page, running);
    queues(&mut page, running);
    state(&mut page, running, &plan);
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    page.metric("build_info", "gauge", "The version that runs.", [(version, 1)]);
    let draining = u64::from(plan.times.draining_since.is_some());
    if let Some(dropped) = running.guard.dropped() {
        let help = "Packets from inside that came in where their source is not (RFC 3704).";
        page.metric("inside_spoofed_total", "counter", help, one(dropped));
    }
    page.metric("draining", "gauge", "1 while nothing new may begin.", one(draining));
    let (health, _) = running.health.report();
    let states = State::ALL.map(|state| (format!("{{state=\"{}\"}}", state.name()), u64::from(state == health)));
    page.metric("health", "gauge", "1 for how the gateway does; tombolo show status says what is wrong.", states);
    let put_back = running.put_back.load(Ordering::Relaxed);
    page.metric(
        "put_back_total",
        "counter",
        "Routes, rules, addresses put back after somebody removed them.",
        one(put_back),
    );
    page.metric("workers", "gauge", "Threads that handle packets.", one(running.counters.len() as u64));
    page.0
}

fn packets(page: &mut Page, running: &Running) {
    let totals = running.totals();
    let taken = running.accelerator.as_ref().map(Accelerator::taken).unwrap_or_default();
    let Taken { forwarded, forwarded_bytes, .. } = taken;
    // What the kernel takes, it takes to send it on.
    let received = sides(totals.received, forwarded);
    page.metric("packets_received_total", "counter", "Packets received.", received);
    let bytes = sides(totals.received_bytes, forwarded_bytes);
    page.metric("bytes_received_total", "counter", "Bytes received, IP headers included.", bytes);
    let sent = sides(totals.forwarded, forwarded);
    page.metric("packets_forwarded_total", "counter", "Packets translated and sent on.", sent);
    page.metric("packets_to_host_total", "counter", "Packets that were not the gateway's.", one(totals.to_host));
    page.metric("packets_held_total", "counter", "Packets kept for later, mostly fragments.", one(totals.held));
    page.metric(
        "packets_replied_total",
        "counter",
        "Packets answered: with an ICMP error, or with an echo reply.",
        one(totals.replied),
    );
    let drops = DropReason::ALL
        .iter()
        .map(|&reason| (format!("{{reason=\"{}\"}}", reason.name()), totals.drops[reason as usize]));
    page.metric("packets_dropped_total", "counter", "Packets not forwarded; see docs/drop-reasons.md.", drops);
    if running.accelerator.is_some() {
        let left = Miss::ALL.iter().map(|reason| {
            (format!("{{reason=\"{}\"}}", reason.name()), taken.passed.get(reason).copied().unwrap_or(0))
        });
        page.metric(
            "fastpath_left_total",
            "counter",
            "Packets that the fast path left to the engine or the host.",
            left,
        );
        let made = [("bindings", taken.bindings_made), ("sessions", taken.sessions_made)];
        let made = made.map(|(table, count)| (format!("{{table=\"{table}\"}}"), count));
        if let Some(lost) = taken.lost {
            let about = "Packets that XDP has redirected and the kernel has not sent; they count as forwarded, too.";
            page.metric("fastpath_lost_total", "counter", about, one(lost));
        }
        page.metric(
            "fastpath_to_stack_total",
            "counter",
            "Packets that the fast path translated and the kernel's stack routed.",
            one(taken.to_stack),
        );
        page.metric("fastpath_made_total", "counter", "Entries made in the kernel.", made);
    }
}

/// What the queues of the device have received and sent, and what it refused.
fn queues(page: &mut Page, running: &Running) {
    let queues: Vec<QueueTotals> = running.queues.iter().map(|queue| queue.read()).collect();
    let both = |counts: fn(&QueueTotals) -> [u64; 2]| {
        let samples = queues.iter().enumerate().flat_map(move |(number, queue)| {
            let named = ["received", "sent"].into_iter().zip(counts(queue));
            named.map(move |(name, count)| (format!("{{queue=\"{number}\",direction=\"{name}\"}}"), count))
        });
        samples.collect::<Vec<_>>()
    };
    let packets = both(|queue| [queue.received_packets, queue.sent_packets]);
    page.metric("queue_packets_total", "counter", "Packets of the device's queues; a super-packet is one.", packets);
    let bytes = both(|queue| [queue.received_bytes, queue.sent_bytes]);
    page.metric("queue_bytes_total", "counter", "Bytes of the device's queues.", bytes);
    let numbered = || queues.iter().enumerate();
    let unusable = numbered().map(|(number, queue)| (format!("{{queue=\"{number}\"}}"), queue.received_unusable));
    page.metric("queue_unusable_total", "counter", "Packets received with a header that makes no sense.", unusable);
    let refused = numbered().flat_map(|(number, queue)| {
        let counts = Refusal::ALL.into_iter().zip(queue.refused);
        counts.map(move |(why, count)| (format!("{{queue=\"{number}\",reason=\"{}\"}}", why.name()), count))
    });
    page.metric("queue_refused_total", "counter", "Packets sent that the device did not take.", refused);
}

fn state(page: &mut Page, running: &Running, plan: &Plan) {
    let tables = &running.tables;
    let capacity = [
        ("subscribers", u64::from(tables.subscribers.capacity())),
        ("bindings", u64::from(tables.bindings.capacity())),
        ("sessions", plan.capacity.sessions),
    ];
    let capacity = capacity.map(|(table, room)| (format!("{{table=\"{table}\"}}"), room));
    page.metric("table_capacity", "gauge", "Entries that there is room for.", capacity);
    page.metric("subscribers", "gauge", "Subscribers with state.", one(u64::from(tables.subscribers.count())));
    // Unknown until the first sweep is complete, some ten seconds after the start.
    page.metric("sessions", "gauge", "Sessions, as of the last sweep.", running.sessions().map(|n| (String::new(), n)));
    page.metric("sessions_overflowed", "gauge", "Sessions in the overflow table.", one(tables.sessions.overflowed()));
    page.metric("bindings", "gauge", "Bindings: outside ports in use.", bindings(running, plan));
    let swept = &running.swept;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let expired = [
        ("sessions", read(&swept.expired_sessions)),
        ("bindings", read(&swept.expired_bindings)),
        ("subscribers", read(&swept.expired_subscribers)),
    ];
    let expired = expired.map(|(table, count)| (format!("{{table=\"{table}\"}}"), count));
    page.metric("expired_total", "counter", "Entries that expired.", expired);
    page.metric(
        "unlogged_removals_total",
        "counter",
        "Removed bindings that were not logged.",
        one(running.removals.lost()),
    );
}

/// Bindings by service and protocol.
fn bindings(running: &Running, plan: &Plan) -> Vec<(String, u64)> {
    const PROTOCOLS: [u8; 3] = [6, 17, 1];
    let bindings = &running.tables.bindings;
    let mut counts = vec![[0_u64; 3]; plan.services.len()];
    for (binding, _) in bindings.iter().filter_map(|id| bindings.read(id)) {
        let column = PROTOCOLS.iter().position(|&protocol| protocol == binding.inside.protocol);
        if let (Some(counts), Some(column)) = (counts.get_mut(usize::from(binding.inside.service)), column) {
            counts[column] += 1;
        }
    }
    let stateful = plan.numbered().filter(|(_, service)| service.kind.pool().is_some());
    let samples =
        stateful.flat_map(|(number, _)| PROTOCOLS.into_iter().enumerate().map(move |column| (number, column)));
    let samples = samples.map(|(number, (column, protocol))| {
        let (service, protocol) = (service_name(plan, number), protocol_name(protocol));
        let labels = format!("{{service=\"{service}\",protocol=\"{protocol}\"}}");
        (labels, counts[usize::from(number)][column])
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_get_metrics_is_served() {
        assert_eq!(requested(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(()));
        assert_eq!(requested(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"), Ok(()));
        assert_eq!(requested(b"GET / HTTP/1.1\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(requested(b"POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        for wrong in [b"".as_slice(), b"GET", b"\xff\xfe", b"GET /metrics", b"\r\n\r\n"] {
            assert_eq!(requested(wrong), Err("400 Bad Request"));
        }
    }
}
