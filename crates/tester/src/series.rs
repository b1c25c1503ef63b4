//! A series: one procedure, one or several gateways, several repetitions, interleaved.
//!
//! Repetition 1 measures every gateway, then repetition 2 does, and so on, so that the drift of the
//! machine meets all alike; searches of gateways without connections take turns trial by trial. Gateways are
//! compared by the ratios within a repetition. Every trial,
//! measurement and summary is a line of the result file, written when it is known: what an
//! interruption leaves is whole, and a resumed series skips what it finds there.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tombolo_generator::{Background, Ends, FrameKind, Interface, Means, Port, Template, Transport};

use crate::bench::{Bench, BenchError, BenchPlan, Mix, Observer, Placement, Status};
use crate::effort::Effort;
use crate::forecast::{self, Filling, Forecast};
use crate::frame_size::FrameSize;
use crate::gateway::between_ports::hosts::{self, rule_of};
use crate::gateway::between_ports::{external::External, laboratory::Laboratory, laboratory::Setup};
use crate::gateway::{Addresses, Flows, Gateway, MapRule, Spec, Technology, TestFrames};
use crate::isolation::{self, Isolation};
use crate::machine::{self, Machine};
use crate::ports::{PortRecord, hardware_timestamps};
use crate::procedure::{self, InTurn, Known, Measured, packet::Procedure};
use crate::readings::{GatewaySummary, Reading, Readings, summarise};
use crate::results::ResultFile;
use crate::scale::Scale;
use crate::selftest::{self, SelfTest, SelfTestPlan};
use crate::trial::{Directions, Sharing, Tally, TrialRecord};

/// Version of the lines' form.
const SCHEMA: u32 = 2;
/// Header and FCS.
const ETHERNET_BYTES: u32 = 18;
const USUAL_MTU: u32 = 1500;

/// What to measure.
#[derive(Clone, Debug)]
pub struct SeriesPlan {
    /// The procedure.
    pub procedure: Procedure,
    /// The gateways; the first is the one that the others are compared with.
    pub gateways: Vec<Spec>,
    /// What they do; their usual trade where absent.
    pub technology: Option<Technology>,
    /// Lengths and repetitions.
    pub effort: Effort,
    /// Directions; the default depends on the number of cores.
    pub directions: Directions,
    /// Four tuples; what the technology calls for where absent.
    pub flows: Option<Flows>,
    /// Lengths of frames on the left; the shortest where absent.
    pub frame_size: Option<FrameSize>,
    /// Background traffic.
    pub mix: Option<Mix>,
    /// Cores that send; the first where absent.
    pub sending_cores: Option<Vec<usize>>,
    /// Cores of the gateway; all others where absent.
    pub gateway_cores: Option<Vec<usize>>,
    /// Everything else of the machine is kept off the cores that send, and where others remain off the
    /// gateway's.
    pub isolated: bool,
    /// When gateways are made anew, in this order and the other one in turns: where in memory one happens to lie is not
    /// measured twenty times.
    pub anew: Anew,
    /// What a scalability series goes over.
    pub scale: Scale,
    /// What the user says is known.
    pub known: Known,
    /// Highest rate to try in each direction; the tester's limit where absent.
    pub max_rate: Option<u64>,
    /// How frames leave; the best that the kernel has where absent.
    pub means: Option<Means>,
    /// Addresses for external gateways.
    pub addresses: Option<Addresses>,
    /// The `tombolo` executable.
    pub tombolo: PathBuf,
    /// Lines of `tombolo`'s configuration before its services.
    pub settings: String,
}

/// How long a gateway of the lab stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anew {
    /// For the whole series.
    Never,
    /// For a repetition.
    Repetitions,
    /// For so many of the trials that go up and down, at least 1, and for a repetition where there are none.
    Trials(u32),
}

impl Anew {
    /// The trials after which it is made anew within a repetition.
    fn after(self) -> Option<u32> {
        match self {
            Anew::Trials(trials) => Some(trials.max(1)),
            Anew::Never | Anew::Repetitions => None,
        }
    }
}

/// Who hears what happens while the series runs.
pub trait Progress {
    /// Something for people to read.
    fn status(&mut self, done: u32, of: u32, status: &Status);

