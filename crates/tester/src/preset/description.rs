//! What a preset is made of.

use serde::Serialize;

use super::here;
use crate::effort::Effort;
use crate::procedure::packet::Procedure;
use crate::procedure::tcp::Protocol;
use crate::scale::{Connections, Rates, Scale};

/// A table or figure, to be measured again.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// The question that it answers.
    pub asks: &'static str,
    /// The published figures, by the name of their data file.
    pub published: &'static str,
    /// What is measured, one after the other.
    pub steps: &'static [Step],
    /// Where the method differs from the published one, in either form.
    pub deviations: &'static [&'static str],
}

/// One procedure with its parameters.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// On frames, between the tester's two ports.
    Frames(Frames),
    /// TCP or UDP by iperf3.
    Streams(Streams),
    /// Lookups in tables of routes.
    Lookup(Lookup),
    /// Queries to a DNS64 resolver.
    Dns64,
    /// Features of these gateways, tried.
    Features(&'static [&'static str]),
}

/// A procedure on frames.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    /// Which.
    pub procedure: Procedure,
    /// The gateways; the first is the one that the others are compared with.
    pub gateways: &'static [&'static str],
    /// Inside and outside ports: those of each point of a series over connections, or of all trials.
    pub ports: ByForm<&'static [(u32, u32)]>,
    /// First port of the servers.
    pub outside_first: u16,
    /// What a series goes over.
    pub over: Over,
    /// Frames to the outside only.
    pub is_one_way: bool,
}

/// What a series goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing: one value.
    Nothing,
    /// Cores of the gateway.
    Cores,
    /// Connections.
    Connections(Rates),
}

/// Streams through gateways.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The gateways; the first is the one that the others are compared with.
    pub gateways: &'static [&'static str],
    /// Numbers of parallel streams.
    pub flows: &'static [u32],
}

/// Lookups.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// Routes in the tables.
    pub routes: ByForm<&'static [usize]>,
    /// Numbers of threads.
    pub threads: &'static [usize],
    /// Tables that more than one thread is tried on.
    pub thread_routes: &'static [usize],
}

/// Something that differs between the forms.
#[derive(Clone, Copy, Debug)]
pub struct ByForm<T> {
    /// As published.
    pub full: T,
    /// Scaled down.
    pub quick: T,
}

/// How much of it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Some minutes on two cores, not comparable.
    Quick,
    /// As published.
    Full,
}

impl Form {
    pub(super) fn of<T: Copy>(self, both: ByForm<T>) -> T {
        match self {
            Form::Quick => both.quick,
            Form::Full => both.full,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Form::Quick => "quick",
            Form::Full => "full",
        }
    }

    /// Lengths and repetitions on frames; the full form has the published ones' ten experiments.
    pub(super) fn effort(self) -> Effort {
        match self {
            Form::Quick => Effort { trial_seconds: 0.3, resolution: 0.03, ..Effort::QUICK },
            Form::Full => Effort { repetitions: 10, ..Effort::FULL },
        }
    }

    /// Rounds, seconds and seconds of warm-up of streams.
    pub(super) fn streams(self) -> (u32, u32, u32) {
        match self {
            Form::Quick => (3, 1, 2),
            Form::Full => (10, 60, 10),
        }
    }
}

impl Preset {
    /// Where the method of this form differs from the published one.
    #[must_use]
    pub fn deviations_of(&self, form: Form, cores: usize) -> Vec<String> {
        let mut all: Vec<String> = self.deviations.iter().map(|said| (*said).to_owned()).collect();
        for step in self.steps {
            all.extend(step.deviations(form, cores));
        }
        let mut once: Vec<String> = Vec::new();
        all.into_iter().for_each(|said| {
            if !once.contains(&said) {
                once.push(said)
            }
        });
        once
    }
}

impl Step {
    fn deviations(&self, form: Form, cores: usize) -> Vec<String> {
        let effort = form.effort();
        let (rounds, seconds, warm_up) = form.streams();
        let mut said = Vec::new();
        if !matches!(self, Step::Lookup(_)) {
            said.push(format!(
                "tester and gateway share a machine with {cores} processors and are linked by veth pairs; nothing is lent to it by hardware"
            ));
        }
        match self {
            Step::Frames(Frames { gateways, .. })
            | Step::Streams(Streams { gateways, .. })
            | Step::Features(gateways) => {
                said.extend(here::deviations(gateways));
            }
            Step::Lookup(_) | Step::Dns64 => {}
        }
        let is_quick = form == Form::Quick;
        match self {
            Step::Frames(frames) if is_quick => {
                said.push(format!(
                    "trials of {} s, {} repetitions, searches to {} %",
                    effort.trial_seconds,
                    effort.repetitions,
                    effort.resolution * 100.0
                ));
                if frames.ports.quick != frames.ports.full {
                    let most = |ports: &[(u32, u32)]| ports.iter().map(|(a, b)| u64::from(*a) * u64::from(*b)).max();
                    let [quick, full] = [frames.ports.quick, frames.ports.full].map(|ports| most(ports).unwrap_or(0));
                    said.push(format!("at most {quick} connections; there are {full} in the full form"));
                }
            }
            Step::Streams(_) => said.push(format!(
                "iperf3, {rounds} rounds of {seconds} s after {warm_up} s of warm-up; smallest and largest values are over rounds"
            )),
            Step::Lookup(lookup) if is_quick && lookup.routes.quick != lookup.routes.full => {
                said.push("8 rounds of 200,000 lookups, and the largest tables are left out".to_owned());
            }
            Step::Lookup(_) if is_quick => said.push("8 rounds of 200,000 lookups".to_owned()),
            Step::Dns64 if is_quick => said.push(format!("trials of {} s, 3 repetitions", Effort::QUICK.trial_seconds)),
            _ => {}
        }
        said
    }
}

impl Frames {
    /// What a series goes over; over cores one number of connections is enough.
    pub(super) fn scale(&self, points: &[(u32, u32)]) -> Scale {
        match self.over {
            Over::Nothing => Scale::default(),
            Over::Cores => Scale { connections: Connections::Ports(Vec::new()), ..Scale::default() },
            Over::Connections(rates) => Scale { connections: Connections::Ports(points.to_vec()), cores: false, rates },
        }
    }
}
