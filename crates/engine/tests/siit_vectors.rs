//! `tests/vectors/eamt.json` (RFC 7757): the table, its validation, and hairpinning through the
//! whole engine.

#![expect(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

mod bytes;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bytes::{assert_valid, ipv6_packet, run_vectors, write_transport_checksum};
use serde_json::Value;
use tombolo_engine::mapping::eam::{Eam, EamError, EamTable};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::stateless::{By, DenyList, StatelessMap};
use tombolo_engine::mechanism::TranslateSettings;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::plan::{OwnAddresses, Plan, Service, ServiceKind};
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_engine::{Engine, Now, Verdict};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::tables::Capacity;

fn tables() -> HashMap<String, Vec<Eam>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/eamt.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let row = |row: &Value| Eam::parse(text(row, "ipv4_prefix"), text(row, "ipv6_prefix")).unwrap();
    let table = |rows: &Value| rows.as_array().unwrap().iter().map(row).collect();
    document["tables"].as_object().unwrap().iter().map(|(name, rows)| (name.clone(), table(rows))).collect()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap()
}

fn address<A: std::str::FromStr>(value: &Value) -> Option<A> {
    value.as_str().map(|text| text.parse().unwrap_or_else(|_| panic!("{text}")))
}

fn map(case: &Value, explicit: EamTable) -> StatelessMap {
    let prefix = Some(text(case, "pool6").parse().unwrap());
    // The examples use documentation addresses with the well-known prefix.
    StatelessMap { explicit, prefix, well_known_prefix_strict: false, denied: DenyList::default() }
}

/// The case's table. One of them has a prefix twice, which is refused; then it is the row that the
/// case is about.
fn explicit(case: &Value, tables: &HashMap<String, Vec<Eam>>) -> (EamTable, u64) {
    let rows = &tables[text(case, "table")];
    match EamTable::new(rows.clone()) {
        Ok(table) => (table, 1),
        Err(EamError::Duplicate { .. }) => {
            let row = case["eam"].as_u64().unwrap();
            println!("{}: the table is refused (RFC 7757 section 5 allows that); row {row} alone", case["id"]);
            (EamTable::new(vec![rows[usize::try_from(row).unwrap() - 1]]).unwrap(), row)
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn addresses_are_mapped_by_the_longest_match_and_else_by_the_prefix() {
    let tables = tables();
    let count = run_vectors(
        "eamt",
        |case| case["kind"] == "translate",
        |case| {
            let (table, first) = explicit(case, &tables);
            let map = map(case, table);
            let row = |by: By| match by {
                By::Row(number) => Some(u64::from(number) + first),
                By::Prefix | By::Pool => None,
            };
            for direction in case["directions"].as_array().unwrap() {
                if direction == "4to6" {
                    let found = map.to_ipv6(address(&case["ipv4"]).unwrap()).ok();
                    assert_eq!(found.map(|found| found.address), address::<Ipv6Addr>(&case["ipv6"]));
                    assert_eq!(found.and_then(|found| row(found.by)), case["eam"].as_u64());
                } else {
                    let found = map.to_ipv4(address(&case["ipv6"]).unwrap()).ok();
                    assert_eq!(found.map(|found| found.address), address::<Ipv4Addr>(&case["ipv4"]));
                    assert_eq!(found.and_then(|found| row(found.by)), case["eam"].as_u64());
                }
            }
        },
    );
    assert_eq!(count, 70);
}

#[test]
fn a_table_with_a_prefix_twice_is_refused() {
    let tables = tables();
    let count = run_vectors(
        "eamt",
        |case| case["kind"] == "unspecified",
        |case| {
            let error = EamTable::new(tables[text(case, "table")].clone()).unwrap_err();
            assert!(matches!(error, EamError::Duplicate { first: 0, second: 1, .. }));
        },
    );
    assert_eq!(count, 1);
}

#[test]
fn rows_are_accepted_and_refused() {
    let count = run_vectors(
        "eamt",
        |case| case["kind"] == "config",
        |case| {
            let row = Eam::parse(text(case, "ipv4_prefix"), text(case, "ipv6_prefix"));
            assert_eq!(row.is_ok(), case["valid"].as_bool().unwrap(), "{row:?}: {}", case["why"]);
        },
    );
    assert_eq!(count, 13);
}

struct Gateway {
    engine: Engine,
    plan: Plan,
}

impl Gateway {
    fn new(siit: Siit) -> Self {
        let capacity = Capacity { subscribers: 1, bindings: 1, sessions: 8, outside_slots: 1, leases: 0 };
        let plan = Plan {
            services: vec![Service::new(0, "siit", ServiceKind::Siit(siit))],
            retired: Vec::new(),
            cluster: None,
            rows: tombolo_engine::row::Rows::default(),
            times: Default::default(),
            capacity,
            pcp: Default::default(),
            own: OwnAddresses::default(),
        };
        let tables = Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap();
        Self { engine: Engine::new(Arc::new(tables), [3; 32], 0, 1), plan }
    }

    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0xa5; HEADROOM + bytes.len() + 64];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        assert_eq!(self.engine.process(&self.plan, &mut packet, Now(1), &mut outbox), Verdict::Forward);
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }
}

/// Source and destination of a packet.
fn addresses(packet: &[u8]) -> [IpAddr; 2] {
    if packet[0] >> 4 == 4 {
        let at = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap()).into();
        [at(12), at(16)]
    } else {
        let at = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap()).into();
        [at(8), at(24)]
    }
}

