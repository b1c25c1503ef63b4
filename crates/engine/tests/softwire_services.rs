//! DS-Lite and Lightweight 4over6 in the whole engine, both ends; `tests/vectors/lw4o6.json` (RFC
//! 7596).

#![expect(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde_json::Value;
use support::*;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::exemptions::{Exemption, Exemptions};
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges};
use tombolo_engine::mapping::port_set::PortDivision;
use tombolo_engine::mapping::softwire_table::{SoftwireRow, SoftwireTable, b4_address};
use tombolo_engine::mechanism::napt::{Nat, Policy, SubscriberIs, Times};
use tombolo_engine::mechanism::{Softwire, SoftwireSettings};
use tombolo_engine::packet::Packet;
use tombolo_engine::plan::{OwnAddresses, PcpPolicy, Plan, Service, ServiceKind};
use tombolo_engine::service::aftr::{Aftr, Untranslated};
use tombolo_engine::service::b4::B4;
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_engine::service::lwb4::Lwb4;
use tombolo_engine::{DropReason, Engine, Now, Verdict};
use tombolo_tables::Tables;
use tombolo_tables::hash::HashKey;
use tombolo_tables::lpm::Prefix;
use tombolo_tables::memory::Heap;
use tombolo_tables::tables::Capacity;

const AFTR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
const B4_A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x100, 0, 0, 0, 0xb4);
const B4_B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 0x200, 0, 0, 0, 0xb4);
const OWN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

fn gateway(kind: ServiceKind) -> Gateway {
    let mut plan = Plan {
        services: vec![Service::new(0, "test", kind)],
        retired: Vec::new(),
        cluster: None,
        rows: tombolo_engine::row::Rows::default(),
        times: Times::default(),
        capacity: Capacity { subscribers: 100, bindings: 1000, sessions: 1000, outside_slots: 0, leases: 16 },
        pcp: Default::default(),
        own: OwnAddresses { ipv4: Some(OWN), ipv6: Some("2001:db8:2::1".parse().unwrap()), ..OwnAddresses::default() },
    };
    plan.capacity.outside_slots = plan.outside_slots().unwrap();
    let tables = Arc::new(Tables::new(&mut Heap, plan.capacity, HashKey::new([5, 6, 7, 8])).unwrap());
    Gateway { engine: Engine::new(Arc::clone(&tables), [7; 32], 0, 1), plan, tables, now: Now(1_000 * SECOND) }
}

fn pool(first: Ipv4Addr, ports: PortRanges) -> Pool {
    let span = *ports.ranges()[0].start()..=*ports.ranges().last().unwrap().end();
    let ports = [ports.clone(), ports.clone(), ports];
    Pool::new(vec![PoolRange { first, last: first, ports, span, first_slot: 0, owner: Owner::Gateway }])
}

fn ten() -> AddressRanges {
    AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 255, 255, 255)])
}

fn aftr(policy: Policy) -> Gateway {
    gateway(ServiceKind::Aftr(Aftr {
        address: AFTR,
        b4s: Networks::new([Prefix::new("2001:db8:1000::".parse().unwrap(), 36).unwrap()]),
        inside: ten(),
        untranslated: Untranslated::default(),
        nat: Nat {
            pool: pool(POOL, PortRanges::new([1024..=65535])),
            policy: Policy { subscriber: SubscriberIs::Softwire { prefix_length: 56 }, ..policy },
            static_bindings: Vec::new(),
        },
        softwire: SoftwireSettings::default(),
        outside_mtu: 1500,
        icmp_source: Ipv4Addr::new(192, 0, 0, 1),
        tell_unknown: true,
    }))
}

/// With a host behind `B4_A` that has an address of its own, and reaches port 53 of the server with it.
fn aftr_with_exempt_port() -> Gateway {
    let mut gateway = aftr(Policy::default());
    if let ServiceKind::Aftr(aftr) = &mut gateway.plan.services[0].kind {
        let udp = PortRanges::new([53..=53]);
        let exempt = vec![Exemption { addresses: SERVER..=SERVER, tcp: PortRanges::default(), udp }];
        aftr.untranslated =
            Untranslated::new(AddressRanges::default(), Exemptions(exempt), vec![(Ipv4Addr::new(10, 0, 0, 5), B4_A)]);
    }
    gateway
}

#[test]
fn behind_a_softwire_single_ports_are_reached_with_the_hosts_own_address() {
    let mut gateway = aftr_with_exempt_port();
    let host = Ipv4Addr::new(10, 0, 0, 5);
    let out = |gateway: &mut Gateway, port| {
        see(&forward(gateway, &tunnelled(B4_A, AFTR, &udp((host, 4000), (SERVER, port), b"query")))).source
    };
    assert_eq!([53, 54].map(|port| out(&mut gateway, port)), [IpAddr::from(host), POOL.into()]);
    let answer = udp((SERVER, 53), (host, 4000), b"answer");
    let (from, to, inner) = inside(&forward(&mut gateway, &answer));
    assert_eq!((from, to, see(&inner).destination), (AFTR, B4_A, IpAddr::from(host)));
    // From another port nobody gets there.
    let other = udp((SERVER, 54), (host, 4000), b"answer");
    assert_eq!(gateway.pass(&other).0, Verdict::Drop(DropReason::NoBinding));
    // Errors about what went there and what came from there find their way.
    let error = icmp(host, SERVER, 3, 3, 0, &answer);
    assert_eq!(see(&forward(&mut gateway, &tunnelled(B4_A, AFTR, &error))).source, IpAddr::from(host));
    let error = icmp(SERVER, host, 3, 3, 0, &udp((host, 4000), (SERVER, 53), b"query"));
    assert_eq!(inside(&forward(&mut gateway, &error)).1, B4_A);
}