    /// What is to be measured, and how long it will take.
    fn planned(&mut self, forecast: &Forecast);

    /// A measurement is known.
    fn measured(&mut self, gateway: &str, repetition: u32, measured: &[Measured]);

    /// A gateway could not be measured.
    fn failed(&mut self, gateway: &str, error: &BenchError);
}

/// What a series came to.
#[derive(Clone, Debug)]
pub struct SeriesResult {
    /// One for each gateway and quantity.
    pub summaries: Vec<GatewaySummary>,
    /// The self-test.
    pub self_test: SelfTest,
    /// Gateways that could not be measured, in one repetition or at all, and why.
    pub failures: Vec<(String, String)>,
    /// Trials of each gateway, and what the machine did to them.
    pub tallies: Vec<(String, Tally)>,
    /// Who ran where.
    pub placement: Vec<(String, Placement)>,
    /// What gateways do to the headers of every frame that they should not.
    pub deviations: Vec<(String, String)>,
    /// The tester's ports to each gateway, and how frames leave there.
    pub ports: Vec<(String, [PortRecord; 2], &'static str)>,
}

pub(crate) struct Station {
    name: String,
    bench: Bench,
    known: Known,
    failed: bool,
    tally: Tally,
}

impl Station {
    /// Measures once by any procedure, where the gateway has been probed since it was started.
    ///
    /// # Errors
    /// If there is no result.
    pub(crate) fn measure(
        &mut self,
        procedure: Procedure,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Measured>, BenchError> {
        procedure.measure(&mut self.bench, &mut self.known, observer)
    }
}

impl SeriesPlan {
    /// Everything else as it is where nobody says more.
    pub fn new(procedure: Procedure, gateways: Vec<Spec>, effort: Effort, tombolo: PathBuf) -> Self {
        Self {
            procedure,
            gateways,
            technology: None,
            effort,
            directions: Directions::Both,
            flows: None,
            frame_size: None,
            mix: None,
            sending_cores: None,
            gateway_cores: None,
            isolated: false,
            anew: Anew::Never,
            scale: Scale::default(),
            known: Known::default(),
            max_rate: None,
            means: None,
            addresses: None,
            tombolo,
            settings: String::new(),
        }
    }

