//! The rate that half of the trials pass, by going up and down around the throughput (Dixon and Mood 1948, Levitt 1971):
//! after a trial that passed the next one is a step faster, after one that failed a step slower, and the mean of the
//! rates is the value. The next one begins there: on the way down from a throughput that was luck, the machine's noise shortens the
//! steps before the way is gone, and its rest would count.
//!
//! A search for the highest rate that passes (RFC 2544) ends at the luckiest of its trials. Here every trial counts as much as
//! every other, and none is far from the rate that is sought: with half a percent of loss tolerated it is the partial-drop rate
//! of MLRsearch (exceed ratio one half) by fewer trials. The two values do not belong into one column.

use serde_json::json;

use super::known::Known;
use super::measured::{Bound, Measured, tolerating};
use super::phase_one::fill_for;
use super::steps::Steps;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Verdict;
use crate::trial::{Directions, TrialPlan};

/// First step, as a part of the rate. It is halved at each turn until it is the last one, and doubled where three lead the same way.
const FIRST_STEP: f64 = 0.04;
const LONGEST_STEP: f64 = 0.5;
/// The step of the trials that count.
const LAST_STEP: f64 = 0.01;
/// Steps the same way after which longer ones are due.
const SAME_WAY: u32 = 3;

/// Turns around a rate under way.
pub(super) struct UpAndDown {
    walk: Walk,
    /// Percent of the frames that may be lost.
    tolerated: f64,
    directions: Directions,
    fill_rate: u64,
    /// Phase 1 has just filled the table.
    is_fresh: bool,
}

impl UpAndDown {
    /// Fills the table of a stateful gateway and begins at what came of it before, else at its throughput.
    ///
    /// # Errors
    /// What filling returns.
    pub(super) fn begin(
        tolerated: f64,
        bench: &mut Bench,
        known: &mut Known,
        observer: &mut dyn Observer,
    ) -> Result<UpAndDown, BenchError> {
        let fill_rate = fill_for(bench.effort.trial_seconds, bench, known, observer)?;
        let max = bench.tester_limit / bench.directions.count();
        let from = known.passed_by_half.or(known.throughput).unwrap_or(0);
        let walk = Walk::new(from, max, bench.effort.up_and_down_trials);
        Ok(UpAndDown { walk, tolerated, directions: bench.directions, fill_rate, is_fresh: true })
    }
}

impl Steps for UpAndDown {
    fn try_once(&mut self, bench: &mut Bench, observer: &mut dyn Observer) -> Result<bool, BenchError> {
        let Some(rate) = self.walk.wanted() else { return Ok(false) };
        if bench.effort.refill_each_trial && !self.is_fresh {
            self.fill_rate = bench.fill(self.fill_rate, observer)?;
        }
        self.is_fresh = false;
        let frames = Effort::frames(rate, bench.effort.trial_seconds);
        let plan = bench.plain("up and down", self.directions, rate, frames);
        let trial = bench.trial(&TrialPlan { tolerated_loss: self.tolerated, ..plan }, observer)?;
        self.walk.note(trial.verdict);
        Ok(true)
    }

    fn end(self: Box<Self>, known: &mut Known) -> Measured {
        known.passed_by_half = self.walk.is_complete().then(|| self.walk.next_start()).or(known.passed_by_half);
        let Walk { counted, invalid, started_with, max, .. } = &self.walk;
        let is_at_the_top = self.walk.is_at_the_top();
        let per_direction = if counted.is_empty() && is_at_the_top { *max as f64 } else { self.walk.mean() };
        let details = json!({
            "per_direction": per_direction, "trials": counted.len(), "rates": counted, "invalid_trials": invalid,
            "trials_before": started_with, "step": LAST_STEP, "fill_rate": self.fill_rate, "search_max": max,
            "tolerated_loss_percent": self.tolerated,
        });
        let value = per_direction * self.directions.count() as f64;
        let measured =
            Measured::rate(tolerating("throughput of half of the trials", self.tolerated), value, "frames/s", details);
        match () {
            () if is_at_the_top => measured.bounded(Bound::AtLeast, "the highest that was tried passed"),
            () if self.walk.is_complete() => measured,
            () => measured.without_value(format!(
                "{} of {} trials around the throughput count: {invalid} were invalid, {started_with} came before the first turns",
                counted.len(),
                self.walk.asked
            )),
        }
    }
}

/// Where it goes.
struct Walk {
    rate: u64,
    max: u64,
    step: f64,
    /// Trials that are to count.
    asked: usize,
    /// Whether the last valid trial passed, and how many in a row came out like it.
    last: Option<(bool, u32)>,
    /// The rates of the trials that count.
    counted: Vec<u64>,
    /// Valid trials before those.
    started_with: usize,
    invalid: usize,
}

impl Walk {
    fn new(rate: u64, max: u64, trials: u32) -> Walk {
        Walk {
            rate: rate.min(max),
            max,
            step: FIRST_STEP,
            asked: trials as usize,
            last: None,
            counted: Vec::new(),
            started_with: 0,
            invalid: 0,
        }
    }

