//! System recovery (RFC 2544 section 26.5): overload at 110 % of the throughput, then half of that;
//! the time from the drop of the rate to the last lost frame.

use serde_json::json;
use tombolo_generator::DirectionOutcome;

use super::known::Known;
use super::measured::Measured;
use super::{phase_one, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::trial::TrialPlan;

/// Measures the recovery time of the slower direction.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let throughput = throughput::known_or_measured(bench, known, observer)?;
    phase_one::fill(bench, known, observer)?;
    let limit = bench.tester_limit / bench.directions.count();
    let overload = (throughput * 110 / 100).min(limit).max(2);
    let relief = overload / 2;
    let seconds = bench.effort.overload_seconds;
    let switch = Effort::frames(overload, seconds);
    let frames = switch + Effort::frames(relief, seconds);
    let plan = TrialPlan {
        then: Some((switch, relief)),
        ..bench.plain("system recovery", bench.directions, overload, frames)
    };
    let trial = bench.trial(&plan, observer)?;
    let recovery = |direction: &DirectionOutcome| {
        let last = direction.arrivals.bitmap.last_missing().filter(|last| *last >= switch);
        last.map_or(0.0, |last| f64::from(last - switch + 1) * 1000.0 / relief as f64)
    };
    let slowest = trial.directions().map(recovery).fold(0.0, f64::max);
    let details = json!({
        "throughput_per_direction": throughput, "overload_rate": overload, "relief_rate": relief,
        "overload_seconds": seconds, "lost": trial.lost(), "was_overloaded": trial.lost() > 0,
        "overload_limited_by_tester": throughput * 110 / 100 > limit, "verdict": trial.verdict,
    });
    Ok(vec![Measured::cost("system recovery time", slowest, "ms", details)])
}