#[test]
fn pieces_from_who_is_no_b4_do_not_wait_for_others() {
    let mut gateway = aftr(Policy::default());
    let stranger: Ipv6Addr = "2001:db8:2000::b4".parse().unwrap();
    let pieces = |from| fragments_ipv6(&tunnelled(from, AFTR, &udp((HOST4, 4000), (SERVER, 53), &[7; 1400])), 1240);
    for piece in pieces(stranger) {
        let verdict = gateway.pass(&piece).0;
        assert_eq!(verdict.reason(), Some(DropReason::UnknownSoftwire), "{verdict:?}");
    }
    let verdicts: Vec<Verdict> = pieces(B4_A).iter().map(|piece| gateway.pass(piece).0).collect();
    assert_eq!(verdicts, [Verdict::Hold, Verdict::Forward]);
}

fn b4() -> Gateway {
    gateway(ServiceKind::B4(B4 {
        inside: ten(),
        ends: Softwire { local: B4_A, remote: AFTR },
        far_end: None,
        softwire: SoftwireSettings::default(),
        icmp_source: Ipv4Addr::new(192, 0, 0, 2),
    }))
}

fn lwb4() -> Gateway {
    let division = PortDivision::new(6, 8).unwrap();
    gateway(ServiceKind::Lwb4(Lwb4 {
        inside: ten(),
        ends: Softwire { local: B4_A, remote: AFTR },
        far_end: None,
        nat: Nat {
            pool: pool(POOL, PortRanges::new(division.ranges(0x34))),
            policy: Policy::default(),
            static_bindings: Vec::new(),
        },
        softwire: SoftwireSettings::default(),
        inside_mtu: 1500,
        icmp_source: POOL,
        tell_not_ours: true,
    }))
}

fn tunnelled(from: Ipv6Addr, to: Ipv6Addr, inner: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 4, 64];
    packet[0] |= inner[1] >> 4;
    packet[1] = inner[1] << 4;
    packet[4..6].copy_from_slice(&u16::try_from(inner.len()).unwrap().to_be_bytes());
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(inner);
    packet
}

