//! What a preset takes: time, memory, cores. Told before, for a full one takes days.

use std::fmt;

use serde::Serialize;

use super::description::{ByForm, Form, Frames, Lookup, Over, Preset, Step, Streams};
use super::earlier::Rates;
use super::here;
use crate::effort::Effort;
use crate::forecast::{Filling, seconds_of, seconds_of_series};
use crate::gateway::Spec;
use crate::procedure::packet::Procedure;

/// What a preset takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Needs {
    /// Seconds, about; invalid trials come on top.
    pub seconds: f64,
    /// Bytes of tester and gateway, about.
    pub bytes: u64,
    /// Cores that the published figures had; fewer leave points out.
    pub cores: usize,
}

/// The tester's own record of a connection, and what the hungriest gateway keeps of it.
const BYTES_A_CONNECTION: u64 = 16 + 400;
/// Programs, page pools, namespaces.
const BASE_BYTES: u64 = 256 << 20;
/// Every feature of one gateway, some of which it has not.
const FEATURES_SECONDS: f64 = 8.0;
/// Opening and probing one gateway.
const START_SECONDS: f64 = 2.0;

impl Preset {
    /// What this form takes where a gateway can have so many cores, and has these rates of connections.
    #[must_use]
    pub fn needs(&self, form: Form, gateway_cores: usize, rates: &Rates) -> Needs {
        let all = self.steps.iter().map(|step| step.needs(form, gateway_cores, rates));
        let none = Needs { seconds: 0.0, bytes: 0, cores: 1 };
        all.fold(none, |sum, step| Needs {
            seconds: sum.seconds + step.seconds,
            bytes: sum.bytes.max(step.bytes),
            cores: sum.cores.max(step.cores),
        })
    }
}

impl Step {
    fn needs(&self, form: Form, gateway_cores: usize, rates: &Rates) -> Needs {
        let without = |seconds| Needs { seconds, bytes: BASE_BYTES, cores: 2 };
        match self {
            Step::Frames(frames) => frames.needs(form, gateway_cores, rates),
            Step::Streams(streams) => without(streams.seconds(form)),
            Step::Lookup(lookup) => lookup.needs(form),
            Step::Features(gateways) => without(FEATURES_SECONDS * here::of(gateways).len() as f64),
            Step::Dns64 => {
                let effort = if form == Form::Quick { Effort::QUICK } else { Effort::FULL };
                let (each, first) = seconds_of(Procedure::Throughput, &effort, Filling::NONE);
                without(f64::from(effort.repetitions) * each + first)
            }
        }
    }
}

impl Frames {
    fn needs(&self, form: Form, gateway_cores: usize, rates: &Rates) -> Needs {
        let effort = form.effort();
        let repetitions = f64::from(effort.repetitions);
        let ports = form.of(self.ports);
        let (inside, outside) = ports.last().copied().unwrap_or((1, 1));
        let most = u64::from(inside) * u64::from(outside);
        let scale = self.scale(ports);
        let of_gateway = |name: &&str| {
            let is_stateful = name.parse::<Spec>().is_ok_and(|spec| spec.usual_technology().is_stateful());
            let filling = if is_stateful { Filling::of(most, rates.of(name)) } else { Filling::NONE };
            let (each, first) = match self.over {
                Over::Nothing => seconds_of(self.procedure, &effort, filling),
                _ => {
                    let points = scale.connections_of_points(inside, outside, 1, gateway_cores);
                    seconds_of_series(scale.rates, &effort, filling, &points)
                }
            };
            START_SECONDS + repetitions * each + first
        };
        let cores = if self.over == Over::Nothing { 2 } else { 17 };
        Needs {
            seconds: here::of(self.gateways).iter().map(of_gateway).sum(),
            bytes: BASE_BYTES + most * BYTES_A_CONNECTION,
            cores: if form == Form::Quick { 2 } else { cores },
        }
    }
}

impl Streams {
    fn seconds(&self, form: Form) -> f64 {
        let (rounds, seconds, warm_up) = form.streams();
        let measurements = here::of(self.gateways).len() * self.flows.len() * 2;
        measurements as f64 * f64::from(rounds) * (f64::from(seconds + warm_up) + 0.5)
    }
}

impl Lookup {
    fn needs(&self, form: Form) -> Needs {
        let (lookups, rounds) = form.lookups();
        let tables = form.of(self.routes).len();
        // Two families, some ten tables of them, at most half a microsecond a lookup.
        let lookups = lookups as f64 * rounds as f64 * 2.0 * 10.0 * (tables * self.threads.len()) as f64;
        let cores = self.threads.iter().max().copied().unwrap_or(1);
        Needs { seconds: 2.0 + lookups * 2e-7, bytes: BASE_BYTES, cores: if form == Form::Quick { 2 } else { cores } }
    }
}

impl Form {
    /// Lookups in a round, and rounds.
    pub(super) fn lookups(self) -> (usize, usize) {
        self.of(ByForm { full: (1_000_000, 12), quick: (200_000, 8) })
    }
}

impl fmt::Display for Needs {
    /// `4 min, 0.3 GiB, 2 cores`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = self.bytes as f64 / f64::from(1 << 30);
        match self.seconds {
            ..5400.0 => write!(f, "{:.0} min", (self.seconds / 60.0).ceil())?,
            ..172_800.0 => write!(f, "{:.0} h", self.seconds / 3600.0)?,
            seconds => write!(f, "{:.0} d", seconds / 86_400.0)?,
        }
        write!(f, ", {gibibytes:.1} GiB, {} cores", self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{list, named};
    use super::*;

    #[test]
    fn a_quick_preset_is_done_in_under_six_minutes_on_two_cores() {
        for preset in list::ALL {
            let needs = preset.needs(Form::Quick, 1, &Rates::default());
            assert!(needs.seconds < 360.0, "{}: {needs}", preset.name);
            assert!(needs.cores <= 2 && needs.bytes < 1 << 30, "{}: {needs}", preset.name);
        }
    }

    #[test]
    fn a_full_one_says_that_it_takes_long_and_much() {
        let needs = named("draft-figure-4").unwrap().needs(Form::Full, 16, &Rates::default());
        assert!(needs.seconds > 86_400.0 && needs.bytes > 300 << 30 && needs.cores == 17, "{needs}");
    }
}
