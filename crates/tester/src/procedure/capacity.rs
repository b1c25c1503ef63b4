//! Capacity of the table of connections (RFC 9693 section 4.8).
//!
//! Phase 1 offers more connections than fit, at a low rate, and the responder answers each once: of
//! a gateway that keeps the first connections or the last ones, as many come back as the table
//! holds. That is then proved: exactly as many, offered to an empty table, must all come back.
//! Where they do not, the gateway gives up connections before its table is full (buckets that
//! overflow, say), and a search finds the largest number that it keeps whole. Where even a small part
//! of them does not come back whole, it is the rate that loses frames and not the table: such a
//! search would find a number without meaning, so the result is what was counted, as a lower bound.
//!
//! With 10^8 connections each phase lasts minutes, and a machine that is shared takes its cores away many times in them. So
//! a loss can be tolerated, of each phase; what was lost is never counted as kept.

use std::time::Instant;

use serde_json::json;

use super::connection_rate::Proof;
use super::known::Known;
use super::measured::{Bound, Measured, tolerating};
use crate::bench::{Bench, BenchError, Observer};
use crate::expiry::{check_age, check_timeout};
use crate::gateway::between_ports::TableCounts;
use crate::search::{Search, Verdict};
use crate::trial::{Trial, TrialPlan};

/// Times that a number of connections is tried before it counts as too large: a pause of the
/// machine loses frames, too.
const ATTEMPTS: u32 = 3;

/// The part of what a table kept that it must keep whole, or the rate is too high for a search.
const SMALL_PART: u32 = 64;
/// As many at least: fewer might pass between two losses.
const SMALLEST_PART: u32 = 1000;

/// Offers all tuples of the bench at a low rate, and finds how many are kept.
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
    let counted = offer(bench, rate, offered, observer)?;
    let enough = least_of(offered, bench.effort.tolerated_loss_percent);
    let full = counted.validated >= enough;
    let part = (counted.validated / SMALL_PART).max(SMALLEST_PART).min(counted.validated);
    let is_proved = full || keeps(bench, rate, counted.validated, observer)?;
    let is_too_fast = !is_proved && !keeps(bench, rate, part, observer)?;
    let (kept, method) = match (is_proved, is_too_fast) {
        (true, _) => (counted.validated, "counted, and proved by offering as many to an empty table"),
        (false, true) => (counted.validated, "counted"),
        (false, false) => {
            (search(bench, rate, counted.validated, observer)?, "searched: the largest number that is kept whole")
        }
    };
    let details = json!({
        "offered": offered, "rate": rate, "forwarded": counted.forwarded, "validated": counted.validated, "method": method,
        "gateway_counted": counted.gateway, "more_may_fit": full, "tester_paused_us": counted.paused_us,
        "tolerated_loss_percent": bench.effort.tolerated_loss_percent,
    });
    bench.gateway.flush()?;
    let unproven = unproven(counted.gateway, counted.validated);
    let quantity = tolerating("connection table capacity", bench.effort.tolerated_loss_percent);
    let measured = Measured::rate(quantity, f64::from(kept), "connections", details);
    let measured = match (full, is_too_fast) {
        (true, _) if counted.validated < offered => {
            let lost = offered - counted.validated;
            measured
                .bounded(Bound::AtLeast, format!("all that were offered fit, but for {lost} lost frames; offer more"))
        }
        (true, _) => measured.bounded(Bound::AtLeast, "all that were offered fit; offer more"),
        (false, true) => measured.bounded(
            Bound::AtLeast,
            format!(
                "at {rate} connections/s {part} do not come back whole either; offer them more slowly (--fill-rate)"
            ),
        ),
        (false, false) => measured,
    };
    let measured = unproven.into_iter().fold(measured, Measured::doubted);
    Ok(vec![match counted.invalid {
        Some(why) if !full => measured.doubted(format!("the counting trial was invalid: {why}")),
        _ => measured,
    }])
}

/// Why as many answers prove no table of as many connections: a binding lets the answers of many sessions in.
fn unproven(counts: Option<TableCounts>, validated: u32) -> Option<String> {
    match (TableCounts::kept(counts), counts.and_then(|counts| counts.bindings)) {
        ("bindings", Some(bindings)) => Some(format!("it counts bindings, and has {bindings}: those were kept")),
        _ => TableCounts::missing(counts, validated),
    }
}

