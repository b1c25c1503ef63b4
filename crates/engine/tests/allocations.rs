//! Nothing is allocated for a packet of a stateless service, whatever becomes of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use tombolo_engine::mapping::eam::{Eam, EamTable};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::stateless::StatelessMap;
use tombolo_engine::mechanism::TranslateSettings;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::plan::{OwnAddresses, Plan, Service, ServiceKind};
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_engine::{Engine, Now};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;
use tombolo_tables::tables::Capacity;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is going has no counter any more, and nothing to be counted.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is ours.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn plan() -> Plan {
    let rows = [
        ("192.0.2.1", "2001:db8:aaaa::"),
        ("192.0.2.2", "2001:db8:bbbb::b"),
        ("192.0.2.16/28", "2001:db8:cccc::/124"),
        ("192.0.2.128/26", "2001:db8:dddd::/64"),
        ("192.0.2.192/29", "2001:db8:eeee:8::/62"),
        ("192.0.2.224/31", "64:ff9b::/127"),
    ];
    let rows = rows.iter().map(|(ipv4, ipv6)| Eam::parse(ipv4, ipv6).unwrap()).collect();
    let siit = Siit {
        role: Role::Siit,
        mapping: StatelessMap {
            explicit: EamTable::new(rows).unwrap(),
            prefix: Some("64:ff9b::/96".parse().unwrap()),
            well_known_prefix_strict: false,
            denied: Default::default(),
        },
        dynamic: None,
        embedded_hosts: Vec::new(),
        hairpinning: Hairpinning::Intrinsic,
        error_sources: ErrorSources::new(vec![([198, 51, 100, 1].into(), [198, 51, 100, 9].into())]),
        identify_nodes: true,
        translate: TranslateSettings::default(),
    };
    Plan {
        services: vec![Service::new(0, "siit", ServiceKind::Siit(siit))],
        retired: Vec::new(),
        cluster: None,
        rows: tombolo_engine::row::Rows::default(),
        times: Default::default(),
        capacity: Capacity { subscribers: 1, bindings: 1, sessions: 8, outside_slots: 1, leases: 0 },
        pcp: Default::default(),
        own: OwnAddresses {
            ipv4: Some([192, 0, 2, 254].into()),
            ipv6: Some("2001:db8:ffff::1".parse().unwrap()),
            ..OwnAddresses::default()
        },
    }
}

/// The packets of all golden cases: whole ones, fragments, errors, hairpins, those that are
/// answered, those dropped.
fn packets() -> Vec<Vec<u8>> {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/siit");
    let mut packets = Vec::new();
    for entry in std::fs::read_dir(cases).unwrap() {
        let Ok(text) = std::fs::read_to_string(entry.unwrap().path().join("case.toml")) else { continue };
        for line in text.lines().filter_map(|line| line.strip_prefix("in = \"")) {
            let digits = line.trim_end_matches('"').as_bytes().chunks(2);
            packets
                .push(digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect());
        }
    }
    packets
}

#[test]
fn no_packet_of_a_stateless_service_is_worth_an_allocation() {
    let (plan, packets) = (plan(), packets());
    assert!(packets.len() >= 290, "{}", packets.len());
    let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).unwrap();
    let mut engine = Engine::new(Arc::new(tables), [7; 32], 0, 1);
    let mut buffer = vec![0; HEADROOM + 2048];
    let (mut sent, mut second) = (0, 1000);
    // The first packet of a service makes room for what is counted of it.
    let mut allocations = 0;
    let mut outbox = |_: &mut Packet<'_>| sent += 1;
    for bytes in &packets {
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
        // A second apart, so that every error is sent.
        second += 1;
        let before = ALLOCATIONS.get();
        let verdict = engine.process(&plan, &mut packet, Now(second * 1_000_000_000), &mut outbox);
        allocations += ALLOCATIONS.get() - before;
        assert!(allocations <= 1, "{verdict:?}");
    }
    assert!(sent >= 190, "{sent}");
}
