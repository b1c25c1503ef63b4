//! Slices that move while all nodes live: a node is drained and undrained, one joins, and all are started anew in turn. Nobody notices.

use std::time::{Duration, Instant};

use serde_json::Value;
use tombolo_lab::{Flow, Scenario, skip_without, wait_until};

use crate::boxes::Cluster;
use crate::loads::under_load;
use crate::running::{PATIENCE, TOMBOLO};
use crate::subscribers::{alive, check_all};

/// How long a node may take to give its slices away, or to get its share.
const MOVING: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 5] = ["bird", "etcd", "etcdctl", "ip", "openssl"];

/// A cluster whose hosts all have bindings and connections.
struct Bed {
    cluster: Cluster,
    flows: Vec<Flow>,
    connections: Vec<(String, std::net::TcpStream)>,
}

impl Bed {
    fn up() -> Self {
        let cluster = Cluster::of(Scenario::agreed_cluster());
        let bed = Self { flows: cluster.subscribers(), connections: Vec::new(), cluster };
        bed.wait_for("protection", PATIENCE, |status| status["status"] == "protected");
        bed.cluster.wait_for_slices();
        bed.endpoints();
        let connections = bed.cluster.connections();
        assert_eq!(alive(&connections), connections.len());
        std::thread::sleep(Duration::from_millis(200));
        Self { connections, ..bed }
    }

    fn endpoints(&self) -> Vec<std::net::SocketAddr> {
        let of = |flow: &Flow| self.cluster.endpoint(flow, 10).unwrap_or_else(|| panic!("{}: no answer", flow.name()));
        self.flows.iter().map(of).collect()
    }

    /// How the cluster stands, as n1 sees it.
    fn status(&self) -> Value {
        serde_json::from_str(&tombolo(&self.cluster, "n1", "status")).unwrap()
    }

    fn wait_for(&self, what: &str, limit: Duration, is_so: impl Fn(&Value) -> bool) {
        let found = wait_until(what, limit, || is_so(&self.status()).then_some(()));
        found.unwrap_or_else(|error| panic!("{error}\n{:#}", self.status()));
    }

    /// Does something under load: no datagram is lost, and no connection.
    fn unnoticed(&mut self, what: &str, done: impl FnOnce(&mut Cluster)) {
        let Self { cluster, flows, connections } = self;
        let by_all = vec![true; flows.len()];
        let began = Instant::now();
        let effects = under_load(cluster, flows, &by_all, done);
        eprintln!("{what}: took {:?}", began.elapsed());
        check_all(what, &effects, Duration::ZERO, connections);
        let lost: usize = effects.iter().map(|effect| effect.seen.lost).sum();
        assert_eq!(lost, 0, "{what}");
    }
}

/// `tombolo cluster ... --json`, by a node.
fn tombolo(cluster: &Cluster, node: &str, words: &str) -> String {
    let file = cluster.lab.directory().unwrap().join(format!("{node}.toml"));
    cluster.command(node, &format!("{TOMBOLO} cluster {words} --json -c {}", file.display()))
}

fn owned(status: &Value, node: &str) -> u64 {
    let nodes = status["nodes"].as_array().unwrap();
    nodes.iter().find(|row| row["node"] == node).map_or(0, |row| row["owns"].as_u64().unwrap())
}

/// All slices have an owner and a copy, and none is to move.
fn is_settled(status: &Value) -> bool {
    status["status"] == "protected" && status["moves"] == 0
}

