//! `tombolo lab demo`: everything a newcomer wants to see, in about a minute.
//!
//! Two labs stand side by side, one with the gateway and one with plain kernel forwarding; each
//! step is taken in both, so that what the gateway costs is seen against the same thing on the same
//! machine in the same minute. Then the five IPv4aaS technologies, one after another, each with
//! this project's gateway at both ends, beside plain forwarding over the same three hops.

use std::time::Duration;

use serde::Serialize;
use tombolo_lab::LabError;
use tombolo_tester::{
    dut::{Dut, DutError, Options},
    iperf3::Iperf3Error,
    statistics::{Spread, median_ratio},
};

mod bed;
mod steps;

use bed::Bed;
use steps::{PAIR_STEPS, STEPS, Step};

/// How often each step is taken.
const ROUNDS: usize = 3;
/// How often with a pair of gateways, of which there are five.
const PAIR_ROUNDS: usize = 1;
/// Steps of a demo of this project's gateway.
pub(crate) const ALL_STEPS: usize = STEPS.len() + Dut::PAIRS.len() * PAIR_STEPS.len();

/// What to demonstrate.
#[derive(Clone, Debug)]
pub(crate) struct Demo {
    /// Which gateway.
    pub(crate) gateway: Dut,
    /// How it is started.
    pub(crate) options: Options,
    /// Seconds of each TCP transfer.
    pub(crate) seconds: u32,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The gateway's name.
    pub(crate) gateway: String,
    /// Its version.
    pub(crate) version: String,
    /// From starting the gateway to its first packet, in milliseconds.
    pub(crate) start_ms: u128,
    /// The steps in order.
    pub(crate) steps: Vec<StepReport>,
    /// The five technologies; none if another gateway is shown.
    pub(crate) technologies: Vec<TechnologyReport>,
    /// The gateway's last lines, when a step failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) log: String,
}

/// What came of one technology with a gateway at either end.
#[derive(Debug, Serialize)]
pub(crate) struct TechnologyReport {
    /// Its name, which is that of its scenario too.
    pub(crate) technology: &'static str,
    /// From starting the gateways to the first packet through both, in milliseconds.
    pub(crate) start_ms: u128,
    /// The steps in order.
    pub(crate) steps: Vec<StepReport>,
}

/// What came of one step.
#[derive(Debug, Serialize)]
pub(crate) struct StepReport {
    /// What was tried.
    pub(crate) what: &'static str,
    /// Whether it worked through the gateway.
    pub(crate) worked: bool,
    /// What was seen, or why it failed.
    pub(crate) result: String,
    /// The figure through the gateway, the median of the rounds.
    pub(crate) ours: Option<f64>,
    /// The figure over plain forwarding, likewise.
    pub(crate) plain: Option<f64>,
    /// The unit of both.
    pub(crate) unit: &'static str,
    /// `ours` divided by `plain`, the median of the rounds.
    pub(crate) ratio: Option<f64>,
}

/// What a step has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    text: String,
    figure: f64,
}

/// Why a step, or the whole demo, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Gateway(#[from] DutError),
    #[error(transparent)]
    Iperf3(#[from] Iperf3Error),
    /// Something came through, but not what was sent.
    #[error("{0}")]
    Wrong(String),
}

impl Demo {
    /// Builds the labs and takes all steps. A step that fails is in the report; the others are
    /// taken nevertheless. `progress` hears the number of steps done and what comes next.
    pub(crate) fn run(&self, mut progress: impl FnMut(usize, &str)) -> Result<Report, DemoError> {
        progress(0, "building two labs");
        let plain = Bed::make(Dut::Plain, &self.options)?;
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
        let (gateway, version) = (ours.gateway.dut.to_string(), ours.gateway.version.clone());
        let start_ms = ours.gateway.started_in.as_millis();
        drop((ours, plain));
        let mut technologies = Vec::new();
        if self.gateway == Dut::Tombolo {
            let plain = Bed::make(Dut::PlainPair, &self.options)?;
            for (number, pair) in Dut::PAIRS.into_iter().enumerate() {
                let done = STEPS.len() + number * PAIR_STEPS.len();
                technologies.push(self.technology(pair, &plain, &mut log, |step, what| progress(done + step, what))?);
            }
        }
        Ok(Report { gateway, version, start_ms, steps, technologies, log })
    }

    /// Takes the steps of a pair.
    fn technology(
        &self,
        pair: Dut,
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
            Err(error) if ours.gateway.is_running() => describe(&error),
            Err(error) => format!("{}; the gateway has ended", describe(&error)),
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

/// The error with its causes.
fn describe(error: &DemoError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