    /// The rate of the next trial; none once it has ended. As many may be invalid, or come before the first turns, as are
    /// to count.
    fn wanted(&self) -> Option<u64> {
        let is_stuck = self.rate == 0 || self.invalid > self.asked || self.started_with > self.asked;
        (!self.is_complete() && !is_stuck).then_some(self.rate)
    }

    /// The largest rate was wanted, so that there was no way up from it; or it passed, and nothing led down from it.
    fn is_at_the_top(&self) -> bool {
        let ended_there = self.rate == self.max && self.last.is_some_and(|(has_passed, _)| has_passed);
        self.counted.contains(&self.max) || (self.counted.is_empty() && ended_there)
    }

    fn is_complete(&self) -> bool {
        self.counted.len() >= self.asked
    }

    fn note(&mut self, verdict: Verdict) {
        let has_passed = match verdict {
            Verdict::Passed => true,
            Verdict::Failed => false,
            Verdict::Invalid => {
                self.invalid += 1;
                return;
            }
        };
        let alike = match self.last {
            Some((before, alike)) if before == has_passed => alike + 1,
            _ => 1,
        };
        let has_turned = self.last.is_some_and(|(before, _)| before != has_passed);
        self.last = Some((has_passed, alike));
        if self.step > LAST_STEP {
            self.started_with += 1;
            match () {
                () if has_turned => self.step = (self.step / 2.0).max(LAST_STEP),
                () if alike > SAME_WAY => self.step = (self.step * 2.0).min(LONGEST_STEP),
                () => {}
            }
        } else {
            self.counted.push(self.rate);
        }
        let factor = if has_passed { 1.0 + self.step } else { 1.0 / (1.0 + self.step) };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate, clamped to what can be sent"
        )]
        let next = (self.rate as f64 * factor).round() as u64;
        self.rate = next.clamp(1, self.max);
    }

    /// Where the next one begins.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of rates")]
    fn next_start(&self) -> u64 {
        self.mean().round() as u64
    }

    /// The mean of the rates that count; 0 of none.
    fn mean(&self) -> f64 {
        self.counted.iter().sum::<u64>() as f64 / self.counted.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::part;

    const MAX: u64 = 4_000_000;

    fn walk(start: u64, trials: u32, mut judge: impl FnMut(u64) -> Verdict) -> Walk {
        let mut walk = Walk::new(start, MAX, trials);
        while let Some(rate) = walk.wanted() {
            walk.note(judge(rate));
        }
        walk
    }

    fn passes(is_passed: bool) -> Verdict {
        if is_passed { Verdict::Passed } else { Verdict::Failed }
    }

    #[test]
    fn a_sharp_limit_is_found_to_half_a_step_from_wherever_it_starts() {
        for start in [50_000, 300_000, 900_000, 1_000_000, 1_100_000, 2_500_000] {
            let walk = walk(start, 64, |rate| passes(rate <= 1_000_000));
            assert!(walk.is_complete() && (walk.mean() / 1e6 - 1.0).abs() <= 0.006, "{start}: {}", walk.mean());
        }
    }

    /// Stalls that lower the capacity of one trial in three by up to a fifth, and noise of 5 %, cannot make a search for the highest
    /// of 64 trials that passes as sure as the turns are.
    #[test]
    fn what_varies_from_trial_to_trial_is_averaged() {
        let mut state = 1_u64;
        let mut random = move || part(&mut state);
        let mut means = Vec::new();
        for _ in 0..40 {
            let walk = walk(1_050_000, 64, |rate| {
                let stall = if random() < 0.33 { 0.2 * random() } else { 0.0 };
                let capacity = 1e6 * (1.0 - stall + 0.05 * (random() + random() - 1.0));
                passes(rate as f64 <= capacity)
            });
            means.push(walk.mean());
        }
        means.sort_by(f64::total_cmp);
        // The middle half of 40 values.
        let spread = (means[29] - means[10]) / means[20];
        assert!(spread < 0.015 && (0.96..1.0).contains(&(means[20] / 1e6)), "{spread}: {means:?}");
    }

    #[test]
    fn invalid_trials_move_nothing_and_end_it_when_they_are_too_many() {
        let mut trial = 0;
        let half = walk(1_000_000, 32, |rate| {
            trial += 1;
            if trial % 2 == 0 { Verdict::Invalid } else { passes(rate <= 1_000_000) }
        });
        assert!(half.mean() > 994_000.0 && half.mean() < 1_006_000.0);
        let none = walk(1_000_000, 32, |_| Verdict::Invalid);
        assert_eq!((none.counted.len(), none.invalid, none.rate), (0, 33, 1_000_000));
    }

    #[test]
    fn what_passes_or_fails_everywhere_has_no_turns() {
        let all = walk(1_000_000, 16, |_| Verdict::Passed);
        assert_eq!((all.counted.len(), all.started_with, all.rate, all.is_at_the_top()), (0, 17, MAX, true));
        let none = walk(1_000_000, 16, |_| Verdict::Failed);
        assert!(none.counted.is_empty() && !none.is_at_the_top() && !none.is_complete());
        assert_eq!(walk(0, 16, |_| Verdict::Passed).wanted(), None);
    }
}
