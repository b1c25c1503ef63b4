//! What was counted, in rows.

use std::sync::atomic::Ordering;

use serde::Serialize;
use tombolo_engine::{DropReason, Plan};
use tombolo_wire::pcp::ResultCode;

use super::rows::{Failure, Rows};
use crate::accelerator::{Accelerator, Taken};
use crate::running::Running;

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CounterRow {
    counter: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<&'static str>,
    /// `engine` or `kernel`, where both count.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

impl CounterRow {
    const fn plain(counter: &'static str, value: u64) -> Self {
        Self { counter, side: None, path: None, reason: None, value, cause: None, remedy: None }
    }
}

/// Packets that were dropped or refused, of one service and for one reason.
#[derive(Debug, Serialize)]
struct DropRow<'p> {
    /// None of packets that are no service's.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'p str>,
    reason: &'static str,
    packets: u64,
    cause: &'static str,
    remedy: &'static str,
}

/// What was dropped since the start, and what is to be done about it.
pub(crate) fn drops(running: &Running, plan: &Plan, all: bool, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let mut others = running.totals().drops;
    let mut row = |service, reason: DropReason, packets| {
        let (reason, cause, remedy) = (reason.name(), reason.cause().trim(), reason.remedy());
        rows.row(&DropRow { service, reason, packets, cause, remedy })
    };
    for (number, service) in plan.numbered() {
        for (reason, count) in running.totals_of(number).drops() {
            others[reason as usize] = others[reason as usize].saturating_sub(count);
            row(Some(service.name.as_str()), reason, count)?;
        }
    }
    for &reason in DropReason::ALL {
        let count = others[reason as usize];
        if all || count > 0 {
            row(None, reason, count)?;
        }
    }
    if let Some(packets) = running.guard.dropped().filter(|&count| all || count > 0) {
        let (reason, cause, remedy) = (INSIDE_SPOOFED.name, INSIDE_SPOOFED.cause, INSIDE_SPOOFED.remedy);
        rows.row(&DropRow { service: None, reason, packets, cause, remedy })?;
    }
    Ok(())
}

/// What the kernel drops for the gateway.
struct KernelReason {
    name: &'static str,
    cause: &'static str,
    remedy: &'static str,
}

const INSIDE_SPOOFED: KernelReason = KernelReason {
    name: "inside-spoofed",
    cause: "A packet from inside came in where its source is not (RFC 3704).",
    remedy: "look at who sends it; or name the interfaces of the inside in gateway.inside_interfaces",
};

/// What all workers, the queues, the sweeps and the kernel's fast path have counted since the
/// start.
pub(crate) fn counters(running: &Running, all: bool, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let totals = running.totals();
    let taken = running.accelerator.as_ref().map(Accelerator::taken);
    for (number, side) in [(0, "inside"), (1, "outside")] {
        let mut row = |counter, path, value| {
            rows.row(&CounterRow { side: Some(side), path: Some(path), ..CounterRow::plain(counter, value) })
        };
        row("received", "engine", totals.received[number])?;
        row("received-bytes", "engine", totals.received_bytes[number])?;
        row("forwarded", "engine", totals.forwarded[number])?;
        if let Some(kernel) = taken.as_ref().map(Taken::forwarded) {
            row("forwarded", "kernel", kernel.packets[number])?;
            row("forwarded-bytes", "kernel", kernel.bytes[number])?;
        }
    }
    for (opcode, counts) in ["pcp-announce", "pcp-map", "pcp-peer", "pcp-other"].into_iter().zip(totals.pcp) {
        for (result, count) in ResultCode::ALL.iter().zip(counts).filter(|(_, count)| all || *count > 0) {
            rows.row(&CounterRow { reason: Some(result.name()), ..CounterRow::plain(opcode, count) })?;
        }
    }
    let queues = running.queue_totals();
    let swept = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    for (counter, value) in [
        ("to-host", totals.to_host),
        ("held", totals.held),
        ("replied", totals.replied),
        ("helper-unchanged", running.tables.conversations.unchanged()),
        ("queue-received", queues.received_packets),
        ("queue-received-bytes", queues.received_bytes),
        ("queue-received-unusable", queues.received_unusable),
        ("queue-sent", queues.sent_packets),
        ("queue-sent-bytes", queues.sent_bytes),
        ("expired-sessions", swept(&running.swept.expired_sessions)),
        ("expired-bindings", swept(&running.swept.expired_bindings)),
        ("expired-subscribers", swept(&running.swept.expired_subscribers)),
        ("unlogged-removals", running.removals.lost()),
    ] {
        if all || value > 0 {
            rows.row(&CounterRow::plain(counter, value))?;
        }
    }
    if let Some(value) = running.guard.dropped().filter(|&value| all || value > 0) {
        rows.row(&CounterRow {
            side: Some("inside"),
            path: Some("kernel"),
            reason: Some(INSIDE_SPOOFED.name),
            cause: Some(INSIDE_SPOOFED.cause),
            remedy: Some(INSIDE_SPOOFED.remedy),
            ..CounterRow::plain("dropped", value)
        })?;
    }
    for &reason in DropReason::ALL {
        let value = totals.drops[reason as usize];
        if all || value > 0 {
            rows.row(&CounterRow {
                // The programs in the kernel drop nothing: what is to be dropped is the engine's.
                path: Some("engine"),
                reason: Some(reason.name()),
                cause: Some(reason.cause().trim()),
                remedy: Some(reason.remedy()),
                ..CounterRow::plain("dropped", value)
            })?;
        }
    }
    Ok(())
}
