//! `tombolo lab demo cluster`: three nodes, one of which loses its power while hosts send, and what they notice of it.
//!
//! Of each slice there is a host with a flow of 250 datagrams a second, and a connection of which both ends speak all the time. New
//! hosts of the dead node's slices come when it dies, and when all is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tombolo_lab::cluster::ClusterLab;
use tombolo_lab::scenario::SLICES;
use tombolo_lab::{Flow, LabError, Scenario, Talk, first_answers, interrupted, talking, under_load};

mod report;

use report::Standing;
pub(crate) use report::{Phase, Report};

use crate::cluster_hosts::{Hosts, flows};

/// How many steps `progress` hears of.
pub(crate) const STEPS: usize = 6;
/// The node that loses its power, and one that says how the cluster stands.
const KILLED: &str = "n2";
const WITNESS: &str = "n1";
/// BFD has found out by then, and no lease is over yet.
const BEFORE_TAKEOVER: Duration = Duration::from_millis(700);
/// So long a new host is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

struct Bed {
    cluster: ClusterLab,
    hosts: Hosts,
    flows: Vec<Flow>,
    talks: Vec<Talk>,
}

/// Shows it; `progress` hears of each step.
pub(crate) fn run(mut progress: impl FnMut(usize, &str)) -> anyhow::Result<Report> {
    let began = Instant::now();
    progress(0, "three gateways, three members of etcd, BIRD on all routers");
    let mut bed = Bed::up()?;
    let of_killed = bed.slices_of(KILLED)?;
    let mut phases = Vec::new();
    progress(1, "all is well");
    phases.push(bed.phase("before", "all is well", |cluster| standing(cluster, None))?);
    progress(2, "n2 loses power");
    let newcomers = bed.newcomers(&of_killed)?;
    std::thread::scope(|scope| {
        let mut asking = None;
        phases.push(bed.phase("death", "n2 loses power; backups act", |cluster| {
            cluster.kill_host(KILLED)?;
            asking = Some(scope.spawn(|| first_answers(&newcomers, Instant::now(), PATIENCE)));
            std::thread::sleep(BEFORE_TAKEOVER);
            standing(cluster, None)
        })?);
        progress(3, "backups take over");
        phases.push(bed.phase("takeover", "its lease ends; backups own its slices", |cluster| {
            let waits = asking.and_then(|asking| asking.join().ok()).unwrap_or_default();
            cluster.wait_until_protected(WITNESS)?;
            standing(cluster, longest(waits)?)
        })?);
        Ok::<(), anyhow::Error>(())
    })?;
    progress(4, "new hosts come");
    let newcomers = bed.newcomers(&of_killed)?;
    phases.push(bed.phase("after", "two nodes serve; new hosts come", |cluster| {
        let waits = first_answers(&newcomers, Instant::now(), PATIENCE);
        standing(cluster, longest(waits)?)
    })?);
    progress(5, "the lab goes");
    drop(bed);
    Ok(Report { killed: KILLED, slices: SLICES, phases, seconds: began.elapsed().as_secs_f64() })
}

impl Bed {
    fn up() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the program that is running")?;
        let cluster = ClusterLab::start(Scenario::agreed_cluster(), &program.display().to_string())?;
        cluster.wait_for_nodes(3)?;
        // What is seen is what the dead node costs, and not how two others share its slices out later.
        cluster.hold_balanced(WITNESS)?;
        cluster.wait_for_slices(3)?;
        let mut hosts = Hosts::of(&cluster)?;
        let known = hosts.come(&cluster, &(0..SLICES).collect::<Vec<_>>())?;
        let flows = flows(&cluster, &known)?;
        for flow in &flows {
            cluster.slice_seen(flow)?;
        }
        let talks = cluster.talks(&known)?;
        Ok(Self { cluster, hosts, flows, talks })
    }

    fn slices_of(&self, node: &str) -> anyhow::Result<Vec<u16>> {
        let all = self.cluster.slices(WITNESS)?.into_iter();
        Ok(all.filter(|(_, owned)| owned.owner.as_deref() == Some(node)).map(|(slice, _)| slice).collect())
    }

    fn newcomers(&mut self, slices: &[u16]) -> anyhow::Result<Vec<Flow>> {
        let come = self.hosts.come(&self.cluster, slices)?;
        flows(&self.cluster, &come)
    }

    /// What known hosts notice while something happens.
    fn phase(
        &mut self,
        phase: &'static str,
        what: &'static str,
        happens: impl FnOnce(&mut ClusterLab) -> Result<Standing, LabError>,
    ) -> anyhow::Result<Phase> {
        let Self { cluster, flows, talks, .. } = self;
        let ((standing, effects), heard) = talking(talks, || under_load(flows, || happens(cluster)));
        if interrupted() {
            return Err(LabError::Interrupted.into());
        }
        Ok(Phase::of(phase, what, &effects, &heard, standing?))
    }
}

/// The longest of them.
fn longest(waits: Vec<Option<Duration>>) -> Result<Option<Duration>, LabError> {
    let all = waits.into_iter().collect::<Option<Vec<Duration>>>();
    let lacking =
        || LabError::TimedOut { what: "a new host to be served".to_owned(), limit: PATIENCE, output: String::new() };
    all.map(|waits| waits.into_iter().max()).ok_or_else(lacking)
}

/// How the cluster stands now.
fn standing(cluster: &ClusterLab, wait: Option<Duration>) -> Result<Standing, LabError> {
    let state = cluster.status(WITNESS)?["status"].as_str().unwrap_or_default().to_owned();
    let mut owners = BTreeMap::new();
    for owner in cluster.slices(WITNESS)?.into_values().filter_map(|owned| owned.owner) {
        *owners.entry(owner).or_default() += 1;
    }
    let mut acting = 0;
    for node in cluster.gateways.keys().filter(|node| node.starts_with('n')) {
        let rows = cluster.rows(node, &["show", "slices"])?;
        let rows = rows.iter().filter(|row| row["state"] == "acting");
        let count = |row: &serde_json::Value| Some(row["last"].as_u64()? + 1 - row["first"].as_u64()?);
        acting += rows.filter_map(count).sum::<u64>();
    }
    Ok(Standing { owners, acting, state, wait })
}
