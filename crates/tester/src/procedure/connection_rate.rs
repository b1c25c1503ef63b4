//! Maximum connection establishment rate, with validation (RFC 9693 sections 4.4 and 4.5).
//!
//! Each trial starts with an empty table. Phase 1 sends every four tuple exactly once at the rate
//! under test; then the responder answers each connection exactly once, at a part of that rate.
//! Both must be without loss: that a frame was forwarded does not prove that its connection was
//! kept.

use serde_json::json;

use super::known::Known;
use super::measured::Measured;
use crate::bench::{Bench, BenchError, Observer};
use crate::search::{Found, Verdict};
use crate::trial::Trial;

/// Validation rate over establishment rate (RFC 9693 "alpha", 0.5 to 0.8).
pub(super) const ALPHA_PERCENT: u64 = 80;

/// Measures the rate, one direction.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let found = search(bench, known.connection_rate, observer)?;
    known.connection_rate = Some(found.highest_passing);
    let details = json!({
        "connections": bench.tuples(), "alpha": ALPHA_PERCENT as f64 / 100.0, "trials": found.trials,
        "lowest_not_passing": found.lowest_not_passing,
    });
    let measured =
        Measured::rate("connection establishment rate", found.highest_passing as f64, "connections/s", details);
    Ok(vec![measured.searched(&found)])
}

/// The highest validated rate for the flows of the bench.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn search(bench: &mut Bench, hint: Option<u64>, observer: &mut dyn Observer) -> Result<Found, BenchError> {
    let max = bench.tester_limit;
    bench.search_rate(max, hint, |bench, rate| attempt(bench, rate, observer))
}

/// One attempt at one rate: the validation, or phase 1 if that did not pass.
///
/// # Errors
/// If it cannot be run.
fn attempt(bench: &mut Bench, rate: u64, observer: &mut dyn Observer) -> Result<Trial, BenchError> {
    bench.gateway.flush()?;
    let first = bench.trial(&bench.phase_one(rate), observer)?;
    if first.verdict != Verdict::Passed {
        return Ok(first);
    }
    let plan = bench.validation((rate * ALPHA_PERCENT / 100).max(1), bench.tuples());
    bench.trial(&plan, observer)
}
