//! Whether the tester tells gateways apart that differ by little, and only these: the throughput of
//! plain forwarding against itself, and of two forwarders of which one has a known 3 % less.
//!
//! What decides is the rate at which half of the trials lose 0.5 % at most, CSIT's partial-drop rate; beside it stands the throughput, the
//! highest rate that passes without loss, which a machine that takes its cores away now and then makes vary by more.
//!
//! Ratios are taken within repetitions, as in every series. Their middle and its interval are Hodges and Lehmann's: a disturbance of
//! the machine meets one of two that take turns as likely as the other, and all ratios count; the median's interval by order
//! statistics, which a series prints, rests on the middle ones alone and is a fifth wider.

use serde::Serialize;

use crate::bench::BenchError;
use crate::effort::Effort;
use crate::gateway::{Kind, Spec, Technology, between_ports::Faults};
use crate::procedure::{Bound, packet::Procedure};
use crate::results::ResultFile;
use crate::series::{Anew, Progress, SeriesPlan, SeriesResult};
use crate::trial::Directions;

/// Percent of the frames that a trial may lose then.
const TOLERATED: f64 = 0.5;
/// Trials of a repetition that go up and down around the throughput.
const TRIALS: u32 = 256;
/// Their length. What others do to a shared machine lasts some tenths of a second, so that it meets both of two gateways alike that take
/// turns eight times a second, and only one of two that do so every second.
const TRIAL_SECONDS: f64 = 0.05;
/// After so many trials the labs are made anew: where in memory they happen to lie is then no more than an eighth of a repetition.
const TRIALS_OF_A_LAB: u32 = 32;
/// Trials of a repetition of the forwarders whose limit is planted, and does not vary.
const TRIALS_OF_PLANTED: u32 = 16;
/// Far below what the forwarder can do, so that the plan alone decides: it copies frames by system calls, and takes 85 % of a core of a
/// virtual machine for 48,000 of them a second.
const FULL_RATE: u64 = 20_000;
const REDUCED_RATE: u64 = FULL_RATE * 97 / 100;
/// Of each comparison, where nobody asks for others.
pub const REPETITIONS: u32 = 20;
/// The highest rate that passes without loss.
const THROUGHPUT: &str = "throughput";
/// The interval of a gateway against itself has to be narrower.
const WIDEST: f64 = 0.02;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ResolvingPower {
    /// Plain forwarding against itself.
    pub itself: Comparison,
    /// The same by the highest rate that passes without loss: by how much more it varies.
    pub itself_at_most: Comparison,
    /// A forwarder with 97 % of the capacity of the other.
    pub reduced: Comparison,
}

/// Ratios of two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Middle of the ratios within repetitions.
    pub ratio: f64,
    /// In which the middle is in 95 of 100 such runs.
    pub interval: (f64, f64),
    /// Median of the ratios.
    pub median: f64,
    /// In which the median is in 95 of 100 such runs, whatever the machine does.
    pub median_interval: (f64, f64),
    /// The ratios are bounds, in at least one repetition: nothing follows from them then.
    pub bound: Option<Bound>,
    /// Repetitions.
    pub repetitions: usize,
    /// Trials, and how many of them were invalid.
    pub trials: (u32, u32),
}

impl ResolvingPower {
    /// Measures both, so many times.
    ///
    /// # Errors
    /// If a comparison has too few values for an interval, or the labs do not work here.
    pub fn measure(
        repetitions: u32,
        results: &mut ResultFile,
        progress: &mut dyn Progress,
    ) -> Result<ResolvingPower, BenchError> {
        let limited = |rate| Spec::Faulty(Faults { rate, ..Faults::default() });
        let mut itself = plan([Spec::PLAIN, Spec::Lab(Kind::Plain, Some("again".to_owned()))], None);
        itself.anew = Anew::Trials(TRIALS_OF_A_LAB);
        itself.effort =
            Effort { up_and_down_trials: TRIALS, trial_seconds: TRIAL_SECONDS, drain_ms: 10, ..itself.effort };
        // The planted limit is near: the search need not begin at the tester's. And it does not vary with the
        // machine's speed.
        let mut reduced = plan([limited(FULL_RATE), limited(REDUCED_RATE)], Some(4 * FULL_RATE));
        reduced.effort.up_and_down_trials = TRIALS_OF_PLANTED;
        (itself.effort.repetitions, reduced.effort.repetitions) = (repetitions, repetitions);
        let itself = itself.run(results, false, progress)?;
        Ok(ResolvingPower {
            itself: compare(&itself, |quantity| quantity != THROUGHPUT)?,
            itself_at_most: compare(&itself, |quantity| quantity == THROUGHPUT)?,
            reduced: compare(&reduced.run(results, false, progress)?, |quantity| quantity != THROUGHPUT)?,
        })
    }

