//! Whether connections live as long as a measurement takes (RFC 9693 section 4.4).

use std::time::Instant;

use crate::bench::{Bench, BenchError};
use crate::effort::Effort;

/// Refuses, before anything is sent, where connections would expire during the measurement.
///
/// # Errors
/// If the gateway's timeout is known and too short.
pub(crate) fn check_timeout(bench: &Bench, fill_rate: u64, seconds: f64) -> Result<(), BenchError> {
    let phase_one = f64::from(bench.tuples()) / fill_rate.max(1) as f64;
    refuse_beyond(bench, phase_one + gap_seconds(&bench.effort) + seconds)
}

/// The same for connections whose first was made then, by the time that has really gone since.
///
/// # Errors
/// As [`check_timeout`].
pub(crate) fn check_age(bench: &Bench, began: Instant, seconds: f64) -> Result<(), BenchError> {
    refuse_beyond(bench, age_at_the_end(began, seconds))
}

/// Whether connections whose first was made then outlive a trial of so many seconds.
pub(crate) fn lasts(bench: &Bench, began: Instant, seconds: f64) -> bool {
    timeout(bench).is_none_or(|timeout| age_at_the_end(began, seconds) < timeout)
}

fn refuse_beyond(bench: &Bench, needed: f64) -> Result<(), BenchError> {
    let Some(timeout) = timeout(bench).filter(|timeout| needed >= *timeout) else { return Ok(()) };
    Err(BenchError::Unsuitable(format!(
        "{} forgets UDP connections after {timeout} s, but phase 1, the gap after it and the measurement take {needed:.1} s; raise its timeout, or \
         take fewer sessions or a shorter trial",
        bench.gateway.name()
    )))
}

/// How long the gateway keeps connections, where it has any and that is known.
fn timeout(bench: &Bench) -> Option<f64> {
    let is_stateful = bench.test_frames.technology.is_stateful();
    bench.gateway.udp_timeout_seconds().filter(|_| is_stateful).map(|seconds| seconds as f64)
}

fn age_at_the_end(began: Instant, seconds: f64) -> f64 {
    began.elapsed().as_secs_f64() + START_MS as f64 / 1000.0 + seconds
}

/// From the order to send to the first frame.
const START_MS: u64 = 200;

/// From the last frame of phase 1 to the first of the measurement: waiting for late frames, the
/// pause after the trial, and the start of the next one.
fn gap_seconds(effort: &Effort) -> f64 {
    (effort.drain_ms + effort.pause_ms + START_MS) as f64 / 1000.0
}
