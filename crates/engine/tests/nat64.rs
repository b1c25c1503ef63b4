//! Stateful NAT64 through the whole engine, packet by packet.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use support::*;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mapping::stateless::StatelessMap;
use tombolo_engine::mechanism::napt::{Filtering, InboundTcp, Nat, Policy, Sessions, Times};
use tombolo_engine::mechanism::session_state::Timeouts;
use tombolo_engine::mechanism::{Fragments, ReassemblyLimits, TranslateSettings};
use tombolo_engine::packet::{ChecksumState, Offload, Segmentation};
use tombolo_engine::plan::{Service, ServiceKind};
use tombolo_engine::service::nat64::Nat64;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{DropReason, Engine, Verdict};
use tombolo_tables::audit;
use tombolo_tables::sweep::Sweeper;
use tombolo_wire::Prefix64;

const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);

#[test]
fn udp_goes_out_through_the_pool_and_comes_back() {
    let mut gateway = Gateway::new(Setup::default());
    let out = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b"question"));
    assert_eq!((out.source, out.destination), (POOL.into(), SERVER.into()));
    assert_eq!((out.ports.1, out.hop_limit, out.payload.as_slice()), (53, 63, b"question".as_slice()));
    assert!(out.ports.0 >= 1024 && out.ports.0.is_multiple_of(2), "range and parity are kept");
    let back = gateway.forward(&udp((SERVER, 53), (POOL, out.ports.0), b"answer"));
    assert_eq!((back.source, back.destination), (embed(SERVER).into(), HOST.into()));
    assert_eq!((back.ports, back.hop_limit, back.payload.as_slice()), ((53, 40_000), 63, b"answer".as_slice()));
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
}

#[test]
fn mapping_is_endpoint_independent_and_paired() {
    let mut gateway = Gateway::new(Setup { last_address: Ipv4Addr::new(192, 0, 2, 14), ..Setup::default() });
    let first = gateway.forward(&udp((HOST, 40_001), (embed(SERVER), 53), b""));
    let other_remote = gateway.forward(&udp((HOST, 40_001), (embed(Ipv4Addr::new(203, 0, 113, 9)), 123), b""));
    assert_eq!((first.source, first.ports.0), (other_remote.source, other_remote.ports.0));
    // The other protocols have ports of their own, but the same address.
    let tcp_out = gateway.forward(&tcp((HOST, 40_001), (embed(SERVER), 80), SYN, b""));
    let ping = gateway.forward(&echo(HOST, embed(SERVER), true, 40_001));
    assert_eq!((tcp_out.source, ping.source), (first.source, first.source));
}

#[test]
fn a_tcp_connection_opens_talks_and_closes() {
    let mut gateway = Gateway::new(Setup::default());
    let (client, server) = ((HOST, 40_000), (embed(SERVER), 80));
    let syn = gateway.forward(&tcp(client, server, SYN, b""));
    let (outside, remote) = ((POOL, syn.ports.0), (SERVER, 80));
    assert_eq!(gateway.forward(&tcp(remote, outside, SYN | ACK, b"")).ports, (80, 40_000));
    assert_eq!(gateway.forward(&tcp(client, server, ACK, b"GET /")).payload, b"GET /");
    gateway.wait(7000);
    assert_eq!(gateway.forward(&tcp(remote, outside, ACK, b"200")).payload, b"200");
    gateway.forward(&tcp(remote, outside, FIN | ACK, b""));
    gateway.forward(&tcp(client, server, FIN | ACK, b""));
    gateway.wait(235);
    gateway.forward(&tcp(remote, outside, ACK, b""));
    assert_eq!(sessions(&gateway), 1);
    gateway.wait(20);
    sweep(&mut gateway);
    assert_eq!((sessions(&gateway), gateway.tables.bindings.count()), (0, 0), "closed connections go after TCP_TRANS");
}

#[test]
fn an_echo_gets_an_identifier_of_its_own() {
    let mut gateway = Gateway::new(Setup::default());
    let one = gateway.forward(&echo(HOST, embed(SERVER), true, 7));
    let two = gateway.forward(&echo(OTHER_HOST, embed(SERVER), true, 7));
    assert_ne!(one.ports.0, two.ports.0);
    let back = gateway.forward(&echo(SERVER, POOL, false, two.ports.0));
    assert_eq!((back.destination, back.ports.0), (OTHER_HOST.into(), 7));
}

#[test]
fn a_super_packet_crosses_in_one_piece() {
    let mut gateway = Gateway::new(Setup::default());
    gateway.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), SYN, b""));
    let payload = vec![0x5a; 60_000];
    let mut packet = tcp((HOST, 40_000), (embed(SERVER), 80), ACK, &payload);
    // What the kernel leaves to the card: the sum of the pseudo-header, not complemented.
    let mut pseudo = packet[8..40].to_vec();
    pseudo.extend(60_020_u32.to_be_bytes());
    pseudo.extend([0, 0, 0, 6]);
    packet[56..58].copy_from_slice(&sum(&pseudo).to_be_bytes());
    let offload = Offload {
        segmentation: Segmentation::Tcp { size: 1428, ecn: false },
        checksum: ChecksumState::Partial { start: 40, offset: 16 },
    };
    let (verdict, sent) = gateway.pass_with(&packet, offload);
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let (bytes, out) = &sent[0];
    assert_eq!(bytes.len(), 60_040);
    assert_eq!(out.segmentation, offload.segmentation);
    assert_eq!(out.checksum, ChecksumState::Partial { start: 20, offset: 16 });
    let mut pseudo = bytes[12..20].to_vec();
    pseudo.extend([0, 0, 0, 6]);
    pseudo.extend(60_020_u32.to_be_bytes());
    assert_eq!(u16::from_be_bytes([bytes[36], bytes[37]]), sum(&pseudo));
}