    /// Runs the series, appending to `results`. With `resume`, repetitions that the file already
    /// holds are not repeated.
    ///
    /// # Errors
    /// If nothing can be measured at all, or the series was interrupted.
    pub fn run(
        &self,
        results: &mut ResultFile,
        resume: bool,
        progress: &mut dyn Progress,
    ) -> Result<SeriesResult, BenchError> {
        let mut values = if resume { self.earlier(results.path())? } else { Readings::new() };
        let (sending, gateway_cores) = self.cores()?;
        let isolation = self.isolate(&sending, &gateway_cores)?;
        let self_test = self.begin(results, (&sending, &gateway_cores))?;
        if let Some(isolation) = &isolation {
            results.write(&json!({ "record": "isolation", "isolation": isolation.in_words() }))?;
        }
        let mut failures = Vec::new();
        let mut stations = Vec::new();
        let open = |spec: &Spec| self.open(spec, &sending, &gateway_cores, &self_test);
        for spec in &self.gateways {
            let opened = open(spec);
            let named = |e| (spec.to_string(), e);
            match opened.map_err(named) {
                Ok(station) => {
                    results.write(&gateway_record(&station))?;
                    stations.push(station);
                }
                Err((name, error)) => note_failure(&mut failures, results, progress, name, error)?,
            }
        }
        let repetitions = self.repetitions();
        let forecast = self.forecast(&stations, &values);
        results.write(&json!({ "record": "forecast", "forecast": forecast }))?;
        progress.planned(&forecast);
        forecast::check_memory(&forecast, forecast::memory_left()).map_err(BenchError::Unsuitable)?;
        for repetition in 1..=repetitions {
            if self.anew != Anew::Never && repetition > 1 {
                stations = self.open_anew(stations, repetition, open)?;
            }
            let is_missing = |s: &&mut Station| !s.failed && !self.is_known(&values, &s.name, repetition);
            let mut missing: Vec<_> = stations.iter_mut().filter(is_missing).collect();
            if repetition % 2 == 0 {
                // Nobody is always the one after whom.
                missing.reverse();
            }
            missing.iter_mut().for_each(|station| station.bench.reseed(u64::from(repetition)));
            let done = (repetition - 1, repetitions);
            let mut outcomes = Vec::new();
            if self.takes_turns(&missing) {
                let make = |name: &str| {
                    let spec = self.gateways.iter().find(|spec| spec.to_string() == name);
                    let spec = spec.ok_or_else(|| BenchError::Unsuitable(format!("{name} is not of this series")))?;
                    Ok(open(spec)?.bench)
                };
                let mut recorder = Recorder { results, progress, done };
                outcomes = measure_in_turns(&mut missing, self.anew.after(), &make, &mut recorder);
            }
            let mut outcomes = outcomes.into_iter();
            for station in missing {
                let outcome =
                    outcomes.next().unwrap_or_else(|| self.measure(station, &mut Recorder { results, progress, done }));
                let tally = std::mem::take(&mut station.bench.tally);
                station.tally.add(&tally);
                match outcome {
                    Ok(measured) => {
                        for m in &measured {
                            results.write(&result_record(
                                &station.name,
                                repetition,
                                m,
                                &tally,
                                &station.bench.deviations,
                            )?)?;
                            let key = (station.name.clone(), m.quantity.clone());
                            values.entry(key).or_default().insert(repetition, Reading::of(m));
                        }
                        progress.measured(&station.name, repetition, &measured);
                    }
                    Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                    Err(error) => {
                        // One fill that failed says nothing of the next repetition.
                        station.failed = !error.may_pass();
                        note_failure(&mut failures, results, progress, station.name.clone(), error)?;
                    }
                }
            }
        }
        let summaries = summarise(&values, &self.names());
        summaries.iter().try_for_each(|summary| results.write(summary))?;
        results.write(&json!({ "record": "end", "complete": failures.is_empty() }))?;
        let placement = stations.iter().map(|s| (s.name.clone(), s.bench.placement.clone())).collect();
        let tallies = stations.iter().map(|s| (s.name.clone(), s.tally)).collect();
        let said =
            |s: &Station| s.bench.deviations.iter().map(|said| (s.name.clone(), said.clone())).collect::<Vec<_>>();
        let deviations = stations.iter().flat_map(said).collect();
        let ports = |s: &Station| (s.name.clone(), s.bench.ports(), s.bench.sending().name());
        let ports = stations.iter().map(ports).collect();
        Ok(SeriesResult { summaries, self_test, failures, tallies, placement, deviations, ports })
    }

    /// The same gateways made again, in the other order every second time. What is known of them stays.
    ///
    /// # Errors
    /// If one that could be made before cannot be made now.
    fn open_anew(
        &self,
        stations: Vec<Station>,
        repetition: u32,
        open: impl Fn(&Spec) -> Result<Station, BenchError>,
    ) -> Result<Vec<Station>, BenchError> {
        let before: Vec<_> = stations.into_iter().map(|s| (s.name, s.known, s.failed, s.tally)).collect();
        let mut anew = Vec::new();
        let specs: Vec<&Spec> = match repetition % 2 {
            0 => self.gateways.iter().rev().collect(),
            _ => self.gateways.iter().collect(),
        };
        for spec in specs {
            let Some(&(_, known, failed, tally)) = before.iter().find(|(name, ..)| *name == spec.to_string()) else {
                continue;
            };
            anew.push(Station { known, failed, tally, ..open(spec)? });
        }
        let names = self.names();
        anew.sort_by_key(|station| names.iter().position(|name| *name == station.name));
        Ok(anew)
    }

    /// Keeps everybody else away, where that was asked for.
    fn isolate(&self, sending: &[usize], gateway: &[usize]) -> Result<Option<Isolation>, BenchError> {
        if !self.isolated {
            return Ok(None);
        }
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        let (cores, others) = isolation::divide(sending, gateway, there);
        let begun = Isolation::begin(&cores, &others);
        begun.map(Some).map_err(|why| BenchError::Unsuitable(format!("the cores cannot be kept for the tester: {why}")))
    }

