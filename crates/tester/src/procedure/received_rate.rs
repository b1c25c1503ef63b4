//! Received rate under overload (CSIT's "maximum receive rate"): frames are sent at the tester's
//! highest rate, and those that arrive right are counted. One trial, and no throughput: a gateway
//! may forward more or less while it drops than it does without loss.

use serde_json::json;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::phase_one;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;

/// Measures the sum of all directions, and each of them.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let seconds = bench.effort.trial_seconds;
    phase_one::fill_for(seconds, bench, known, observer)?;
    let rate = bench.tester_limit / bench.directions.count();
    let plan = bench.plain("received rate", bench.directions, rate, Effort::frames(rate, seconds));
    let trial = bench.valid_trial(&plan, observer)?;
    let per_direction: Vec<f64> = trial
        .directions()
        .map(|direction| {
            // Over the time of sending: what is still queued at the end arrives later.
            let span = direction.departures.last_ns.saturating_sub(direction.departures.first_ns).max(1);
            direction.arrivals.received as f64 * 1e9 / span as f64
        })
        .collect();
    let details = json!({
        "offered_per_direction": rate, "sent": trial.sent(), "lost": trial.lost(), "loss_percent": trial.loss_percent(),
        "received_per_direction": per_direction, "verdict": trial.verdict, "reasons": trial.reasons,
    });
    let measured = Measured::rate("received rate under overload", per_direction.iter().sum(), "frames/s", details);
    Ok(vec![match (trial.verdict, trial.lost()) {
        // A late sender offers less than asked, which is an overload all the same while frames are lost.
        (Verdict::Invalid, 0) => measured.without_value(format!("the trial is invalid: {}", trial.why())),
        (_, 0) => {
            measured.bounded(Bound::AtLeast, "nothing was lost, so nothing was overloaded: the tester set the limit")
        }
        _ => measured,
    }])
}