#[test]
fn hosts_behind_the_gateway_reach_each_other_through_the_pool() {
    let mut gateway = Gateway::new(Setup::default());
    let known = gateway.forward(&udp((OTHER_HOST, 6000), (embed(SERVER), 3478), b""));
    let turned = gateway.forward(&udp((HOST, 5000), (embed(POOL), known.ports.0), b"hello"));
    assert_eq!(turned.destination, OTHER_HOST);
    assert_eq!((turned.source, turned.ports.1), (embed(POOL).into(), 6000), "with the outside source address and port");
    assert_eq!(turned.hop_limit, 63, "one decrement in total");
    let back = gateway.forward(&udp((OTHER_HOST, 6000), (embed(POOL), turned.ports.0), b"world"));
    assert_eq!((back.destination, back.ports.1, back.payload.as_slice()), (HOST.into(), 5000, b"world".as_slice()));
}

#[test]
fn nobody_gets_in_without_a_binding() {
    let mut gateway = Gateway::new(Setup::default());
    for packet in
        [udp((SERVER, 53), (POOL, 5353), b"scan"), tcp((SERVER, 53), (POOL, 22), SYN, b""), echo(SERVER, POOL, true, 1)]
    {
        assert_eq!(gateway.pass(&packet), (Verdict::Drop(DropReason::NoBinding), Vec::new()));
    }
    assert_eq!((gateway.tables.bindings.count(), sessions(&gateway)), (0, 0), "a scan makes no state");
    let stray = tcp((HOST, 1), (embed(SERVER), 80), ACK, b"");
    assert_eq!(gateway.pass(&stray).0, Verdict::Drop(DropReason::TcpNotSyn));
}

#[test]
fn filtering_decides_who_may_answer() {
    let stranger = Ipv4Addr::new(203, 0, 113, 66);
    let mut open = Gateway::new(Setup::default());
    let out = open.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b""));
    open.forward(&udp((stranger, 1), (POOL, out.ports.0), b""));

    let policy = Policy { filtering: Filtering::AddressDependent.into(), ..Policy::default() };
    let mut strict = Gateway::new(Setup { policy, ..Setup::default() });
    let out = strict.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b""));
    assert_eq!(strict.pass(&udp((stranger, 1), (POOL, out.ports.0), b"")).0, Verdict::Drop(DropReason::Filtered));
    strict.forward(&udp((SERVER, 9999), (POOL, out.ports.0), b"another port of a known address"));
    let syn = strict.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), SYN, b""));
    assert_eq!(strict.pass(&tcp((stranger, 80), (POOL, syn.ports.0), SYN, b"")).0, Verdict::Drop(DropReason::Filtered));
    strict.forward(&tcp((SERVER, 81), (POOL, syn.ports.0), SYN, b""));

    let policy = Policy { inbound_tcp: InboundTcp::Denied, ..Policy::default() };
    let mut closed = Gateway::new(Setup { policy, ..Setup::default() });
    let syn = closed.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), SYN, b""));
    assert_eq!(
        closed.pass(&tcp((stranger, 80), (POOL, syn.ports.0), SYN, b"")).0,
        Verdict::Drop(DropReason::InboundSyn)
    );
}

#[test]
fn filtering_remembers_a_remote_for_as_long_as_there_is_a_session_with_it() {
    let policy = Policy { filtering: Filtering::AddressDependent.into(), ..Policy::default() };
    let mut gateway = Gateway::new(Setup { policy, ..Setup::default() });
    let out = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b""));
    let out_tcp = gateway.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), SYN, b""));
    gateway.forward(&tcp((SERVER, 80), (POOL, out_tcp.ports.0), SYN | ACK, b""));
    // Only the server sends, for longer than any lifetime.
    for _ in 0..100 {
        gateway.wait(200);
        sweep(&mut gateway);
        gateway.forward(&udp((SERVER, 53), (POOL, out.ports.0), b"a stream"));
        gateway.forward(&tcp((SERVER, 80), (POOL, out_tcp.ports.0), ACK, b"a stream"));
    }
    gateway.forward(&udp((SERVER, 9999), (POOL, out.ports.0), b"another port of a remote with a session"));
    gateway.forward(&tcp((SERVER, 81), (POOL, out_tcp.ports.0), SYN, b""));
    // A session that the remote has opened counts as well, from its first packet.
    let out = gateway.forward(&udp((HOST, 40_001), (embed(SERVER), 53), b"")).ports.0;
    for port in 10_000..10_003 {
        gateway.wait(290);
        sweep(&mut gateway);
        gateway.forward(&udp((SERVER, port), (POOL, out), b""));
    }
    // A packet that refreshes no session keeps no permission: the connection was not opened.
    let mut gateway = Gateway::new(Setup { policy, ..Setup::default() });
    let out = gateway.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), SYN, b"")).ports.0;
    gateway.forward(&tcp((HOST, 40_000), (embed(OTHER_SERVER), 80), SYN, b""));
    gateway.forward(&tcp((OTHER_SERVER, 80), (POOL, out), SYN | ACK, b""));
    for _ in 0..8 {
        gateway.wait(1000);
        sweep(&mut gateway);
        gateway.forward(&tcp((OTHER_SERVER, 80), (POOL, out), ACK, b""));
    }
    assert_eq!(gateway.pass(&tcp((SERVER, 80), (POOL, out), ACK, b"")).0, Verdict::Drop(DropReason::Filtered));
}

