//! Non-drop rate and partial-drop rate by the rules of MLRsearch (draft-ietf-bmwg-mlrsearch), as FD.io
//! CSIT uses them: many short trials at a load, of which half may lose more than the goal allows.
//!
//! A load is a lower bound of a goal once so many of its trials are good that the others cannot
//! exceed the part that may be bad, and an upper bound once more than that part is bad. What is
//! reported is the conditional throughput of the highest lower bound: the load, less what the worst
//! of the good half lost. That is no throughput of RFC 2544, which no single lost frame passes, and
//! mostly more; the two do not belong into one column.

use std::collections::BTreeMap;

use serde_json::json;

use super::known::Known;
use super::measured::Measured;
use super::phase_one;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::{Attempt, Found, Search, Verdict};

/// What a goal allows.
#[derive(Clone, Copy)]
struct Goal {
    quantity: &'static str,
    /// Part of the frames that a good trial may lose.
    loss: f64,
}

/// CSIT's goals.
const GOALS: [Goal; 2] = [
    Goal { quantity: "non-drop rate (conditional throughput)", loss: 0.0 },
    Goal { quantity: "partial-drop rate, 0.5 % (conditional throughput)", loss: 0.005 },
];
/// Part of the trials that may be bad.
const EXCEED_RATIO: f64 = 0.5;

/// Parts of the frames that the valid trials at a load lost, and how many trials were not valid.
#[derive(Clone, Debug, Default)]
struct Load {
    losses: Vec<f64>,
    invalid: u32,
}

impl Load {
    /// What so many trials decide about a goal; none while they do not.
    fn classify(&self, goal: Goal, trials: usize) -> Option<Verdict> {
        let bad = self.losses.iter().filter(|loss| **loss > goal.loss).count();
        let good = self.losses.len() - bad;
        let may_be_bad = trials as f64 * EXCEED_RATIO;
        match () {
            () if bad as f64 > may_be_bad => Some(Verdict::Failed),
            () if (trials - good.min(trials)) as f64 <= may_be_bad => Some(Verdict::Passed),
            () => None,
        }
    }

    /// What the worst of the good trials lost that the goal needs.
    fn conditional_loss(&self) -> f64 {
        let mut losses = self.losses.clone();
        losses.sort_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a number of trials")]
        let needed = (losses.len() as f64 * (1.0 - EXCEED_RATIO)).ceil() as usize;
        losses.get(needed.saturating_sub(1)).copied().unwrap_or(1.0)
    }
}

/// Searches both goals; the second one begins with the trials of the first.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let Effort { short_trial_seconds, short_trials, .. } = bench.effort;
    let max = bench.tester_limit / bench.directions.count();
    phase_one::fill_for(short_trial_seconds, bench, known, observer)?;
    let mut loads: BTreeMap<u64, Load> = BTreeMap::new();
    let mut hint = known.throughput;
    let mut measured = Vec::new();
    for goal in GOALS {
        let found = search(bench, max, hint, |bench, rate| {
            let load = loads.entry(rate).or_default();
            play(bench, rate, load, goal, observer)
        })?;
        hint = Some(found.highest_passing);
        let load = loads.get(&found.highest_passing).cloned().unwrap_or_default();
        let directions = bench.directions.count();
        let throughput = found.highest_passing as f64 * (1.0 - load.conditional_loss()) * directions as f64;
        let details = json!({
            "load_per_direction": found.highest_passing, "lowest_not_passing": found.lowest_not_passing,
            "trials_at_load": load.losses.len(), "losses": load.losses, "goal_loss_ratio": goal.loss,
            "exceed_ratio": EXCEED_RATIO, "trials_needed": short_trials, "trial_seconds": short_trial_seconds,
            "loads": loads.len(), "search_max": max,
        });
        let one = Measured::rate(goal.quantity, throughput, "frames/s", details);
        measured.push(match found.highest_passing {
            0 => one.without_value(format!(
                "at no load did half of the trials lose at most {} % of the frames",
                goal.loss * 100.0
            )),
            _ => one.searched(&found),
        });
    }
    Ok(measured)
}

/// Trials at a load until they decide about the goal.
fn play(
    bench: &mut Bench,
    rate: u64,
    load: &mut Load,
    goal: Goal,
    observer: &mut dyn Observer,
) -> Result<Verdict, BenchError> {
    let Effort { short_trial_seconds, short_trials, .. } = bench.effort;
    let frames = Effort::frames(rate, short_trial_seconds);
    loop {
        if let Some(verdict) = load.classify(goal, short_trials) {
            return Ok(verdict);
        }
        // As many may be invalid as have to be valid: the tester cannot send this load in order.
        if load.invalid as usize > short_trials {
            return Ok(Verdict::Invalid);
        }
        let trial = bench.trial(&bench.plain("mlrsearch", bench.directions, rate, frames), observer)?;
        let wrong: u64 =
            trial.directions().map(|d| d.arrivals.errored + d.arrivals.unreadable + d.arrivals.duplicates).sum();
        match trial.verdict {
            Verdict::Invalid => load.invalid += 1,
            // A damaged or doubled frame is no loss that a goal allows for.
            Verdict::Failed if wrong > 0 => load.losses.push(1.0),
            _ => load.losses.push(trial.loss_percent() / 100.0),
        }
    }
}

fn search(
    bench: &mut Bench,
    max: u64,
    hint: Option<u64>,
    mut judge: impl FnMut(&mut Bench, u64) -> Result<Verdict, BenchError>,
) -> Result<Found, BenchError> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a million")]
    let resolution_ppm = (bench.effort.resolution * 1e6) as u64;
    let search = Search {
        max,
        floor: max / bench.lowest_rate_part,
        resolution: 1,
        resolution_ppm,
        verify_failures: 0,
        repeat_invalid: 0,
        hint: hint.filter(|rate| *rate > 0),
        second_looks: 0,
    };
    let found = search.run(|rate, bounds| {
        bench.bounds = Some(bounds);
        Ok::<_, BenchError>(Attempt::from(judge(bench, rate)?))
    });
    bench.bounds = None;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(losses: &[f64]) -> Load {
        Load { losses: losses.to_vec(), invalid: 0 }
    }

    #[test]
    fn a_load_is_decided_when_the_trials_that_are_left_cannot_change_it() {
        let ndr = GOALS[0];
        let lossy = 0.01;
        assert_eq!(load(&[0.0; 3]).classify(ndr, 7), None);
        assert_eq!(load(&[0.0; 4]).classify(ndr, 7), Some(Verdict::Passed));
        assert_eq!(load(&[0.0, lossy, 0.0, lossy, 0.0, lossy]).classify(ndr, 7), None);
        assert_eq!(load(&[0.0, lossy, 0.0, lossy, lossy, lossy]).classify(ndr, 7), Some(Verdict::Failed));
        assert_eq!(load(&[0.004; 4]).classify(ndr, 7), Some(Verdict::Failed));
        assert_eq!(load(&[0.004; 4]).classify(GOALS[1], 7), Some(Verdict::Passed));
        assert_eq!(load(&[]).classify(ndr, 7), None);
    }

    #[test]
    fn what_the_good_half_lost_is_taken_off_the_load() {
        assert_eq!(load(&[0.5, 0.001, 0.002, 0.003]).conditional_loss(), 0.002);
        assert_eq!(load(&[0.0, 0.0, 0.9]).conditional_loss(), 0.0);
        assert_eq!(load(&[]).conditional_loss(), 1.0);
    }
}
