//! `tombolo lab demo`: everything a newcomer wants to see, in about a minute.
//!
//! Two labs stand side by side, one with the gateway and one with plain kernel forwarding; each
//! step is taken in both, so that what the gateway costs is seen against the same thing on the same
//! machine in the same minute. Then the five IPv4aaS technologies, one after another, each with
//! this project's gateway at both ends, beside plain forwarding over the same three hops.

use std::time::Duration;

use tombolo_lab::LabError;
use tombolo_tester::{
    gateway::{Kind, start::Options},
    statistics::{Spread, median_ratio},
};

mod bed;
mod report;
mod steps;

pub(crate) use report::{Report, StepReport, TechnologyReport};

use bed::Bed;
use report::DemoError;
use steps::{PAIR_STEPS, STEPS, Step};

/// How often each step is taken.
const ROUNDS: usize = 3;
/// How often with a pair of gateways, of which there are five.
const PAIR_ROUNDS: usize = 1;
/// Steps of a demo of this project's gateway.
pub(crate) const ALL_STEPS: usize = STEPS.len() + Kind::PAIRS.len() * PAIR_STEPS.len();

/// What to demonstrate.
#[derive(Clone, Debug)]
pub(crate) struct Demo {
    /// Which gateway.
    pub(crate) gateway: Kind,
    /// How it is started.
    pub(crate) options: Options,
    /// Seconds of each TCP transfer.
    pub(crate) seconds: u32,
}

impl Demo {
    /// Builds the labs and takes all steps. A step that fails is in the report; the others are
    /// taken nevertheless. `progress` hears the number of steps done and what comes next.
    pub(crate) fn run(&self, mut progress: impl FnMut(usize, &str)) -> Result<Report, DemoError> {
        progress(0, "building two labs");
        let plain = Bed::make(Kind::Plain, &self.options)?;
        let mut ours = Bed::make(self.gateway, &self.options)?;
        let mut steps = Vec::new();
        for (done, step) in STEPS.iter().enumerate() {
            progress(done, step.what);
            if tombolo_lab::interrupted() {
                return Err(LabError::Interrupted.into());
            }
            steps.push(self.take(step, ROUNDS, &mut ours, &plain));
        }
        let failed = steps.iter().any(|step| !step.worked);
        let mut log = if failed { ours.gateway.stop(20) } else { String::new() };
        let (gateway, version) = (ours.gateway.kind.to_string(), ours.gateway.version.clone());
        let start_ms = ours.gateway.started_in.as_millis();
        drop((ours, plain));
        let mut technologies = Vec::new();
        if self.gateway == Kind::Tombolo {
            let plain = Bed::make(Kind::PlainPair, &self.options)?;
            for (number, pair) in Kind::PAIRS.into_iter().enumerate() {
                let done = STEPS.len() + number * PAIR_STEPS.len();
                technologies.push(self.technology(pair, &plain, &mut log, |step, what| progress(done + step, what))?);
            }
        }
        Ok(Report { gateway, version, start_ms, steps, technologies, log })
    }

    /// Takes the steps of a pair.
    fn technology(
        &self,
        pair: Kind,
        plain: &Bed,
        log: &mut String,
        mut progress: impl FnMut(usize, &str),
    ) -> Result<TechnologyReport, DemoError> {
        let mut bed = Bed::make(pair, &self.options)?;
        let mut steps = Vec::new();
        for (done, step) in PAIR_STEPS.iter().enumerate() {
            progress(done, &format!("{pair}: {}", step.what));
            if tombolo_lab::interrupted() {
                return Err(LabError::Interrupted.into());
            }
            steps.push(self.take(step, PAIR_ROUNDS, &mut bed, plain));
        }
        if steps.iter().any(|step| !step.worked) {
            log.push_str(&bed.gateway.stop(10));
        }
        Ok(TechnologyReport { technology: pair.name(), start_ms: bed.gateway.started_in.as_millis(), steps })
    }

    /// Takes a step several times in turn, here and there: the figures are medians, and the ratio
    /// that of the rounds, so that a busy machine does not decide alone.
    fn take(&self, step: &Step, rounds: usize, ours: &mut Bed, plain: &Bed) -> StepReport {
        let duration = Duration::from_secs(self.seconds.into());
        let (mut through, mut beside) = (Vec::new(), Vec::new());
        let mut last = Err(LabError::Interrupted.into());
        for _ in 0..rounds {
            last = (step.take)(ours, duration);
            let Ok(seen) = &last else { break };
            through.push(Some(seen.figure));
            // Nothing stands between client and server there; should it fail all the same, there is
            // nothing to compare with.
            beside.push((step.take)(plain, duration).ok().map(|seen| seen.figure));
        }
        let worked = last.is_ok();
        let result = match last {
            Ok(seen) => seen.text,
            Err(error) if ours.gateway.is_running() => error.describe(),
            Err(error) => format!("{}; the gateway has ended", error.describe()),
        };
        let ratio = median_ratio(&through, &beside);
        StepReport {
            what: step.what,
            worked,
            result,
            ours: median(&through),
            plain: median(&beside),
            unit: step.unit,
            ratio,
        }
    }
}

fn median(samples: &[Option<f64>]) -> Option<f64> {
    let samples: Vec<f64> = samples.iter().flatten().copied().collect();
    Spread::of(&samples).map(|spread| spread.median)
}