#[test]
fn a_static_binding_serves_both_ways_and_never_goes() {
    let bindings = vec![static_binding(PortSpace::Tcp, 8080, 80)];
    let mut gateway = Gateway::new(Setup { static_bindings: bindings, ..Setup::default() });
    gateway.wait(100_000);
    sweep(&mut gateway);
    let inward = gateway.forward(&tcp((SERVER, 50_000), (POOL, 80), SYN, b""));
    assert_eq!((inward.destination, inward.ports), (HOST.into(), (50_000, 8080)));
    let outward = gateway.forward(&tcp((HOST, 8080), (embed(SERVER), 50_000), SYN | ACK, b""));
    assert_eq!((outward.source, outward.ports), (POOL.into(), (80, 50_000)));
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
}

#[test]
fn a_full_pool_refuses_the_new_and_keeps_the_old() {
    let mut gateway = Gateway::new(Setup { ports: 2000..=2003, ..Setup::default() });
    let ports: HashSet<u16> =
        (0..4).map(|n| gateway.forward(&udp((HOST, 40_000 + n), (embed(SERVER), 53), b"")).ports.0).collect();
    assert_eq!(ports, HashSet::from([2000, 2001, 2002, 2003]));
    let refused = udp((OTHER_HOST, 1), (embed(SERVER), 53), b"");
    assert_eq!(gateway.pass(&refused).0, Verdict::Reply(DropReason::PoolExhausted));
    assert!(ports.contains(&gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 54), b"")).ports.0));
    // TCP has ports of its own.
    gateway.forward(&tcp((OTHER_HOST, 1), (embed(SERVER), 80), SYN, b""));
    // Closed ports are kept back for two minutes, then given out again.
    gateway.wait(310);
    sweep(&mut gateway);
    assert_eq!(gateway.pass(&refused).0, Verdict::Reply(DropReason::PoolExhausted));
    gateway.wait(125);
    gateway.forward(&refused);
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
}

#[test]
fn a_new_subscriber_gets_an_address_that_has_ports_left() {
    let setup = Setup { ports: 2000..=2001, last_address: Ipv4Addr::new(192, 0, 2, 4), ..Setup::default() };
    let mut gateway = Gateway::new(setup);
    let mut sources = HashSet::new();
    for host in 0..4_u16 {
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, host);
        let one = gateway.forward(&udp((address, 40_000), (embed(SERVER), 53), b""));
        let two = gateway.forward(&udp((address, 40_001), (embed(SERVER), 53), b""));
        assert_eq!(one.source, two.source, "all of a subscriber's bindings share an address");
        sources.insert(one.source);
    }
    assert_eq!(sources.len(), 4);
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
}

#[test]
fn limits_hold_for_each_table() {
    let from = |n: u16| udp((HOST, n), (embed(SERVER), 53), b"");
    let policy = Policy { bindings_per_subscriber: Some(2), ..Policy::default() };
    let mut limited = Gateway::new(Setup { policy, ..Setup::default() });
    limited.forward(&from(1));
    limited.forward(&from(2));
    assert_eq!(limited.pass(&from(3)).0, Verdict::Reply(DropReason::SubscriberLimit));
    limited.forward(&udp((OTHER_HOST, 3), (embed(SERVER), 53), b""));
    limited.forward(&from(1));

    let mut few = Gateway::new(Setup { bindings: 2, ..Setup::default() });
    few.forward(&from(1));
    few.forward(&from(2));
    assert_eq!(few.pass(&from(3)).0, Verdict::Reply(DropReason::BindingTableFull));

    let mut lonely = Gateway::new(Setup { subscribers: 1, ..Setup::default() });
    lonely.forward(&from(1));
    let other = udp((OTHER_HOST, 3), (embed(SERVER), 53), b"");
    assert_eq!(lonely.pass(&other).0, Verdict::Reply(DropReason::SubscriberTableFull));

    for gateway in [limited, few, lonely] {
        assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
    }
}

