//! A stateless service in memory: nanoseconds and allocations a packet through [`Engine::process`],
//! all of it: parse, classification, both look-ups, translation, counters, outbox.
//!
//! `cargo bench -p tombolo-engine --bench siit` prints the median of 105 rounds for each id; a word
//! behind `--` picks ids that contain it, and `--results FILE` writes lines that `tombolo report
//! --bars` reads, whose values are medians of 15 rounds. With few mappings one packet stays in the cache: the cost
//! of the work. With 100,000 the addresses are random: the cost of the memory too.

mod counting;

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use tombolo_engine::mapping::eam::{Eam, EamTable};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::stateless::StatelessMap;
use tombolo_engine::mechanism::TranslateSettings;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::plan::{OwnAddresses, Plan, Service, ServiceKind};
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_engine::{Engine, Now, Verdict};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::lpm::Prefix;
use tombolo_tables::memory::Heap;
use tombolo_tables::tables::Capacity;
use tombolo_tester::figures::{Figure, Figures};
use tombolo_wire::{Ipv4Header, Ipv6Header, Prefix64, Protocol, ipv4};

use crate::counting::allocations;

/// Many short rounds: on a machine that does other work too, most of them are not interrupted.
const ROUNDS: usize = 105;
/// Of so many rounds one after another the median is a value of a result file: that of a machine which
/// does other work for a while shows as another value.
const ROUNDS_OF_A_VALUE: usize = 15;
const PACKETS: usize = 50_000;
/// Packets in turn, a power of two; 1.5 MB of them with many mappings, so that they stay in the
/// second cache level.
const MANY: usize = 1 << 13;
const REMOTE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// Row `number`: a host with a scattered IPv6 address.
fn row(number: u32) -> (u32, u128) {
    let scattered = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (0x0a00_0000 + number, 0x2001_0db8 << 96 | scattered >> 32)
}

fn plan(rows: u32) -> Plan {
    let rows = (0..rows).map(|number| {
        let (ipv4, ipv6) = row(number);
        Eam::new(Prefix::covering(ipv4, 32), Prefix::covering(ipv6, 128)).unwrap_or_else(|error| panic!("{error}"))
    });
    let explicit = EamTable::new(rows.collect()).unwrap_or_else(|error| panic!("{error}"));
    let siit = Siit {
        role: Role::Siit,
        mapping: StatelessMap {
            explicit,
            prefix: Some(Prefix64::WELL_KNOWN),
            well_known_prefix_strict: true,
            denied: Default::default(),
        },
        dynamic: None,
        embedded_hosts: Vec::new(),
        hairpinning: Hairpinning::Intrinsic,
        error_sources: ErrorSources::default(),
        identify_nodes: false,
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
        own: OwnAddresses::default(),
    }
}

fn to_inside(number: u32, size: u16) -> Vec<u8> {
    let mut bytes = vec![0; size.into()];
    let header = Ipv4Header {
        tos: 0,
        total_length: size,
        identification: 1,
        fragment_word: ipv4::DF,
        ttl: 64,
        protocol: Protocol::UDP,
        source: REMOTE,
        destination: Ipv4Addr::from_bits(row(number).0),
    };
    header.emit(&mut bytes);
    fill_udp(&mut bytes[20..]);
    bytes
}

fn to_outside(number: u32, size: u16) -> Vec<u8> {
    let mut bytes = vec![0; size.into()];
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: size - 40,
        next_header: Protocol::UDP,
        hop_limit: 64,
        source: Ipv6Addr::from_bits(row(number).1),
        destination: Prefix64::WELL_KNOWN.embed(REMOTE),
    };
    header.emit(&mut bytes);
    fill_udp(&mut bytes[40..]);
    bytes
}

fn fill_udp(transport: &mut [u8]) {
    let length = u16::try_from(transport.len()).unwrap_or_default().to_be_bytes();
    transport[..8].copy_from_slice(&[0x9c, 0x40, 0, 53, length[0], length[1], 0x12, 0x34]);
}