#[test]
fn a_node_is_drained_and_undrained_and_nobody_notices() {
    if skip_without("a_node_is_drained_and_undrained_and_nobody_notices", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let endpoints = bed.endpoints();
    assert!(owned(&bed.status(), "n2") > 0);

    bed.unnoticed("n2 is drained", |cluster| drop(tombolo(cluster, "n1", "drain n2 --wait 60")));
    let status = bed.status();
    assert_eq!((owned(&status, "n2"), status["nodes"][1]["drain"].as_str()), (0, Some("drained")), "{status:#}");
    bed.wait_for("n1 and n3 to share", MOVING, is_settled);
    assert_eq!(bed.endpoints(), endpoints);

    bed.unnoticed("n2 is undrained", |cluster| drop(tombolo(cluster, "n1", "undrain n2 --wait 60")));
    bed.wait_for("all to share", MOVING, |status| is_settled(status) && owned(status, "n2") >= 2);
    assert_eq!(bed.endpoints(), endpoints);
}

#[test]
fn a_slice_is_moved_and_stays_where_it_is_wanted() {
    if skip_without("a_slice_is_moved_and_stays_where_it_is_wanted", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let owner = bed.status()["slices"][0]["owner"].as_str().unwrap().to_owned();
    let other = if owner == "n3" { "n2" } else { "n3" };
    bed.unnoticed("slice 0 is moved", |cluster| drop(tombolo(cluster, "n1", &format!("move 0 {other} --wait 60"))));
    let first = bed.status()["slices"][0].clone();
    assert_eq!((first["owner"].as_str(), first["pinned"].as_str()), (Some(other), Some(other)));
    bed.wait_for("all to share", MOVING, is_settled);
    let refused = bed.cluster.lab.node("n1").unwrap().command(TOMBOLO);
    let file = bed.cluster.lab.directory().unwrap().join("n1.toml").display().to_string();
    let refused = refused.args(["cluster", "move", "0", "n9", "-c", &file]).run().unwrap();
    assert!(refused.stderr.contains("no node of the cluster is called n9; its nodes are n1, n2, n3"), "{refused:?}");
}

#[test]
fn a_node_that_joins_gets_its_share_and_nobody_notices() {
    if skip_without("a_node_that_joins_gets_its_share_and_nobody_notices", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    // It leaves as it should: with nothing.
    tombolo(&bed.cluster, "n1", "drain n3 --wait 60");
    drop(bed.cluster.gateways.remove("n3"));
    tombolo(&bed.cluster, "n1", "undrain n3 --wait 0");
    bed.wait_for("n1 and n2 alone", MOVING, |status| {
        is_settled(status) && status["nodes"].as_array().unwrap().len() == 2
    });
    let endpoints = bed.endpoints();
    bed.unnoticed("n3 joins", |cluster| {
        cluster.start("n3");
        cluster.wait_for_all();
        let began = Instant::now();
        while began.elapsed() < MOVING {
            let status: Value = serde_json::from_str(&tombolo(cluster, "n1", "status")).unwrap();
            if is_settled(&status) && owned(&status, "n3") >= 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    assert!(owned(&bed.status(), "n3") >= 2, "{:#}", bed.status());
    assert_eq!(bed.endpoints(), endpoints);
}

#[test]
fn all_nodes_are_started_anew_in_turn_and_nobody_notices() {
    if skip_without("all_nodes_are_started_anew_in_turn_and_nobody_notices", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let endpoints = bed.endpoints();
    for node in ["n1", "n2", "n3"] {
        let other = if node == "n1" { "n2" } else { "n1" };
        bed.unnoticed(&format!("{node} is drained, started anew, and undrained"), |cluster| {
            let began = Instant::now();
            let step = |what: &str| eprintln!("  {what} after {:?}", began.elapsed());
            tombolo(cluster, other, &format!("drain {node} --wait 60"));
            step("drained");
            drop(cluster.gateways.remove(node));
            cluster.start(node);
            step("started anew");
            // As long as it is to be drained it is no entrance.
            tombolo(cluster, other, &format!("undrain {node} --wait 60"));
            step("undrained");
            cluster.wait_for_all();
        });
        bed.wait_for("all to share", MOVING, |status| is_settled(status) && owned(status, node) >= 2);
    }
    assert_eq!(bed.endpoints(), endpoints);
}

/// Owners may hand a slice over while its backup's agent has not looked yet at what copies have become.
#[test]
fn a_backup_that_is_late_begins_with_the_copy_that_it_has() {
    if skip_without("a_backup_that_is_late_begins_with_the_copy_that_it_has", &PROGRAMS) {
        return;
    }
    let mut bed = Bed::up();
    let endpoints = bed.endpoints();
    tombolo(&bed.cluster, "n2", "drain n1 --wait 60");
    drop(bed.cluster.gateways.remove("n1"));
    bed.cluster.start_with("n1", "thread-ownership=late");
    tombolo(&bed.cluster, "n2", "undrain n1 --wait 60");
    bed.cluster.wait_for_all();
    bed.wait_for("n1 to have its share", MOVING, |status| is_settled(status) && owned(status, "n1") >= 2);
    assert_eq!(bed.endpoints(), endpoints);
    assert_eq!(alive(&bed.connections), bed.connections.len());
}
