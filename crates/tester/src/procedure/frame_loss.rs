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
/// limits it, so 100 % is the tester's own limit. A point stands at the rate that was reached, and
/// one that the tester could not send in order is no value.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    phase_one::fill_for(bench.effort.trial_seconds, bench, known, observer)?;
    let directions = bench.directions;
    let max = bench.tester_limit / directions.count();
    let mut points = Vec::new();
    let mut clean = 0;
    let mut percent = 100u32;
    let mut at_highest: Option<(f64, f64)> = None;
    let mut invalid = Vec::new();
    while percent > 0 && clean < 2 {
        let rate = (max * u64::from(percent) / 100).max(1);
        let plan = bench.plain("frame loss", directions, rate, Effort::frames(rate, bench.effort.trial_seconds));
        let trial = bench.valid_trial(&plan, observer)?;
        let loss = trial.loss_percent();
        let reached = trial.reached_rate();
        let valid = trial.verdict != Verdict::Invalid;
        let point = json!({ "percent_of_max": reached * 100.0 / max as f64, "asked_rate": rate, "rate": reached,
            "loss_percent": loss, "lost": trial.lost(), "sent": trial.sent(), "valid": valid, "reasons": trial.reasons });
        points.push(point);
        match valid {
            true => at_highest = at_highest.or(Some((loss, reached))),
            false => invalid.push(percent),
        }
        clean = if valid && trial.lost() == 0 { clean + 1 } else { 0 };
        percent = percent.saturating_sub(bench.effort.loss_step_percent.clamp(1, 10));
    }
    let highest = at_highest.map(|(_, rate)| rate);
    let details = json!({ "max_rate_per_direction": max, "rate_of_value": highest, "points": points });
    let (loss, _) = at_highest.unwrap_or_default();
    let measured = Measured::cost("frame loss at the highest rate", loss, "%", details);
    let list = invalid.iter().map(|percent| format!("{percent} %")).collect::<Vec<_>>().join(", ");
    Ok(vec![match (highest, invalid.is_empty()) {
        (None, _) => measured.without_value("no point is valid: the tester could not send in order at any rate"),
        (Some(_), true) => measured,
        (Some(rate), false) => measured
            .doubted(format!("invalid and no part of the curve: {list}; the value is the loss at {rate:.0} frames/s")),
    }])
}
