//! Vectors for port sets (RFC 7597), deterministic mapping (RFC 7422), and the choice of ports (RFC
//! 6146, RFC 4787, RFC 6888).

#![allow(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

mod support;

use std::net::Ipv4Addr;

use serde_json::Value;
use support::*;
use tombolo_engine::mapping::deterministic::{DeterministicMap, Order, Owner};
use tombolo_engine::mapping::pool::{Parity, Pool, PoolRange, PortRanges, PortSpace};
use tombolo_engine::mapping::port_set::{PortDivision, PortOwner};
use tombolo_engine::mechanism::napt::{Filtering, Policy, Times};
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{DropReason, Verdict};
use tombolo_tables::sweep::Sweeper;

fn vectors(name: &str) -> Value {
    let path = format!("{}/../../tests/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs every case; the count guards against vectors that are silently passed over.
fn run(name: &str, expected: usize, check: impl Fn(&Value, &Value)) {
    let vectors = vectors(name);
    let cases = vectors["cases"].as_array().unwrap();
    cases.iter().for_each(|case| check(&vectors, case));
    assert_eq!(cases.len(), expected);
}

fn port(value: &Value) -> u16 {
    u16::try_from(value.as_u64().unwrap()).unwrap()
}

fn ports(value: &Value) -> Vec<u16> {
    value.as_array().unwrap().iter().map(port).collect()
}

fn small(case: &Value, key: &str) -> u8 {
    u8::try_from(case[key].as_u64().unwrap()).unwrap()
}

#[test]
fn port_sets() {
    run("psid", 138, |_, case| {
        let division = PortDivision::new(small(case, "a"), small(case, "k"));
        match case["kind"].as_str().unwrap() {
            "config" => assert_eq!(division.is_ok(), case["valid"].as_bool().unwrap(), "{case}"),
            "port_set" => check_port_set(division.unwrap(), case),
            "port_to_psid" => {
                let expected = match (case["excluded"].as_bool().unwrap(), case["restricted"].as_bool().unwrap()) {
                    (true, _) => PortOwner::Nobody,
                    (false, false) => PortOwner::Everything,
                    (false, true) => PortOwner::Psid(port(&case["psid"])),
                };
                assert_eq!(division.unwrap().owner(port(&case["port"])), expected, "{case}");
            }
            "partition" => check_partition(division.unwrap(), case),
            other => panic!("{other}"),
        }
    });
}

fn check_port_set(division: PortDivision, case: &Value) {
    let ranges: Vec<[u16; 2]> =
        division.ranges(port(&case["psid"])).map(|range| [*range.start(), *range.end()]).collect();
    assert_eq!(ranges.len() as u64, case["range_count"].as_u64().unwrap(), "{case}");
    let total: u64 = ranges.iter().map(|[first, last]| u64::from(last - first) + 1).sum();
    assert_eq!(total, case["total_ports"].as_u64().unwrap(), "{case}");
    let pair = |value: &Value| [port(&value[0]), port(&value[1])];
    let last = ranges.len() - 1;
    for (key, index) in
        [("first_range", 0), ("second_range", 1), ("second_last_range", last.saturating_sub(1)), ("last_range", last)]
    {
        if case.get(key).is_some() {
            assert_eq!(ranges[index], pair(&case[key]), "{key} of {case}");
        }
    }
    if let Some(all) = case.get("ranges").and_then(Value::as_array) {
        assert_eq!(ranges, all.iter().map(pair).collect::<Vec<_>>(), "{case}");
    }
}

fn check_partition(division: PortDivision, case: &Value) {
    let mut owners = vec![0_u32; 65_536];
    for psid in 0..division.sets() {
        for port in division.ranges(u16::try_from(psid).unwrap()).flatten() {
            owners[usize::from(port)] += 1;
        }
    }
    assert_eq!(owners.iter().any(|&count| count > 1), case["overlap"].as_bool().unwrap(), "{case}");
    let assigned = owners.iter().filter(|&&count| count > 0).count() as u64;
    assert_eq!(assigned, case["assigned_ports"].as_u64().unwrap(), "{case}");
    let excluded: Vec<usize> = (0..65_536).filter(|&port| owners[port] == 0).collect();
    assert_eq!(excluded.len() as u64, case["excluded_ports"].as_u64().unwrap(), "{case}");
    if let Some(range) = case["excluded_range"].as_array() {
        assert_eq!(excluded.first().map(|&port| port as u64), range[0].as_u64(), "{case}");
        assert_eq!(excluded.last().map(|&port| port as u64), range[1].as_u64(), "{case}");
    }
}

fn deterministic(config: &Value) -> DeterministicMap {
    let address = |value: &Value| value.as_str().unwrap().parse::<Ipv4Addr>().unwrap();
    let first = match config["inside_range"].as_str() {
        // The network address is no host.
        Some(range) => Ipv4Addr::from_bits(range.split('/').next().unwrap().parse::<Ipv4Addr>().unwrap().to_bits() + 1),
        None => address(&config["inside_first"]),
    };
    let number = |key: &str| u32::try_from(config[key].as_u64().unwrap()).unwrap();
    let reserved = config["reserved_ports"].as_str().unwrap().split_once('-').unwrap();
    let reserved = PortRanges::new([reserved.0.parse().unwrap()..=reserved.1.parse().unwrap()]);
    let outside = config["outside"].as_array().unwrap().iter().map(address).collect();
    let order = match config["order"].as_str() {
        Some("rotate-addresses") => Order::RotateAddresses,
        _ => Order::FillAddress,
    };
    let map =
        DeterministicMap::new(first, number("inside_hosts"), outside, &reserved, number("dynamic_factor_D"), order)
            .unwrap();
    assert_eq!(map.ports_per_host(), number("ports_per_host"), "{config}");
    assert_eq!(map.compression(), number("compression_C"), "{config}");
    map
}

#[test]
fn deterministic_mapping() {
    run("det_nat", 150, |vectors, case| {
        let kind = case["kind"].as_str().unwrap();
        if kind == "log" {
            // The line that RFC 7422 prints; the parameters are logged by whoever reads the
            // configuration.
            return;
        }
        let map = deterministic(&vectors["configs"][case["config"].as_str().unwrap()]);
        let address = |key: &str| case[key].as_str().unwrap().parse::<Ipv4Addr>();
        match kind {
            "forward" => {
                let block = map.forward(address("inside").unwrap()).unwrap();
                let expected = (address("outside").unwrap(), port(&case["port_first"]), port(&case["port_last"]));
                assert_eq!((block.address, block.first, block.last), expected, "{case}");
            }
            "reverse" => {
                let expected = match case["inside"].as_str().unwrap() {
                    "dynamic" => Owner::Dynamic,
                    "reserved" => Owner::Reserved,
                    "unassigned" => Owner::Unassigned,
                    host => Owner::Host(host.parse().unwrap()),
                };
                assert_eq!(map.reverse(address("outside").unwrap(), port(&case["port"])), Some(expected), "{case}");
            }
            "dynamic_pool" => {
                assert_eq!(map.dynamic_ports(), Some((port(&case["port_first"]), port(&case["port_last"]))), "{case}");
            }
            other => panic!("{other}"),
        }
    });
}

/// The first ports that a pool with only `free` ports offers, over many draws.
fn choices(space: PortSpace, inside: u16, parity: Parity, free: &[u16]) -> Vec<u16> {
    let ports = PortRanges::new(free.iter().map(|&port| port..=port));
    let range = PoolRange {
        first: POOL,
        last: POOL,
        ports: [ports.clone(), ports.clone(), ports],
        span: 0..=65535,
        first_slot: 0,
        owner: Default::default(),
    };
    let pool = Pool::new(vec![range]);
    let draw = |n: u64| {
        let first = pool.candidates(POOL, space, inside, parity, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next();
        first.map(|candidate| u16::from_be_bytes(candidate.port))
    };
    let mut chosen: Vec<u16> = (0..500).filter_map(draw).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[test]
fn choice_of_ports() {
    run("port_parity", 25, |_, case| {
        let source = || port(case.get("source_port").unwrap_or(&case["source_id"]));
        let list = |ports_key: &str, ids_key: &str| ports(case.get(ports_key).unwrap_or(&case[ids_key]));
        let space = match case["kind"].as_str().unwrap() {
            "udp_allocation" | "udp_allocation_port_set" => PortSpace::Udp,
            "tcp_allocation" => PortSpace::Tcp,
            "icmp_allocation" => PortSpace::Icmp,
            "paired" => return check_paired(),
            "quarantine" => return check_quarantine(case),
            other => panic!("{other}"),
        };
        let chosen = choices(space, source(), Parity::Preserve, &list("free_external_ports", "free_external_ids"));
        let acceptable = list("acceptable_external_ports", "acceptable_external_ids");
        assert!(chosen.iter().all(|port| acceptable.contains(port)), "{chosen:?} {case}");
        assert_eq!(chosen.is_empty(), acceptable.is_empty(), "{case}");
    });
}

#[test]
fn parity_can_be_switched_off() {
    assert_eq!(choices(PortSpace::Udp, 5000, Parity::Preserve, &[5001, 6000, 7001]), [6000]);
    assert_eq!(choices(PortSpace::Udp, 5000, Parity::Ignore, &[80, 5001, 6000, 7001]), [5001, 6000, 7001]);
}

#[test]
fn parity_is_kept_where_the_range_cannot_be() {
    assert_eq!(choices(PortSpace::Udp, 123, Parity::Preserve, &[5000, 5001, 7001]), [5001, 7001]);
    assert_eq!(choices(PortSpace::Udp, 123, Parity::Preserve, &[80, 5001]), [80], "the range comes first");
    assert_eq!(choices(PortSpace::Udp, 5000, Parity::Preserve, &[79, 80]), [80]);
}

/// A subscriber whose address has no port left is refused, though another address has some.
fn check_paired() {
    let last_address = Ipv4Addr::new(192, 0, 2, 2);
    let mut gateway = Gateway::new(Setup { nat44: true, ports: 2000..=2001, last_address, ..Setup::default() });
    for n in 0..2 {
        gateway.forward(&udp((HOST4, 40_000 + n), (SERVER, 53), b""));
    }
    let (verdict, sent) = gateway.pass(&udp((HOST4, 40_002), (SERVER, 53), b""));
    assert_eq!((verdict, &sent[0][20..22]), (Verdict::Reply(DropReason::PoolExhausted), [3, 1].as_slice()));
}

/// Closes the only outside port and tries to get it for another host `seconds_since_release` later.
fn check_quarantine(case: &Value) {
    let tcp_case = case["protocol"] == "TCP";
    let filtering = match case["filtering"].as_str().unwrap() {
        "address-dependent" => Filtering::AddressDependent,
        _ => Filtering::EndpointIndependent,
    };
    let mut setup = Setup { nat44: true, ports: 2000..=2000, ..Setup::default() };
    setup.policy = Policy { filtering: filtering.into(), ..Policy::default() };
    let is_static = case["static_port_ranges"].as_bool().unwrap();
    let mut gateway = Gateway::new(setup);
    let from = |host| {
        if tcp_case { tcp((host, 40_000), (SERVER, 80), SYN, b"") } else { udp((host, 40_000), (SERVER, 53), b"") }
    };
    gateway.forward(&from(HOST4));
    // Longer than any lifetime here: the sweep that follows closes the port at this moment.
    gateway.wait(if tcp_case { 250 } else { 310 });
    sweep(&mut gateway);
    assert_eq!(gateway.tables.bindings.count(), 0);
    let may = case["may_reallocate"].as_bool().unwrap();
    let seconds = case["seconds_since_release"].as_u64().unwrap();
    // The tables' timers may be two ticks late, and are never early.
    gateway.wait(if may && seconds > 0 { seconds + 3 } else { seconds });
    if is_static {
        // A configured binding takes the port at once.
        gateway.nat44().nat.static_bindings = vec![tombolo_engine::plan::StaticBinding {
            inside: OTHER_HOST4.into(),
            ..static_binding(PortSpace::Udp, 40_000, 2000)
        }];
        let conflicts = tombolo_engine::static_bindings::reconcile(&gateway.tables, &gateway.plan, gateway.now);
        assert_eq!(conflicts.is_empty(), may, "{case}");
        return;
    }
    assert_eq!(gateway.pass(&from(OTHER_HOST4)).0 == Verdict::Forward, may, "{case}");
}

#[test]
fn of_closed_ports_no_more_than_the_limit_are_kept_back() {
    let ports = 2000..=2003;
    for most in [None, Some(4), Some(3), Some(1), Some(0)] {
        let mut times = Times::default();
        times.most_ports_kept_back = most;
        let mut gateway = Gateway::new(Setup { nat44: true, ports: ports.clone(), times, ..Setup::default() });
        let from = |host, port| udp((host, port), (SERVER, 53), b"");
        let open = |gateway: &mut Gateway, port| gateway.forward(&from(HOST4, port)).ports.0;
        let old = [0, 1].map(|n| open(&mut gateway, 40_000 + n));
        gateway.wait(60);
        let _young = [2, 3].map(|n| open(&mut gateway, 40_000 + n));
        for seconds in [250, 60] {
            gateway.wait(seconds);
            sweep(&mut gateway);
        }
        assert_eq!(gateway.tables.bindings.count(), 0);
        let mut reused = Vec::new();
        for port in 40_000..40_004 {
            let (verdict, sent) = gateway.pass(&from(OTHER_HOST4, port));
            if verdict == Verdict::Forward {
                reused.push(see(&sent[0]).ports.0);
            }
        }
        assert_eq!(reused.len(), 4 - most.unwrap_or(4) as usize, "{most:?}");
        assert!(
            reused.iter().take(2).all(|port| old.contains(port)),
            "{most:?}: {reused:?}, and {old:?} are the oldest"
        );
    }
}

fn sweep(gateway: &mut Gateway) {
    let mut sweeper = Sweeper::new(&gateway.tables, gateway.now.tick());
    let mut expiry = Expiry::new(&gateway.plan);
    for _ in 0..2 {
        assert!(sweeper.advance(&gateway.tables, usize::MAX, gateway.now.tick(), &mut expiry));
    }
}
