//! Capacity of the table of connections (RFC 9693 section 4.8).
//!
//! Two ways. Where the gateway keeps the first connections and refuses the others, phase 1 offers more than fit at a low rate,
//! and as many as are validated afterwards *are* the capacity. Otherwise the RFC's search: double the number until the
//! gateway collapses or its rate does, then bisect.

use serde_json::json;
use tombolo_generator::Order;

use super::packet::{Known, Measured};
use crate::bench::{Bench, BenchError, Observer};
use crate::trial::TrialPlan;

/// Offers all tuples of the bench at a low rate and counts those that are kept.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let offered = bench.tuples();
    let rate = match known.fill_rate {
        Some(rate) => rate,
        None => slow_rate(bench, known, observer)?,
    };
    bench.gateway.flush()?;
    let first = bench.trial(&TrialPlan { purpose: "capacity", ..bench.phase_one(rate) }, observer)?;
    let forwarded: u64 = first.directions().map(|d| d.arrivals.received).sum();
    let answer = TrialPlan {
        purpose: "capacity validation",
        reverse_order: Order::RecordsOnce { count: offered, seed: 1 },
        ..bench.validation(rate, offered)
    };
    let back = bench.trial(&answer, observer)?;
    let kept: u64 = back.directions().map(|d| d.arrivals.received).sum();
    let full = kept >= u64::from(offered);
    let details = json!({
        "offered": offered, "rate": rate, "forwarded": forwarded, "validated": kept,
        "gateway_counted": bench.gateway.sessions(), "more_may_fit": full,
        "tester_paused_us": first.directions().map(|d| d.departures.late_max_ns / 1000).max(),
    });
    bench.gateway.flush()?;
    let measured = Measured::rate("connection table capacity", kept as f64, "connections", details);
    Ok(vec![Measured { limited_by_tester: full, ..measured }])
}

/// A rate at which no frame is lost for want of speed: a quarter of what a thousand connections can be made at.
fn slow_rate(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<u64, BenchError> {
    let whole = bench.setup.shape;
    let ports = 1000u32.div_ceil(whole.b_ports.max(1)).clamp(1, whole.a_ports);
    bench.setup.shape.a_ports = ports;
    let found = super::connection_rate::search(bench, None, observer);
    bench.setup.shape = whole;
    let rate = (found?.highest_passing / 4).clamp(100, 50_000);
    known.fill_rate = Some(rate);
    Ok(rate)
}