fn without_df(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[6] &= !0x40;
    packet[10..12].fill(0);
    let checksum = !sum(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The ends of a softwire's packet, and the packet inside.
fn inside(packet: &[u8]) -> (Ipv6Addr, Ipv6Addr, Vec<u8>) {
    assert_eq!((packet[0] >> 4, packet[6]), (6, 4), "{packet:02x?}");
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    (address(8), address(24), packet[40..].to_vec())
}

/// The one packet that `bytes` become.
#[track_caller]
fn forward(gateway: &mut Gateway, bytes: &[u8]) -> Vec<u8> {
    let (verdict, mut sent) = gateway.pass(bytes);
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    sent.remove(0)
}

#[test]
fn hosts_with_the_same_address_behind_two_b4s_are_two_hosts() {
    let mut gateway = aftr(Policy::default());
    let query = udp((HOST4, 20000), (SERVER, 53), b"query");
    let mut ports = Vec::new();
    for b4 in [B4_A, B4_B] {
        let sent = see(&forward(&mut gateway, &tunnelled(b4, AFTR, &query)));
        assert_eq!((sent.source, sent.destination, sent.hop_limit), (POOL.into(), SERVER.into(), 63));
        ports.push(sent.ports.0);
    }
    assert_ne!(ports[0], ports[1]);
    for (b4, port) in [B4_A, B4_B].into_iter().zip(ports) {
        let (from, to, inner) = inside(&forward(&mut gateway, &udp((SERVER, 53), (POOL, port), b"answer")));
        assert_eq!((from, to), (AFTR, b4));
        let seen = see(&inner);
        assert_eq!((seen.destination, seen.ports, seen.hop_limit), (HOST4.into(), (53, 20000), 63));
    }
    // The reference example of RFC 6333 figure 5: another B4 gets nothing of it.
    assert_eq!(gateway.pass(&udp((SERVER, 53), (POOL, 1), b"scan")).0, Verdict::Drop(DropReason::NoBinding));
}

#[test]
fn a_host_behind_a_b4_asks_its_aftr_for_a_port() {
    let policy = Policy { pcp: Some(PcpPolicy::default()), ..Policy::default() };
    let mut gateway = aftr(policy);
    let mut request = vec![2, 1, 0, 0, 0, 0, 0x0e, 0x10];
    request.extend(HOST4.to_ipv6_mapped().octets());
    request.extend(b"twelve bytes");
    request.extend([17, 0, 0, 0, 0x1f, 0x90, 0, 0]);
    request.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
    let server = Ipv4Addr::new(192, 0, 0, 1);
    let mut outside = Vec::new();
    for b4 in [B4_A, B4_B] {
        let asked = tunnelled(b4, AFTR, &udp((HOST4, 40_000), (server, 5351), &request));
        let (verdict, sent) = gateway.pass(&asked);
        assert!(matches!(verdict, Verdict::Pcp(_)), "{verdict:?}");
        let (from, to, inner) = inside(&sent[0]);
        let seen = see(&inner);
        assert_eq!((from, to, seen.source, seen.destination), (AFTR, b4, server.into(), HOST4.into()));
        assert_eq!((seen.ports, &seen.payload[..4]), ((5351, 40_000), &[2, 0x81, 0, 0][..]));
        outside.push((POOL, u16::from_be_bytes([seen.payload[42], seen.payload[43]])));
        let knock = forward(&mut gateway, &udp((SERVER, 1), (POOL, outside[outside.len() - 1].1), b"knock"));
        let (_, to, inner) = inside(&knock);
        assert_eq!((to, see(&inner).ports.1), (b4, 0x1f90));
    }
    assert_ne!(outside[0], outside[1], "they are two hosts");
    // Not from a stranger, nor for a host that is elsewhere, nor from outside any softwire.
    let stranger = tunnelled("2001:db8:2000::1".parse().unwrap(), AFTR, &udp((HOST4, 1), (server, 5351), &request));
    assert_eq!(gateway.pass(&stranger).0, Verdict::Reply(DropReason::UnknownSoftwire));
    let other = tunnelled(B4_A, AFTR, &udp((Ipv4Addr::new(10, 9, 9, 9), 1), (server, 5351), &request));
    assert_eq!(see(&inside(&gateway.pass(&other).1[0]).2).payload[3], 12, "ADDRESS_MISMATCH");
    let plain = udp((B4_A, 1), (AFTR, 5351), &request);
    assert_eq!(gateway.pass(&plain).0, Verdict::Reply(DropReason::NotIpv4Inside));
    assert_eq!(gateway.tables.leases.count(), 2);
    gateway.audit();
}

#[test]
fn a_subscriber_is_a_prefix_with_one_limit() {
    let mut gateway = aftr(Policy { bindings_per_subscriber: Some(2), ..Policy::default() });
    // Two addresses of one home, and then one of another.
    let moved = Ipv6Addr::from_bits(B4_A.to_bits() | 1 << 64);
    let query = |port| udp((HOST4, port), (SERVER, 53), b"query");
    assert_eq!(gateway.pass(&tunnelled(B4_A, AFTR, &query(1))).0, Verdict::Forward);
    assert_eq!(gateway.pass(&tunnelled(moved, AFTR, &query(1))).0, Verdict::Forward);
    let (verdict, sent) = gateway.pass(&tunnelled(moved, AFTR, &query(2)));
    assert_eq!(verdict, Verdict::Reply(DropReason::SubscriberLimit));
    let (from, to, inner) = inside(&sent[0]);
    // RFC 6888 REQ-11: 3/1, from 192.0.0.1, through the softwire that it came from.
    assert_eq!((from, to, inner[20], inner[21]), (AFTR, moved, 3, 1));
    assert_eq!(inner[12..20], [192, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(gateway.pass(&tunnelled(B4_B, AFTR, &query(2))).0, Verdict::Forward);
}

#[test]
fn an_aftr_takes_nothing_from_strangers_and_no_foreign_source() {
    let mut gateway = aftr(Policy::default());
    let query = udp((HOST4, 1), (SERVER, 53), b"query");
    let stranger: Ipv6Addr = "2001:db8:9::1".parse().unwrap();
    let (verdict, sent) = gateway.pass(&tunnelled(stranger, AFTR, &query));
    assert_eq!(verdict, Verdict::Reply(DropReason::UnknownSoftwire));
    let told = see(&sent[0]);
    assert_eq!((told.source, told.destination, sent[0][40], sent[0][41]), (AFTR.into(), stranger.into(), 1, 5));
    let spoofed = udp((Ipv4Addr::new(8, 8, 8, 8), 1), (SERVER, 53), b"query");
    assert_eq!(gateway.pass(&tunnelled(B4_A, AFTR, &spoofed)).0, Verdict::Drop(DropReason::InnerSourceSpoofed));
    let mut gre = udp((HOST4, 1), (SERVER, 2), b"gre");
    gre[9] = 47;
    gre[10..12].fill(0);
    let checksum = !sum(&gre[..20]);
    gre[10..12].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(gateway.pass(&tunnelled(B4_A, AFTR, &gre)).0, Verdict::Reply(DropReason::UnsupportedProtocol));
    assert_eq!(gateway.tables.bindings.count(), 0);
}

#[test]
fn answers_to_strangers_are_bounded() {
    let mut gateway = aftr(Policy::default());
    let query = udp((HOST4, 1), (SERVER, 53), b"query");
    let mut told = |stranger: u128| {
        let stranger = Ipv6Addr::from_bits(0x2001_0db8_0009 << 80 | stranger << 64 | 1);
        matches!(gateway.pass(&tunnelled(stranger, AFTR, &query)).0, Verdict::Reply(_))
    };
    assert_eq!((0..1000).filter(|_| told(0)).count(), 12, "one of them");
    assert_eq!((1..1000).filter(|&n| told(n)).count(), 50 - 12, "all of them");
}

#[test]
fn subscribers_of_an_aftr_reach_each_other_by_their_outside_addresses() {
    let mut gateway = aftr(Policy::default());
    let opened = see(&forward(&mut gateway, &tunnelled(B4_B, AFTR, &udp((HOST4, 7), (SERVER, 9), b"open"))));
    let (from, to, inner) =
        inside(&forward(&mut gateway, &tunnelled(B4_A, AFTR, &udp((HOST4, 7), (POOL, opened.ports.0), b"turn"))));
    assert_eq!((from, to), (AFTR, B4_B));
    let seen = see(&inner);
    // RFC 4787 REQ-9 (a): from the outside address; one decrement in total.
    assert_eq!((seen.source, seen.destination, seen.ports.1, seen.hop_limit), (POOL.into(), HOST4.into(), 7, 63));
}

#[test]
fn fragments_inside_and_outside_of_softwires_are_put_together() {
    let mut gateway = aftr(Policy::default());
    let whole = udp((HOST4, 20000), (SERVER, 53), &[7; 3000]);
    // Inner fragments, each a whole packet outside, in reverse order.
    let mut pieces = fragments_ipv4(&whole, 1400);
    pieces.reverse();
    let last = pieces.pop().unwrap();
    for piece in &pieces {
        assert_eq!(gateway.pass(&tunnelled(B4_A, AFTR, piece)).0, Verdict::Hold);
        // The same from another home is another datagram.
        assert_eq!(gateway.pass(&tunnelled(B4_B, AFTR, piece)).0, Verdict::Hold);
    }
    let (verdict, sent) = gateway.pass(&tunnelled(B4_A, AFTR, &last));
    assert_eq!(verdict, Verdict::Forward);
    let seen = see(&whole_of_ipv4(&sent));
    assert_eq!((seen.source, seen.payload.len()), (POOL.into(), 3000));

    // Outer fragments.
    let mut pieces = fragments_ipv6(&tunnelled(B4_B, AFTR, &without_df(&whole)), 1000);
    let first = pieces.remove(0);
    for piece in &pieces {
        assert_eq!(gateway.pass(piece).0, Verdict::Hold);
    }
    let (verdict, sent) = gateway.pass(&first);
    assert_eq!((verdict, see(&whole_of_ipv4(&sent)).payload.len()), (Verdict::Forward, 3000));

    // Back: from fragments into fragments around the softwire.
    let answer = udp((SERVER, 53), (POOL, seen.ports.0), &[9; 3000]);
    let pieces = fragments_ipv4(&answer, 1480);
    let mut sent = Vec::new();
    for piece in &pieces {
        sent = gateway.pass(piece).1;
    }
    let (_, to, inner) = inside(&whole_of_ipv6(&sent));
    assert_eq!((to, see(&inner).payload.len()), (B4_A, 3000));
    assert!(sent.len() == 3 && sent.iter().all(|piece| piece.len() <= 1500));
}

#[test]
fn a_flood_of_inner_fragments_stays_within_its_memory() {
    let mut gateway = aftr(Policy::default());
    let mut held = 0;
    for n in 0..100_000_u32 {
        let source = Ipv4Addr::from_bits(HOST4.to_bits() + n % 200_000);
        let piece = fragments_ipv4(&udp((source, 1), (SERVER, 2), &[0; 1400]), 1000).remove(0);
        held += u32::from(gateway.pass(&tunnelled(B4_A, AFTR, &piece)).0 == Verdict::Hold);
    }
    // One softwire gets a quarter of 16 MiB: about 3900 of these.
    assert!((3000..5000).contains(&held), "{held}");
    let piece = fragments_ipv4(&udp((HOST4, 1), (SERVER, 2), &[0; 1400]), 1000).remove(0);
    assert_eq!(gateway.pass(&tunnelled(B4_B, AFTR, &piece)).0, Verdict::Hold, "others have room");
}

#[test]
fn errors_cross_an_aftr_in_both_directions() {
    let mut gateway = aftr(Policy::default());
    let query = udp((HOST4, 20000), (SERVER, 53), b"query");
    let sent = forward(&mut gateway, &tunnelled(B4_A, AFTR, &query));
    let port = see(&sent).ports.0;
    // From a router outside, about what left.
    let router = Ipv4Addr::new(203, 0, 113, 9);
    let (_, to, inner) = inside(&forward(&mut gateway, &icmp(router, POOL, 11, 0, 0, &sent)));
    let error = see(&inner);
    assert_eq!((to, error.source, error.destination), (B4_A, router.into(), HOST4.into()));
    assert_eq!((see(&error.payload).source, see(&error.payload).ports), (HOST4.into(), (20000, 53)));
    // From the host inside, about what came.
    let came = udp((SERVER, 53), (HOST4, 20000), b"answer");
    let error = see(&forward(&mut gateway, &tunnelled(B4_A, AFTR, &icmp(HOST4, SERVER, 3, 3, 0, &came))));
    assert_eq!((error.source, error.destination), (POOL.into(), SERVER.into()));
    assert_eq!((see(&error.payload).destination, see(&error.payload).ports), (POOL.into(), (53, port)));
    // From an IPv6 router on the way to the B4, about the packet around it.
    let answer = udp((SERVER, 53), (POOL, port), &[1; 1400]);
    let around = forward(&mut gateway, &answer);
    let core: Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    let relayed = forward(&mut gateway, &icmp(core, AFTR, 2, 0, 1300, &around[..1200]));
    let error = see(&relayed);
    assert_eq!((error.source, error.destination), (POOL.into(), SERVER.into()));
    assert_eq!(relayed[20..28], [3, 4, relayed[22], relayed[23], 0, 0, 4, 236], "1300 - 40");
    assert_eq!(error.payload[12..20], answer[12..20]);
    assert_eq!(error.payload[20..24], answer[20..24]);
}

/// Who guesses both ends of another home's connection, also one with the same addresses behind it, ends nothing of it.
#[test]
fn an_error_out_of_a_softwire_is_about_what_went_into_it() {
    let mut gateway = aftr(Policy::default());
    forward(&mut gateway, &tunnelled(B4_A, AFTR, &udp((HOST4, 20000), (SERVER, 53), b"query")));
    let error = icmp(HOST4, SERVER, 3, 3, 0, &udp((SERVER, 53), (HOST4, 20000), b"answer"));
    assert_eq!(gateway.pass(&tunnelled(B4_B, AFTR, &error)), (Verdict::Drop(DropReason::NoSession), Vec::new()));
    // Nor does one about the packet as the remote has sent it.
    let quoted = udp((SERVER, 53), (POOL, 20000), b"answer");
    let error = icmp(HOST4, SERVER, 3, 3, 0, &quoted);
    assert_eq!(gateway.pass(&tunnelled(B4_B, AFTR, &error)), (Verdict::Drop(DropReason::NoSession), Vec::new()));
    let error = icmp(HOST4, SERVER, 3, 3, 0, &udp((SERVER, 53), (HOST4, 20000), b"answer"));
    assert_eq!(gateway.pass(&tunnelled(B4_A, AFTR, &error)).0, Verdict::Forward);
}

#[test]
fn a_b4_carries_everything_as_it_is() {
    let mut gateway = b4();
    let query = udp((HOST4, 1), (SERVER, 53), b"query");
    let (from, to, inner) = inside(&forward(&mut gateway, &query));
    assert_eq!((from, to, see(&inner).hop_limit), (B4_A, AFTR, 63));
    let answer = udp((SERVER, 53), (HOST4, 1), b"answer");
    assert_eq!(see(&forward(&mut gateway, &tunnelled(AFTR, B4_A, &answer))).payload, b"answer");
    // Fragments are not put together.
    for piece in fragments_ipv4(&udp((HOST4, 1), (SERVER, 53), &[0; 300]), 64) {
        assert_eq!(inside(&forward(&mut gateway, &piece)).2[4..8], piece[4..8]);
    }
    assert_eq!(gateway.pass(&tunnelled(B4_B, B4_A, &answer)).0, Verdict::Drop(DropReason::UnknownSoftwire));
    let strange = udp((SERVER, 53), (Ipv4Addr::new(192, 168, 7, 7), 1), b"?");
    assert_eq!(gateway.pass(&tunnelled(AFTR, B4_A, &strange)).0, Verdict::Drop(DropReason::NotOurs));
    // Too big: told from 192.0.0.2.
    let (verdict, sent) = gateway.pass(&udp((HOST4, 1), (SERVER, 53), &[0; 1433]));
    assert_eq!(verdict, Verdict::Reply(DropReason::TooBig));
    assert_eq!((sent[0][20..22].to_vec(), &sent[0][26..28]), (vec![3, 4], &1460_u16.to_be_bytes()[..]));
    assert_eq!(sent[0][12..20], [192, 0, 0, 2, 10, 0, 0, 2]);
}

#[test]
fn a_lwb4_keeps_to_its_ports() {
    let mut gateway = lwb4();
    let division = PortDivision::new(6, 8).unwrap();
    let own: Vec<u16> = division.ranges(0x34).flatten().collect();
    assert_eq!(own.len(), 252);
    // Every port of the set can be had, and no other. What the hosts ask for makes no difference.
    let mut given = Vec::new();
    for n in 0..252 {
        let (from, to, inner) = inside(&forward(&mut gateway, &udp((HOST4, 5000 + n), (SERVER, 53), b"query")));
        assert_eq!((from, to), (B4_A, AFTR));
        let seen = see(&inner);
        assert_eq!(seen.source, POOL);
        given.push(seen.ports.0);
    }
    given.sort_unstable();
    assert_eq!(given, own);
    assert_eq!(gateway.pass(&udp((HOST4, 9), (SERVER, 53), b"?")).0, Verdict::Reply(DropReason::PoolExhausted));
    // Identifiers of echoes too.
    let (_, _, inner) = inside(&forward(&mut gateway, &echo(HOST4, SERVER, true, 1)));
    let identifier = see(&inner).ports.0;
    assert!(own.contains(&identifier));
    let answer = forward(&mut gateway, &tunnelled(AFTR, B4_A, &echo(SERVER, POOL, false, identifier)));
    assert_eq!((see(&answer).destination, see(&answer).ports.0), (HOST4.into(), 1));
}

#[test]
fn a_lwb4_takes_only_its_own_from_its_lwaftr() {
    let mut gateway = lwb4();
    let (_, _, inner) = inside(&forward(&mut gateway, &udp((HOST4, 5000), (SERVER, 53), b"query")));
    let port = see(&inner).ports.0;
    let answer = udp((SERVER, 53), (POOL, port), b"answer");
    let seen = see(&forward(&mut gateway, &tunnelled(AFTR, B4_A, &answer)));
    assert_eq!((seen.destination, seen.ports), (HOST4.into(), (53, 5000)));
    assert_eq!(gateway.pass(&tunnelled(B4_B, B4_A, &answer)).0, Verdict::Drop(DropReason::UnknownSoftwire));
    // Another's port: told, as RFC 7596 section 5.2 allows.
    let (verdict, sent) = gateway.pass(&tunnelled(AFTR, B4_A, &udp((SERVER, 53), (POOL, 2000), b"?")));
    let (from, to, told) = inside(&sent[0]);
    assert_eq!((verdict, from, to), (Verdict::Reply(DropReason::NotOurs), B4_A, AFTR));
    assert_eq!((told[20], told[21], &told[12..20]), (3, 13, &[192, 0, 2, 1, 198, 51, 100, 2][..]));
    let unbound = PortDivision::new(6, 8).unwrap().ranges(0x34).flatten().find(|&p| p != port).unwrap();
    let scan = udp((SERVER, 53), (POOL, unbound), b"?");
    assert_eq!(gateway.pass(&tunnelled(AFTR, B4_A, &scan)).0, Verdict::Drop(DropReason::NoBinding));
    // What another subscriber of the address has goes to the lwAFTR; what is ours turns round.
    let other = forward(&mut gateway, &udp((HOST4, 5000), (POOL, 2000), b"neighbour"));
    assert_eq!(inside(&other).1, AFTR);
    let turned = see(&forward(&mut gateway, &udp((OTHER_HOST4, 6000), (POOL, port), b"turned")));
    assert_eq!((turned.source, turned.destination, turned.hop_limit), (POOL.into(), HOST4.into(), 63));
}

#[test]
fn a_refusal_of_the_lwaftr_is_believed_from_nobody_else() {
    let mut gateway = lwb4();
    let around = forward(&mut gateway, &udp((HOST4, 5000), (SERVER, 53), b"query"));
    let (verdict, sent) = gateway.pass(&icmp(AFTR, B4_A, 1, 5, 0, &around));
    assert_eq!(verdict, Verdict::Reply(DropReason::SoftwireRefused));
    let told = see(&sent[0]);
    assert_eq!((told.destination, sent[0][20], sent[0][21]), (HOST4.into(), 3, 1));
    assert_eq!((see(&told.payload).source, see(&told.payload).ports), (HOST4.into(), (5000, 53)));
    let core: Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    let (verdict, _) = gateway.pass(&icmp(core, B4_A, 1, 5, 0, &around));
    assert_eq!(verdict, Verdict::Drop(DropReason::IcmpErrorUnusable));
    assert_eq!(gateway.pass(&icmp(core, B4_A, 1, 0, 0, &around)).0, Verdict::Forward);
}

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/lw4o6.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn v4(value: &Value) -> Ipv4Addr {
    value.as_str().unwrap().parse().unwrap()
}

fn v6(value: &Value) -> Ipv6Addr {
    value.as_str().unwrap().parse().unwrap()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    value.as_u64().and_then(|number| T::try_from(number).ok()).unwrap()
}

/// The lwAFTR of the vectors; ::2 is another address of it.
fn lwaftr(hairpinning: bool) -> Gateway {
    let rows: Vec<_> = vectors()["binding_table"].as_array().unwrap().iter().map(row).collect();
    gateway(ServiceKind::Lwaftr(Lwaftr {
        addresses: vec![AFTR, "2001:db8:ffff::2".parse().unwrap()],
        ipv4: AddressRanges::new([Ipv4Addr::new(192, 0, 2, 0)..=Ipv4Addr::new(192, 0, 2, 255)]),
        table: SoftwireTable::new(&rows).unwrap(),
        softwire: SoftwireSettings::default(),
        hairpinning,
        tell_unknown: true,
        tell_unreachable: true,
        inbound_icmp: true,
    }))
}

fn row(row: &Value) -> SoftwireRow {
    SoftwireRow {
        ipv4: v4(&row["ipv4"]),
        division: PortDivision::new(number(&row["psid_offset"]), number(&row["psid_len"])).unwrap(),
        psid: number(&row["psid"]),
        b4: v6(&row["b4_ipv6"]),
        local: v6(&row["br_ipv6"]),
    }
}

/// A packet of the case's protocol from the server to a port.
fn to_subscriber(case: &Value, address: Ipv4Addr) -> Vec<u8> {
    let port = number(&case["dst_port_or_id"]);
    match case["protocol"].as_str().unwrap() {
        "udp" => udp((SERVER, 53), (address, port), b"x"),
        "tcp" => tcp((SERVER, 53), (address, port), SYN, b""),
        _ => echo(SERVER, address, true, port),
    }
}

#[test]
fn a_lwaftr_does_what_the_vectors_say() {
    let document = vectors();
    let mut checked = 0;
    for case in document["cases"].as_array().unwrap() {
        let mut gateway = lwaftr(case["hairpinning"] != false);
        println!("{}", case["id"]);
        match case["kind"].as_str().unwrap() {
            "from_internet" => {
                let packet = to_subscriber(case, v4(&case["ipv4_dst"]));
                let (verdict, sent) = gateway.pass(&packet);
                if case["b4_ipv6"].is_null() {
                    let told = case["on_no_match"].as_str().unwrap().contains("3/1");
                    let expected = if told { Verdict::Reply } else { Verdict::Drop };
                    assert_eq!(verdict, expected(DropReason::NoBinding));
                    if told {
                        assert_eq!((see(&sent[0]).destination, sent[0][20], sent[0][21]), (SERVER.into(), 3, 1));
                    }
                } else {
                    let (from, to, inner) = inside(&sent[0]);
                    assert_eq!((verdict, from, to), (Verdict::Forward, AFTR, v6(&case["b4_ipv6"])));
                    assert_eq!((see(&inner).hop_limit, &inner[12..]), (63, &packet[12..]));
                }
            }
            "from_b4" => {
                let inner = udp((v4(&case["ipv4_src"]), number(&case["src_port"])), (SERVER, 53), b"x");
                let outer = (v6(&case["outer_src"]), v6(&case["outer_dst"]));
                let (verdict, sent) = gateway.pass(&tunnelled(outer.0, outer.1, &inner));
                if case["accept"] == true {
                    assert_eq!((verdict, &sent[0][12..]), (Verdict::Forward, &inner[12..]));
                } else if case["on_reject"].as_str().unwrap().contains("1/5") {
                    assert!(matches!(verdict, Verdict::Reply(_)), "{verdict:?}");
                    let told = see(&sent[0]);
                    assert_eq!((told.source, told.destination), (outer.1.into(), outer.0.into()));
                    assert_eq!((sent[0][40], sent[0][41]), (1, 5));
                } else {
                    assert!(matches!(verdict, Verdict::Drop(_)), "{verdict:?}");
                }
            }
            "hairpin" => {
                let source = (v4(&case["ipv4_src"]), number(&case["src_port"]));
                let inner = udp(source, (v4(&case["ipv4_dst"]), number(&case["dst_port"])), b"x");
                let (verdict, sent) = gateway.pass(&tunnelled(v6(&case["outer_src"]), AFTR, &inner));
                if case["out_outer_dst"].is_null() {
                    assert_eq!(verdict, Verdict::Drop(DropReason::HairpinningOff));
                } else {
                    let (from, to, out) = inside(&sent[0]);
                    assert_eq!((from, to), (v6(&case["out_outer_src"]), v6(&case["out_outer_dst"])));
                    assert_eq!((see(&out).hop_limit, &out[12..]), (63, &inner[12..]));
                }
            }
            "icmp_error_from_internet" => {
                let about = &case["embedded"];
                let quoted = match about.get("icmp_echo_id") {
                    Some(identifier) => echo(v4(&about["src"]), v4(&about["dst"]), true, number(identifier)),
                    None => udp(
                        (v4(&about["src"]), number(&about["src_port"])),
                        (v4(&about["dst"]), number(&about["dst_port"])),
                        b"x",
                    ),
                };
                let quoted = with_options(&quoted, about["options_bytes"].as_u64().unwrap_or(0));
                let packet = icmp(SERVER, v4(&case["outer_ipv4_dst"]), 3, 3, 0, &quoted);
                let (_, to, inner) = inside(&forward(&mut gateway, &packet));
                assert_eq!((to, &inner[12..]), (v6(&case["b4_ipv6"]), &packet[12..]));
            }
            "b4_address" => {
                let (prefix, length) = case["bind_prefix"].as_str().unwrap().split_once('/').unwrap();
                let prefix = Prefix::new(prefix.parse().unwrap(), length.parse().unwrap()).unwrap();
                let psid = case["psid"].as_u64().unwrap_or(0);
                let found = b4_address(prefix, v4(&case["ipv4"]), u16::try_from(psid).unwrap());
                assert_eq!(found, v6(&case["b4_ipv6"]));
            }
            other => panic!("unknown kind {other}"),
        }
        checked += 1;
    }
    assert_eq!(checked, 35);
}

/// The packet with so many bytes of options (no operation) in its IPv4 header.
fn with_options(packet: &[u8], bytes: u64) -> Vec<u8> {
    let count = usize::try_from(bytes).unwrap();
    let mut out = packet[..20].to_vec();
    out.extend(std::iter::repeat_n(1, count));
    out.extend(&packet[20..]);
    out[0] += u8::try_from(count / 4).unwrap();
    let length = u16::try_from(out.len()).unwrap();
    out[2..4].copy_from_slice(&length.to_be_bytes());
    out[10..12].fill(0);
    let checksum = !sum(&out[..20 + count]);
    out[10..12].copy_from_slice(&checksum.to_be_bytes());
    out
}

#[test]
fn a_lwaftr_checks_and_tells_in_the_right_direction() {
    let mut gateway = lwaftr(true);
    let b4: Ipv6Addr = "2001:db8:1::10".parse().unwrap();
    let address = Ipv4Addr::new(192, 0, 2, 10);
    // A TTL that runs out is told through the softwire.
    let mut old = udp((address, 4096), (address, 5120), b"x");
    old[8] = 1;
    old[10..12].fill(0);
    let checksum = !sum(&old[..20]);
    old[10..12].copy_from_slice(&checksum.to_be_bytes());
    let (verdict, sent) = gateway.pass(&tunnelled(b4, AFTR, &old));
    let (from, to, told) = inside(&sent[0]);
    assert_eq!((verdict, from, to), (Verdict::Reply(DropReason::HopLimit), AFTR, b4));
    assert_eq!((told[20], &told[12..16], &told[28..]), (11, &OWN.octets()[..], &old[..]));
    // An ICMP error from a subscriber belongs to whom its packet was for.
    let came = udp((SERVER, 53), (address, 4096), b"x");
    let error = icmp(address, SERVER, 3, 3, 0, &came);
    assert_eq!(gateway.pass(&tunnelled(b4, AFTR, &error)).0, Verdict::Forward);
    let stolen = icmp(address, SERVER, 3, 3, 0, &udp((SERVER, 53), (address, 5120), b"x"));
    assert_eq!(gateway.pass(&tunnelled(b4, AFTR, &stolen)).0, Verdict::Reply(DropReason::InnerSourceSpoofed));
    // Damaged errors are not believed, other ICMP is nobody's.
    let mut damaged = icmp(SERVER, address, 3, 3, 0, &udp((address, 4096), (SERVER, 53), b"x"));
    damaged[50] ^= 1;
    assert_eq!(gateway.pass(&damaged).0, Verdict::Drop(DropReason::BadChecksum));
    let timestamp = icmp(SERVER, address, 13, 0, 0, &[0; 12]);
    assert_eq!(gateway.pass(&timestamp).0, Verdict::Drop(DropReason::IcmpUntranslatable));
    // Packets without ports reach whole addresses only.
    let mut gre = udp((SERVER, 1), (address, 4096), b"gre");
    gre[9] = 47;
    gre[16..20].copy_from_slice(&[192, 0, 2, 11]);
    gre[10..12].fill(0);
    let checksum = !sum(&gre[..20]);
    gre[10..12].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(inside(&forward(&mut gateway, &gre)).1, "2001:db8:1::12".parse::<Ipv6Addr>().unwrap());
}

#[test]
fn errors_from_the_path_reach_the_sender_outside_or_in_its_softwire() {
    let mut gateway = lwaftr(true);
    let core: Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    let (b4, other) = ("2001:db8:1::10".parse::<Ipv6Addr>().unwrap(), "2001:db8:1::11".parse::<Ipv6Addr>().unwrap());
    let address = Ipv4Addr::new(192, 0, 2, 10);
    let around = forward(&mut gateway, &udp((SERVER, 53), (address, 4096), &[0; 1400]));
    let relayed = forward(&mut gateway, &icmp(core, AFTR, 2, 0, 1280, &around[..600]));
    assert_eq!((see(&relayed).destination, relayed[21], &relayed[26..28]), (SERVER.into(), 4, &[4, 216][..]));
    // About a packet from one subscriber to another: back into the first one's softwire.
    let turned = tunnelled(b4, AFTR, &udp((address, 4096), (address, 5120), &[0; 1400]));
    let around = forward(&mut gateway, &turned);
    assert_eq!(inside(&around).1, other);
    let (from, to, told) = inside(&forward(&mut gateway, &icmp(core, AFTR, 1, 3, 0, &around[..600])));
    assert_eq!((from, to, told[20], told[21]), (AFTR, b4, 3, 1));
}

#[test]
fn tunnel_addresses_answer_echoes_and_drop_what_no_host_would_take() {
    for mut gateway in [aftr(Policy::default()), lwaftr(true)] {
        let (verdict, sent) = gateway.pass(&echo(B4_A, AFTR, true, 7));
        assert_eq!(verdict, Verdict::EchoReply);
        assert_eq!((see(&sent[0]).source, see(&sent[0]).destination), (AFTR.into(), B4_A.into()));
        assert_eq!(gateway.pass(&echo(B4_A, AFTR, false, 7)).0, Verdict::Drop(DropReason::IcmpUntranslatable));
        let (verdict, sent) = gateway.pass(&udp((B4_A, 1), (AFTR, 2), b"x"));
        assert_eq!(verdict, Verdict::Reply(DropReason::NotIpv4Inside));
        assert_eq!((sent[0][40], sent[0][41]), (1, 4));
    }
}

/// RFC 8200 section 4.5: who reassembles tells the sender of the first fragment, if that came.
#[test]
fn fragments_of_a_softwire_that_do_not_all_come_are_told() {
    let mut gateway = aftr(Policy::default());
    let whole = tunnelled(B4_A, AFTR, &udp((HOST4, 20000), (SERVER, 53), &[7; 2000]));
    let pieces = fragments_ipv6(&whole, 1232);
    let told = |gateway: &mut Gateway| {
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        gateway.engine.answer_expired(&gateway.plan, gateway.now, &mut outbox);
        gateway.engine.idle(gateway.now);
        sent
    };
    assert_eq!(gateway.pass(&pieces[0]).0, Verdict::Hold);
    gateway.wait(1);
    assert_eq!(told(&mut gateway), Vec::<Vec<u8>>::new(), "there is time yet");
    gateway.wait(4);
    let sent = told(&mut gateway);
    let [error] = &sent[..] else { panic!("{sent:?}") };
    let seen = see(error);
    assert_eq!((seen.source, seen.destination), (AFTR.into(), B4_A.into()));
    assert_eq!((&error[40..42], error.len()), ([3, 1].as_slice(), 1280));
    assert_eq!(&error[48..], &pieces[0][..1232], "the fragment as it came");
    assert_eq!(told(&mut gateway), Vec::<Vec<u8>>::new(), "once");

    assert_eq!(gateway.pass(&pieces[1]).0, Verdict::Hold);
    gateway.wait(5);
    assert_eq!(told(&mut gateway), Vec::<Vec<u8>>::new(), "nothing is known of a datagram without its first fragment");
    let totals = gateway.totals();
    assert_eq!(totals.drops().collect::<Vec<_>>(), [(DropReason::FragmentTimeout, 2)]);
    assert_eq!(totals.replied, 1);

    // A translator is not the destination: nobody speaks for it.
    let mut nat64 = Gateway::new(Setup::default());
    let pieces = fragments_ipv6(&udp((HOST, 40_000), (embed(SERVER), 53), &[7; 3000]), 1232);
    assert_eq!(nat64.pass(&pieces[0]).0, Verdict::Hold);
    nat64.wait(5);
    assert_eq!(told(&mut nat64), Vec::<Vec<u8>>::new());
}

/// What goes into a softwire, with so many bytes of payload.
type Datagram = fn(&mut Gateway, usize) -> Vec<u8>;

/// Ends of softwires, what goes into them, which ends they are, and whether what does not fit is refused.
fn entrances() -> [(Gateway, Datagram, [Ipv6Addr; 2], bool); 4] {
    let outward = |_: &mut Gateway, length| udp((HOST4, 20000), (SERVER, 53), &vec![7; length]);
    let to_subscriber =
        |_: &mut Gateway, length| udp((SERVER, 53), (Ipv4Addr::new(192, 0, 2, 10), 4096), &vec![7; length]);
    let to_host = |gateway: &mut Gateway, length| {
        let query = tunnelled(B4_A, AFTR, &udp((HOST4, 20000), (SERVER, 53), b"query"));
        let port = see(&forward(gateway, &query)).ports.0;
        udp((SERVER, 53), (POOL, port), &vec![7; length])
    };
    [
        (b4(), outward, [B4_A, AFTR], true),
        (lwb4(), outward, [B4_A, AFTR], true),
        (lwaftr(true), to_subscriber, [AFTR, "2001:db8:1::10".parse().unwrap()], true),
        // By then the packet has its inside address: the router on the way tells its sender.
        (aftr(Policy::default()), to_host, [AFTR, B4_A], false),
    ]
}

/// RFC 2473 section 6.7, RFC 8201.
#[test]
fn what_a_router_says_of_a_path_is_kept_to_until_it_is_forgotten() {
    for (mut gateway, packet, [local, remote], refuses) in entrances() {
        let core: Ipv6Addr = "2001:db8:5::1".parse().unwrap();
        let large = |gateway: &mut Gateway| without_df(&packet(gateway, 1400));
        let whole = {
            let large = large(&mut gateway);
            forward(&mut gateway, &large)
        };
        assert_eq!((inside(&whole).0, inside(&whole).1, whole.len()), (local, remote, 1468));
        // What no router would say, what is damaged, and what is no news.
        let mut damaged = icmp(core, local, 2, 0, 1400, &whole[..1200]);
        damaged[60] ^= 1;
        for told in
            [damaged, icmp(core, local, 2, 0, 1279, &whole[..1200]), icmp(core, local, 2, 0, 1500, &whole[..1200])]
        {
            assert!(matches!(gateway.pass(&told).0, Verdict::Drop(_)));
        }
        assert_eq!(gateway.tables.paths.count(gateway.now.tick()), 0);

        let told = icmp(core, local, 2, 0, 1400, &whole[..1200]);
        assert_eq!(gateway.pass(&told).0, Verdict::Drop(DropReason::TooBig), "its sender can do nothing about it");
        let again = large(&mut gateway);
        let (verdict, pieces) = gateway.pass(&again);
        assert_eq!((verdict, pieces.len()), (Verdict::Forward, 2));
        assert!(pieces.iter().all(|piece| piece.len() <= 1400));
        assert_eq!(inside(&whole_of_ipv6(&pieces)).2[28..], whole[68..]);
        let with_df = packet(&mut gateway, 1400);
        let (verdict, sent) = gateway.pass(&with_df);
        if refuses {
            assert_eq!((verdict, &sent[0][26..28]), (Verdict::Reply(DropReason::TooBig), &1360_u16.to_be_bytes()[..]));
        } else {
            assert_eq!((verdict, sent.len(), sent[0].len()), (Verdict::Forward, 1, 1468));
        }
        let fits = packet(&mut gateway, 1332);
        assert_eq!(forward(&mut gateway, &fits).len(), 1400);

        gateway.wait(700);
        let forgotten = large(&mut gateway);
        assert_eq!(forward(&mut gateway, &forgotten).len(), 1468);
    }
    // A path that no softwire of this end takes is not remembered.
    let mut gateway = b4();
    let elsewhere = tunnelled(B4_A, B4_B, &udp((HOST4, 1), (SERVER, 53), &[7; 1200]));
    let told = icmp("2001:db8:5::1".parse::<Ipv6Addr>().unwrap(), B4_A, 2, 0, 1300, &elsewhere);
    assert_eq!(gateway.pass(&told).0, Verdict::Drop(DropReason::IcmpErrorUnusable));
    assert_eq!(gateway.tables.paths.count(gateway.now.tick()), 0);
}
