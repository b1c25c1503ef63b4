//! Reset (RFC 2544 section 26.6, RFC 6201): frames at the throughput rate while the gateway is
//! restarted as its operator would.
//!
//! Two reset times, as RFC 6201 section 4 has them: lost frames over the offered rate, and the
//! longest interruption by frame numbers (the frames are sent regardless, so consecutive missing
//! numbers are time).

use std::time::Duration;

use serde_json::json;

use super::known::Known;
use super::measured::Measured;
use super::{phase_one, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;

/// Measures both reset times.
///
/// # Errors
/// If the gateway cannot be restarted or trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let throughput = throughput::known_or_measured(bench, known, observer)?;
    phase_one::fill(bench, known, observer)?;
    // Losses without a reset would be counted as its cost, so some distance to the limit is kept.
    let rate = (throughput * 8 / 10).max(1);
    let seconds = bench.effort.reset_seconds;
    let plan = bench.plain("reset", bench.directions, rate, Effort::frames(rate, seconds));
    let when = Duration::from_secs_f64(seconds / 4.0);
    let mut took = None;
    let trial = bench.trial_with(&plan, observer, &mut |gateway, elapsed| {
        if took.is_none() && elapsed >= when {
            let started = std::time::Instant::now();
            gateway.reset()?;
            took = Some(started.elapsed());
        }
        Ok(())
    })?;
    let per_frame_ms = 1000.0 / rate as f64;
    let mut by_loss = 0.0f64;
    let mut by_gap = 0.0f64;
    let mut ended = true;
    for direction in trial.directions() {
        by_loss = by_loss.max(direction.lost() as f64 * per_frame_ms);
        let gap = direction.arrivals.bitmap.longest_gap();
        by_gap = by_gap.max(gap.map_or(0.0, |gap| f64::from(gap.length) * per_frame_ms));
        ended &=
            direction.arrivals.bitmap.last_missing().is_none_or(|last| last + 1 < direction.arrivals.bitmap.frames());
    }
    let details = json!({
        "rate": rate, "throughput_per_direction": throughput, "lost": trial.lost(), "seconds": seconds,
        "recovered_within_the_trial": ended, "restart_command_ms": took.map(|t| t.as_secs_f64() * 1000.0),
        "verdict": trial.verdict,
    });
    Ok(vec![
        Measured::cost("reset time, by lost frames", by_loss, "ms", details.clone()),
        Measured::cost("reset time, by the longest gap", by_gap, "ms", details),
    ])
}
