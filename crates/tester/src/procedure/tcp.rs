//! TCP throughput through several gateways, interleaved.
//!
//! Each gateway stands in a lab of its own, with a client and a server that run iperf3. A round
//! measures every gateway once for every number of flows and both directions; the order of the
//! gateways rotates from round to round, so that neither the drift of the machine nor the
//! neighbourhood of a hungry gateway favours one. Gateways are compared by the median of the ratios
//! within rounds.
//!
//! # Directions
//! The client opens the connections in both. `6to4`: the client sends, so full segments travel from
//! the IPv6 to the IPv4 side, and only acknowledgements back. `4to6`: the server sends (`iperf3
//! -R`). For gateways that translate nothing, and for pairs of gateways, the names mean the same
//! two directions.
//!
//! # What it measures, and what not
//! Goodput: payload that arrived. On veth, senders hand over super-packets of up to 64 KiB, as
//! physical NICs with segmentation offload do; a gateway that keeps them whole does one packet's
//! work for forty. Client, gateway and server share the machine's CPUs, so the figure is that of
//! the whole path: compare ratios, not absolute numbers.

use std::{
    collections::HashSet,
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tombolo_lab::{Lab, LabError, Process};

use crate::{
    gateway::{
        Kind,
        start::{self, Options, Running, StartError},
    },
    iperf3::{self, Iperf3Error, Rate, Run, Sender},
    machine::Machine,
    procedure::Measured,
    processors::Work,
    readings::{GatewaySummary, Reading, Readings, summarise},
    results::ResultFile,
    statistics::{Spread, median_ratio},
};

pub use crate::iperf3::{Protocol, WARM_UP_SECONDS};

/// In which direction the payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Direction {
    /// From the client, on the IPv6 side, to the server.
    #[serde(rename = "6to4")]
    SixToFour,
    /// From the server, on the IPv4 side, to the client.
    #[serde(rename = "4to6")]
    FourToSix,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct TcpComparison {
    /// Connections or datagrams.
    pub protocol: Protocol,
    /// The gateways.
    pub gateways: Vec<Kind>,
    /// Numbers of parallel connections.
    pub flows: Vec<u32>,
    /// Directions.
    pub directions: Vec<Direction>,
    /// How often everything is measured.
    pub rounds: u32,
    /// How long each measurement takes, in seconds.
    pub seconds: u32,
    /// What goes before, in seconds.
    pub warm_up_seconds: u32,
    /// How gateways are started.
    pub options: Options,
}

/// The first line of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    record: String,
    procedure: String,
    /// Seconds since 1970; every line of the run has it.
    pub run: u64,
    /// The version of the tester.
    pub tester: String,
    /// What it runs on.
    pub machine: Machine,
    topology: String,
    link: String,
    mtu: u32,
    congestion_control: String,
    rounds: u32,
    seconds: u32,
    warm_up_seconds: u32,
    order: String,
    gateways: Vec<GatewayRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GatewayRecord {
    gateway: String,
    version: String,
    settings: String,
    server_seen_by_client: String,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    record: String,
    procedure: String,
    run: u64,
    /// The gateway's name.
    pub gateway: String,
    /// The round, counted from 1.
    pub round: u32,
    /// The gateway's place within the round, counted from 1.
    pub place: usize,
    /// Parallel connections.
    pub flows: u32,
    /// In which direction the payload went.
    pub direction: Direction,
    /// Payload that arrived, in bits a second; absent when the measurement failed.
    pub bits_per_second: Option<f64>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// What was sent, in bits a second, and lost, in percent; of datagrams alone.
    #[serde(default)]
    pub sent: Option<(f64, f64)>,
    /// How busy each processor of the machine was meanwhile, in percent: client, gateway and server
    /// together, and whoever else was there.
    #[serde(default)]
    pub processors_percent: Vec<f64>,
    /// The command that the client ran.
    pub command: String,
    /// Why it failed.
    pub error: Option<String>,
}

/// All rounds of one gateway, number of flows and direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    record: String,
    procedure: String,
    run: u64,
    /// The gateway's name.
    pub gateway: String,
    /// Parallel connections.
    pub flows: u32,
    /// In which direction the payload went.
    pub direction: Direction,
    /// Bits a second; absent when every measurement failed.
    pub bits_per_second: Option<Spread>,
    /// Measurements that failed.
    pub failures: usize,
    /// The median of the ratios to plain forwarding over as many hops in the same round: of IPv6,
    /// or of IPv4 where only that is measured.
    pub ratio_to_plain: Option<f64>,
    /// The median of the ratios to Tayga in the same round.
    pub ratio_to_tayga: Option<f64>,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// A lab could not be built or used.
    #[error("the lab failed")]
    Lab(#[from] LabError),
    /// A gateway did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Results cannot be written.
    #[error("cannot write results")]
    Results(#[from] io::Error),
}

/// A gateway in its lab, with a server that waits.
#[derive(Debug)]
struct Bed {
    gateway: Running,
    _server: Process,
    // Last: dropping it takes everything else with it.
    lab: Lab,
}

impl TcpComparison {
    /// Removes what is named twice: it would be measured twice and paired with itself.
    pub fn deduplicate(&mut self) {
        fn once<T: Copy + Eq + std::hash::Hash>(list: &mut Vec<T>) {
            let mut seen = HashSet::new();
            list.retain(|item| seen.insert(*item));
        }
        once(&mut self.gateways);
        once(&mut self.flows);
        once(&mut self.directions);
    }

    /// How many measurements that makes.
    #[must_use]
    pub fn measurements(&self) -> usize {
        let rounds = usize::try_from(self.rounds).unwrap_or(usize::MAX);
        self.gateways.len() * self.flows.len() * self.directions.len() * rounds
    }

    /// How long the traffic takes; starting gateways comes on top.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let measurements = u32::try_from(self.measurements()).unwrap_or(u32::MAX);
        Duration::from_secs(u64::from(self.warm_up_seconds + self.seconds)).saturating_mul(measurements)
    }

    /// Measures everything. Samples go to `results` as they are taken, and to `progress`, with the
    /// number of each. A measurement that fails is a sample with an error; the run goes on.
    ///
    /// # Errors
    /// [`TcpError`] when a gateway does not start or results cannot be written.
    pub fn run(
        &self,
        results: &mut ResultFile,
        mut progress: impl FnMut(usize, &Sample),
    ) -> Result<Vec<Summary>, TcpError> {
        let beds = self.gateways.iter().map(|kind| Bed::make(*kind, &self.options));
        let mut beds = beds.collect::<Result<Vec<Bed>, TcpError>>()?;
        let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        results.write(&self.describe(run, &beds)?)?;
        let mut samples = Vec::new();
        for round in 1..=self.rounds {
            for sample in self.round(run, round, &mut beds) {
                let sample = sample?;
                results.write(&sample)?;
                samples.push(sample);
                progress(samples.len(), &samples[samples.len() - 1]);
            }
        }
        self.common_summaries(&samples).iter().try_for_each(|summary| results.write(summary))?;
        Ok(self.summarise(run, &samples))
    }

    /// One round, lazily: each step measures.
    fn round<'a>(
        &'a self,
        run: u64,
        round: u32,
        beds: &'a mut [Bed],
    ) -> impl Iterator<Item = Result<Sample, LabError>> + 'a {
        let cases =
            self.flows.iter().flat_map(|flows| self.directions.iter().map(move |direction| (*flows, *direction)));
        let count = beds.len();
        let first = usize::try_from(round - 1).unwrap_or_default();
        let steps = cases.flat_map(move |case| (0..count).map(move |place| (case, place)));
        steps.map(move |((flows, direction), place)| {
            let bed = &mut beds[(first + place) % count];
            let sample = bed.measure(self, flows, direction)?;
            Ok(Sample { run, round, place: place + 1, ..sample })
        })
    }

    fn describe(&self, run: u64, beds: &[Bed]) -> Result<RunRecord, LabError> {
        // The same in every namespace of every lab.
        let server = beds.first().map(|bed| bed.lab.node("server")).transpose()?;
        let congestion_control = server.map(|node| node.sysctl("net.ipv4.tcp_congestion_control")).transpose()?;
        let gateways = beds.iter().map(|bed| GatewayRecord {
            gateway: bed.gateway.kind.name().to_owned(),
            version: bed.gateway.version.clone(),
            settings: match bed.gateway.kind {
                kind if kind == Kind::Tombolo || Kind::PAIRS.contains(&kind) => self.options.settings.clone(),
                _ => String::new(),
            },
            server_seen_by_client: bed.gateway.server_seen_by_client.to_string(),
        });
        Ok(RunRecord {
            record: "run".to_owned(),
            procedure: self.protocol_name().to_owned(),
            run,
            tester: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::describe(&["iperf3"]),
            topology: self.topologies(),
            link: "veth, segmentation and checksum offloads on".to_owned(),
            mtu: 1500,
            congestion_control: congestion_control.unwrap_or_default(),
            rounds: self.rounds,
            seconds: self.seconds,
            warm_up_seconds: self.warm_up_seconds,
            order: "interleaved; the first gateway rotates from round to round".to_owned(),
            gateways: gateways.collect(),
        })
    }

    fn protocol_name(&self) -> &'static str {
        match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }

    /// The names of the topologies, each once.
    fn topologies(&self) -> String {
        let mut names: Vec<String> = self.gateways.iter().map(|kind| kind.topology().name).collect();
        names.sort();
        names.dedup();
        names.join(", ")
    }

    fn summarise(&self, run: u64, samples: &[Sample]) -> Vec<Summary> {
        let mut summaries = Vec::new();
        for direction in &self.directions {
            for flows in &self.flows {
                for gateway in &self.gateways {
                    summaries.push(self.summary(run, *gateway, *flows, *direction, samples));
                }
            }
        }
        summaries
    }

    /// The lines at the end of the result file, of the form that all procedures have.
    fn common_summaries(&self, samples: &[Sample]) -> Vec<GatewaySummary> {
        let mut readings = Readings::new();
        for sample in samples {
            for measured in sample.measured(self.protocol) {
                let key = (sample.gateway.clone(), measured.quantity.clone());
                readings.entry(key).or_default().insert(sample.round, Reading::of(&measured));
            }
        }
        let names: Vec<String> = self.gateways.iter().map(|kind| kind.name().to_owned()).collect();
        summarise(&readings, &names)
    }

    fn summary(&self, run: u64, gateway: Kind, flows: u32, direction: Direction, samples: &[Sample]) -> Summary {
        // One place a round, so that ratios pair measurements of the same round.
        let of = |kind: Kind| -> Vec<Option<f64>> {
            let taken = |round, sample: &&Sample| {
                sample.round == round
                    && sample.gateway == kind.name()
                    && sample.flows == flows
                    && sample.direction == direction
            };
            let rounds = 1..=self.rounds;
            rounds.map(|round| samples.iter().find(|sample| taken(round, sample))?.bits_per_second).collect()
        };
        let plain = match gateway.yardstick() {
            Kind::Plain if !self.gateways.contains(&Kind::Plain) => Kind::Plain4,
            plain => plain,
        };
        let ours = of(gateway);
        let measured: Vec<f64> = ours.iter().flatten().copied().collect();
        Summary {
            record: "summary".to_owned(),
            procedure: "tcp".to_owned(),
            run,
            gateway: gateway.name().to_owned(),
            flows,
            direction,
            bits_per_second: Spread::of(&measured),
            failures: ours.len() - measured.len(),
            ratio_to_plain: median_ratio(&ours, &of(plain)),
            ratio_to_tayga: median_ratio(&ours, &of(Kind::Tayga)),
        }
    }
}