#[test]
fn a_full_session_table_refuses_and_loses_nothing() {
    let policy = Policy { sessions: Sessions::Kept, ..Policy::default() };
    let mut gateway = Gateway::new(Setup { sessions: 64, policy, ..Setup::default() });
    let to = |n: u16| udp((HOST, 40_000), (embed(SERVER), n), b"");
    let mut accepted = Vec::new();
    for n in 1..1000 {
        match gateway.pass(&to(n)).0 {
            Verdict::Forward => accepted.push(n),
            // The sender is told, at a bounded rate.
            Verdict::Reply(reason) | Verdict::Drop(reason) => assert_eq!(reason, DropReason::SessionTableFull),
            verdict => panic!("{verdict:?}"),
        }
    }
    assert!((64..999).contains(&accepted.len()), "{}", accepted.len());
    assert_eq!(sessions(&gateway), accepted.len());
    for n in accepted {
        gateway.forward(&to(n));
    }
    gateway.wait(400);
    gateway.forward(&to(999));
}

#[test]
fn sessions_live_as_long_as_the_timeouts_say() {
    let timeouts = Timeouts { udp: 120, ..Timeouts::default() };
    let mut gateway = Gateway::new(Setup { times: Times::new(&timeouts, 0), ..Setup::default() });
    let out = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b""));
    for _ in 0..5 {
        gateway.wait(119);
        sweep(&mut gateway);
        gateway.forward(&udp((SERVER, 53), (POOL, out.ports.0), b""));
    }
    gateway.wait(125);
    sweep(&mut gateway);
    assert_eq!((sessions(&gateway), gateway.tables.bindings.count(), gateway.tables.subscribers.count()), (0, 0, 0));
    assert_eq!(gateway.pass(&udp((SERVER, 53), (POOL, out.ports.0), b"")).0, Verdict::Drop(DropReason::NoBinding));
}

#[test]
fn an_established_connection_that_falls_silent_has_the_transitory_time_left() {
    let mut gateway = Gateway::new(Setup::default());
    let out = gateway.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), SYN, b""));
    gateway.forward(&tcp((SERVER, 80), (POOL, out.ports.0), SYN | ACK, b""));
    gateway.wait(7210);
    sweep(&mut gateway);
    assert_eq!(sessions(&gateway), 1, "in TRANS now");
    gateway.forward(&tcp((SERVER, 80), (POOL, out.ports.0), ACK, b"still here"));
    gateway.wait(7100);
    sweep(&mut gateway);
    assert_eq!(sessions(&gateway), 1, "established again");
    gateway.wait(7200 + 240 + 10);
    sweep(&mut gateway);
    sweep(&mut gateway);
    assert_eq!(sessions(&gateway), 0);
}

#[test]
fn what_loops_or_is_not_ours_is_told_apart() {
    let mut gateway = Gateway::new(Setup::default());
    let looping = udp((embed(SERVER), 1), (embed(SERVER), 2), b"");
    assert_eq!(gateway.pass(&looping).0, Verdict::Drop(DropReason::SourceInPrefix));
    let foreign = udp((HOST, 1), (OTHER_HOST, 2), b"");
    assert_eq!(gateway.pass(&foreign).0, Verdict::ToHost);
    let elsewhere = udp((SERVER, 1), (Ipv4Addr::new(203, 0, 113, 1), 2), b"");
    assert_eq!(gateway.pass(&elsewhere).0, Verdict::ToHost);
    gateway.nat64().well_known_prefix_strict = true;
    let private = udp((HOST, 1), (embed(Ipv4Addr::new(10, 0, 0, 1)), 2), b"");
    assert_eq!(gateway.pass(&private).0, Verdict::Reply(DropReason::PrivateInWellKnownPrefix));
}

#[test]
fn every_packet_is_counted_once() {
    let mut gateway = Gateway::new(Setup::default());
    let out = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b"1234"));
    gateway.forward(&udp((SERVER, 53), (POOL, out.ports.0), b"12"));
    gateway.pass(&udp((SERVER, 53), (POOL, out.ports.0 ^ 2), b""));
    gateway.pass(&[0x45, 0]);
    let mut totals = tombolo_engine::counters::Totals::default();
    gateway.engine.counters().add_to(&mut totals);
    assert_eq!((totals.received, totals.received_bytes, totals.forwarded), ([1, 3], [52, 30 + 28 + 2], [1, 1]));
    let drops: Vec<_> = totals.drops().collect();
    assert_eq!(drops, [(DropReason::Malformed, 1), (DropReason::NoBinding, 1)]);
}

