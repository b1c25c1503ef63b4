//! The whole engine, with the configurations of the golden cases and of the examples: nothing
//! panics, what leaves is a packet within the links' sizes, what was right stays right, and the
//! tables keep their invariants.

#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Packet, Segmentation};
use tombolo_engine::{Engine, Now, Plan, Verdict};
use tombolo_fuzz::{LATER, PARTIAL, REPAIR, SEGMENTS};
use tombolo_fuzz::{check_structure, configurations, is_icmp_error, layout, packets, repair, transport_verifies, trim};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Heap;

const SECOND: u64 = 1_000_000_000;

fn plans() -> &'static [Plan] {
    static PLANS: OnceLock<Vec<Plan>> = OnceLock::new();
    PLANS.get_or_init(|| {
        let load = |path: std::path::PathBuf| {
            let mut plan = tombolo_config::load(&path).expect("a configuration of the repository is right").plan;
            plan.capacity.subscribers = 8;
            plan.capacity.bindings = 32;
            plan.capacity.sessions = 32;
            plan
        };
        configurations().into_iter().map(load).collect()
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let plan = &plans()[usize::from(choice) % plans().len()];
    let tables = Tables::new(&mut Heap, plan.capacity, HashKey::new([1, 2, 3, 4])).expect("there is memory");
    let tables = Arc::new(tables);
    let mut now = Now(1000 * SECOND);
    let _ = tombolo_engine::static_bindings::reconcile(&tables, plan, now);
    let mut engine = Engine::new(Arc::clone(&tables), [9; 32], 0, 1);
    // A datagram put together of fragments is as right as they were.
    let mut fragments = false;
    for (control, bytes) in packets(data) {
        if control & LATER != 0 {
            now = Now(now.0 + 10 * SECOND);
            engine.idle(now);
        }
        let mut bytes = bytes.to_vec();
        if control & REPAIR != 0 {
            repair(&mut bytes);
        }
        let offload = offload(control, &bytes);
        let found = layout(&bytes);
        fragments |= found.is_some_and(|found| found.is_fragment);
        let was_right = offload == Offload::default() && transport_verifies(trim(&bytes)) == Some(true);
        let mut buffer = vec![0xee; HEADROOM];
        buffer.extend_from_slice(&bytes);
        buffer.resize(buffer.len() + 256, 0xdd);
        let Some(mut packet) = Packet::new(&mut buffer, HEADROOM, bytes.len(), offload) else { return };
        let mut sent = 0;
        let mut outbox = |packet: &mut Packet<'_>| {
            sent += 1;
            check(packet, was_right && !fragments);
        };
        match engine.process(plan, &mut packet, now, &mut outbox) {
            Verdict::Forward => assert!(sent > 0),
            Verdict::Reply(_) | Verdict::EchoReply | Verdict::Pcp(_) => assert_eq!(sent, 1),
            Verdict::Drop(_) | Verdict::Hold | Verdict::ToHost => assert_eq!(sent, 0),
        }
    }
    assert_eq!(tombolo_tables::audit::check(&tables), Vec::<String>::new());
});

fn offload(control: u8, bytes: &[u8]) -> Offload {
    let Some(found) = layout(bytes) else { return Offload::default() };
    let start = u16::try_from(found.transport).unwrap_or(u16::MAX);
    let offset = if found.protocol == 17 { 6 } else { 16 };
    let checksum = ChecksumState::Partial { start, offset };
    match control & (SEGMENTS | PARTIAL) {
        0 => Offload::default(),
        PARTIAL => Offload { segmentation: Segmentation::None, checksum },
        _ if found.protocol == 17 => Offload { segmentation: Segmentation::Udp { size: 400 }, checksum },
        _ => Offload { segmentation: Segmentation::Tcp { size: 1200, ecn: control & PARTIAL != 0 }, checksum },
    }
}

fn check(packet: &Packet<'_>, was_right: bool) {
    let bytes = packet.bytes();
    // NAT44 keeps the options of IPv4.
    if bytes[0] >> 4 == 6 || bytes[0] & 15 == 5 {
        check_structure(bytes);
    }
    if let ChecksumState::Partial { start, offset } = packet.offload.checksum {
        assert!(usize::from(start) + usize::from(offset) + 2 <= bytes.len());
        return;
    }
    if packet.offload.segmentation == Segmentation::None {
        assert!(bytes.len() <= 65_535 + 40);
    }
    if is_icmp_error(bytes) {
        if bytes[0] >> 4 == 6 {
            assert!(bytes.len() <= 1280, "an ICMPv6 error of {} bytes", bytes.len());
        }
        assert_eq!(transport_verifies(bytes), Some(true), "an ICMP error with a wrong checksum");
    } else if was_right {
        assert_ne!(transport_verifies(bytes), Some(false), "a right checksum became wrong: {bytes:02x?}");
    }
}
