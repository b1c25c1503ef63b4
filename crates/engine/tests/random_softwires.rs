//! Random and mutated packets through both ends of DS-Lite and Lightweight 4over6: no panic, no
//! packet that is wrong, and tables that keep every invariant.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::*;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges};
use tombolo_engine::mapping::port_set::PortDivision;
use tombolo_engine::mapping::softwire_table::{SoftwireRow, SoftwireTable};
use tombolo_engine::mechanism::napt::{Nat, Policy, SubscriberIs, Times};
use tombolo_engine::mechanism::softwire::{DontFragment, Fragments};
use tombolo_engine::mechanism::{Softwire, SoftwireSettings};
use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Packet, Segmentation};
use tombolo_engine::plan::{OwnAddresses, Plan, Service, ServiceKind};
use tombolo_engine::service::aftr::{Aftr, Untranslated};
use tombolo_engine::service::b4::B4;
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_engine::service::lwb4::Lwb4;
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{DropReason, Engine, Now, Verdict};
use tombolo_tables::hash::HashKey;
use tombolo_tables::lpm::Prefix;
use tombolo_tables::memory::Heap;
use tombolo_tables::sweep::Sweeper;
use tombolo_tables::tables::Capacity;
use tombolo_tables::{Tables, audit};

const PACKETS: u32 = 800_000;
const AFTR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
const SHARED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// End number `n` of the far side.
fn end(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x100 + n, 0, 0, 0, 0xb4)
}

fn settings() -> SoftwireSettings {
    SoftwireSettings { ipv6_mtu: 1280, ..SoftwireSettings::default() }
}

fn ten() -> AddressRanges {
    AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 3, 255)])
}

fn pool(ports: PortRanges) -> Pool {
    let span = *ports.ranges()[0].start()..=*ports.ranges().last().unwrap().end();
    let ports = [ports.clone(), ports.clone(), ports];
    Pool::new(vec![PoolRange { first: SHARED, last: SHARED, ports, span, first_slot: 0, owner: Owner::Gateway }])
}

fn aftr() -> ServiceKind {
    ServiceKind::Aftr(Aftr {
        address: AFTR,
        b4s: Networks::new([Prefix::new("2001:db8:1000::".parse().unwrap(), 36).unwrap()]),
        inside: ten(),
        untranslated: Untranslated::default(),
        nat: Nat {
            pool: pool(PortRanges::new([1024..=1279])),
            policy: Policy { subscriber: SubscriberIs::Softwire { prefix_length: 63 }, ..Policy::default() },
            static_bindings: Vec::new(),
        },
        softwire: settings(),
        outside_mtu: 1400,
        icmp_source: Ipv4Addr::new(192, 0, 0, 1),
        tell_unknown: true,
    })
}

fn b4() -> ServiceKind {
    ServiceKind::B4(B4 {
        inside: ten(),
        ends: Softwire { local: end(0), remote: AFTR },
        far_end: None,
        softwire: SoftwireSettings { fragments: Fragments::Inner, ..settings() },
        icmp_source: Ipv4Addr::new(192, 0, 0, 2),
    })
}

fn lwb4() -> ServiceKind {
    ServiceKind::Lwb4(Lwb4 {
        inside: ten(),
        ends: Softwire { local: end(0), remote: AFTR },
        far_end: None,
        nat: Nat {
            pool: pool(PortRanges::new(PortDivision::new(0, 8).unwrap().ranges(4))),
            policy: Policy::default(),
            static_bindings: Vec::new(),
        },
        softwire: SoftwireSettings { dont_fragment: DontFragment::Override, ..settings() },
        inside_mtu: 1300,
        icmp_source: SHARED,
        tell_not_ours: true,
    })
}

fn lwaftr() -> ServiceKind {
    let rows: Vec<_> = (0..4)
        .map(|n| SoftwireRow {
            ipv4: SHARED,
            division: PortDivision::new(0, 8).unwrap(),
            psid: 4 + n,
            b4: end(n),
            local: AFTR,
        })
        .collect();
    ServiceKind::Lwaftr(Lwaftr {
        addresses: vec![AFTR],
        ipv4: AddressRanges::new([SHARED..=SHARED]),
        table: SoftwireTable::new(&rows).unwrap(),
        softwire: settings(),
        hairpinning: true,
        tell_unknown: true,
        tell_unreachable: true,
        inbound_icmp: true,
    })
}