#[test]
fn an_error_from_outside_reaches_the_host_that_it_is_about() {
    let mut gateway = Gateway::new(Setup::default());
    let out = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b"question"));
    let router = Ipv4Addr::new(203, 0, 113, 1);
    let quoted = udp((POOL, out.ports.0), (SERVER, 53), b"question");
    let (verdict, sent) = gateway.pass(&icmp(router, POOL, 11, 0, 0, &quoted));
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let error = see(&sent[0]);
    assert_eq!((error.source, error.destination), (embed(router).into(), HOST.into()), "traceroute sees the router");
    assert_eq!(sent[0][40..42], [3, 0]);
    let inner = &sent[0][48..];
    assert_eq!(inner[8..24], HOST.octets());
    assert_eq!(inner[24..40], embed(SERVER).octets());
    assert_eq!(u16::from_be_bytes([inner[40], inner[41]]), 40_000);

    let about_nothing = udp((POOL, out.ports.0 ^ 2), (SERVER, 53), b"");
    let before = sessions(&gateway);
    assert_eq!(gateway.pass(&icmp(router, POOL, 3, 3, 0, &about_nothing)).0, Verdict::Drop(DropReason::NoSession));
    // Where there are sessions, with one remote is not with another.
    let other_remote = udp((POOL, out.ports.0), (router, 53), b"");
    assert_eq!(gateway.pass(&icmp(router, POOL, 3, 3, 0, &other_remote)).0, Verdict::Forward);
    gateway.nat64().nat.policy.sessions = Sessions::Kept;
    assert_eq!(gateway.pass(&icmp(router, POOL, 3, 3, 0, &other_remote)).0, Verdict::Drop(DropReason::NoSession));
    gateway.nat64().nat.policy.sessions = Sessions::default();
    assert_eq!(sessions(&gateway), before, "an error makes no state");
    let mut damaged = icmp(router, POOL, 11, 0, 0, &quoted);
    damaged[22] ^= 1;
    assert_eq!(gateway.pass(&damaged).0, Verdict::Drop(DropReason::BadChecksum));
}

#[test]
fn an_error_from_inside_leaves_from_the_pool() {
    let mut gateway = Gateway::new(Setup::default());
    let out = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b"question"));
    let back = udp((embed(SERVER), 53), (HOST, 40_000), b"answer");
    let router: std::net::Ipv6Addr = "2001:db8:1::99".parse().unwrap();
    let (verdict, sent) = gateway.pass(&icmp(router, embed(SERVER), 1, 4, 0, &back));
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let error = see(&sent[0]);
    assert_eq!((error.source, error.destination), (POOL.into(), SERVER.into()));
    assert_eq!(sent[0][20..22], [3, 3]);
    let inner = &sent[0][28..];
    assert_eq!((&inner[12..16], &inner[16..20]), (SERVER.octets().as_slice(), POOL.octets().as_slice()));
    assert_eq!(u16::from_be_bytes([inner[22], inner[23]]), out.ports.0);
}

#[test]
fn path_mtu_discovery_crosses_the_gateway() {
    let mut gateway = Gateway::new(Setup::default());
    let out = gateway.forward(&tcp((HOST, 40_000), (embed(SERVER), 80), SYN, b""));
    let quoted = tcp((POOL, out.ports.0), (SERVER, 80), ACK, &[0; 1000]);
    let (_, sent) = gateway.pass(&icmp(Ipv4Addr::new(203, 0, 113, 1), POOL, 3, 4, 1380, &quoted));
    assert_eq!((sent[0][40], &sent[0][44..48]), (2, 1400_u32.to_be_bytes().as_slice()), "20 bytes more in IPv6");
    let back = tcp((embed(SERVER), 80), (HOST, 40_000), ACK, &[0; 1000]);
    let (_, sent) = gateway.pass(&icmp(HOST, embed(SERVER), 2, 0, 1400, &back));
    assert_eq!((&sent[0][20..22], &sent[0][26..28]), ([3, 4].as_slice(), 1380_u16.to_be_bytes().as_slice()));
}

#[test]
fn an_error_about_a_hairpinned_packet_comes_back_to_its_sender() {
    let mut gateway = Gateway::new(Setup::default());
    let known = gateway.forward(&udp((OTHER_HOST, 6000), (embed(SERVER), 3478), b""));
    let turned = gateway.forward(&udp((HOST, 5000), (embed(POOL), known.ports.0), b"hello"));
    let received = udp((embed(POOL), turned.ports.0), (OTHER_HOST, 6000), b"hello");
    let (verdict, sent) = gateway.pass(&icmp(OTHER_HOST, embed(POOL), 1, 4, 0, &received));
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let error = see(&sent[0]);
    assert_eq!((error.source, error.destination), (embed(POOL).into(), HOST.into()));
    assert_eq!(error.hop_limit, 63, "one decrement in total");
    let inner = &sent[0][48..];
    assert_eq!((&inner[8..24], &inner[24..40]), (HOST.octets().as_slice(), embed(POOL).octets().as_slice()));
    assert_eq!((inner[40], inner[41]), (5000_u16.to_be_bytes()[0], 5000_u16.to_be_bytes()[1]));
}