/// What came of connections that were offered to an empty table.
struct Offered {
    forwarded: u64,
    validated: u32,
    gateway: Option<TableCounts>,
    paused_us: Option<u64>,
    /// Why a trial of the two was invalid.
    invalid: Option<String>,
}

fn offer(bench: &mut Bench, rate: u64, count: u32, observer: &mut dyn Observer) -> Result<Offered, BenchError> {
    let seconds = f64::from(count) / rate.max(1) as f64;
    // Phase 1 of so many connections, and as long again for the answers.
    check_timeout(bench, rate, seconds)?;
    bench.gateway.flush()?;
    let began = Instant::now();
    let tolerated_loss = bench.effort.tolerated_loss_percent;
    let offering = TrialPlan { purpose: "capacity", frames: count, tolerated_loss, ..bench.phase_one(rate) };
    let first = bench.trial(&offering, observer)?;
    let gateway = bench.gateway.counts();
    check_age(bench, began, seconds)?;
    let answers = TrialPlan { purpose: "capacity validation", ..bench.validation_after(&first, rate, count) };
    let back = bench.trial(&answers, observer)?;
    let invalid = [&first, &back].into_iter().find(|trial| trial.verdict == Verdict::Invalid).map(Trial::why);
    Ok(Offered {
        invalid,
        forwarded: first.arrived(),
        validated: u32::try_from(back.arrived()).unwrap_or(u32::MAX),
        gateway,
        paused_us: first.directions().map(|d| d.departures.late_max_ns / 1000).max(),
    })
}

/// How many of so many connections have to come back where so many percent may be lost, of each of two phases.
fn least_of(count: u32, tolerated_percent: f64) -> u32 {
    let kept = 1.0 - tolerated_percent / 100.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a count")]
    let least = (f64::from(count) * kept * kept).ceil() as u32;
    least
}

/// Whether an empty table keeps so many connections, all of them but for the loss that is tolerated.
fn keeps(bench: &mut Bench, rate: u64, count: u32, observer: &mut dyn Observer) -> Result<bool, BenchError> {
    let enough = least_of(count, bench.effort.tolerated_loss_percent);
    for _ in 0..ATTEMPTS {
        if count == 0 || offer(bench, rate, count, observer)?.validated >= enough {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The largest number of connections, to the resolution of the effort, that are all kept.
fn search(bench: &mut Bench, rate: u64, most: u32, observer: &mut dyn Observer) -> Result<u32, BenchError> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a million")]
    let resolution_ppm = (bench.effort.resolution * 1e6) as u64;
    let search = Search {
        max: u64::from(most),
        floor: 0,
        resolution: 1,
        resolution_ppm,
        verify_failures: 0,
        repeat_invalid: 0,
        hint: None,
        second_looks: 0,
    };
    let found = search.run(|count, bounds| {
        bench.bounds = Some(bounds);
        let kept = keeps(bench, rate, u32::try_from(count).unwrap_or(most), observer)?;
        Ok::<_, BenchError>(if kept { Verdict::Passed } else { Verdict::Failed })
    });
    bench.bounds = None;
    Ok(u32::try_from(found?.highest_passing).unwrap_or(most))
}

/// A rate at which no frame is lost for want of speed: a quarter of what a thousand connections can
/// be made at.
fn slow_rate(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<u64, BenchError> {
    let whole = bench.test_frames.shape;
    let ports = 1000u32.div_ceil(whole.b_ports.max(1)).clamp(1, whole.a_ports);
    bench.test_frames.shape.a_ports = ports;
    let found = super::connection_rate::search(bench, None, &mut Proof::default(), observer);
    bench.test_frames.shape = whole;
    let rate = (found?.highest_passing / 4).clamp(100, 50_000);
    known.fill_rate = Some(rate);
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_prove_no_more_connections_than_the_table_counts() {
        let counts = |sessions, bindings| Some(TableCounts { sessions, bindings });
        assert_eq!(unproven(None, 1000), None);
        assert_eq!(unproven(counts(Some(1000), Some(40)), 1000), None);
        let few = unproven(counts(Some(900), Some(40)), 1000).unwrap();
        assert!(few.contains("900 of 1000 sessions"), "{few}");
        let bindings = unproven(counts(Some(0), Some(40)), 1000).unwrap();
        assert_eq!(bindings, "it counts bindings, and has 40: those were kept");
    }

    #[test]
    fn what_may_be_lost_is_a_part() {
        assert_eq!((least_of(1000, 0.0), least_of(1000, 2.0), least_of(10, 2.0)), (1000, 961, 10));
    }
}