    /// What is left to be measured takes so long.
    fn forecast(&self, stations: &[Station], values: &Readings) -> Forecast {
        let mut forecast = Forecast { measurements: 0, seconds: 0.0, memory_bytes: 0, gateway_bytes: 0 };
        for station in stations {
            let known = |repetition: &u32| self.is_known(values, &station.name, *repetition);
            let missing = u32::try_from((1..=self.repetitions()).filter(|r| !known(r)).count()).unwrap_or(u32::MAX);
            let is_stateful = station.bench.test_frames.technology.is_stateful();
            let tuples = if is_stateful { u64::from(station.bench.tuples()) } else { 0 };
            let filling = Filling::of(tuples, station.known.connection_rate.map(|rate| rate as f64));
            let (each, first) = match self.procedure {
                Procedure::Scalability => {
                    let shape = station.bench.test_frames.shape;
                    let hosts = u64::from(shape.a_hosts) * u64::from(shape.b_hosts);
                    let cores = station.bench.placement.gateway.len();
                    let points = self.scale.connections_of_points(shape.a_ports, shape.b_ports, hosts, cores);
                    forecast::seconds_of_series(self.scale.rates, &self.effort, filling, &points)
                }
                procedure => forecast::seconds_of(procedure, &self.effort, filling),
            };
            let is_found = self.procedure.rests_on_throughput() && station.known.throughput.is_some();
            let first = if is_found { 0.0 } else { first };
            forecast.measurements += missing;
            forecast.seconds += f64::from(missing) * each + if missing > 0 { first } else { 0.0 };
            forecast.memory_bytes += station.bench.memory_bytes();
            forecast.gateway_bytes += station.bench.gateway.memory_bytes().unwrap_or(0);
        }
        forecast
    }

    /// How often everything is measured. The back-to-back procedure repeats within itself.
    pub fn repetitions(&self) -> u32 {
        match self.procedure {
            Procedure::BackToBack => 1,
            _ => self.effort.repetitions.max(1),
        }
    }

    /// Whether gateways are measured trial by trial in turns. Connections would age meanwhile.
    fn takes_turns(&self, stations: &[&mut Station]) -> bool {
        let keeps_none = |station: &&mut Station| !station.bench.test_frames.technology.is_stateful();
        self.procedure == Procedure::Throughput && stations.len() > 1 && stations.iter().all(keeps_none)
    }

    fn measure(&self, station: &mut Station, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
        self.measure_as(self.procedure, station, observer)
    }