#[test]
fn fragments_are_put_together_in_any_order() {
    let payload: Vec<u8> = (0..3000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    for reversed in [false, true] {
        let mut gateway = Gateway::new(Setup::default());
        let whole = udp((HOST, 40_000), (embed(SERVER), 53), &payload);
        let mut pieces = fragments_ipv6(&whole, 1232);
        if reversed {
            pieces.reverse();
        }
        let last = pieces.pop().unwrap();
        for piece in &pieces {
            assert_eq!(gateway.pass(piece), (Verdict::Hold, Vec::new()));
        }
        let (verdict, sent) = gateway.pass(&last);
        assert_eq!(verdict, Verdict::Forward);
        assert_eq!(see(&whole_of_ipv4(&sent)).payload, payload);
        let port = see(&whole_of_ipv4(&sent)).ports.0;

        let mut pieces = fragments_ipv4(&udp((SERVER, 53), (POOL, port), &payload), 1000);
        if reversed {
            pieces.reverse();
        }
        let last = pieces.pop().unwrap();
        pieces.iter().for_each(|piece| assert_eq!(gateway.pass(piece).0, Verdict::Hold));
        let (verdict, sent) = gateway.pass(&last);
        assert_eq!(verdict, Verdict::Forward);
        assert!(sent.iter().all(|packet| packet.len() <= 1280));
        assert_eq!(see(&whole_of_ipv6(&sent)).payload, payload);
    }
}

/// The queues of a device are served by workers of their own, and the kernel may move a flow from one to another between
/// two fragments.
#[test]
fn fragments_of_a_datagram_meet_whichever_workers_they_come_by() {
    let payload = [7; 3000];
    let mut gateway = Gateway::new(Setup::default());
    let fragments = Arc::new(Fragments::new(ReassemblyLimits::default(), [1, 2], 2));
    let mut other = Engine::new(Arc::clone(&gateway.tables), [9; 32], 1, 2).sharing(Arc::clone(&fragments));
    gateway.engine = Engine::new(Arc::clone(&gateway.tables), [9; 32], 0, 2).sharing(fragments);
    let whole = udp((HOST, 40_000), (embed(SERVER), 53), &payload);
    let pieces = fragments_ipv6(&whole, 1232);
    let (last, others) = pieces.split_last().unwrap();
    for piece in others {
        assert_eq!(gateway.pass(piece), (Verdict::Hold, Vec::new()));
        std::mem::swap(&mut gateway.engine, &mut other);
    }
    let (verdict, sent) = gateway.pass(last);
    assert_eq!(verdict, Verdict::Forward);
    assert_eq!(see(&whole_of_ipv4(&sent)).payload, payload);
}

/// A host that makes fragments knows what the path takes. What is reassembled leaves in fragments that are as large,
/// whatever `lowest_ipv6_mtu` allows, and never below 1280 bytes.
#[test]
fn a_datagram_that_was_reassembled_leaves_in_fragments_as_large_as_it_came_in() {
    let mut gateway = Gateway::new(Setup::default());
    gateway.nat64().translate.lowest_ipv6_mtu = 1500;
    let port = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b"question")).ports.0;
    for (payload, piece, largest) in [(1372, 1352, 1400), (3000, 1352, 1400), (1372, 1000, 1280), (3000, 1480, 1500)] {
        let whole = udp((SERVER, 53), (POOL, port), &vec![7; payload]);
        let sent: Vec<_> = fragments_ipv4(&whole, piece).iter().flat_map(|piece| gateway.pass(piece).1).collect();
        let sizes: Vec<_> = sent.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| *size <= largest) && sizes[0] + 8 > largest, "{payload} in {piece}: {sizes:?}");
        assert_eq!(see(&whole_of_ipv6(&sent)).payload, vec![7; payload]);
    }
    // Hairpinned, the same.
    gateway.forward(&udp((OTHER_HOST, 40_000), (embed(SERVER), 53), b""));
    let whole = udp((OTHER_HOST, 40_000), (embed(POOL), port), &vec![7; 1372]);
    let sent: Vec<_> = fragments_ipv6(&whole, 1352).iter().flat_map(|piece| gateway.pass(piece).1).collect();
    assert_eq!(sent.iter().map(Vec::len).max(), Some(1400), "{} packets", sent.len());
    // What came whole is as large as is allowed.
    let whole = udp((SERVER, 53), (POOL, port), &vec![7; 1372]);
    let sent = gateway.pass(&fragments_ipv4(&whole, 2000)[0]).1;
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1420]);
}

#[test]
fn fragments_of_hosts_behind_one_address_get_identifications_that_the_hosts_do_not_share() {
    let mut gateway = Gateway::new(Setup::default());
    let mut seen = HashSet::new();
    let identification = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
    for length in [3000, 100] {
        for _ in 0..50 {
            for host in [HOST, OTHER_HOST] {
                let datagram = udp((host, 40_000), (embed(SERVER), 53), &vec![7; length]);
                // An atomic fragment where one piece has it all.
                let pieces = fragments_ipv6(&datagram, 1232);
                let sent: Vec<_> = pieces.iter().flat_map(|piece| gateway.pass(piece).1).collect();
                assert!(seen.insert(identification(&sent[0])), "both hosts have the same identification");
                assert!(sent.iter().all(|piece| identification(piece) == identification(&sent[0])));
                assert!(sent.iter().all(|piece| piece[6] & 0x40 == 0), "no DF: RFC 7915 section 5.1.1");
            }
        }
    }
    // So does an ICMPv6 error that is an atomic fragment: it leaves from the shared address too.
    let answer = udp((embed(SERVER), 53), (HOST, 40_000), b"answer");
    let error = fragments_ipv6(&icmp(HOST, embed(SERVER), 1, 4, 0, &answer), 1232);
    let first = identification(&gateway.pass(&error[0]).1[0]);
    assert_ne!(identification(&gateway.pass(&error[0]).1[0]), first);
}

