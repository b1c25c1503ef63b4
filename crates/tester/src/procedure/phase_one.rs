//! Phase 1 of stateful procedures (RFC 9693 section 4.4): at which rate the table is filled, and
//! whether it stays filled for as long as the measurement takes.

use super::connection_rate;
use super::known::Known;
use crate::bench::{Bench, BenchError, Observer};
use crate::expiry::check_timeout;

/// The modest rates at which a quick run tries to fill a table, in connections a second, the fastest first.
const MODEST: [u64; 3] = [50_000, 20_000, 5_000];

/// Fills the table of a stateful gateway for a measurement of so many seconds; at which rate. A quick run in which the table was filled at a
/// rate once, and is not any more, goes on with the next slower one.
///
/// # Errors
/// What filling, and measuring the rate for it, returns; also if connections would expire.
pub(super) fn fill_for(
    seconds: f64,
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<u64, BenchError> {
    loop {
        let rate = fill_rate(bench, known, observer)?;
        check_timeout(bench, rate, seconds)?;
        match (bench.fill(rate, observer), slower_than(rate)) {
            (Err(BenchError::Unfilled { .. }), Some(slower)) if bench.effort.quick => known.fill_rate = Some(slower),
            (filled, _) => return filled.map(|()| rate),
        }
    }
}

fn slower_than(rate: u64) -> Option<u64> {
    MODEST.into_iter().find(|modest| *modest < rate)
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
    for rate in MODEST {
        result = bench.fill(rate, observer).map(|()| rate);
        if !matches!(result, Err(BenchError::Unfilled { .. })) {
            break;
        }
    }
    known.fill_rate = Some(result?);
    Ok(known.fill_rate.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_once_is_filled_slower_next_and_not_for_ever() {
        let rates: Vec<u64> = std::iter::successors(Some(MODEST[0]), |rate| slower_than(*rate)).collect();
        assert_eq!(rates, MODEST);
    }
}