    /// Measures once by any procedure.
    ///
    /// # Errors
    /// If there is no result.
    pub(crate) fn measure_as(
        &self,
        procedure: Procedure,
        station: &mut Station,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Measured>, BenchError> {
        station.bench.probe(observer)?;
        station.measure(procedure, observer)
    }

    /// Makes the first gateway ready to be measured, by itself.
    ///
    /// # Errors
    /// If it or the tester does not work here.
    pub(crate) fn alone(&self, results: &mut ResultFile) -> Result<Station, BenchError> {
        let (sending, gateway_cores) = self.cores()?;
        let self_test = self.begin(results, (&sending, &gateway_cores))?;
        let station = self.open(&self.gateways[0], &sending, &gateway_cores, &self_test)?;
        results.write(&gateway_record(&station))?;
        Ok(station)
    }

    /// The self-test, and the first line of the series.
    fn begin(&self, results: &mut ResultFile, cores: (&[usize], &[usize])) -> Result<SelfTest, BenchError> {
        let first = self.technology_of(&self.gateways[0]);
        let (frame_bytes, _) = self.frame_bytes_of(first);
        let self_test = selftest::run(&SelfTestPlan {
            kind: first.kinds().0,
            frame_bytes,
            core: cores.0[0],
            gateway_core: cores.1.first().copied(),
            means: self.means.or_else(|| self.means_of_the_ports()),
            between: None,
        })?;
        results.write(&self.run_record(&self_test, cores)?)?;
        Ok(self_test)
    }

    /// The ports that lead to gateways elsewhere.
    fn own_ports(&self) -> Vec<Port> {
        let external = self.gateways.iter().filter_map(|spec| match spec {
            Spec::External(hooks) => Some([&hooks.left, &hooks.right]),
            _ => None,
        });
        let mut names: Vec<&String> = external.flatten().collect();
        names.dedup();
        names.into_iter().map(|name| Port { name: name.clone(), namespace: None }).collect()
    }

    /// AF_XDP, where a port to a gateway elsewhere takes no live frames: the self-test tries what the
    /// trials will do.
    fn means_of_the_ports(&self) -> Option<Means> {
        let takes_none = |port: &Port| Interface::of(port).ok()?.xdp.map(|xdp| !xdp.transmits);
        self.own_ports().iter().any(|port| takes_none(port) == Some(true)).then_some(Means::AfXdp)
    }

    fn names(&self) -> Vec<String> {
        self.gateways.iter().map(Spec::to_string).collect()
    }

    /// The gateway's usual trade; plain forwarding and the fault injector carry what the others'
    /// left side sends, and connections as a NAT44 that changes nothing.
    fn technology_of(&self, spec: &Spec) -> Technology {
        let follows = spec.follows_the_others();
        match (self.technology, follows) {
            (Some(technology), false) => technology,
            (_, true) if self.procedure.needs_state() => Technology::Nat44,
            (Some(technology), true) => forwarding_of(technology),
            (None, false) => spec.usual_technology(),
            (None, true) => {
                let other = self.gateways.iter().find(|s| !s.follows_the_others());
                forwarding_of(other.map_or(Technology::Forward4, Spec::usual_technology))
            }
        }
    }

    /// The same UDP payload for every gateway of the series: what is asked for holds on the first
    /// one's left side.
    fn frame_bytes_of(&self, technology: Technology) -> (u16, Option<[u16; 2]>) {
        let kind = technology.kinds().0;
        let first = self.technology_of(&self.gateways[0]).kinds().0;
        let size = self.frame_size.unwrap_or(FrameSize::Bytes(first.shortest()));
        let as_kind = |bytes: u16| same_payload(bytes, first, kind);
        (as_kind(size.shortest(first)), size.others().map(|others| others.map(as_kind)))
    }

    /// The MTU of all links, bytes, where the usual one does not do: frames grow in the gateway, and in
    /// a softwire between two gateways.
    fn mtu_of(&self, technology: Technology) -> Option<u32> {
        let (left, right) = technology.kinds();
        let (bytes, others) = self.frame_bytes_of(technology);
        let longest = others.map_or(bytes, |[_, longest]| longest.max(bytes));
        let softwire = same_payload(longest, left, FrameKind::Ipv4InIpv6);
        let between = if technology.is_pair() { softwire } else { longest };
        let most = [longest, same_payload(longest, left, right), between].into_iter().max().unwrap_or(longest);
        let mtu = u32::from(most) - ETHERNET_BYTES;
        (mtu > USUAL_MTU).then_some(mtu)
    }

    fn flows_of(&self, technology: Technology) -> Flows {
        let connections = if self.effort.quick { 40_000 } else { 4_000_000 };
        self.flows.unwrap_or(match technology.is_stateful() {
            false if technology.shares_ports() => Flows { inside_hosts: 1000, ..Flows::sessions(1000, 100) },
            false => Flows::RFC_4814,
            true if technology.has_one_port_set() => {
                // Half of a subscriber's ports; each is a binding of the NAPT.
                let inside = self.rule_of(technology).ports_per_subscriber() / 2;
                Flows::sessions(inside, connections / inside.max(1))
            }
            true => {
                let outside = if self.effort.quick { 10 } else { 100 };
                Flows::sessions(connections / outside, outside)
            }
        })
    }

    fn rule_of(&self, technology: Technology) -> MapRule {
        let external = self.addresses.as_ref().filter(|_| self.gateways.iter().any(|g| matches!(g, Spec::External(_))));
        external.map_or_else(|| rule_of(technology).0, |addresses| addresses.rule)
    }

    fn cores(&self) -> Result<(Vec<usize>, Vec<usize>), BenchError> {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        let sending = self.sending_cores.clone().unwrap_or_else(|| vec![0]);
        let rest = machine::one_thread_a_core(&sending, there);
        let rest = if rest.is_empty() { sending.clone() } else { rest };
        let mut gateway = self.gateway_cores.clone().unwrap_or(rest);
        // A core that is named twice is one core.
        gateway.sort_unstable();
        gateway.dedup();
        match sending.iter().chain(&gateway).find(|core| **core >= there) {
            Some(core) => Err(BenchError::Unsuitable(format!("there is no core {core}; this machine has {there}"))),
            None if sending.is_empty() || gateway.is_empty() => {
                Err(BenchError::Unsuitable("at least one core has to send, and one to be the gateway's".to_owned()))
            }
            None => Ok((sending, gateway)),
        }
    }

    fn open(
        &self,
        spec: &Spec,
        sending: &[usize],
        gateway_cores: &[usize],
        self_test: &SelfTest,
    ) -> Result<Station, BenchError> {
        let technology = self.technology_of(spec);
        let flows = self.flows_of(technology);
        // A queue for each core that sends, by its number.
        let queues = match sending {
            [_] => 1,
            several => several.iter().max().map_or(1, |last| u32::try_from(last + 1).unwrap_or(1)),
        };
        let gateway: Box<dyn Gateway> = match spec {
            Spec::External(hooks) => Box::new(External::new(hooks.clone())),
            spec => Box::new(Laboratory::start(Setup {
                spec: spec.clone(),
                technology,
                flows,
                tombolo: self.tombolo.clone(),
                settings: self.settings.clone(),
                queues,
                mtu: self.mtu_of(technology),
            })?),
        };
        let addresses = match (spec, &self.addresses) {
            (Spec::External(_), Some(addresses)) => addresses.clone(),
            (spec, _) => hosts::addresses(technology, spec, &flows),
        };
        let test_frames = TestFrames::new(technology, &addresses, &flows).map_err(BenchError::Unsuitable)?;
        let tester_limit = self.max_rate.unwrap_or(self_test.highest_rate * sending.len() as u64);
        let beginning = if self.procedure == Procedure::OverloadIncremental { self.effort.trial_seconds } else { 0.0 };
        let longest = [
            self.effort.trial_seconds + beginning,
            self.effort.latency_seconds + beginning,
            self.effort.variation_seconds,
            self.effort.burst_seconds,
            2.0 * self.effort.overload_seconds,
            self.effort.reset_seconds,
        ];
        let (frame_bytes, imix) = self.frame_bytes_of(technology);
        let base = Background {
            template: Template {
                ends: Ends { source: [0; 6], destination: [0; 6] },
                kind: FrameKind::Ipv6,
                transport: Transport::Udp,
                frame_bytes: 84,
                hop_limit: 0,
            },
            source: Addresses::default().inside_ipv6,
            destination: Addresses::default().outside_ipv6,
            n: 2,
            m: 2,
            hop_limit: 0,
        };
        let sharing = sending.iter().any(|c| gateway_cores.contains(c));
        let directions =
            if sharing && self.directions == Directions::Both { Directions::Forward } else { self.directions };
        let mut bench = Bench::open(BenchPlan {
            gateway,
            test_frames,
            frame_bytes,
            imix,
            mix: self.mix.map(|mix| (mix, base)),
            effort: self.effort,
            directions,
            cores: (sending.to_vec(), gateway_cores.to_vec()),
            tester_limit,
            frames: Effort::frames(tester_limit, longest.into_iter().fold(0.0, f64::max)),
            means: self.means,
        })?;
        bench.scale = self.scale.clone();
        Ok(Station { name: spec.to_string(), bench, known: self.known, failed: false, tally: Tally::default() })
    }

    /// Everything that the RFCs want to be reported and that holds for the whole series.
    fn run_record(&self, self_test: &SelfTest, cores: (&[usize], &[usize])) -> io::Result<Value> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let together = cores.0.iter().any(|c| cores.1.contains(c));
        Ok(json!({
            "record": "run",
            "schema": SCHEMA,
            "started": started,
            "tester": env!("CARGO_PKG_VERSION"),
            "procedure": self.procedure,
            "parameters": self.parameters()?,
            "gateways": self.names(),
            "machine": Machine::describe(&[]),
            "generator": self_test.generator,
            "tester_self_test": self_test,
            "timestamps": "kernel, CLOCK_MONOTONIC, on sending and on receiving",
            "hardware_timestamps": self.hardware_timestamps(),
            "co_located": self.gateways.iter().any(|g| !matches!(g, Spec::External(_))),
            "sending_cores": cores.0,
            "gateway_cores": cores.1,
            "sharing": if together { Sharing::Together } else { Sharing::Apart },
            "latency_definition": "RFC 1242 bit-forwarding device: first bit in to first bit out, kernel time stamps",
            "rate_definition": "throughput: sum of all directions; search and connection rate: one direction",
            "form": self.effort.form,
            "comparable": match (self.effort.quick, self.gateways.iter().all(|g| matches!(g, Spec::External(_)))) {
                (true, _) => "no: scaled down",
                (false, true) => "method of the RFCs; the gateway is elsewhere",
                (false, false) => "method of the RFCs; tester and gateway on one machine",
            },
        }))
    }