impl Sample {
    /// What was measured, each as a point over the number of flows.
    fn measured(&self, protocol: Protocol) -> Vec<Measured> {
        let (flows, direction) = (self.flows, self.direction);
        let words = format!("{flows} flow{}", if flows == 1 { "" } else { "s" });
        let rate = |name: &str, value| Measured::rate(format!("{name}, {direction}"), value, "bit/s", Value::Null);
        let percent = |name: &str, value| Measured::cost(format!("{name}, {direction}"), value, "%", Value::Null);
        let arrived = self.bits_per_second.unwrap_or_default();
        let mut all = vec![rate(if protocol == Protocol::Tcp { "TCP goodput" } else { "UDP goodput" }, arrived)];
        if let Some((sent, lost)) = self.sent {
            all.extend([rate("UDP sent", sent), percent("UDP loss", lost)]);
        }
        all.push(percent("processors of the machine", self.processors_percent.iter().sum()));
        let marked = |one: Measured| match &self.error {
            Some(error) => one.without_value(error),
            None => one,
        };
        all.into_iter().map(|one| marked(one.at("flows", u64::from(flows), &words))).collect()
    }
}

impl Bed {
    fn make(kind: Kind, options: &Options) -> Result<Self, TcpError> {
        let lab = Lab::create(&kind.topology())?;
        let gateway = start::start(kind, &lab, options)?;
        let server = iperf3::serve(lab.node("server")?)?;
        Ok(Self { gateway, _server: server, lab })
    }

