//! Throughput: the highest rate without loss (RFC 2544 section 26.1, RFC 8219 section 7.1); in
//! phase 2 for stateful gateways (RFC 9693 section 4.6).
//!
//! A single frame that is lost to a stall of a core decides whether a rate passes, so on a machine with many of them
//! throughput varies by much from one search to the next. Beside it, never in its place, a
//! throughput can be searched that tolerates some loss.

use serde_json::json;

use super::known::Known;
use super::measured::{Measured, tolerating};
use super::phase_one::fill_for;
use super::steps::Steps;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::{Found, Search, Searching, Verdict};
use crate::trial::{Directions, Trial, TrialPlan};

/// Searches the rate of each direction.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let mut throughput = Box::new(Throughput::begin(0.0, bench, known, observer)?);
    while throughput.try_once(bench, observer)? {}
    Ok(vec![throughput.end(known)])
}

/// A search under way: by short trials first, if the effort has some, and from what they found by long ones.
pub(super) struct Throughput {
    searching: Searching,
    /// The lengths of the short trials, while they are not over.
    exploring: Option<Effort>,
    /// What they found.
    explored: Option<Found>,
    /// Percent of the frames that may be lost.
    tolerated: f64,
    directions: Directions,
    max: u64,
    fill_rate: u64,
    /// Phase 1 has just filled the table.
    is_fresh: bool,
    losses: Losses,
}

impl Throughput {
    /// Fills the table of a stateful gateway and begins.
    ///
    /// # Errors
    /// What filling returns.
    pub(super) fn begin(
        tolerated: f64,
        bench: &mut Bench,
        known: &mut Known,
        observer: &mut dyn Observer,
    ) -> Result<Throughput, BenchError> {
        let fill_rate = fill_for(bench.effort.trial_seconds, bench, known, observer)?;
        let directions = bench.directions;
        let max = bench.tester_limit / directions.count();
        // What a repetition before this one found is known by long trials.
        let before = *known_of(known, tolerated);
        let exploring = bench.effort.exploring().filter(|_| before.is_none());
        let searching = search_of(tolerated, bench, exploring.as_ref(), max, before).begin();
        Ok(Throughput {
            searching,
            exploring,
            explored: None,
            tolerated,
            directions,
            max,
            fill_rate,
            is_fresh: true,
            losses: Losses::default(),
        })
    }

    fn try_as_asked(&mut self, bench: &mut Bench, observer: &mut dyn Observer) -> Result<bool, BenchError> {
        let Throughput {
            ref mut searching,
            ref mut is_fresh,
            ref mut losses,
            ref mut fill_rate,
            tolerated,
            directions,
            ..
        } = *self;
        bench.search_on(searching, |bench, rate| {
            if bench.effort.refill_each_trial && !*is_fresh {
                *fill_rate = bench.fill(*fill_rate, observer)?;
            }
            *is_fresh = false;
            let purpose = if tolerated > 0.0 { "loss-tolerant throughput" } else { "throughput" };
            let plan = bench.plain(purpose, directions, rate, Effort::frames(rate, bench.effort.trial_seconds));
            let plan = TrialPlan { tolerated_loss: tolerated, ..plan };
            let trial = bench.trial(&plan, observer)?;
            losses.note(rate, &trial);
            Ok(trial)
        })
    }
}

impl Steps for Throughput {
    fn try_once(&mut self, bench: &mut Bench, observer: &mut dyn Observer) -> Result<bool, BenchError> {
        let Some(exploring) = self.exploring else { return self.try_as_asked(bench, observer) };
        let asked = std::mem::replace(&mut bench.effort, exploring);
        let tried = self.try_as_asked(bench, observer);
        bench.effort = asked;
        if tried? {
            return Ok(true);
        }
        self.exploring = None;
        let found = self.searching.found();
        self.explored = Some(found);
        if found.highest_passing == 0 {
            // What no short trial passes, no long one does.
            return Ok(false);
        }
        let near = found.lowest_not_passing.map_or(found.highest_passing / 100, |next| next - found.highest_passing);
        let search = search_of(self.tolerated, bench, None, self.max, Some(found.highest_passing));
        self.searching = search.begin_in_steps(near);
        self.try_as_asked(bench, observer)
    }

    fn end(self: Box<Self>, known: &mut Known) -> Measured {
        let found = self.searching.found();
        *known_of(known, self.tolerated) = Some(found.highest_passing);
        let details = json!({
            "per_direction": found.highest_passing,
            "lowest_not_passing": found.lowest_not_passing,
            "trials": found.trials,
            "explored": self.explored,
            "fill_rate": self.fill_rate,
            "search_max": self.max,
            "tolerated_loss_percent": self.tolerated,
        });
        let total = (found.highest_passing * self.directions.count()) as f64;
        let measured = Measured::rate(tolerating("throughput", self.tolerated), total, "frames/s", details);
        let measured = match found.highest_passing {
            0 => measured.without_value(format!("no rate passed; the last trial: {}", self.losses.last_reasons)),
            _ => measured.searched(&found),
        };
        match self.losses.regardless_of_rate().filter(|_| self.tolerated == 0.0) {
            Some(percent) => measured.doubted(format!(
                "some {percent:.3} % are lost at every rate: a longer trial has a lower throughput, for the limit is not the rate"
            )),
            None => measured,
        }
    }
}

/// The search of the throughput that tolerates so much loss: a slower moment loses some frames more and fails no trial
/// far below the limit, so one second look is enough.
fn search_of(tolerated: f64, bench: &Bench, effort: Option<&Effort>, max: u64, hint: Option<u64>) -> Search {
    let search = bench.search_of(effort, max, hint);
    let enough = if tolerated > 0.0 { 1 } else { search.second_looks };
    Search { second_looks: search.second_looks.min(enough), ..search }
}

/// What is known of the throughput that tolerates so much loss.
fn known_of(known: &mut Known, tolerated: f64) -> &mut Option<u64> {
    if tolerated > 0.0 { &mut known.tolerant_throughput } else { &mut known.throughput }
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