    /// Which clocks the ports to gateways elsewhere have. Cables of a lab have none.
    fn hardware_timestamps(&self) -> Value {
        let offered = |port: Port| {
            let said = Interface::of(&port).map_or("not known", |interface| hardware_timestamps(&interface));
            (port.name, Value::from(said))
        };
        match self.own_ports() {
            ports if ports.is_empty() => Value::from("none"),
            ports => Value::Object(ports.into_iter().map(offered).collect()),
        }
    }

    /// What decides whether two series are repetitions of each other.
    fn parameters(&self) -> io::Result<Value> {
        let mut parameters = json!({
            "effort": serde_json::to_value(self.effort)?,
            "directions": self.directions,
            "flows": self.flows,
            "technology": self.technology,
            "frame_bytes": self.frame_size,
            "mix": self.mix,
            "max_rate": self.max_rate,
            "settings": self.settings,
            "ports": "pseudorandom (RFC 4814); phase 1: every tuple once, pseudorandom",
        });
        // Absent where nobody asked, as in files of before.
        if self.scale != Scale::default() {
            parameters["scale"] = serde_json::to_value(&self.scale)?;
        }
        Ok(parameters)
    }

    /// Measurements that the file already holds, of a run with the same procedure and parameters.
    fn earlier(&self, path: &Path) -> Result<Readings, BenchError> {
        let text = fs::read_to_string(path)?;
        let mut values = Readings::new();
        let mut same = false;
        let parameters = without_repetitions(self.parameters()?);
        let procedure = serde_json::to_value(self.procedure).map_err(io::Error::from)?;
        for line in text.lines() {
            // An interruption by a power failure may have left half a line.
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            match line["record"].as_str() {
                Some("run") => {
                    let asked = without_repetitions(line["parameters"].clone());
                    same = line["procedure"] == procedure && asked == parameters;
                }
                Some("result") if same => {
                    let word = |key: &str| line[key].as_str().unwrap_or("").to_owned();
                    let repetition = line["repetition"].as_u64().and_then(|r| u32::try_from(r).ok());
                    if let (Some(repetition), Some(reading)) = (repetition, Reading::from_line(&line)) {
                        let key = (word("gateway"), word("quantity"));
                        values.entry(key).or_default().insert(repetition, reading);
                    }
                }
                _ => {}
            }
        }
        Ok(values)
    }

