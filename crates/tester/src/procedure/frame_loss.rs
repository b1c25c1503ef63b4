//! Frame loss rate (RFC 2544 section 26.3): from the highest rate downwards in steps of at most 10
//! %, until two successive trials lose nothing.

use serde_json::json;

use super::known::Known;
use super::measured::Measured;
use super::phase_one;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;

/// Measures the curve; the value is the loss at the highest rate. A virtual link has no medium that
/// limits it, so 100 % is the tester's own limit.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    phase_one::fill(bench, known, observer)?;
    let directions = bench.directions;
    let max = bench.tester_limit / directions.count();
    let mut points = Vec::new();
    let mut clean = 0;
    let mut percent = 100u32;
    let mut at_highest = 0.0;
    while percent > 0 && clean < 2 {
        let rate = (max * u64::from(percent) / 100).max(1);
        let plan = bench.plain("frame loss", directions, rate, Effort::frames(rate, bench.effort.trial_seconds));
        let trial = bench.trial(&plan, observer)?;
        let loss = trial.loss_percent();
        if percent == 100 {
            at_highest = loss;
        }
        let valid = trial.verdict != Verdict::Invalid;
        points.push(json!({ "percent_of_max": percent, "rate": rate, "loss_percent": loss, "lost": trial.lost(),
            "sent": trial.sent(), "valid": valid }));
        clean = if trial.lost() == 0 { clean + 1 } else { 0 };
        percent = percent.saturating_sub(bench.effort.loss_step_percent.clamp(1, 10));
    }
    let details = json!({ "max_rate_per_direction": max, "points": points });
    Ok(vec![Measured::cost("frame loss at the highest rate", at_highest, "%", details)])
}
