//! Reset (RFC 2544 section 26.6, RFC 6201): frames at the throughput rate while the gateway is
//! restarted as its operator would.
//!
//! Two reset times, as RFC 6201 section 4 has them: lost frames over the offered rate, and the
//! longest interruption by frame numbers (the frames are sent regardless, so consecutive missing
//! numbers are time). A stateful gateway is timed by frames from inside, which make their
//! connections again: answers to connections that are gone would count a table that was emptied as
//! an outage. How many connections survived is a result of its own.

use std::time::{Duration, Instant};

use serde_json::json;
use tombolo_generator::DirectionOutcome;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::{phase_one, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;
use crate::trial::Directions;

/// Measures both reset times, and of stateful gateways what survived.
///
/// # Errors
/// If the gateway cannot be restarted or trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let rate = throughput::known_or_measured(bench, known, observer)?;
    phase_one::fill_for(bench.effort.reset_seconds, bench, known, observer)?;
    let stateful = bench.test_frames.technology.is_stateful();
    let directions = if stateful { Directions::Forward } else { bench.directions };
    let seconds = bench.effort.reset_seconds;
    let plan = bench.plain("reset", directions, rate, Effort::frames(rate, seconds));
    let when = Duration::from_secs_f64(seconds / 4.0);
    let mut took = None;
    let trial = bench.trial_with(&plan, observer, &mut |gateway, elapsed| {
        if took.is_none() && elapsed >= when {
            let started = Instant::now();
            gateway.reset()?;
            took = Some(started.elapsed());
        }
        Ok(())
    })?;
    let Some(took) = took else {
        return Err(BenchError::Unsuitable(format!("{}: the trial ended before the restart", bench.gateway.name())));
    };
    let outage = trial.directions().map(Outage::of).fold(Outage::default(), Outage::longer);
    let per_frame_ms = 1000.0 / rate as f64;
    let details = json!({
        "rate": rate, "directions": directions, "lost": trial.lost(), "seconds": seconds,
        "recovered_within_the_trial": !outage.lasts, "restart_command_ms": took.as_secs_f64() * 1000.0,
        "lost_outside_of_the_longest_gap": outage.lost - u64::from(outage.gap), "verdict": trial.verdict,
        "reasons": trial.reasons,
    });
    let mark = |measured: Measured| {
        let measured = match outage.lasts {
            true => measured.bounded(Bound::AtLeast, "the gateway had not recovered when the trial ended"),
            false => measured,
        };
        match trial.verdict {
            Verdict::Invalid => measured.doubted(format!("the trial is invalid: {}", trial.why())),
            _ => measured,
        }
    };
    let by_loss = outage.lost as f64 * per_frame_ms;
    let by_gap = f64::from(outage.gap) * per_frame_ms;
    let mut measured = vec![
        mark(Measured::cost("reset time, by lost frames", by_loss, "ms", details.clone())),
        mark(Measured::cost("reset time, by the longest gap", by_gap, "ms", details)),
    ];
    if stateful {
        measured.push(survivors(bench, known, observer)?);
    }
    Ok(measured)
}

/// What one direction lost.
#[derive(Clone, Copy, Default)]
struct Outage {
    lost: u64,
    /// Frames of the longest gap.
    gap: u32,
    /// Its last frame is missing.
    lasts: bool,
}

impl Outage {
    fn of(direction: &DirectionOutcome) -> Outage {
        let bitmap = &direction.arrivals.bitmap;
        let gap = bitmap.longest_gap().map_or(0, |gap| gap.length);
        let lasts = bitmap.last_missing().is_some_and(|last| last + 1 >= bitmap.frames());
        Outage { lost: direction.lost().max(u64::from(gap)), gap, lasts }
    }

    fn longer(self, other: Outage) -> Outage {
        Outage { lost: self.lost.max(other.lost), gap: self.gap.max(other.gap), lasts: self.lasts || other.lasts }
    }
}

/// Connections from before the restart whose answers still come through.
fn survivors(bench: &mut Bench, known: &Known, observer: &mut dyn Observer) -> Result<Measured, BenchError> {
    let connections = bench.tuples();
    let rate = known.fill_rate.unwrap_or(10_000).max(1);
    let plan = bench.validation(rate, connections);
    let trial = bench.valid_trial(&plan, observer)?;
    let answered = trial.arrived();
    let share = answered as f64 * 100.0 / f64::from(connections.max(1));
    let details = json!({ "connections": connections, "answered": answered, "verdict": trial.verdict });
    let measured = Measured::rate("connections that outlived the reset", share, "%", details);
    Ok(match trial.verdict {
        Verdict::Invalid => measured.doubted(format!("the trial is invalid: {}", trial.why())),
        _ => measured,
    })
}