#[test]
fn an_error_of_a_router_that_may_not_be_in_the_prefix_is_sent_by_the_gateway() {
    let mut gateway = Gateway::new(Setup::default());
    gateway.nat64().prefix = Prefix64::WELL_KNOWN;
    gateway.nat64().well_known_prefix_strict = true;
    let server = Ipv4Addr::new(8, 8, 4, 4);
    let out = gateway.forward(&tcp((HOST, 40_000), (embed(server), 80), SYN, b""));
    let quoted = tcp((POOL, out.ports.0), (server, 80), ACK, &[0; 1000]);
    for router in [[10, 1, 2, 3], [127, 0, 0, 1], [192, 168, 0, 1]] {
        let (verdict, sent) = gateway.pass(&icmp(Ipv4Addr::from(router), POOL, 3, 4, 1380, &quoted));
        assert_eq!(verdict, Verdict::Forward, "{router:?}: RFC 7915 section 4.1");
        let error = see(&sent[0]);
        assert_eq!((error.source, error.destination), (gateway.plan.own.ipv6.unwrap().into(), HOST.into()));
        assert_eq!((sent[0][40], &sent[0][44..48]), (2, 1400_u32.to_be_bytes().as_slice()));
    }
    // A router that may be there keeps its address; packets other than errors are still refused.
    let (_, sent) = gateway.pass(&icmp(Ipv4Addr::new(8, 8, 8, 8), POOL, 3, 4, 1380, &quoted));
    assert_eq!(see(&sent[0]).source, IpAddr::from(Prefix64::WELL_KNOWN.embed([8, 8, 8, 8].into())));
    let private = tcp((Ipv4Addr::new(10, 1, 2, 3), 80), (POOL, out.ports.0), SYN, b"");
    assert_eq!(gateway.pass(&private).0, Verdict::Reply(DropReason::PrivateInWellKnownPrefix));
    gateway.plan.own.ipv6 = None;
    let nameless = icmp(Ipv4Addr::new(10, 1, 2, 3), POOL, 3, 4, 1380, &quoted);
    assert_eq!(gateway.pass(&nameless).0, Verdict::Drop(DropReason::PrivateInWellKnownPrefix));
}

#[test]
fn link_local_hosts_of_ipv4_are_not_beyond_a_router() {
    let mut gateway = Gateway::new(Setup::default());
    let link_local = Ipv4Addr::new(169, 254, 1, 1);
    let out = udp((HOST, 4000), (embed(link_local), 53), b"");
    assert_eq!(gateway.pass(&out).0, Verdict::Reply(DropReason::LinkLocal));
    let (_, sent) = gateway.pass(&udp((HOST, 4000), (embed(SERVER), 53), b""));
    let back = udp((link_local, 53), (POOL, see(&sent[0]).ports.0), b"");
    assert_eq!(gateway.pass(&back).0, Verdict::Drop(DropReason::LinkLocal));
}

#[test]
fn what_comes_from_the_prefix_of_any_service_loops() {
    let mut gateway = Gateway::new(Setup::default());
    let second: Prefix64 = "2001:db8:64::/96".parse().unwrap();
    let third: Prefix64 = "2001:db8:65::/96".parse().unwrap();
    let other = Nat64 { prefix: second, nat: Nat::default(), ..gateway.nat64().clone() };
    gateway.plan.services.push(Service::new(1, "second", ServiceKind::Nat64(other)));
    let siit = Siit {
        role: Role::Siit,
        mapping: StatelessMap { prefix: Some(third), ..StatelessMap::default() },
        dynamic: None,
        embedded_hosts: vec![parse_prefix("192.0.2.128/25").unwrap()],
        hairpinning: Hairpinning::Off,
        error_sources: ErrorSources::default(),
        identify_nodes: false,
        translate: TranslateSettings::default(),
    };
    gateway.plan.services.push(Service::new(2, "third", ServiceKind::Siit(siit)));
    for prefix in [second, third] {
        let looping = udp((prefix.embed(SERVER), 1), (embed(SERVER), 2), b"");
        assert_eq!(gateway.pass(&looping).0, Verdict::Drop(DropReason::SourceInPrefix), "{prefix}");
    }
    // An IPv6 host whose address is embedded there is a host like any other.
    gateway.forward(&udp((third.embed([192, 0, 2, 200].into()), 1), (embed(SERVER), 2), b""));
}

#[test]
fn fragments_that_never_complete_are_forgotten_and_counted() {
    let mut gateway = Gateway::new(Setup::default());
    let pieces = fragments_ipv6(&udp((HOST, 40_000), (embed(SERVER), 53), &[7; 3000]), 1232);
    assert_eq!(gateway.pass(&pieces[0]).0, Verdict::Hold);
    gateway.wait(5);
    gateway.engine.idle(gateway.now);
    let mut totals = tombolo_engine::counters::Totals::default();
    gateway.engine.counters().add_to(&mut totals);
    assert_eq!(totals.drops().collect::<Vec<_>>(), [(DropReason::FragmentTimeout, 1)]);
    assert_eq!(gateway.tables.bindings.count(), 0);
}

