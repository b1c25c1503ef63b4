//! Phase 1 of stateful procedures (RFC 9693 section 4.4): at which rate the table is filled, and
//! whether it stays filled for as long as the measurement takes.

use super::connection_rate;
use super::known::Known;
use crate::bench::{Bench, BenchError, MODEST_RATES, Observer};
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
    let wanted = fill_rate(bench, known, observer)?;
    check_timeout(bench, wanted, seconds)?;
    let rate = bench.fill(wanted, observer)?;
    check_timeout(bench, rate, seconds)?;
    known.fill_rate = Some(rate).filter(|rate| *rate > 0);
    Ok(rate)
}

/// Rate at which phase 1 fills the table: safely below the connection establishment rate (RFC
/// 9693 section 4.4); of a quick run, which does not measure that, a modest one.
///
/// # Errors
/// What measuring the connection establishment rate returns.
fn fill_rate(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<u64, BenchError> {
    if let Some(rate) = known.fill_rate {
        return Ok(rate);
    }
    if !bench.test_frames.technology.is_stateful() {
        return Ok(0);
    }
    if bench.effort.quick {
        return Ok(MODEST_RATES[0]);
    }
    if known.connection_rate.is_none() {
        connection_rate::measure(bench, known, observer)?;
    }
    Ok((known.connection_rate.unwrap_or(0) / 2).max(1000))
}
