//! Throughput: the highest rate without loss (RFC 2544 section 26.1, RFC 8219 section 7.1); in
//! phase 2 for stateful gateways (RFC 9693 section 4.6).

use serde_json::json;

use super::known::Known;
use super::measured::Measured;
use super::phase_one::{check_timeout, fill_rate};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;

/// Searches the rate of each direction.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let seconds = bench.effort.trial_seconds;
    let fill_rate = fill_rate(bench, known, observer)?;
    check_timeout(bench, fill_rate, seconds)?;
    bench.fill(fill_rate, observer)?;
    let refill = bench.effort.refill_each_trial;
    let directions = bench.directions;
    let max = bench.tester_limit / directions.count();
    let mut fresh = true;
    let found = bench.search_rate(max, known.throughput, |bench, rate| {
        if refill && !fresh {
            bench.fill(fill_rate, observer)?;
        }
        fresh = false;
        let plan = bench.plain("throughput", directions, rate, Effort::frames(rate, seconds));
        bench.trial(&plan, observer)
    })?;
    known.throughput = Some(found.highest_passing);
    let details = json!({
        "per_direction": found.highest_passing,
        "lowest_not_passing": found.lowest_not_passing,
        "trials": found.trials,
        "fill_rate": fill_rate,
        "search_max": max,
    });
    let total = (found.highest_passing * directions.count()) as f64;
    Ok(vec![Measured::rate("throughput", total, "frames/s", details).searched(&found)])
}

/// The throughput, measured now if it is not known.
///
/// # Errors
/// What measuring returns; also if no rate at all passes.
pub(super) fn known_or_measured(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<u64, BenchError> {
    if known.throughput.is_none() {
        measure(bench, known, observer)?;
    }
    known.throughput.filter(|rate| *rate > 0).ok_or_else(|| {
        BenchError::Unsuitable(format!(
            "{}: loses frames at every rate, so there is no throughput",
            bench.gateway.name()
        ))
    })
}