fn pair(value: &Value) -> [Ipv6Addr; 2] {
    [address(&value[0]).unwrap(), address(&value[1]).unwrap()]
}

fn datagram([source, destination]: [Ipv6Addr; 2]) -> Vec<u8> {
    let mut udp = vec![0x9c, 0x40, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
    write_transport_checksum(&mut udp, 6, 17, &[source.octets(), destination.octets()].concat());
    ipv6_packet(source, destination, 17, &udp)
}

/// Time exceeded about a datagram.
fn error([source, destination]: [Ipv6Addr; 2], inner: [Ipv6Addr; 2]) -> Vec<u8> {
    let mut message = vec![3, 0, 0, 0, 0, 0, 0, 0];
    message.extend(datagram(inner));
    write_transport_checksum(&mut message, 2, 58, &[source.octets(), destination.octets()].concat());
    ipv6_packet(source, destination, 58, &message)
}

#[test]
fn packets_between_inside_hosts_are_turned_round() {
    let tables = tables();
    let count = run_vectors(
        "eamt",
        |case| case["kind"] == "hairpin",
        |case| {
            let pool: Vec<Ipv4Addr> = case["rfc6791_pool"].as_array().unwrap().iter().filter_map(address).collect();
            let mut siit = Siit {
                role: Role::Siit,
                mapping: map(case, explicit(case, &tables).0),
                dynamic: None,
                embedded_hosts: Vec::new(),
                hairpinning: Hairpinning::Intrinsic,
                error_sources: ErrorSources::new(pool.iter().map(|&address| (address, address)).collect()),
                identify_nodes: false,
                translate: TranslateSettings::default(),
            };
            let received = match case["initial"].get("inner") {
                Some(inner) => error(pair(&case["initial"]["outer"]), pair(inner)),
                None => datagram(pair(&case["initial"]["outer"])),
            };
            let check = |sent: &[u8], expected: &Value, hop_limit: u8| {
                assert_valid(sent);
                let expected_pair = |pair: &Value| [address::<IpAddr>(&pair[0]), address(&pair[1])].map(Option::unwrap);
                assert_eq!(addresses(sent), expected_pair(&expected["outer"]));
                let (header, hops) = if sent[0] >> 4 == 4 { (20, sent[8]) } else { (40, sent[7]) };
                assert_eq!(hops, hop_limit);
                if let Some(inner) = expected.get("inner") {
                    assert_eq!(addresses(&sent[header + 8..]), expected_pair(inner));
                }
            };
            // One decrement, however often it is translated here.
            let turned = &case["final"];
            let sent = Gateway::new(siit.clone()).pass(&received);
            check(&sent, if turned.is_null() { &case["intermediate"] } else { turned }, 63);
            // The IPv4 network sends it back: simple hairpinning gives the same addresses.
            siit.hairpinning = Hairpinning::Simple;
            let mut simple = Gateway::new(siit);
            let out = simple.pass(&received);
            check(&out, &case["intermediate"], 63);
            if !turned.is_null() {
                check(&simple.pass(&out), turned, 62);
            }
        },
    );
    assert_eq!(count, 6);
}