    /// Measures once; the caller fills in where in the run this is.
    fn measure(&mut self, asked: &TcpComparison, flows: u32, direction: Direction) -> Result<Sample, LabError> {
        let sender = match direction {
            Direction::SixToFour => Sender::Client,
            Direction::FourToSix => Sender::Server,
        };
        let run = Run {
            server: self.gateway.server_seen_by_client,
            protocol: asked.protocol,
            sender,
            flows,
            seconds: asked.seconds,
            warm_up_seconds: asked.warm_up_seconds,
        };
        let before = Work::now();
        let outcome = match run.measure(self.lab.node("client")?) {
            Err(Iperf3Error::Lab(error @ (LabError::Interrupted | LabError::MissingTool { .. }))) => {
                return Err(error);
            }
            other => other,
        };
        let busy = Work::now().percent_since(&before);
        let error = outcome.as_ref().err().map(|error| self.explain(error));
        let rate: Option<Rate> = outcome.ok();
        Ok(Sample {
            record: "sample".to_owned(),
            procedure: "tcp".to_owned(),
            run: 0,
            gateway: self.gateway.kind.name().to_owned(),
            round: 0,
            place: 0,
            flows,
            direction,
            bits_per_second: rate.map(|rate| rate.bits_per_second),
            retransmits: rate.map(|rate| rate.retransmits),
            sent: rate.and_then(|rate| rate.sent),
            processors_percent: busy,
            command: format!("iperf3 {}", run.arguments().join(" ")),
            error,
        })
    }

    /// The error, with the gateway's last words when it is the gateway that has gone.
    fn explain(&mut self, error: &Iperf3Error) -> String {
        if self.gateway.is_running() {
            return error.to_string();
        }
        format!("{error}; {} has ended:{}", self.gateway.kind, self.gateway.log_tail(10))
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SixToFour => "6to4",
            Self::FourToSix => "4to6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_measured_twice() {
        let mut comparison = TcpComparison {
            protocol: Protocol::Tcp,
            gateways: vec![Kind::Plain, Kind::Tayga, Kind::Plain],
            flows: vec![10, 1, 10],
            directions: vec![Direction::FourToSix, Direction::FourToSix],
            rounds: 5,
            seconds: 3,
            warm_up_seconds: WARM_UP_SECONDS,
            options: Options::new("tombolo".into(), String::new(), crate::gateway::Technology::Nat64),
        };
        comparison.deduplicate();
        assert_eq!(comparison.gateways, [Kind::Plain, Kind::Tayga]);
        assert_eq!((comparison.flows.as_slice(), comparison.directions.len()), ([10, 1].as_slice(), 1));
        assert_eq!((comparison.measurements(), comparison.duration()), (20, 20 * Duration::from_secs(5)));
    }
}
