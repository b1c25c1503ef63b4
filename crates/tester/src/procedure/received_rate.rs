//! Received rate under overload (CSIT's "maximum receive rate"): frames are sent at the tester's
//! highest rate, and those that arrive right are counted. One trial, and no throughput: a gateway
//! may forward more or less while it drops than it does without loss.
//!
//! How busy the gateway's cores are then says little, for an overloaded one has nothing else to do;
//! so a second trial sends half of what arrived.

use serde_json::json;
use tombolo_generator::DirectionOutcome;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::phase_one;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;
use crate::trial::Trial;

/// Measures the sum of all directions, each of them, and the load of the gateway's cores.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let seconds = bench.effort.trial_seconds;
    phase_one::fill_for(2.0 * seconds, bench, known, observer)?;
    let rate = bench.tester_limit / bench.directions.count();
    let plan = bench.plain("received rate", bench.directions, rate, Effort::frames(rate, seconds));
    let overload = bench.valid_trial(&plan, observer)?;
    // Over the time of sending: what is still queued at the end arrives later.
    let received: Vec<f64> =
        overload.directions().map(|way| way.arrivals.received as f64 / seconds_of_sending(way)).collect();
    let details = json!({
        "offered_per_direction": rate, "sent": overload.sent(), "lost": overload.lost(),
        "loss_percent": overload.loss_percent(), "received_per_direction": received, "verdict": overload.verdict,
        "reasons": overload.reasons,
    });
    let measured = Measured::rate("received rate under overload", received.iter().sum(), "frames/s", details);
    let measured = match (overload.verdict, overload.lost()) {
        // A late sender offers less than asked, which is an overload all the same while frames are lost.
        (Verdict::Invalid, 0) => measured.without_value(format!("the trial is invalid: {}", overload.why())),
        (_, 0) => {
            measured.bounded(Bound::AtLeast, "nothing was lost, so nothing was overloaded: the tester set the limit")
        }
        _ => measured,
    };
    let mut all = vec![measured];
    all.extend(load("under overload", &overload, bench));
    all.extend(work_of_a_frame("under overload", &overload));
    let half = received.iter().copied().fold(f64::INFINITY, f64::min) / 2.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, far below 2^64")]
    let half = half as u64;
    if overload.worked_s.is_some() && half > 0 {
        let plan = bench.plain("half of the received rate", bench.directions, half, Effort::frames(half, seconds));
        let calm = bench.valid_trial(&plan, observer)?;
        all.extend(load("at half of the received rate", &calm, bench));
        all.extend(work_of_a_frame("at half of the received rate", &calm));
    }
    Ok(all)
}

/// Cycles and cache misses of the gateway's cores for each frame that arrived, where they are counted. What receives
/// the frames works there as well.
fn work_of_a_frame(when: &str, trial: &Trial) -> Vec<Measured> {
    let received = trial.arrived();
    let Some(work) = trial.core_work.filter(|_| received > 0) else { return Vec::new() };
    let each = |what: &str, unit: &'static str, count: u64| {
        let each = count as f64 / received as f64;
        let details = json!({ "count": count, "instructions": work.instructions, "received": received });
        let measured = Measured::cost(format!("{what} a frame, {when}"), each, unit, details);
        match trial.verdict {
            Verdict::Invalid => measured.doubted(format!("the trial is invalid: {}", trial.why())),
            _ => measured,
        }
    };
    let misses = work.cache_misses.map(|count| each("cache misses", "misses", count));
    [each("cycles", "cycles", work.cycles)].into_iter().chain(misses).collect()
}

/// What the gateway took of the cores that it has to itself while frames were sent, percent of all of
/// them.
fn load(when: &str, trial: &Trial, bench: &Bench) -> Option<Measured> {
    let longest = trial.directions().map(seconds_of_sending).fold(0.0, f64::max);
    let percent = 100.0 * trial.worked_s? / longest / bench.placement.gateway.len().max(1) as f64;
    let details = json!({ "processors_percent": trial.processors_percent });
    let measured = Measured::cost(format!("load of the gateway's cores, {when}"), percent, "%", details);
    Some(match trial.verdict {
        Verdict::Invalid => measured.doubted(format!("the trial is invalid: {}", trial.why())),
        _ => measured,
    })
}

fn seconds_of_sending(way: &DirectionOutcome) -> f64 {
    way.departures.last_ns.saturating_sub(way.departures.first_ns).max(1) as f64 / 1e9
}
