//! Whether connections live as long as a measurement takes (RFC 9693 section 4.4).

use std::time::Instant;

use crate::bench::{Bench, BenchError};
use crate::effort::{Effort, START_MS, age_at_the_end};

/// Refuses, before anything is sent, where connections would expire during the measurement.
///
/// # Errors
/// If the gateway's timeout is known and too short.
pub(crate) fn check_timeout(bench: &Bench, fill_rate: u64, seconds: f64) -> Result<(), BenchError> {
    let phase_one = f64::from(bench.tuples()) / fill_rate.max(1) as f64;
    bench.check_lifetime(phase_one + gap_seconds(&bench.effort) + seconds)
}

/// The same for connections whose first was made then, by the time that has really gone since.
///
/// # Errors
/// As [`check_timeout`].
pub(crate) fn check_age(bench: &Bench, began: Instant, seconds: f64) -> Result<(), BenchError> {
    bench.check_lifetime(age_at_the_end(began, seconds))
}

/// From the last frame of phase 1 to the first of the measurement: waiting for late frames, the
/// pause after the trial, and the start of the next one.
fn gap_seconds(effort: &Effort) -> f64 {
    (effort.drain_ms + effort.pause_ms + START_MS) as f64 / 1000.0
}
