//! Latency (RFC 8219 section 7.2), packet delay variation (7.3.1) and inter-packet delay variation
//! (7.3.2), all at the throughput rate.
//!
//! Times are taken in the kernel: when the frame is handed to the interface, and when the
//! receiver's program meets it. On virtual links that is RFC 1242's latency of a bit-forwarding
//! device, first bit in to first bit out.

use serde_json::{Value, json};
use tombolo_generator::{Arrivals, Delays, DirectionOutcome};

use super::known::Known;
use super::measured::{Bound, Measured};
use super::phase_one::fill_for;
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
        let lost = direction.arrivals.timed.iter().filter(|delay| delay.is_none()).count();
        let (Some(typical), Some(worst)) = (timed_percentile(direction, 500), timed_percentile(direction, 999)) else {
            continue;
        };
        let details = json!({ "rate": rate, "timed_frames": direction.arrivals.timed.len(), "timed_frames_lost": lost,
            "verdict": trial.verdict, "histogram_us": histogram(&direction.arrivals.delays) });
        for (which, delay) in [("typical", typical), ("worst-case", worst)] {
            let latency = Measured::cost(format!("{which} latency, {name}"), us(delay.ns), "us", details.clone());
            measured.push(mark(latency, &trial, direction, delay.is_exceeded));
        }
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
        let (high, is_exceeded) = (high.ns, high.is_exceeded);
        let details = json!({ "rate": rate, "frames": delays.count(), "lost": direction.lost(), "min_us": us(min),
            "p999_us": us(high), "max_us": delays.max_ns().map(us), "verdict": trial.verdict });
        let pdv =
            Measured::cost(format!("packet delay variation, {name}"), us(high.saturating_sub(min)), "us", details);
        measured.push(mark(pdv, &trial, direction, is_exceeded));
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
            let ipdv = Measured::cost(format!("IPDV {which}, {name}"), value, "us", details.clone());
            measured.push(mark(ipdv, &trial, direction, false));
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
    let mut attempt = 1;
    loop {
        fill_for(seconds, bench, known, observer)?;
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

/// A delay at a percentile, lost frames counted as slower than any that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Percentile {
    ns: u64,
    /// The percentile is a lost frame: it is slower than this, the slowest that arrived.
    is_exceeded: bool,
}

/// Marks a value of a stream that was not all that the procedure asks for.
fn mark(measured: Measured, trial: &Trial, direction: &DirectionOutcome, is_exceeded: bool) -> Measured {
    let (lost, sent) = (direction.lost(), direction.departures.sent);
    let measured = match is_exceeded {
        true => measured.bounded(Bound::AtLeast, "the percentile is a lost frame; this is the slowest that arrived"),
        false => measured,
    };
    match (trial.verdict, lost) {
        (Verdict::Passed, _) => measured,
        (_, 1..) => {
            measured.doubted(format!("the stream lost {lost} of {sent} frames in the last of {ATTEMPTS} attempts"))
        }
        _ => measured.doubted(trial.why()),
    }
}

/// The percentile, in thousandths, of the timed frames.
fn timed_percentile(direction: &DirectionOutcome, thousandths: usize) -> Option<Percentile> {
    let mut delays: Vec<u64> = direction.arrivals.timed.iter().flatten().copied().collect();
    let slowest = delays.iter().max().copied()?;
    delays.resize(direction.arrivals.timed.len(), u64::MAX);
    let ns = percentile(&mut delays, thousandths)?;
    Some(Percentile { ns: ns.min(slowest), is_exceeded: ns == u64::MAX })
}

/// The percentile of all frames.
fn with_losses(direction: &DirectionOutcome, fraction: f64) -> Option<Percentile> {
    let delays = &direction.arrivals.delays;
    let all = delays.count() + direction.lost();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is at most the count")]
    let rank = (fraction * all as f64).ceil() as u64;
    let is_exceeded = rank > delays.count();
    let ns = if is_exceeded { delays.max_ns() } else { delays.at_rank(rank.max(1)) };
    ns.filter(|_| delays.count() > 0).map(|ns| Percentile { ns, is_exceeded })
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

#[cfg(test)]
mod tests {
    use tombolo_generator::{Bitmap, Departures};

    use super::*;

    fn timed(delays: &[Option<u64>]) -> DirectionOutcome {
        let arrivals = Arrivals { timed: delays.to_vec(), ..Arrivals::empty(Bitmap::without(1, &[])) };
        DirectionOutcome { departures: Departures::default(), pauses: Vec::new(), arrivals }
    }

    #[test]
    fn lost_frames_are_slower_than_any_that_arrived() {
        let all: Vec<Option<u64>> = (1..=1000).map(Some).collect();
        assert_eq!(timed_percentile(&timed(&all), 999), Some(Percentile { ns: 999, is_exceeded: false }));
        let mut some_lost = all;
        some_lost[..2].fill(None);
        assert_eq!(timed_percentile(&timed(&some_lost), 500), Some(Percentile { ns: 502, is_exceeded: false }));
        assert_eq!(timed_percentile(&timed(&some_lost), 999), Some(Percentile { ns: 1000, is_exceeded: true }));
        assert_eq!(timed_percentile(&timed(&[None, None]), 500), None);
    }
}