struct Source {
    random: ChaCha8Rng,
    /// Hosts with private addresses send without a softwire.
    at_home: bool,
}

impl Source {
    fn below(&mut self, limit: u32) -> u32 {
        self.random.next_u32() % limit
    }

    fn short(&mut self, limit: u32) -> u16 {
        u16::try_from(self.below(limit)).unwrap()
    }

    /// What is inside of softwires, or would be.
    fn inner(&mut self) -> Vec<u8> {
        let host = if self.below(2) == 0 { HOST4 } else { SHARED };
        let remote = if self.below(4) == 0 { SHARED } else { Ipv4Addr::new(198, 51, 100, 2) };
        let (a, b) = (1000 + self.short(900), 1000 + self.short(300));
        let size = if self.below(20) == 0 { 2500 } else { 200 };
        let payload = vec![0x42; self.below(size) as usize];
        let flags = self.short(64).to_le_bytes()[0];
        let (from, to) = if self.below(2) == 0 { ((host, a), (remote, b)) } else { ((remote, b), (host, a)) };
        match self.below(8) {
            0 | 1 => udp(from, to, &payload),
            2 => tcp(from, to, flags, &payload),
            3 => echo(from.0, to.0, flags & 1 == 0, a),
            4 => icmp(from.0, to.0, 3 + 8 * (flags & 1), flags >> 2, self.below(2000), &udp(to, from, &payload)),
            5 | 6 => {
                let pieces = fragments_ipv4(&udp(from, to, &[7; 150]), 64);
                pieces[self.below(3) as usize].clone()
            }
            _ => (0..self.below(60)).map(|_| self.short(256).to_le_bytes()[0]).collect(),
        }
    }