/// Nanoseconds a packet; the headers are put back before each, and that is measured too.
fn round(engine: &mut Engine, plan: &Plan, packets: &[Vec<u8>]) -> f64 {
    let mut buffer = vec![0; HEADROOM + packets[0].len()];
    let mut sent = 0;
    let mut outbox = |packet: &mut Packet<'_>| sent += black_box(packet.bytes()).len();
    let before = Instant::now();
    for number in 0..PACKETS {
        let original = &packets[number & (packets.len() - 1)];
        buffer[HEADROOM..].copy_from_slice(original);
        let Some(mut packet) = Packet::new(&mut buffer, HEADROOM, original.len(), Offload::default()) else { continue };
        assert_eq!(engine.process(plan, &mut packet, Now(1), &mut outbox), Verdict::Forward);
    }
    black_box(sent);
    before.elapsed().as_secs_f64() * 1e9 / PACKETS as f64
}

/// What is translated, in which direction and by how many mappings.
struct Case {
    id: &'static str,
    rows: u32,
    packet: fn(u32, u16) -> Vec<u8>,
    size: u16,
    /// What the packets a second are called in a result file.
    quantity: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        id: "engine/siit/4to6-udp-64",
        rows: 10,
        packet: to_inside,
        size: 64,
        quantity: "stateless translation, 4 to 6",
    },
    Case {
        id: "engine/siit/6to4-udp-84",
        rows: 10,
        packet: to_outside,
        size: 84,
        quantity: "stateless translation, 6 to 4",
    },
    Case {
        id: "engine/siit/4to6-udp-64-100k-mappings",
        rows: 100_000,
        packet: to_inside,
        size: 64,
        quantity: "with 100,000 mappings, 4 to 6",
    },
    Case {
        id: "engine/siit/6to4-udp-84-100k-mappings",
        rows: 100_000,
        packet: to_outside,
        size: 84,
        quantity: "with 100,000 mappings, 6 to 4",
    },
    Case {
        id: "engine/siit/4to6-udp-1400",
        rows: 10,
        packet: to_inside,
        size: 1400,
        quantity: "large packets, 4 to 6",
    },
    Case {
        id: "engine/siit/6to4-udp-1420",
        rows: 10,
        packet: to_outside,
        size: 1420,
        quantity: "large packets, 6 to 4",
    },
];

fn measure(case: &Case, figures: &mut Figures) -> std::io::Result<()> {
    let Case { id, rows, packet, size, quantity } = *case;
    let plan = plan(rows);
    let count = if rows < 100 { 1 } else { MANY };
    let numbers = (0..count as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % u64::from(rows));
    let packets: Vec<_> = numbers.map(|number| packet(u32::try_from(number).unwrap_or(0), size)).collect();
    let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4]));
    let mut engine = Engine::new(Arc::new(tables.unwrap_or_else(|error| panic!("{error}"))), [7; 32], 0, 1);
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&mut engine, &plan, &packets)).collect();
    let rate = |rounds: &mut [f64]| {
        rounds.sort_by(f64::total_cmp);
        1e9 / rounds[rounds.len() / 2]
    };
    let values: Vec<f64> = rounds.chunks_mut(ROUNDS_OF_A_VALUE).map(rate).collect();
    figures.add(&Figure {
        of: "engine",
        quantity,
        unit: "packets/s",
        higher_is_better: true,
        values: &values,
        bound: None,
    })?;
    rounds.sort_by(f64::total_cmp);
    let (median, best) = (rounds[ROUNDS / 2], rounds[0]);
    let before = allocations();
    round(&mut engine, &plan, &packets);
    // One buffer a round.
    let allocated = allocations() - before - 1;
    let each = allocated as f64 / PACKETS as f64;
    println!("{id:<38} {median:>10.1} {best:>8.1} {:>8.1} {each:>20.6}", 1e3 / median);
    Ok(())
}

fn main() -> std::io::Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let comparable = "one core, all of the engine's work on a packet that is in memory";
    let mut figures = Figures::asked_for(&mut words, "engine in memory", comparable)?;
    words.retain(|word| !word.starts_with('-'));
    println!("{:<38} {:>10} {:>8} {:>8} {:>20}", "id", "ns/packet", "best", "Mpps", "allocations/packet");
    let wanted = CASES.iter().filter(|case| words.iter().all(|word| case.id.contains(word)));
    wanted.into_iter().try_for_each(|case| measure(case, &mut figures))
}
