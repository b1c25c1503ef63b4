//! Whether connections live as long as a measurement takes (RFC 9693 section 4.4).

use crate::bench::{Bench, BenchError};
use crate::effort::Effort;

/// Refuses where connections would expire during the measurement (RFC 9693 section 4.4).
///
/// # Errors
/// If the gateway's timeout is known and too short.
pub(super) fn check_timeout(bench: &Bench, fill_rate: u64, seconds: f64) -> Result<(), BenchError> {
    let Some(timeout) = bench.gateway.udp_timeout_seconds() else { return Ok(()) };
    if !bench.test_frames.technology.is_stateful() {
        return Ok(());
    }
    let needed = f64::from(bench.tuples()) / fill_rate.max(1) as f64 + gap_seconds(&bench.effort) + seconds;
    if needed < timeout as f64 {
        return Ok(());
    }
    Err(BenchError::Unsuitable(format!(
        "{} forgets UDP connections after {timeout} s, but phase 1, the gap after it and the measurement take {needed:.0} s; raise its timeout, or \
         take fewer sessions or a shorter trial",
        bench.gateway.name()
    )))
}

/// From the last frame of phase 1 to the first of the measurement: waiting for late frames, the
/// pause after the trial, and the start of the next one.
fn gap_seconds(effort: &Effort) -> f64 {
    let start_ms = 200;
    (effort.drain_ms + effort.pause_ms + start_ms) as f64 / 1000.0
}
