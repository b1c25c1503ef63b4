//! What was counted, in rows.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::rows::{Failure, Rows};
use crate::accelerator::Accelerator;
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

/// What all workers, the sweeps and the kernel's fast path have counted since the start.
pub(crate) fn counters(running: &Running, all: bool, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let totals = running.totals();
    let taken = running.accelerator.as_ref().map(Accelerator::taken);
    let plain =
        |counter, side, path, value| CounterRow { counter, side, path, reason: None, value, cause: None, remedy: None };
    for (number, side) in [(0, "inside"), (1, "outside")] {
        let mut row = |counter, path, value| rows.row(&plain(counter, Some(side), Some(path), value));
        row("received", "engine", totals.received[number])?;
        row("received-bytes", "engine", totals.received_bytes[number])?;
        row("forwarded", "engine", totals.forwarded[number])?;
        if let Some(taken) = &taken {
            row("forwarded", "kernel", taken.forwarded[number])?;
            row("forwarded-bytes", "kernel", taken.forwarded_bytes[number])?;
        }
    }
    let swept = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    for (counter, value) in [
        ("to-host", totals.to_host),
        ("held", totals.held),
        ("replied", totals.replied),
        ("expired-sessions", swept(&running.swept.expired_sessions)),
        ("expired-bindings", swept(&running.swept.expired_bindings)),
        ("expired-subscribers", swept(&running.swept.expired_subscribers)),
        ("unlogged-removals", running.removals.lost()),
    ] {
        if all || value > 0 {
            rows.row(&plain(counter, None, None, value))?;
        }
    }
    let kernel = taken.map(|taken| taken.dropped).unwrap_or_default();
    for &reason in tombolo_engine::DropReason::ALL {
        let (cause, remedy) = (Some(reason.cause().trim()), Some(reason.remedy()));
        let values = [("engine", totals.drops[reason as usize]), ("kernel", kernel.get(&reason).copied().unwrap_or(0))];
        for (path, value) in values.into_iter().filter(|&(path, value)| value > 0 || all && path == "engine") {
            let (counter, path, reason) = ("dropped", Some(path), Some(reason.name()));
            rows.row(&CounterRow { counter, side: None, path, reason, value, cause, remedy })?;
        }
    }
    Ok(())
}
