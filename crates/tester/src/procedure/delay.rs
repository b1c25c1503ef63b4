//! Latency (RFC 8219 section 7.2), packet delay variation (7.3.1) and inter-packet delay variation
//! (7.3.2), all at the throughput rate.
//!
//! Times are taken in the kernel: when the frame is handed to the interface, and when the
//! receiver's program meets it. On virtual links that is RFC 1242's latency of a bit-forwarding
//! device, first bit in to first bit out.

use serde_json::{Value, json};
use tombolo_generator::{Arrivals, Delays, DirectionOutcome};

use super::packet::{Known, Measured, check_timeout, timed};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;
use crate::summary::percentile;
use crate::trial::{Trial, TrialPlan};

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
        timed: Some(timed(plan.rate, plan.frames, effort.latency_from_seconds, effort.timed_frames)),
        ..plan
    })?;
    let mut measured = Vec::new();
    for (way, direction) in ways(&trial) {
        let mut delays: Vec<u64> = direction.arrivals.timed.iter().flatten().copied().collect();
        let lost = direction.arrivals.timed.len() - delays.len();
        let (Some(typical), Some(worst)) = (percentile(&mut delays, 500), percentile(&mut delays, 999)) else {
            continue;
        };
        let details = json!({ "rate": rate, "timed_frames": delays.len(), "timed_frames_lost": lost,
            "verdict": trial.verdict, "histogram_us": histogram(&direction.arrivals.delays) });
        let (tl, wcl) = names(way, "typical latency", "worst-case latency");
        measured.push(Measured::cost(tl, us(typical), "us", details.clone()));
        measured.push(Measured::cost(wcl, us(worst), "us", details));
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
    for (way, direction) in ways(&trial) {
        let delays = &direction.arrivals.delays;
        let (Some(high), Some(min)) = (with_losses(direction, 0.999), delays.min_ns()) else { continue };
        let details = json!({ "rate": rate, "frames": delays.count(), "lost": direction.lost(), "min_us": us(min),
            "p999_us": us(high), "max_us": delays.max_ns().map(us), "verdict": trial.verdict });
        let (name, _) = names(way, "packet delay variation", "");
        measured.push(Measured::cost(name, us(high.saturating_sub(min)), "us", details));
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
    for (way, direction) in ways(&trial) {
        let Some([min, median, max]) = variation(&direction.arrivals) else { continue };
        let details =
            json!({ "rate": rate, "min_us": min, "median_us": median, "max_us": max, "verdict": trial.verdict });
        let (smallest, middle) = names(way, "IPDV minimum", "IPDV median");
        let (largest, _) = names(way, "IPDV maximum", "");
        for (name, value) in [(smallest, min), (middle, median), (largest, max)] {
            measured.push(Measured::cost(name, value, "us", details.clone()));
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
    let rate = known.throughput(bench, observer)?;
    let fill_rate = known.fill_rate(bench, observer)?;
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

fn ways(trial: &Trial) -> impl Iterator<Item = (Way, &DirectionOutcome)> {
    let forward = trial.outcome.forward.iter().map(|d| (Way::Forward, d));
    forward.chain(trial.outcome.reverse.iter().map(|d| (Way::Reverse, d)))
}

#[derive(Clone, Copy)]
enum Way {
    Forward,
    Reverse,
}

/// The quantities' names, with their direction.
fn names(way: Way, first: &str, second: &str) -> (&'static str, &'static str) {
    let of = |what: &str| match (way, what) {
        (Way::Forward, "typical latency") => "typical latency, forward",
        (Way::Reverse, "typical latency") => "typical latency, reverse",
        (Way::Forward, "worst-case latency") => "worst-case latency, forward",
        (Way::Reverse, "worst-case latency") => "worst-case latency, reverse",
        (Way::Forward, "packet delay variation") => "packet delay variation, forward",
        (Way::Reverse, "packet delay variation") => "packet delay variation, reverse",
        (Way::Forward, "IPDV minimum") => "IPDV minimum, forward",
        (Way::Reverse, "IPDV minimum") => "IPDV minimum, reverse",
        (Way::Forward, "IPDV median") => "IPDV median, forward",
        (Way::Reverse, "IPDV median") => "IPDV median, reverse",
        (Way::Forward, "IPDV maximum") => "IPDV maximum, forward",
        (Way::Reverse, "IPDV maximum") => "IPDV maximum, reverse",
        _ => "",
    };
    (of(first), of(second))
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
