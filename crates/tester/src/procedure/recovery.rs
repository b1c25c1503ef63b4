//! System recovery (RFC 2544 section 26.5): overload at 110 % of the throughput, then half of that;
//! the time from the drop of the rate to the last lost frame.

use serde_json::json;
use tombolo_generator::DirectionOutcome;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::{phase_one, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;
use crate::trial::TrialPlan;

/// Measures the recovery time of the slower direction. There is none where nothing was overloaded.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let throughput = throughput::known_or_measured(bench, known, observer)?;
    phase_one::fill_for(2.0 * bench.effort.overload_seconds, bench, known, observer)?;
    let limit = bench.tester_limit / bench.directions.count();
    let wanted = throughput * 110 / 100;
    let overload = wanted.min(limit).max(2);
    let relief = overload / 2;
    let seconds = bench.effort.overload_seconds;
    let switch = Effort::frames(overload, seconds);
    let frames = switch + Effort::frames(relief, seconds);
    let plan = TrialPlan {
        then: Some((switch, relief)),
        ..bench.plain("system recovery", bench.directions, overload, frames)
    };
    let trial = bench.valid_trial(&plan, observer)?;
    let recoveries: Vec<Recovery> = trial.directions().map(|d| Recovery::of(d, switch)).collect();
    let overloaded = recoveries.iter().any(|r| r.lost_in_overload);
    let last = recoveries.iter().map(|r| r.frames).max().unwrap_or(0);
    let details = json!({
        "throughput_per_direction": throughput, "overload_rate": overload, "relief_rate": relief,
        "overload_seconds": seconds, "lost": trial.lost(), "was_overloaded": overloaded,
        "overload_limited_by_tester": wanted > limit, "verdict": trial.verdict, "reasons": trial.reasons,
    });
    let slowest = f64::from(last) * 1000.0 / relief as f64;
    let measured = Measured::cost("system recovery time", slowest, "ms", details);
    Ok(vec![if !overloaded {
        let clamped = if wanted > limit { ", and the tester has no more" } else { "" };
        measured.without_value(format!("{overload} frames/s lost nothing, so nothing was overloaded{clamped}"))
    } else if trial.verdict == Verdict::Invalid {
        measured.without_value(format!("the trial is invalid: {}", trial.why()))
    } else if recoveries.iter().any(|r| r.still_losing) {
        measured.bounded(Bound::AtLeast, "frames were still lost when the trial ended")
    } else {
        measured
    }])
}

/// What one direction did after the drop of the rate.
struct Recovery {
    lost_in_overload: bool,
    /// Frames from the drop to the last lost one.
    frames: u32,
    still_losing: bool,
}

impl Recovery {
    fn of(direction: &DirectionOutcome, switch: u32) -> Recovery {
        let bitmap = &direction.arrivals.bitmap;
        let last = bitmap.last_missing().filter(|last| *last >= switch);
        // The last twentieth of the relief must be free of loss.
        let quiet = (bitmap.frames().saturating_sub(switch) / 20).max(1);
        Recovery {
            lost_in_overload: bitmap.gaps().next().is_some_and(|gap| gap.first < switch),
            frames: last.map_or(0, |last| last - switch + 1),
            still_losing: last.is_some_and(|last| last + quiet >= bitmap.frames()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tombolo_generator::{Arrivals, Bitmap, Departures};

    use super::*;

    fn recovery(missing: &[u32]) -> Recovery {
        let arrivals = Arrivals::empty(Bitmap::without(2000, missing));
        Recovery::of(&DirectionOutcome { departures: Departures::default(), pauses: Vec::new(), arrivals }, 1000)
    }

    #[test]
    fn only_a_loss_before_the_drop_is_an_overload() {
        let nothing = recovery(&[]);
        assert!(!nothing.lost_in_overload && nothing.frames == 0 && !nothing.still_losing);
        let recovered = recovery(&[900, 1009]);
        assert!(recovered.lost_in_overload && recovered.frames == 10 && !recovered.still_losing);
        assert!(recovery(&[900, 1990]).still_losing);
        assert!(!recovery(&[1500]).lost_in_overload);
    }
}