#[test]
fn senders_are_told_where_the_rfcs_say_so() {
    let mut gateway = Gateway::new(Setup::default());
    // Hop limit: traceroute sees the gateway itself, on either side.
    let mut short = udp((HOST, 40_000), (embed(SERVER), 33_434), b"");
    short[7] = 1;
    let (verdict, sent) = gateway.pass(&short);
    assert_eq!(verdict, Verdict::Reply(DropReason::HopLimit));
    let error = see(&sent[0]);
    assert_eq!((error.source, error.destination), ("2001:db8:1::1".parse().unwrap(), HOST.into()));
    assert_eq!((&sent[0][40..42], &sent[0][48..]), ([3, 0].as_slice(), short.as_slice()), "the packet as it was");
    assert_eq!(gateway.tables.bindings.count(), 0, "no state for what goes nowhere");

    let out = gateway.forward(&udp((HOST, 40_000), (embed(SERVER), 53), b""));
    let mut short = udp((SERVER, 53), (POOL, out.ports.0), b"");
    short[8] = 1;
    short[10..12].copy_from_slice(&[0, 0]);
    let checksum = !sum(&short[..20]);
    short[10..12].copy_from_slice(&checksum.to_be_bytes());
    let (verdict, sent) = gateway.pass(&short);
    assert_eq!(verdict, Verdict::Reply(DropReason::HopLimit));
    assert_eq!(see(&sent[0]).destination, SERVER);
    assert_eq!(sent[0][20..22], [11, 0]);

    // A protocol without ports: port unreachable inside (RFC 6146 section 3.4), protocol
    // unreachable outside.
    let mut gre = udp((HOST, 40_000), (embed(SERVER), 53), b"");
    gre[6] = 47;
    let (verdict, sent) = gateway.pass(&gre);
    assert_eq!((verdict, &sent[0][40..42]), (Verdict::Reply(DropReason::UnsupportedProtocol), [1, 4].as_slice()));

    // Too big for the IPv4 link and may not be fragmented.
    gateway.nat64().translate.ipv4_mtu = 1400;
    let big = udp((HOST, 40_000), (embed(SERVER), 53), &[0; 1400]);
    let (verdict, sent) = gateway.pass(&big);
    assert_eq!(verdict, Verdict::Reply(DropReason::TooBig));
    assert_eq!((sent[0][40], &sent[0][44..48], sent[0].len()), (2, 1420_u32.to_be_bytes().as_slice(), 1280));

    // At a bounded rate.
    let told = (0..1000).filter(|_| matches!(gateway.pass(&gre).0, Verdict::Reply(_))).count();
    assert!((1..100).contains(&told), "{told}");
}

fn sessions(gateway: &Gateway) -> usize {
    gateway.tables.each_session().count()
}

/// Two passes: what the first finds expired, the second finds unmarked.
fn sweep(gateway: &mut Gateway) {
    let mut sweeper = Sweeper::new(&gateway.tables, gateway.now.tick());
    let mut expiry = Expiry::new(&gateway.plan);
    for _ in 0..2 {
        assert!(sweeper.advance(&gateway.tables, usize::MAX, gateway.now.tick(), &mut expiry));
    }
}

/// RFC 6146 section 3.4: what comes in fragments is translated as if it had come whole, errors too.
#[test]
fn errors_that_come_in_fragments_are_put_together_and_translated() {
    let mut gateway = Gateway::new(Setup::default());
    let query = udp((HOST, 40_000), (embed(SERVER), 53), &[7; 500]);
    let out = gateway.pass(&query).1.remove(0);
    let port = see(&out).ports.0;
    let answer = udp((SERVER, 53), (POOL, port), &[7; 500]);
    let came = gateway.pass(&answer).1.remove(0);
    // From a router outside, about what left; in any order.
    for reversed in [false, true] {
        let mut pieces = fragments_ipv4(&icmp(OTHER_SERVER, POOL, 11, 0, 0, &out), 400);
        if reversed {
            pieces.reverse();
        }
        assert_eq!(gateway.pass(&pieces[0]).0, Verdict::Hold);
        let (verdict, sent) = gateway.pass(&pieces[1]);
        assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
        let error = see(&sent[0]);
        assert_eq!((error.source, error.destination), (embed(OTHER_SERVER).into(), HOST.into()));
        assert_eq!((see(&error.payload).source, see(&error.payload).ports), (HOST.into(), (40_000, 53)));
    }
    // From the host, about what came to it.
    for reversed in [false, true] {
        let mut pieces = fragments_ipv6(&icmp(HOST, embed(SERVER), 1, 4, 0, &came), 400);
        if reversed {
            pieces.reverse();
        }
        assert_eq!(gateway.pass(&pieces[0]).0, Verdict::Hold);
        let (verdict, sent) = gateway.pass(&pieces[1]);
        assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
        let error = see(&sent[0]);
        assert_eq!((error.source, error.destination), (POOL.into(), SERVER.into()));
        assert_eq!((see(&error.payload).destination, see(&error.payload).ports), (POOL.into(), (53, port)));
    }
}
