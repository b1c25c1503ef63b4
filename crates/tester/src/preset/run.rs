//! A preset, measured: its description as the first line of the result file, then its steps.

use std::path::PathBuf;

use serde_json::json;

use super::description::{Form, Frames, Lookup, Preset, Step, Streams};
use super::here;
use crate::bench::BenchError;
use crate::effort::Effort;
use crate::gateway::start::Options;
use crate::gateway::{Flows, Kind, Spec, Technology};
use crate::procedure::dns64::{Dns64Plan, Resolver, Shares, TIMEOUT};
use crate::procedure::features::FeaturePlan;
use crate::procedure::route_lookup;
use crate::procedure::tcp::{Direction, TcpComparison};
use crate::published::Published;
use crate::results::ResultFile;
use crate::series::{Progress, SeriesPlan};
use crate::trial::Directions;

/// What a run needs to know of its surroundings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `tombolo` executable.
    pub tombolo: PathBuf,
    /// Processors of this machine.
    pub processors: usize,
}

/// What became of a preset.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What could not be measured, and why.
    pub failures: Vec<(String, String)>,
}

impl Preset {
    /// Measures every step. A step that cannot be measured is a failure, and the next one is tried.
    ///
    /// # Errors
    /// If the results cannot be written, or the run was interrupted.
    pub fn run(
        &self,
        form: Form,
        setup: &Setup,
        results: &mut ResultFile,
        progress: &mut dyn Progress,
    ) -> Result<Outcome, BenchError> {
        results.write(&json!({
            "record": "preset", "name": self.name, "title": self.title, "asks": self.asks, "form": form,
            "deviations": self.deviations_of(form, setup.processors), "published": Published::named(self.published),
        }))?;
        let mut outcome = Outcome::default();
        for step in self.steps {
            let failures = match step {
                Step::Frames(frames) => frames.run(form, setup, results, progress),
                Step::Streams(streams) => streams.run(form, setup, results),
                Step::Lookup(lookup) => lookup.run(form, setup, results),
                Step::Dns64 => dns64(form, setup, results),
                Step::Features(gateways) => features(gateways, setup, results),
            };
            match failures {
                Ok(failures) => outcome.failures.extend(failures),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(BenchError::Results(error)) => return Err(error.into()),
                Err(_) if tombolo_lab::interrupted() => return Err(BenchError::Interrupted),
                Err(error) => {
                    results.write(&json!({ "record": "failure", "gateway": "all", "error": error.to_string() }))?;
                    outcome.failures.push(("all".to_owned(), error.to_string()));
                }
            }
        }
        Ok(outcome)
    }
}

type Failures = Result<Vec<(String, String)>, BenchError>;

impl Frames {
    fn run(&self, form: Form, setup: &Setup, results: &mut ResultFile, progress: &mut dyn Progress) -> Failures {
        let gateways: Result<Vec<Spec>, String> = here::of(self.gateways).iter().map(|name| name.parse()).collect();
        let gateways = gateways.map_err(BenchError::Unsuitable)?;
        let points = form.of(self.ports);
        let (inside_ports, outside_ports) = points.last().copied().unwrap_or((1, 1));
        let plan = SeriesPlan {
            flows: Some(Flows { outside_first: self.outside_first, ..Flows::sessions(inside_ports, outside_ports) }),
            directions: if self.is_one_way { Directions::Forward } else { Directions::Both },
            scale: self.scale(points),
            ..SeriesPlan::new(self.procedure, gateways, form.effort(), setup.tombolo.clone())
        };
        Ok(plan.run(results, false, progress)?.failures)
    }
}

impl Streams {
    fn run(&self, form: Form, setup: &Setup, results: &mut ResultFile) -> Failures {
        let gateways: Result<Vec<Kind>, String> = here::of(self.gateways).iter().map(|name| name.parse()).collect();
        let (rounds, seconds, warm_up_seconds) = form.streams();
        let comparison = TcpComparison {
            protocol: self.protocol,
            gateways: gateways.map_err(BenchError::Unsuitable)?,
            flows: self.flows.to_vec(),
            directions: vec![Direction::SixToFour, Direction::FourToSix],
            rounds,
            seconds,
            warm_up_seconds,
            options: Options::new(setup.tombolo.clone(), String::new(), Technology::Nat64),
        };
        let mut failures = Vec::new();
        let taken = comparison.run(results, |_, sample| {
            failures.extend(sample.error.as_ref().map(|error| (sample.gateway.clone(), error.clone())));
        });
        taken.map_err(|error| BenchError::Unsuitable(error.to_string()))?;
        Ok(failures)
    }
}

impl Lookup {
    fn run(&self, form: Form, setup: &Setup, results: &mut ResultFile) -> Failures {
        let (lookups, rounds) = form.lookups();
        let options = route_lookup::Options {
            routes: form.of(self.routes).to_vec(),
            threads: self.threads.iter().copied().filter(|threads| *threads <= setup.processors).collect(),
            thread_routes: self.thread_routes.to_vec(),
            lookups,
            rounds,
            updates: None,
            dpdk: false,
            ..route_lookup::Options::default()
        };
        let measured = route_lookup::record(&options, results, |_| {});
        measured.map_err(|error| BenchError::Unsuitable(error.to_string()))?;
        Ok(Vec::new())
    }
}

fn features(gateways: &[&'static str], setup: &Setup, results: &mut ResultFile) -> Failures {
    let gateways: Result<Vec<Spec>, String> = here::of(gateways).iter().map(|name| name.parse()).collect();
    let gateways = gateways.map_err(BenchError::Unsuitable)?;
    FeaturePlan { gateways, tombolo: setup.tombolo.clone() }.run(results)
}

fn dns64(form: Form, setup: &Setup, results: &mut ResultFile) -> Failures {
    let plan = Dns64Plan {
        resolver: Resolver::Unbound,
        effort: if form == Form::Quick { Effort::QUICK } else { Effort::FULL },
        timeout: TIMEOUT,
        shares: Shares { cached: 0, with_aaaa: 0 },
        cores: (0, 1 % setup.processors.max(1)),
        max_rate: None,
    };
    plan.run(results, &mut |_, _| {})?;
    Ok(Vec::new())
}
