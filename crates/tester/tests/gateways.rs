//! Gateways under test, started in labs. Root is needed, and the programs.

#![expect(clippy::unwrap_used, reason = "a test: a panic is a failure")]

use std::collections::BTreeSet;
use std::fs;

use tombolo_lab::{Lab, Topology, skip_without};
use tombolo_tester::{
    gateway::between_ports::{Gateway as _, laboratory::Laboratory},
    gateway::{
        Flows, Kind, Spec, Technology,
        start::{Options, StartError, start},
    },
    procedure::tcp::{Direction, Protocol, TcpComparison, WARM_UP_SECONDS},
    results::ResultFile,
};

mod common;

use common::{setup, turn};

fn options() -> Options {
    Options::new("/no/such/tombolo".into(), String::new(), Technology::Nat64)
}

#[test]
fn plain_forwarding_is_a_gateway() {
    if skip_without("plain_forwarding_is_a_gateway", &["ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    for kind in [Kind::Plain, Kind::Plain4] {
        assert!(start(kind, &lab, &options()).unwrap().is_running());
    }
}

#[test]
fn tayga_translates_both_ways() {
    if skip_without("tayga_translates_both_ways", &["ping", "tayga"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let mut gateway = start(Kind::Tayga, &lab, &options()).unwrap();
    let client = gateway.client_seen_by_server.unwrap().ip().to_string();
    let server = lab.node("server").unwrap();
    server.command("ping").args(["-c", "1", "-W", "2"]).arg(client).run().unwrap().success().unwrap();
    assert!(gateway.is_running());
}

#[test]
fn iptables_hides_the_client() {
    if skip_without("iptables_hides_the_client", &["ping", "iptables"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let gateway = start(Kind::Iptables, &lab, &options()).unwrap();
    // Without a route back to the client, only translated packets are answered.
    let default = Topology::client_gateway_server().node_mut("server").unwrap().routes[0];
    lab.node("server").unwrap().remove_route(default).unwrap();
    let server = gateway.server_seen_by_client.to_string();
    let client = lab.node("client").unwrap();
    client.command("ping").args(["-c", "1", "-W", "2"]).arg(server).run().unwrap().success().unwrap();
}

#[test]
fn a_gateway_that_is_not_there_is_named() {
    if skip_without("a_gateway_that_is_not_there_is_named", &["ping"]) {
        return;
    }
    let lab = Lab::create(&Topology::client_gateway_server()).unwrap();
    let error = start(Kind::Tombolo, &lab, &options()).unwrap_err();
    assert!(matches!(error, StartError::Lab { kind: Kind::Tombolo, .. }), "{error}");
}

/// Policy and priority of the threads that this machine has beyond those of `before`, by name.
fn scheduled(before: &BTreeSet<String>, is_gateways: impl Fn(&str) -> bool) -> BTreeSet<(String, u32, u32)> {
    let new = threads().into_iter().filter(|thread| !before.contains(thread));
    let of_thread = |thread: String| {
        let stat = fs::read_to_string(format!("{thread}/stat")).ok()?;
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let field = |number: usize| fields.split(' ').nth(number - 3)?.parse().ok();
        // rt_priority and policy, as proc(5) numbers them.
        is_gateways(name).then_some((name.to_owned(), field(41)?, field(40)?))
    };
    new.filter_map(of_thread).collect()
}

fn threads() -> BTreeSet<String> {
    let numbers = |directory: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter_map(|path| path.to_str().filter(|path| path.ends_with(char::is_numeric)).map(str::to_owned))
    };
    numbers("/proc").flat_map(|process| numbers(&format!("{process}/task")).collect::<Vec<_>>()).collect()
}

/// SCHED_RR.
const ROUND_ROBIN: u32 = 2;

/// Otherwise who has the higher priority is measured, and not who forwards faster.
#[test]
fn gateways_in_the_kernel_and_out_of_it_are_scheduled_alike() {
    if skip_without("gateways_in_the_kernel_and_out_of_it_are_scheduled_alike", &["ip", "nft", "tayga"]) {
        return;
    }
    let _turn = turn();
    for (spec, technology, process) in [
        ("plain", Technology::Nat44, None),
        ("nftables", Technology::Nat44, None),
        ("tayga", Technology::Siit, Some("tayga")),
    ] {
        let before = threads();
        let spec: Spec = spec.parse().unwrap();
        let mut gateway = Laboratory::start(setup(&spec, technology, Flows::sessions(100, 10))).unwrap();
        gateway.place(&[1]).unwrap();
        let found = scheduled(&before, |name| name.starts_with("napi/") || Some(name) == process);
        let kinds: BTreeSet<_> = found.iter().map(|(_, policy, priority)| (*policy, *priority)).collect();
        assert_eq!(kinds, [(ROUND_ROBIN, 2)].into(), "{spec}: {found:?}");
        // A thread for each port, and the process if there is one.
        assert!(found.len() >= 2 + process.iter().count(), "{spec}: {found:?}");
    }
}

#[test]
fn a_run_over_tcp_leaves_samples_and_summaries() {
    if skip_without("a_run_over_tcp_leaves_samples_and_summaries", &["ping", "iperf3"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut results = ResultFile::open(&directory.path().join("tcp.jsonl")).unwrap();
    let comparison = TcpComparison {
        protocol: Protocol::Tcp,
        gateways: vec![Kind::Plain, Kind::Plain4],
        flows: vec![2],
        directions: vec![Direction::SixToFour, Direction::FourToSix],
        rounds: 2,
        seconds: 1,
        warm_up_seconds: WARM_UP_SECONDS,
        options: options(),
    };
    let mut places = Vec::new();
    let summaries = comparison
        .run(&mut results, |_, sample| {
            assert_eq!(sample.error, None);
            places.push((sample.round, sample.place, sample.gateway.clone()));
        })
        .unwrap();
    assert_eq!(places.len(), comparison.measurements());
    assert!(places.contains(&(1, 1, "plain".to_owned())) && places.contains(&(2, 1, "plain4".to_owned())));
    assert_eq!(summaries.len(), 4);
    for summary in &summaries {
        let rate = summary.bits_per_second.unwrap();
        assert!(rate.min > 1e6 && rate.min <= rate.median && rate.median <= rate.max, "{summary:?}");
        assert_eq!((rate.samples, summary.failures, summary.ratio_to_tayga), (2, 0, None));
        assert_eq!(summary.ratio_to_plain == Some(1.0), summary.gateway == "plain");
    }
    let lines = std::fs::read_to_string(results.path()).unwrap();
    let kinds: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["record"].as_str().unwrap().to_owned())
        .collect();
    // Goodput and load of each gateway in each direction.
    assert_eq!((kinds[0].as_str(), kinds.len()), ("run", 1 + 8 + 2 * 4));
    assert!(lines.lines().next().unwrap().contains("\"kernel\":\""));
}
