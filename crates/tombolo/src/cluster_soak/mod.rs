//! `tombolo lab soak cluster`: three nodes under load, to which one fault after another happens, each of which is mended before the
//! next; and then every invariant over the logs and tables of all nodes.
//!
//! Of each slice there is a host with a flow and a connection, which may lose datagrams and no binding; and guests come and go, so
//! that blocks are granted and given back (`guests`). Which fault hits which node when follows from the seed (`fault`). In the end no
//! block was two subscribers' within `port_reuse` (`claims`), no endpoint is two hosts' (`tables`), and no epoch has ever fallen.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tombolo_lab::cluster::ClusterLab;
use tombolo_lab::scenario::SLICES;
use tombolo_lab::{Flow, LabError, Scenario, Talk, interrupted, talking, under_load};

mod claims;
mod fault;
mod guests;
mod report;
mod tables;

use fault::{Fault, NODES};
use guests::Guests;
pub(crate) use report::{Report, Seen};

use crate::cluster_hosts::{Hosts, flows};
use crate::numbers::Numbers;

/// Times are short, so that blocks come back and are granted again, seconds: of bindings of UDP, and of closed ports.
const UDP: u64 = 20;
const PORT_REUSE: u64 = 20;
/// Guests of each slice.
const GUESTS: usize = 6;
/// A fault lasts for so long at most.
const LONGEST: u64 = 5000;
/// So many failures are told.
const MOST_FAILURES: usize = 20;

struct Bed {
    cluster: ClusterLab,
    flows: Vec<Flow>,
    talks: Vec<Talk>,
    /// What the server sees of each flow.
    endpoints: Vec<SocketAddr>,
    epochs: BTreeMap<u16, u64>,
}

/// Goes on for `seconds`; `progress` hears of each fault, and of the second in which it begins.
pub(crate) fn run(seconds: u64, seed: u64, mut progress: impl FnMut(u64, &str)) -> anyhow::Result<Report> {
    let (mut bed, guests) = Bed::up()?;
    let mut report = Report { seed, epochs: [bed.epochs.values().sum(), 0], ..Report::default() };
    let is_over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| guests.come(&is_over));
        let ended = bed.endure(seconds, Numbers(seed), &mut report, &mut progress);
        is_over.store(true, Ordering::Release);
        ended
    });
    if interrupted() {
        return Err(LabError::Interrupted.into());
    }
    // What does not mend is a failure like any other, and the tables say more about it.
    report.failures.extend(ended.err().map(|error| error.chain()));
    report.guests = guests.counts();
    bed.judge(&mut report)?;
    Ok(report)
}

impl Bed {
    fn up() -> anyhow::Result<(Self, Guests)> {
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let cluster = ClusterLab::start(scenario(), &program.display().to_string())?;
        cluster.wait_for_nodes(NODES.len())?;
        cluster.wait_until_protected(NODES[0])?;
        cluster.wait_for_slices(NODES.len())?;
        let mut hosts = Hosts::of(&cluster)?;
        let slices: Vec<u16> = (0..SLICES).collect();
        let known = hosts.come(&cluster, &slices)?;
        let flows = flows(&cluster, &known)?;
        let endpoints = seen(&cluster, &flows)?;
        let talks = cluster.talks(&known)?;
        let guests = Guests::of(&cluster, hosts.come(&cluster, &slices.repeat(GUESTS))?)?;
        let epochs = epochs(&cluster)?;
        Ok((Self { cluster, flows, talks, endpoints, epochs }, guests))
    }

    /// One fault after the other.
    fn endure(
        &mut self,
        seconds: u64,
        mut numbers: Numbers,
        report: &mut Report,
        progress: &mut impl FnMut(u64, &str),
    ) -> Result<(), LabError> {
        let begin = Instant::now();
        while begin.elapsed().as_secs() < seconds && report.failures.len() < MOST_FAILURES {
            let fault = *numbers.pick(&fault::ALL);
            progress(begin.elapsed().as_secs(), fault.name());
            let mended = self.episode(fault, &mut numbers, report);
            report.seconds = begin.elapsed().as_secs();
            mended?;
        }
        Ok(())
    }

