//! Phase 1 of stateful procedures (RFC 9693 section 4.4): at which rate the table is filled, and
//! whether it stays filled for as long as the measurement takes.

use super::connection_rate;
use super::known::Known;
use crate::bench::{Bench, BenchError, Observer};
use crate::expiry::check_timeout;

/// Fills the table of a stateful gateway for a measurement of so many seconds; at which rate.
///
/// # Errors
/// What filling, and measuring the rate for it, returns; also if connections would expire.
pub(super) fn fill_for(
    seconds: f64,
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<u64, BenchError> {
    let rate = fill_rate(bench, known, observer)?;
    check_timeout(bench, rate, seconds)?;
    bench.fill(rate, observer)?;
    Ok(rate)
}

/// Rate at which phase 1 fills the table: safely below the connection establishment rate (RFC
/// 9693 section 4.4).
///
/// # Errors
/// What measuring the connection establishment rate returns.
pub(super) fn fill_rate(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<u64, BenchError> {
    if let Some(rate) = known.fill_rate {
        return Ok(rate);
    }
    if !bench.test_frames.technology.is_stateful() {
        return Ok(0);
    }
    if bench.effort.quick {
        return quick_fill_rate(bench, known, observer);
    }
    if known.connection_rate.is_none() {
        connection_rate::measure(bench, known, observer)?;
    }
    let rate = (known.connection_rate.unwrap_or(0) / 2).max(1000);
    known.fill_rate = Some(rate);
    Ok(rate)
}

/// A quick run takes the first of some modest rates at which the table can be filled at all.
fn quick_fill_rate(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<u64, BenchError> {
    let mut result = Ok(0);
    for rate in [50_000, 20_000, 5_000] {
        result = bench.fill(rate, observer).map(|()| rate);
        if !matches!(result, Err(BenchError::Unfilled { .. })) {
            break;
        }
    }
    known.fill_rate = Some(result?);
    Ok(known.fill_rate.unwrap_or(0))
}