    fn outer(&mut self, inner: &[u8]) -> Vec<u8> {
        let far = if self.below(30) == 0 { "2001:db8:9::1".parse().unwrap() } else { end(self.short(5)) };
        let (from, to) = if self.at_home { (AFTR, end(0)) } else { (far, AFTR) };
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 4, 64];
        packet[1] = self.short(256).to_le_bytes()[0] & 0x30;
        packet[4..6].copy_from_slice(&u16::try_from(inner.len()).unwrap().to_be_bytes());
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet.extend(inner);
        match self.below(12) {
            0 => {
                let pieces = fragments_ipv6(&packet, 104);
                let which = self.below(u32::try_from(pieces.len()).unwrap().max(1));
                pieces.get(which as usize).cloned().unwrap_or(packet)
            }
            1 => {
                // An error about a packet the other way.
                let mut about = packet.clone();
                about[8..24].copy_from_slice(&to.octets());
                about[24..40].copy_from_slice(&from.octets());
                about.truncate(1200);
                let (kind, code) = (1 + self.below(4).to_le_bytes()[0], self.below(7).to_le_bytes()[0]);
                let mtu = 1200 + self.below(400);
                icmp(from, to, kind, code, mtu, &about)
            }
            2 => echo(from, to, true, 7),
            3 => {
                packet[6] = [41, 17, 58, 60, 43, 44][self.below(6) as usize];
                packet
            }
            _ => packet,
        }
    }

    fn packet(&mut self) -> Vec<u8> {
        let inner = self.inner();
        let mut packet = if self.below(2) == 0 { inner } else { self.outer(&inner) };
        for _ in 0..self.below(3) {
            if packet.is_empty() {
                break;
            }
            let at = self.below(u32::try_from(packet.len().min(100)).unwrap()) as usize;
            match self.below(10) {
                0 => packet.truncate(at),
                1 => packet.extend_from_slice(&[0; 13]),
                2 => packet[at] = self.short(256).to_le_bytes()[0],
                3 => packet[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
        packet
    }

    fn offload(&mut self) -> Offload {
        let any = |random: &mut ChaCha8Rng| u16::try_from(random.next_u32() % 1600).unwrap();
        match self.below(8) {
            0 => Offload {
                segmentation: Segmentation::Tcp { size: any(&mut self.random), ecn: true },
                checksum: ChecksumState::Partial { start: 20, offset: 16 },
            },
            1 => Offload {
                segmentation: Segmentation::Udp { size: any(&mut self.random) },
                checksum: ChecksumState::Partial { start: 20, offset: 6 },
            },
            2 => Offload { checksum: ChecksumState::Partial { start: 20, offset: 6 }, ..Offload::default() },
            _ => Offload::default(),
        }
    }
}

fn torture(kind: ServiceKind, at_home: bool) {
    let mut plan = Plan {
        services: vec![Service::new(0, "test", kind)],
        retired: Vec::new(),
        cluster: None,
        rows: tombolo_engine::row::Rows::default(),
        times: Times::default(),
        capacity: Capacity { subscribers: 50, bindings: 500, sessions: 1000, outside_slots: 0, leases: 0 },
        pcp: Default::default(),
        own: OwnAddresses { ipv4: Some(Ipv4Addr::new(198, 51, 100, 1)), ipv6: None, ..OwnAddresses::default() },
    };
    plan.capacity.outside_slots = plan.outside_slots().unwrap();
    let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap());
    let mut engine = Engine::new(Arc::clone(&tables), [7; 32], 0, 1);
    let mut now = Now(1_000 * SECOND);
    let mut source = Source { random: ChaCha8Rng::seed_from_u64(46), at_home };
    let mut sweeper = Sweeper::new(&tables, now.tick());
    let mut expiry = Expiry::new(&plan);
    let mut buffer = vec![0; 8192];
    let mut forwarded = 0_u32;
    let mut reasons = [0_u32; DropReason::COUNT];
    for n in 0..PACKETS {
        let bytes = source.packet();
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(&bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), source.offload()).unwrap();
        let mut sent = 0;
        let mut outbox = |packet: &mut Packet<'_>| {
            sent += 1;
            check(packet);
        };
        match engine.process(&plan, &mut packet, now, &mut outbox) {
            Verdict::Forward => {
                assert!(sent > 0);
                forwarded += 1;
            }
            Verdict::Drop(reason) => {
                assert_eq!(sent, 0, "{reason}");
                reasons[reason as usize] += 1;
            }
            Verdict::Reply(reason) => {
                assert!(sent >= 1, "{reason}");
                reasons[reason as usize] += 1;
            }
            Verdict::EchoReply | Verdict::Pcp(_) => assert!(sent >= 1),
            Verdict::Hold | Verdict::ToHost | Verdict::Redirect(_) => assert_eq!(sent, 0),
        }
        if n % 1000 == 0 {
            now = Now(now.0 + 20 * SECOND);
            sweeper.advance(&tables, 2000, now.tick(), &mut expiry);
            engine.idle(now);
        }
    }
    assert_eq!(audit::check(&tables), Vec::<String>::new());
    assert_eq!(reasons[DropReason::NoHeadroom as usize], 0);
    let met = reasons.iter().filter(|&&count| count > 0).count();
    assert!(forwarded > PACKETS / 50, "only {forwarded} were forwarded: the test would prove little");
    assert!(met >= 12, "only {met} reasons");
}

/// What leaves is a packet, and so is what is inside of it.
fn check(packet: &Packet<'_>) {
    let bytes = packet.bytes();
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    match bytes[0] >> 4 {
        4 => {
            assert_eq!(word(2), bytes.len());
            assert_eq!(sum(&bytes[..usize::from(bytes[0] & 15) * 4]), 0xffff);
        }
        6 => {
            assert_eq!(word(4) + 40, bytes.len());
            assert_eq!(packet.offload, Offload::default(), "nothing is left to the card behind two headers");
            assert!(bytes.len() <= 1280, "{}", bytes.len());
            if bytes[6] == 4 {
                let inner = &bytes[40..];
                assert_eq!(inner[0] >> 4, 4);
                assert_eq!(usize::from(u16::from_be_bytes([inner[2], inner[3]])), inner.len());
                assert_eq!(sum(&inner[..usize::from(inner[0] & 15) * 4]), 0xffff);
            }
        }
        version => panic!("version {version}"),
    }
}

#[test]
fn random_packets_do_no_harm_to_a_b4() {
    torture(b4(), true);
}

#[test]
fn random_packets_do_no_harm_to_an_aftr() {
    torture(aftr(), false);
}

#[test]
fn random_packets_do_no_harm_to_a_lwb4() {
    torture(lwb4(), true);
}

#[test]
fn random_packets_do_no_harm_to_a_lwaftr() {
    torture(lwaftr(), false);
}