    /// A fault happens, lasts, and is mended.
    fn episode(&mut self, fault: Fault, numbers: &mut Numbers, report: &mut Report) -> Result<(), LabError> {
        let (node, lasts) = (numbers.below(NODES.len()), Duration::from_millis(numbers.draw() % LONGEST));
        let Self { cluster, flows, talks, .. } = self;
        let ((mended, effects), heard) = talking(talks, || {
            under_load(flows, || {
                let standing = fault.happen(cluster, node)?;
                std::thread::sleep(lasts);
                standing.mend(cluster)?;
                let since = Instant::now();
                cluster.wait_for_nodes(NODES.len())?;
                cluster.wait_for_slices(NODES.len())?;
                cluster.wait_until_protected(NODES[0])?;
                Ok::<Duration, LabError>(since.elapsed())
            })
        });
        let at = format!("{} at {} for {lasts:?}", fault.name(), NODES[node]);
        let protected = mended.inspect_err(|_| report.failures.push(format!("{at}: it does not mend")))?;
        let now = humantime::format_rfc3339_millis(std::time::SystemTime::now());
        let dead = heard.iter().filter(|heard| !heard.is_alive);
        report
            .failures
            .extend(dead.map(|heard| format!("{at}, until {now}: the connection of {} is dead", heard.name)));
        report.faults.entry(fault.name()).or_default().add(&effects, &heard, protected);
        let epochs = epochs(&self.cluster)?;
        let fallen = |(slice, epoch): (&u16, &u64)| (epochs.get(slice) < Some(epoch)).then_some(*slice);
        let fallen: Vec<u16> = self.epochs.iter().filter_map(fallen).collect();
        if !fallen.is_empty() {
            report
                .failures
                .push(format!("{at}: epochs of slices {fallen:?} have fallen: {:?}, {epochs:?}", self.epochs));
        }
        self.epochs = epochs;
        Ok(())
    }

    /// All that must be so in the end.
    fn judge(&mut self, report: &mut Report) -> anyhow::Result<()> {
        report.epochs[1] = self.epochs.values().sum();
        match seen(&self.cluster, &self.flows) {
            Ok(endpoints) if endpoints != self.endpoints => report
                .failures
                .push(format!("known hosts have other endpoints: {:?} have become {endpoints:?}", self.endpoints)),
            Ok(_) => {}
            Err(error) => report.failures.push(error.chain()),
        }
        let (endpoints, conflicts) = tables::conflicts(&self.cluster)?;
        report.endpoints = endpoints;
        report.failures.extend(conflicts.into_iter().take(MOST_FAILURES));
        // What they log last they log when they end.
        std::mem::take(&mut self.cluster.gateways).into_values().for_each(|gateway| drop(gateway.stop()));
        let mut claims = Vec::new();
        for node in NODES {
            let file = self.cluster.lab.directory()?.join(format!("{node}.log"));
            let log = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            claims.extend(claims::of_log(node, &log));
        }
        report.claims = claims.len();
        report.failures.extend(claims::conflicts(claims, PORT_REUSE).into_iter().take(MOST_FAILURES));
        if !report.failures.is_empty() {
            report.history = self.cluster.history().unwrap_or_else(|error| vec![error.chain()]);
        }
        Ok(())
    }
}

/// The cluster that keeps accounts, with short times.
fn scenario() -> Scenario {
    let mut scenario = Scenario::logged_cluster();
    let nodes: Vec<&str> = scenario.agreeing().collect();
    for (_, text) in scenario.gateways.iter_mut().filter(|(node, _)| nodes.contains(node)) {
        text.push_str(&format!("\n[timeouts]\nudp = {UDP}\nport_reuse = {PORT_REUSE}\n"));
    }
    scenario
}

/// What the server sees of flows.
fn seen(cluster: &ClusterLab, flows: &[Flow]) -> Result<Vec<SocketAddr>, LabError> {
    let one = |flow: &Flow| {
        cluster.endpoint(flow, 10).ok_or_else(|| LabError::TimedOut {
            what: format!("an answer for {}", flow.name()),
            limit: Duration::from_secs(2),
            output: String::new(),
        })
    };
    flows.iter().map(one).collect()
}

fn epochs(cluster: &ClusterLab) -> Result<BTreeMap<u16, u64>, LabError> {
    Ok(cluster.slices(NODES[0])?.into_iter().map(|(slice, owned)| (slice, owned.epoch)).collect())
}