    fn is_known(&self, values: &Readings, gateway: &str, repetition: u32) -> bool {
        values.iter().any(|((name, _), by_repetition)| name == gateway && by_repetition.contains_key(&repetition))
    }
}

/// How often something was measured does not change what was measured. The back-to-back procedure
/// averages over its repetitions, so there they do.
fn without_repetitions(mut parameters: Value) -> Value {
    if let Some(effort) = parameters["effort"].as_object_mut() {
        effort.remove("repetitions");
    }
    parameters
}

/// The length of a frame of another kind with as much payload.
fn same_payload(bytes: u16, kind: FrameKind, other: FrameKind) -> u16 {
    let ends = Ends { source: [0; 6], destination: [0; 6] };
    let payload = Template { ends, kind, transport: Transport::Udp, frame_bytes: bytes, hop_limit: 0 }.payload_bytes();
    Template::carrying(payload, other, ends, 0).frame_bytes
}

fn forwarding_of(technology: Technology) -> Technology {
    match technology.kinds().0 {
        FrameKind::Ipv4 => Technology::Forward4,
        FrameKind::Ipv6 | FrameKind::Ipv4InIpv6 => Technology::Forward6,
    }
}

/// The throughput of all stations, those that answer a probe.
fn measure_in_turns(
    stations: &mut [&mut Station],
    anew_after: Option<u32>,
    make: &dyn Fn(&str) -> Result<Bench, BenchError>,
    observer: &mut dyn Observer,
) -> Vec<Result<Vec<Measured>, BenchError>> {
    let probes: Vec<_> = stations.iter_mut().map(|station| station.bench.probe(observer)).collect();
    let answering = stations.iter_mut().zip(&probes).filter(|(_, probe)| probe.is_ok());
    let mut gateways = Vec::new();
    for (station, _) in answering {
        let Station { name, bench, known, .. } = &mut **station;
        let name: &str = name;
        gateways.push(InTurn { bench, known, make: Box::new(move || make(name)) });
    }
    let mut measured = procedure::measure_throughput_in_turns(&mut gateways, anew_after, observer).into_iter();
    let outcome = |probe: Result<_, _>| probe.and_then(|_| measured.next().unwrap_or(Err(BenchError::Interrupted)));
    probes.into_iter().map(outcome).collect()
}

fn note_failure(
    failures: &mut Vec<(String, String)>,
    results: &mut ResultFile,
    progress: &mut dyn Progress,
    gateway: String,
    error: BenchError,
) -> Result<(), BenchError> {
    if matches!(error, BenchError::Interrupted) || tombolo_lab::interrupted() {
        return Err(BenchError::Interrupted);
    }
    progress.failed(&gateway, &error);
    results.write(&json!({ "record": "failure", "gateway": gateway, "error": error.to_string() }))?;
    failures.push((gateway, error.to_string()));
    Ok(())
}

fn gateway_record(station: &Station) -> Value {
    let bench = &station.bench;
    let (left, right) = bench.frame_bytes();
    json!({
        "record": "gateway",
        "gateway": station.name,
        "description": bench.gateway.description(),
        "technology": bench.test_frames.technology,
        "frame_bytes_left": left,
        "frame_bytes_right": right,
        "tuples": bench.tuples(),
        "inside_ports": bench.test_frames.shape.a_ports,
        "outside_ports": bench.test_frames.shape.b_ports,
        "inside_hosts": bench.test_frames.shape.a_hosts,
        "outside_hosts": bench.test_frames.shape.b_hosts,
        "directions": bench.directions,
        "udp_timeout_s": bench.gateway.udp_timeout_seconds(),
        "placement": bench.placement,
        "generator": bench.sending().name(),
        "ports": bench.ports(),
    })
}

fn result_record(
    gateway: &str,
    repetition: u32,
    measured: &Measured,
    tally: &Tally,
    deviations: &BTreeSet<String>,
) -> io::Result<Value> {
    let mut line = json!({
        "record": "result", "gateway": gateway, "repetition": repetition, "tally": tally, "deviations": deviations
    });
    let measured = serde_json::to_value(measured)?;
    if let (Some(line), Value::Object(measured)) = (line.as_object_mut(), measured) {
        line.extend(measured);
    }
    Ok(line)
}

/// Keeps the trials, and tells how far it is.
pub(crate) struct Recorder<'a> {
    pub(crate) results: &'a mut ResultFile,
    pub(crate) progress: &'a mut dyn Progress,
    /// Measurements, and of how many.
    pub(crate) done: (u32, u32),
}

impl Observer for Recorder<'_> {
    fn trial(&mut self, record: &TrialRecord) -> io::Result<()> {
        self.results.write(record)
    }

    fn tick(&mut self, status: &Status) -> bool {
        self.progress.status(self.done.0, self.done.1, status);
        !tombolo_lab::interrupted()
    }
}
