//! Latency (RFC 8219 section 7.2), packet delay variation (7.3.1) and inter-packet delay variation
//! (7.3.2), all at the throughput rate.
//!
//! Times are taken in the kernel: when the frame is handed to the interface, and when the
//! receiver's program meets it. On virtual links that is RFC 1242's latency of a bit-forwarding
//! device, first bit in to first bit out.

use serde_json::{Value, json};
use tombolo_generator::{Arrivals, Delays, DirectionOutcome};

use super::known::Known;
use super::measured::Measured;
use super::phase_one::{check_timeout, fill_rate};
use super::throughput;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;
use crate::summary::percentile;
use crate::trial::{Trial, TrialPlan, evenly_timed};

/// A stream that is disturbed is repeated; after so many times its result stands, marked as such.
const ATTEMPTS: u32 = 3;

/// Typical latency (median) and worst-case latency (99.9th percentile) of the timed frames,
/// microseconds.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn latency(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let seconds = bench.effort.latency_seconds;
    let (rate, trial) = stream(bench, known, observer, "latency", seconds, |plan, effort| TrialPlan {
        timed: Some(evenly_timed(plan.rate, plan.frames, effort.latency_from_seconds, effort.timed_frames)),
        ..plan
    })?;
    let mut measured = Vec::new();
    for (name, direction) in named_directions(&trial) {
        let mut delays: Vec<u64> = direction.arrivals.timed.iter().flatten().copied().collect();
        let lost = direction.arrivals.timed.len() - delays.len();
        let (Some(typical), Some(worst)) = (percentile(&mut delays, 500), percentile(&mut delays, 999)) else {
            continue;
        };
        let details = json!({ "rate": rate, "timed_frames": delays.len(), "timed_frames_lost": lost,
            "verdict": trial.verdict, "histogram_us": histogram(&direction.arrivals.delays) });
        measured.push(Measured::cost(format!("typical latency, {name}"), us(typical), "us", details.clone()));
        measured.push(Measured::cost(format!("worst-case latency, {name}"), us(worst), "us", details));
    }
    nonempty(measured, bench)
}

/// `D(99.9th percentile) - D(min)` of all frames, microseconds.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn pdv(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let seconds = bench.effort.variation_seconds;
    let (rate, trial) = stream(bench, known, observer, "pdv", seconds, |plan, _| plan)?;
    let mut measured = Vec::new();
    for (name, direction) in named_directions(&trial) {
        let delays = &direction.arrivals.delays;
        let (Some(high), Some(min)) = (with_losses(direction, 0.999), delays.min_ns()) else { continue };
        let details = json!({ "rate": rate, "frames": delays.count(), "lost": direction.lost(), "min_us": us(min),
            "p999_us": us(high), "max_us": delays.max_ns().map(us), "verdict": trial.verdict });
        measured.push(Measured::cost(
            format!("packet delay variation, {name}"),
            us(high.saturating_sub(min)),
            "us",
            details,
        ));
    }
    nonempty(measured, bench)
}

/// `D(i) - D(i - 1)` of successive frames: minimum, median and maximum, microseconds.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn ipdv(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let seconds = bench.effort.variation_seconds;
    let (rate, trial) =
        stream(bench, known, observer, "ipdv", seconds, |plan, _| TrialPlan { variation: true, ..plan })?;
    let mut measured = Vec::new();
    for (name, direction) in named_directions(&trial) {
        let Some([min, median, max]) = variation(&direction.arrivals) else { continue };
        let details =
            json!({ "rate": rate, "min_us": min, "median_us": median, "max_us": max, "verdict": trial.verdict });
        for (which, value) in [("minimum", min), ("median", median), ("maximum", max)] {
            measured.push(Measured::cost(format!("IPDV {which}, {name}"), value, "us", details.clone()));
        }
    }
    nonempty(measured, bench)
}

/// The stream at the throughput rate, repeated if it was disturbed.
fn stream(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
    purpose: &'static str,
    seconds: f64,
    adapt: impl Fn(TrialPlan, &Effort) -> TrialPlan,
) -> Result<(u64, Trial), BenchError> {
    let rate = throughput::known_or_measured(bench, known, observer)?;
    let fill_rate = fill_rate(bench, known, observer)?;
    check_timeout(bench, fill_rate, seconds)?;
    let mut attempt = 1;
    loop {
        bench.fill(fill_rate, observer)?;
        let plan = bench.plain(purpose, bench.directions, rate, Effort::frames(rate, seconds));
        let plan = adapt(plan, &bench.effort);
        let trial = bench.trial(&plan, observer)?;
        if trial.verdict == Verdict::Passed || attempt == ATTEMPTS {
            return Ok((rate, trial));
        }
        attempt += 1;
    }
}

/// Both directions, with their names.
fn named_directions(trial: &Trial) -> impl Iterator<Item = (&'static str, &DirectionOutcome)> {
    let forward = trial.outcome.forward.iter().map(|d| ("forward", d));
    forward.chain(trial.outcome.reverse.iter().map(|d| ("reverse", d)))
}

/// The percentile with lost frames counted as slower than any that arrived.
fn with_losses(direction: &DirectionOutcome, fraction: f64) -> Option<u64> {
    let delays = &direction.arrivals.delays;
    let all = delays.count() + direction.lost();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is at most the count")]
    let rank = (fraction * all as f64).ceil() as u64;
    delays.at_rank(rank.clamp(1, delays.count().max(1))).filter(|_| delays.count() > 0)
}

/// Minimum, median, maximum of the signed differences, microseconds.
fn variation(arrivals: &Arrivals) -> Option<[f64; 3]> {
    let (up, down) = (&arrivals.variations_up, &arrivals.variations_down);
    let (n_up, n_down) = (up.count(), down.count());
    let middle = (n_up + n_down).div_ceil(2);
    let signed =
        |delays: &Delays, ns: Option<u64>, sign: f64| ns.filter(|_| delays.count() > 0).map(|ns| sign * us(ns));
    let min = signed(down, down.max_ns(), -1.0).or_else(|| signed(up, up.min_ns(), 1.0))?;
    let max = signed(up, up.max_ns(), 1.0).or_else(|| signed(down, down.min_ns(), -1.0))?;
    let median = match middle <= n_down {
        true => signed(down, down.at_rank(n_down + 1 - middle), -1.0)?,
        false => signed(up, up.at_rank(middle - n_down), 1.0)?,
    };
    Some([min, median, max])
}

/// At most about 50 points, enough to draw.
fn histogram(delays: &Delays) -> Vec<Value> {
    let mut points: Vec<(u64, u64, u64)> = Vec::new();
    let total: u64 = delays.count().max(1);
    for (from, to, count) in delays.buckets() {
        match points.last_mut() {
            Some(last) if last.2 + count <= total / 50 => *last = (last.0, to, last.2 + count),
            _ => points.push((from, to, count)),
        }
    }
    points.into_iter().map(|(from, to, count)| json!([us(from), us(to), count])).collect()
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn nonempty(measured: Vec<Measured>, bench: &Bench) -> Result<Vec<Measured>, BenchError> {
    if measured.is_empty() {
        return Err(BenchError::Unsuitable(format!(
            "{}: no frame arrived, so there is no delay",
            bench.gateway.name()
        )));
    }
    Ok(measured)
}
