//! Throughput: the highest rate without loss (RFC 2544 section 26.1, RFC 8219 section 7.1); in
//! phase 2 for stateful gateways (RFC 9693 section 4.6).

use serde_json::json;

use super::known::Known;
use super::measured::Measured;
use super::phase_one::fill_rate;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::expiry::check_timeout;
use crate::search::Verdict;
use crate::trial::Trial;

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
    let mut losses = Losses::default();
    let found = bench.search_rate(max, known.throughput, |bench, rate| {
        if refill && !fresh {
            bench.fill(fill_rate, observer)?;
        }
        fresh = false;
        let plan = bench.plain("throughput", directions, rate, Effort::frames(rate, seconds));
        let trial = bench.trial(&plan, observer)?;
        losses.note(rate, &trial);
        Ok(trial)
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
    let measured = Measured::rate("throughput", total, "frames/s", details);
    let measured = match found.highest_passing {
        0 => measured.without_value(format!("no rate passed; the last trial: {}", losses.last_reasons)),
        _ => measured.searched(&found),
    };
    Ok(vec![match losses.regardless_of_rate() {
        Some(percent) => measured.doubted(format!(
            "some {percent:.3} % are lost at every rate: a longer trial has a lower throughput, for the limit is not the rate"
        )),
        None => measured,
    }])
}

/// What the trials that lost frames lost, in percent, by rate.
#[derive(Default)]
struct Losses {
    by_rate: Vec<(u64, f64)>,
    /// Why the last trial that did not pass did not.
    last_reasons: String,
}

impl Losses {
    fn note(&mut self, rate: u64, trial: &Trial) {
        if trial.verdict != Verdict::Passed {
            self.last_reasons = trial.why();
        }
        if trial.verdict == Verdict::Failed && trial.lost() > 0 {
            self.by_rate.push((rate, trial.loss_percent()));
        }
    }

    /// The loss, where it does not grow with the rate. Overload does: what is above the capacity is
    /// lost, nothing at the capacity and half of it at twice that. A loss that is the same at rates
    /// far apart has another cause, and the rate that passed only had trials too short to meet it.
    fn regardless_of_rate(&self) -> Option<f64> {
        let (lowest, at_lowest) = self.by_rate.iter().copied().min_by_key(|(rate, _)| *rate)?;
        let (highest, at_highest) = self.by_rate.iter().copied().max_by_key(|(rate, _)| *rate)?;
        let apart = highest as f64 >= 1.5 * lowest as f64;
        (apart && at_lowest * 3.0 >= at_highest).then_some(at_lowest)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(of: impl Fn(f64) -> f64) -> Losses {
        let rates = [4_000_000u64, 2_000_000, 1_000_000, 600_000, 520_000];
        Losses { by_rate: rates.map(|rate| (rate, of(rate as f64))).to_vec(), ..Losses::default() }
    }

    #[test]
    fn overload_grows_with_the_rate_and_a_planted_loss_does_not() {
        let capacity = 500_000.0;
        assert_eq!(losses(|rate| 100.0 * (1.0 - capacity / rate)).regardless_of_rate(), None);
        assert_eq!(losses(|_| 0.02).regardless_of_rate(), Some(0.02));
        let near_the_limit = Losses { by_rate: vec![(510_000, 2.0), (520_000, 4.0)], ..Losses::default() };
        assert_eq!((near_the_limit.regardless_of_rate(), Losses::default().regardless_of_rate()), (None, None));
    }
}