    /// Whether a gateway is as fast as itself, to 2 %, and one that is not is told from it.
    pub fn is_good(&self) -> bool {
        self.itself.is_the_same() && self.reduced.is_slower()
    }
}

impl Comparison {
    /// The interval contains 1, and is narrow.
    pub fn is_the_same(&self) -> bool {
        let (low, high) = self.interval;
        self.bound.is_none() && low <= 1.0 && high >= 1.0 && high - low < WIDEST
    }

    /// How many repetitions would make the interval narrow enough on a machine that disturbs as this one did: its width goes with the root of
    /// their number. Nothing where it is.
    pub fn repetitions_needed(&self) -> Option<f64> {
        let (low, high) = self.interval;
        let times = (high - low) / WIDEST;
        (times >= 1.0).then(|| (times.powi(2) * self.repetitions as f64).ceil())
    }

    /// The interval is below 1, and the planted part in it or beside it by no more than 1 %.
    pub fn is_slower(&self) -> bool {
        let (low, high) = self.interval;
        self.bound.is_none() && high < 1.0 && low <= 0.98 && high >= 0.96
    }
}

fn plan(gateways: [Spec; 2], max_rate: Option<u64>) -> SeriesPlan {
    // A failure is verified, and the search looks upwards once more: neither a pause of the machine nor
    // a slower moment must decide it, and a virtual one has many of both.
    let effort = Effort {
        form: "self-test",
        repetitions: REPETITIONS,
        resolution: 0.002,
        trial_seconds: 0.2,
        verify_failures: 3,
        second_looks: 1,
        // Plain forwarding and the forwarder keep a frame for a millisecond at most: what is missing then
        // is lost, and most trials near the limit lose some.
        drain_ms: 50,
        repeat_invalid: 6,
        tolerated_loss_percent: TOLERATED,
        ..Effort::QUICK
    };
    SeriesPlan {
        technology: Some(Technology::Forward4),
        directions: Directions::Forward,
        max_rate,
        anew: Anew::Repetitions,
        ..SeriesPlan::new(Procedure::Throughput, gateways.into(), effort, "tombolo".into())
    }
}

fn compare(result: &SeriesResult, is_meant: impl Fn(&str) -> bool) -> Result<Comparison, BenchError> {
    let second = result.summaries.iter().filter(|summary| is_meant(&summary.quantity)).nth(1);
    let found = second
        .and_then(|second| Some((second.ratio?, second.ratio_interval?, second.ratio_centre?, second.ratio_bound)));
    let failed = || {
        let why = result.failures.first().map_or_else(|| "too few values".to_owned(), |(_, why)| why.clone());
        BenchError::Unsuitable(format!("the self-test has no interval: {why}"))
    };
    let (ratio, median_interval, centre, bound) = found.ok_or_else(failed)?;
    let sum = |of: fn(&crate::trial::Tally) -> u32| result.tallies.iter().map(|(_, tally)| of(tally)).sum();
    Ok(Comparison {
        ratio: centre.estimate,
        interval: centre.interval,
        median: ratio.median,
        median_interval,
        bound,
        repetitions: ratio.count,
        trials: (sum(|tally| tally.trials), sum(|tally| tally.invalid)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(low: f64, high: f64) -> Comparison {
        let (middle, interval) = (low.midpoint(high), (low, high));
        Comparison {
            ratio: middle,
            interval,
            median: middle,
            median_interval: interval,
            bound: None,
            repetitions: 20,
            trials: (100, 0),
        }
    }

    #[test]
    fn what_is_wide_or_beside_one_is_not_the_same() {
        assert!(of(0.995, 1.004).is_the_same());
        assert!(!of(0.98, 1.02).is_the_same() && !of(1.001, 1.004).is_the_same());
        assert_eq!(of(0.995, 1.004).repetitions_needed(), None);
        assert_eq!(of(0.98, 1.021).repetitions_needed(), Some(85.0));
    }

    #[test]
    fn nothing_follows_from_ratios_that_are_bounds() {
        let bounded = |low, high| Comparison { bound: Some(Bound::AtLeast), ..of(low, high) };
        assert!(!bounded(0.995, 1.004).is_the_same() && !bounded(0.965, 0.975).is_slower());
    }

    #[test]
    fn three_percent_are_seen_where_the_interval_is_there_and_without_one() {
        assert!(of(0.965, 0.975).is_slower());
        assert!(!of(0.96, 1.0).is_slower() && !of(0.99, 0.995).is_slower() && !of(0.90, 0.95).is_slower());
    }
}
