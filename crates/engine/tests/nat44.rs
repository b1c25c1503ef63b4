//! Stateful NAT44 through the whole engine, packet by packet. What it has in common with NAT64
//! (timeouts, limits, exhaustion, the TCP states) is tested there, where it is told apart from
//! translation.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::collections::HashSet;
use std::net::Ipv4Addr;

use support::*;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::mechanism::napt::{Endpoint, Filtering, Filters, Policy, Sessions};
use tombolo_engine::packet::{ChecksumState, Offload, Segmentation};
use tombolo_engine::plan::StaticBinding;
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{DropReason, Verdict};
use tombolo_tables::audit;
use tombolo_tables::sweep::Sweeper;
use tombolo_wire::Port;

const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn nat44() -> Gateway {
    Gateway::new(Setup { nat44: true, ..Setup::default() })
}

/// A packet with something of its header changed, and the header checksum made right again.
fn with(mut packet: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut packet);
    packet[10..12].copy_from_slice(&[0, 0]);
    let length = usize::from(packet[0] & 15) * 4;
    let checksum = !sum(&packet[..length]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn identification(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[4], packet[5]])
}

#[test]
fn udp_goes_out_through_the_pool_and_comes_back() {
    let mut gateway = nat44();
    let out = gateway.forward(&udp((HOST4, 40_000), (SERVER, 53), b"question"));
    assert_eq!((out.source, out.destination), (POOL.into(), SERVER.into()));
    assert_eq!((out.ports.1, out.hop_limit, out.payload.as_slice()), (53, 63, b"question".as_slice()));
    assert!(out.ports.0 >= 1024 && out.ports.0.is_multiple_of(2), "range and parity are kept");
    let back = gateway.forward(&udp((SERVER, 53), (POOL, out.ports.0), b"answer"));
    assert_eq!((back.source, back.destination), (SERVER.into(), HOST4.into()));
    assert_eq!((back.ports, back.hop_limit, back.payload.as_slice()), ((53, 40_000), 63, b"answer".as_slice()));
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
}

#[test]
fn a_datagram_without_checksum_stays_without() {
    let mut gateway = nat44();
    let mut packet = udp((HOST4, 40_000), (SERVER, 53), b"question");
    packet[26..28].copy_from_slice(&[0, 0]);
    let (verdict, sent) = gateway.pass(&packet);
    assert_eq!((verdict, &sent[0][26..28]), (Verdict::Forward, [0, 0].as_slice()));
}

#[test]
fn a_wrong_checksum_stays_wrong_by_as_much() {
    let mut gateway = nat44();
    let mut packet = udp((HOST4, 40_000), (SERVER, 53), b"question");
    let right = gateway.pass(&packet).1.remove(0);
    packet[27] ^= 0x10;
    let wrong = gateway.pass(&packet).1.remove(0);
    let field = |packet: &[u8]| u16::from_be_bytes([packet[26], packet[27]]);
    assert_eq!(field(&right).abs_diff(field(&wrong)), 0x10);
}

#[test]
fn padding_behind_a_packet_is_not_part_of_it() {
    let mut gateway = nat44();
    let mut padded = udp((HOST4, 40_000), (SERVER, 53), b"");
    padded.extend([0xff; 18]);
    assert_eq!(gateway.forward(&padded).payload, b"");
}

#[test]
fn mapping_is_endpoint_independent_and_paired() {
    let last_address = Ipv4Addr::new(192, 0, 2, 14);
    let mut gateway = Gateway::new(Setup { last_address, nat44: true, ..Setup::default() });
    let first = gateway.forward(&udp((HOST4, 40_001), (SERVER, 53), b""));
    let other_remote = gateway.forward(&udp((HOST4, 40_001), (ROUTER, 123), b""));
    assert_eq!((first.source, first.ports.0), (other_remote.source, other_remote.ports.0));
    let tcp_out = gateway.forward(&tcp((HOST4, 40_001), (SERVER, 80), SYN, b""));
    let ping = gateway.forward(&echo(HOST4, SERVER, true, 40_001));
    assert_eq!((tcp_out.source, ping.source), (first.source, first.source));
    let hosts = (4..40).map(|n| gateway.forward(&udp((Ipv4Addr::new(10, 0, 1, n), 1), (SERVER, 53), b"")).source);
    assert!(hosts.collect::<HashSet<_>>().len() > 1, "subscribers are spread over the pool");
}

#[test]
fn a_tcp_connection_opens_talks_and_closes() {
    let mut gateway = nat44();
    let (client, server) = ((HOST4, 40_000), (SERVER, 80));
    let syn = gateway.forward(&tcp(client, server, SYN, b""));
    let outside = (POOL, syn.ports.0);
    assert_eq!(gateway.forward(&tcp(server, outside, SYN | ACK, b"")).ports, (80, 40_000));
    assert_eq!(gateway.forward(&tcp(client, server, ACK, b"GET /")).payload, b"GET /");
    gateway.wait(7000);
    assert_eq!(gateway.forward(&tcp(server, outside, ACK, b"200")).payload, b"200");
    gateway.forward(&tcp(server, outside, FIN | ACK, b""));
    gateway.wait(7000);
    sweep(&mut gateway);
    gateway.forward(&tcp(client, server, FIN | ACK, b""));
    gateway.wait(260);
    sweep(&mut gateway);
    assert_eq!((sessions(&gateway), gateway.tables.bindings.count()), (0, 0), "closed connections go after TCP_TRANS");
}

#[test]
fn a_closed_connection_opens_again_on_the_same_ports() {
    let mut gateway = nat44();
    let (client, server) = ((HOST4, 40_000), (SERVER, 80));
    let first = gateway.forward(&tcp(client, server, SYN, b""));
    gateway.forward(&tcp(server, (POOL, first.ports.0), SYN | ACK, b""));
    gateway.forward(&tcp(server, (POOL, first.ports.0), RST, b""));
    let again = gateway.forward(&tcp(client, server, SYN, b""));
    assert_eq!(again.ports, first.ports);
    gateway.forward(&tcp(server, (POOL, first.ports.0), SYN | ACK, b""));
    gateway.wait(7000);
    sweep(&mut gateway);
    gateway.forward(&tcp(server, (POOL, first.ports.0), ACK, b"established"));
}

/// A connection of the client to the server that is open; the outside port that it has.
fn connect(gateway: &mut Gateway) -> u16 {
    let port = gateway.forward(&tcp((HOST4, 40_000), (SERVER, 80), SYN, b"")).ports.0;
    gateway.forward(&tcp((SERVER, 80), (POOL, port), SYN | ACK, b""));
    gateway.forward(&tcp((HOST4, 40_000), (SERVER, 80), ACK, b""));
    port
}

#[test]
fn a_connection_that_is_opened_anew_after_it_was_closed_lives_as_long_as_any() {
    for opener in ["inside", "outside"] {
        let mut gateway = nat44();
        let port = connect(&mut gateway);
        let outward = tcp((HOST4, 40_000), (SERVER, 80), FIN | ACK, b"");
        let inward = tcp((SERVER, 80), (POOL, port), FIN | ACK, b"");
        gateway.forward(&outward);
        gateway.forward(&inward);
        gateway.wait(30);
        let (outward, inward) = if opener == "inside" { (SYN, SYN | ACK) } else { (SYN | ACK, SYN) };
        let outward = tcp((HOST4, 40_000), (SERVER, 80), outward, b"");
        let inward = tcp((SERVER, 80), (POOL, port), inward, b"");
        for packet in if opener == "inside" { [&outward, &inward] } else { [&inward, &outward] } {
            gateway.forward(packet);
        }
        for _ in 0..20 {
            gateway.wait(60);
            sweep(&mut gateway);
            assert_eq!(gateway.forward(&tcp((HOST4, 40_000), (SERVER, 80), ACK, b"data")).ports.0, port);
        }
        gateway.wait(7000);
        sweep(&mut gateway);
        gateway.forward(&tcp((SERVER, 80), (POOL, port), ACK, b"still there"));
        assert_eq!(sessions(&gateway), 1, "opened from {opener}");
    }
}

#[test]
fn a_connection_that_was_reset_is_gone_after_four_minutes_whatever_came_late() {
    let outward = |flags| tcp((HOST4, 40_000), (SERVER, 80), flags, b"");
    let inward = |port, flags| tcp((SERVER, 80), (POOL, port), flags, b"");
    let sequences: [(&str, &[(bool, u8)]); 5] = [
        ("FIN, RST", &[(true, FIN | ACK), (true, RST)]),
        ("FIN, RST of the other side", &[(true, FIN | ACK), (false, RST)]),
        ("outside FIN, RST", &[(false, FIN | ACK), (false, RST), (false, ACK)]),
        ("RST, late ACK of the other side", &[(true, RST), (false, ACK), (false, ACK)]),
        ("RST, late ACK of the same side", &[(false, RST), (false, ACK)]),
    ];
    for (name, packets) in sequences {
        let mut gateway = nat44();
        let port = connect(&mut gateway);
        for &(from_inside, flags) in packets {
            gateway.forward(&if from_inside { outward(flags) } else { inward(port, flags) });
        }
        gateway.wait(200);
        sweep(&mut gateway);
        assert_eq!(sessions(&gateway), 1, "{name}: RFC 7857 section 2.2 keeps it for four minutes");
        gateway.wait(50);
        sweep(&mut gateway);
        assert_eq!(sessions(&gateway), 0, "{name}");
    }
}

#[test]
fn both_sides_may_open_at_once() {
    let mut gateway = nat44();
    let known = gateway.forward(&tcp((HOST4, 40_000), (ROUTER, 80), SYN, b""));
    let outside = (POOL, known.ports.0);
    gateway.forward(&tcp((SERVER, 40_001), outside, SYN, b""));
    gateway.forward(&tcp((HOST4, 40_000), (SERVER, 40_001), SYN, b""));
    gateway.wait(7000);
    sweep(&mut gateway);
    gateway.forward(&tcp((SERVER, 40_001), outside, ACK, b"established"));
}

#[test]
fn echoes_get_identifiers_of_their_own() {
    let mut gateway = nat44();
    let one = gateway.forward(&echo(HOST4, SERVER, true, 7));
    let two = gateway.forward(&echo(OTHER_HOST4, SERVER, true, 7));
    assert_ne!(one.ports.0, two.ports.0);
    let back = gateway.forward(&echo(SERVER, POOL, false, two.ports.0));
    assert_eq!((back.destination, back.ports.0), (OTHER_HOST4.into(), 7));
}

#[test]
fn a_super_packet_crosses_in_one_piece() {
    let mut gateway = nat44();
    gateway.forward(&tcp((HOST4, 40_000), (SERVER, 80), SYN, b""));
    let mut packet = tcp((HOST4, 40_000), (SERVER, 80), ACK, &[0x5a; 60_000]);
    let pseudo = |bytes: &[u8]| {
        let mut pseudo = bytes[12..20].to_vec();
        pseudo.extend([0, 0, 0, 6]);
        pseudo.extend(60_020_u32.to_be_bytes());
        sum(&pseudo)
    };
    let partial = pseudo(&packet);
    packet[36..38].copy_from_slice(&partial.to_be_bytes());
    let offload = Offload {
        segmentation: Segmentation::Tcp { size: 1448, ecn: false },
        checksum: ChecksumState::Partial { start: 20, offset: 16 },
    };
    let (verdict, sent) = gateway.pass_with(&packet, offload);
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let (bytes, out) = &sent[0];
    assert_eq!((bytes.len(), *out), (60_040, offload));
    assert_eq!(u16::from_be_bytes([bytes[36], bytes[37]]), pseudo(bytes));
    // Without DF it is made of smaller segments for a narrower link, never dropped.
    gateway.nat44().outside_mtu = 1400;
    let (_, sent) = gateway.pass_with(&with(packet, |packet| packet[6] = 0), offload);
    assert_eq!(sent[0].1.segmentation, Segmentation::Tcp { size: 1360, ecn: false });
}

#[test]
fn hosts_inside_reach_each_other_through_the_pool() {
    let mut gateway = nat44();
    let known = gateway.forward(&udp((OTHER_HOST4, 6000), (SERVER, 3478), b""));
    let turned = gateway.forward(&udp((HOST4, 5000), (POOL, known.ports.0), b"hello"));
    assert_eq!(turned.destination, OTHER_HOST4);
    assert_eq!((turned.source, turned.ports.1), (POOL.into(), 6000), "with the outside source address and port");
    assert_eq!(turned.hop_limit, 63, "one decrement in total");
    let back = gateway.forward(&udp((OTHER_HOST4, 6000), (POOL, turned.ports.0), b"world"));
    assert_eq!((back.destination, back.ports.1, back.payload.as_slice()), (HOST4.into(), 5000, b"world".as_slice()));
    let server = gateway.forward(&tcp((OTHER_HOST4, 80), (SERVER, 1), SYN, b""));
    let syn = gateway.forward(&tcp((HOST4, 5000), (POOL, server.ports.0), SYN, b""));
    assert_eq!((syn.source, syn.destination, syn.ports.1), (POOL.into(), OTHER_HOST4.into(), 80));
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
}

#[test]
fn a_hairpin_to_nobody_or_to_oneself_ends() {
    let mut gateway = nat44();
    assert_eq!(gateway.pass(&udp((HOST4, 5000), (POOL, 999), b"")).0, Verdict::Drop(DropReason::NoBinding));
    let own = gateway.forward(&udp((HOST4, 5000), (SERVER, 1), b""));
    let turned = gateway.forward(&udp((HOST4, 5000), (POOL, own.ports.0), b"me"));
    assert_eq!((turned.source, turned.destination), (POOL.into(), HOST4.into()));
    assert_eq!(turned.ports, (own.ports.0, 5000));
}

#[test]
fn nobody_gets_in_without_a_binding() {
    let mut gateway = nat44();
    for packet in
        [udp((SERVER, 53), (POOL, 5353), b"scan"), tcp((SERVER, 53), (POOL, 22), SYN, b""), echo(SERVER, POOL, true, 1)]
    {
        assert_eq!(gateway.pass(&packet), (Verdict::Drop(DropReason::NoBinding), Vec::new()));
    }
    assert_eq!((gateway.tables.bindings.count(), sessions(&gateway)), (0, 0), "a scan makes no state");
    let stray = tcp((HOST4, 1), (SERVER, 80), ACK, b"");
    assert_eq!(gateway.pass(&stray).0, Verdict::Drop(DropReason::TcpNotSyn));
}

#[test]
fn filtering_decides_who_may_answer() {
    let stranger = Ipv4Addr::new(203, 0, 113, 66);
    let mut open = nat44();
    let out = open.forward(&udp((HOST4, 40_000), (SERVER, 53), b""));
    open.forward(&udp((stranger, 1), (POOL, out.ports.0), b""));

    let policy = Policy { filtering: Filtering::AddressDependent.into(), ..Policy::default() };
    let mut strict = Gateway::new(Setup { policy, nat44: true, ..Setup::default() });
    let out = strict.forward(&udp((HOST4, 40_000), (SERVER, 53), b""));
    assert_eq!(strict.pass(&udp((stranger, 1), (POOL, out.ports.0), b"")).0, Verdict::Drop(DropReason::Filtered));
    strict.forward(&udp((SERVER, 9999), (POOL, out.ports.0), b"another port of a known address"));
}

#[test]
fn each_protocol_may_have_its_own_filtering() {
    let stranger = Ipv4Addr::new(203, 0, 113, 66);
    for strict in [PortSpace::Tcp, PortSpace::Udp, PortSpace::Icmp] {
        let filtering = Filters::default().with(strict, Filtering::AddressDependent);
        let policy = Policy { filtering, ..Policy::default() };
        let mut gateway = Gateway::new(Setup { policy, nat44: true, ..Setup::default() });
        let tcp_out = gateway.forward(&tcp((HOST4, 40_000), (SERVER, 80), SYN, b""));
        let udp_out = gateway.forward(&udp((HOST4, 40_000), (SERVER, 53), b""));
        let strangers = [
            (PortSpace::Tcp, tcp((stranger, 1), (POOL, tcp_out.ports.0), SYN, b"")),
            (PortSpace::Udp, udp((stranger, 1), (POOL, udp_out.ports.0), b"")),
        ];
        for (space, packet) in strangers {
            let verdict = gateway.pass(&packet).0;
            let is_filtered = verdict == Verdict::Drop(DropReason::Filtered);
            assert_eq!(is_filtered, space == strict, "{space:?} where {strict:?} is filtered: {verdict:?}");
            assert!(is_filtered || verdict == Verdict::Forward, "{verdict:?}");
        }
    }
}

#[test]
fn a_static_binding_serves_both_ways_and_never_goes() {
    let binding = StaticBinding {
        softwire: std::net::Ipv6Addr::UNSPECIFIED,
        space: PortSpace::Tcp,
        inside: HOST4.into(),
        inside_port: Port(8080),
        outside: Endpoint { address: POOL, port: Port(80) },
    };
    let mut gateway = Gateway::new(Setup { static_bindings: vec![binding], nat44: true, ..Setup::default() });
    gateway.wait(100_000);
    sweep(&mut gateway);
    let inward = gateway.forward(&tcp((SERVER, 50_000), (POOL, 80), SYN, b""));
    assert_eq!((inward.destination, inward.ports), (HOST4.into(), (50_000, 8080)));
    let outward = gateway.forward(&tcp((HOST4, 8080), (SERVER, 50_000), SYN | ACK, b""));
    assert_eq!((outward.source, outward.ports), (POOL.into(), (80, 50_000)));
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
}

#[test]
fn a_full_pool_refuses_the_new_with_host_unreachable_and_keeps_the_old() {
    let mut gateway = Gateway::new(Setup { ports: 2000..=2003, nat44: true, ..Setup::default() });
    let ports: HashSet<u16> =
        (0..4).map(|n| gateway.forward(&udp((HOST4, 40_000 + n), (SERVER, 53), b"")).ports.0).collect();
    assert_eq!(ports, HashSet::from([2000, 2001, 2002, 2003]));
    let refused = udp((OTHER_HOST4, 1), (SERVER, 53), b"");
    let (verdict, sent) = gateway.pass(&refused);
    assert_eq!((verdict, &sent[0][20..22]), (Verdict::Reply(DropReason::PoolExhausted), [3, 1].as_slice()));
    assert_eq!(see(&sent[0]).destination, OTHER_HOST4);
    assert_eq!(&sent[0][28..], refused, "with the packet as it was");
    assert!(ports.contains(&gateway.forward(&udp((HOST4, 40_000), (SERVER, 54), b"")).ports.0));
}

#[test]
fn what_is_not_to_be_translated_is_the_hosts() {
    let mut gateway = nat44();
    for destination in [Ipv4Addr::new(172, 16, 1, 1), OTHER_HOST4] {
        assert_eq!(gateway.pass(&udp((HOST4, 1), (destination, 2), b"")), (Verdict::ToHost, Vec::new()));
    }
    assert_eq!(gateway.pass(&udp((SERVER, 1), (ROUTER, 2), b"")).0, Verdict::ToHost);
    assert_eq!(gateway.pass(&udp((HOST, 1), (OTHER_HOST, 2), b"")).0, Verdict::ToHost);
    assert_eq!(gateway.tables.bindings.count(), 0);
}

#[test]
fn packets_are_counted_on_the_side_that_they_came_from() {
    let mut gateway = nat44();
    let out = gateway.forward(&udp((HOST4, 40_000), (SERVER, 53), b"1234"));
    gateway.forward(&udp((SERVER, 53), (POOL, out.ports.0), b"12"));
    let mut totals = tombolo_engine::counters::Totals::default();
    gateway.engine.counters().add_to(&mut totals);
    assert_eq!((totals.received, totals.received_bytes, totals.forwarded), ([1, 1], [32, 30], [1, 1]));
}

#[test]
fn an_error_from_outside_reaches_the_host_that_it_is_about() {
    let mut gateway = nat44();
    let question = udp((HOST4, 40_000), (SERVER, 53), b"question");
    let quoted = gateway.pass(&question).1.remove(0);
    let (verdict, sent) = gateway.pass(&icmp(ROUTER, POOL, 11, 0, 0, &quoted));
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let error = see(&sent[0]);
    assert_eq!((error.source, error.destination), (ROUTER.into(), HOST4.into()), "traceroute sees the router");
    assert_eq!(sent[0][20..22], [11, 0]);
    // Inside is what the host had sent, but for the TTL, which was the routers' business.
    let expected = with(question, |packet| packet[8] -= 1);
    assert_eq!(&sent[0][28..], expected);

    let port = u16::from_be_bytes([quoted[20], quoted[21]]);
    let before = sessions(&gateway);
    let about_nothing = udp((POOL, port ^ 2), (SERVER, 53), b"");
    assert_eq!(gateway.pass(&icmp(ROUTER, POOL, 3, 3, 0, &about_nothing)).0, Verdict::Drop(DropReason::NoSession));
    // Where there are sessions, with one remote is not with another.
    let other_remote = udp((POOL, port), (ROUTER, 53), b"");
    assert_eq!(gateway.pass(&icmp(ROUTER, POOL, 3, 3, 0, &other_remote)).0, Verdict::Forward);
    gateway.nat44().nat.policy.sessions = Sessions::Kept;
    assert_eq!(gateway.pass(&icmp(ROUTER, POOL, 3, 3, 0, &other_remote)).0, Verdict::Drop(DropReason::NoSession));
    gateway.nat44().nat.policy.sessions = Sessions::default();
    assert_eq!((sessions(&gateway), gateway.tables.bindings.count()), (before, 1), "an error makes no state");
    let mut damaged = icmp(ROUTER, POOL, 11, 0, 0, &quoted);
    damaged[22] ^= 1;
    assert_eq!(gateway.pass(&damaged).0, Verdict::Drop(DropReason::BadChecksum));
    let mut bad_inside = quoted.clone();
    bad_inside[10] ^= 1;
    assert_eq!(gateway.pass(&icmp(ROUTER, POOL, 11, 0, 0, &bad_inside)).0, Verdict::Drop(DropReason::BadChecksum));
    let about_error = icmp(POOL, SERVER, 3, 3, 0, &quoted);
    let (verdict, _) = gateway.pass(&icmp(ROUTER, POOL, 3, 3, 0, &about_error));
    assert_eq!(verdict, Verdict::Drop(DropReason::IcmpErrorUnusable));
}

#[test]
fn an_error_neither_refreshes_nor_ends_a_session() {
    let mut gateway = nat44();
    let quoted = gateway.pass(&echo(HOST4, SERVER, true, 7)).1.remove(0);
    gateway.wait(50);
    assert_eq!(gateway.pass(&icmp(ROUTER, POOL, 3, 1, 0, &quoted)).0, Verdict::Forward);
    gateway.forward(&echo(SERVER, POOL, false, u16::from_be_bytes([quoted[24], quoted[25]])));
    gateway.wait(50);
    assert_eq!(gateway.pass(&icmp(ROUTER, POOL, 3, 1, 0, &quoted)).0, Verdict::Forward);
    gateway.wait(15);
    assert_eq!(gateway.pass(&icmp(ROUTER, POOL, 3, 1, 0, &quoted)).0, Verdict::Drop(DropReason::NoSession));
}

#[test]
fn an_error_may_quote_options_little_of_the_packet_or_carry_extensions() {
    let mut gateway = nat44();
    let syn = gateway.pass(&tcp((HOST4, 40_000), (SERVER, 80), SYN, b"")).1.remove(0);
    // Eight bytes of transport: ports are translated, and no checksum is there to be touched.
    let (verdict, sent) = gateway.pass(&icmp(ROUTER, POOL, 3, 1, 0, &syn[..28]));
    see(&sent[0]);
    assert_eq!((verdict, &sent[0][48..50]), (Verdict::Forward, 40_000_u16.to_be_bytes().as_slice()));
    assert_eq!(sent[0].len(), 56);
    // A header with options: the ports are behind them.
    let mut options = syn[..20].to_vec();
    options.extend([1, 1, 1, 0]);
    options.extend(&syn[20..]);
    let options = with(options, |packet| {
        packet[0] = 0x46;
        packet[3] += 4;
    });
    let (_, sent) = gateway.pass(&icmp(ROUTER, POOL, 3, 1, 0, &options));
    see(&sent[0]);
    assert_eq!((&sent[0][48..52], &sent[0][52..54]), ([1, 1, 1, 0].as_slice(), 40_000_u16.to_be_bytes().as_slice()));
    // An extension (RFC 4884) behind 128 bytes, and its length attribute, stay as they are.
    let mut padded = syn.clone();
    padded.resize(128, 0);
    padded.extend([0x20, 0, 0xdf, 0xff, 0, 4, 1, 1]);
    let (_, sent) = gateway.pass(&icmp(ROUTER, POOL, 11, 0, 32 << 16, &padded));
    see(&sent[0]);
    assert_eq!((sent[0][25], &sent[0][28 + 128..]), (32, [0x20, 0, 0xdf, 0xff, 0, 4, 1, 1].as_slice()));
}

#[test]
fn an_error_from_inside_leaves_from_the_pool() {
    let mut gateway = nat44();
    let out = gateway.forward(&udp((HOST4, 40_000), (SERVER, 53), b"question"));
    let answer = udp((SERVER, 53), (POOL, out.ports.0), b"answer");
    let received = gateway.pass(&answer).1.remove(0);
    for sender in [HOST4, Ipv4Addr::new(10, 0, 0, 99)] {
        let (verdict, sent) = gateway.pass(&icmp(sender, SERVER, 3, 3, 0, &received));
        assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
        let error = see(&sent[0]);
        assert_eq!((error.source, error.destination), (POOL.into(), SERVER.into()));
        assert_eq!(&sent[0][28..], with(answer.clone(), |packet| packet[8] -= 1));
    }
}

#[test]
fn an_error_about_a_hairpinned_packet_comes_back_to_its_sender() {
    let mut gateway = nat44();
    let known = gateway.forward(&udp((OTHER_HOST4, 6000), (SERVER, 3478), b""));
    let sent_by_host = udp((HOST4, 5000), (POOL, known.ports.0), b"hello");
    let received = gateway.pass(&sent_by_host).1.remove(0);
    let (verdict, sent) = gateway.pass(&icmp(OTHER_HOST4, POOL, 3, 3, 0, &received));
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 1));
    let error = see(&sent[0]);
    assert_eq!((error.source, error.destination, error.hop_limit), (POOL.into(), HOST4.into(), 63));
    let quoted = &sent[0][28..];
    assert_eq!((&quoted[12..24], &quoted[26..]), (&sent_by_host[12..24], &sent_by_host[26..]));
}

#[test]
fn path_mtu_discovery_crosses_the_gateway() {
    let mut gateway = nat44();
    let out = gateway.forward(&tcp((HOST4, 40_000), (SERVER, 80), SYN, b""));
    let quoted = tcp((POOL, out.ports.0), (SERVER, 80), ACK, &[0; 500]);
    let (_, sent) = gateway.pass(&icmp(ROUTER, POOL, 3, 4, 1380, &quoted));
    assert_eq!((&sent[0][20..22], &sent[0][26..28]), ([3, 4].as_slice(), 1380_u16.to_be_bytes().as_slice()));
}

#[test]
fn what_is_too_big_is_fragmented_or_refused_as_df_says() {
    let mut gateway = nat44();
    gateway.nat44().outside_mtu = 1400;
    let payload: Vec<u8> = (0..1472_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let big = udp((HOST4, 40_000), (SERVER, 53), &payload);
    let (verdict, sent) = gateway.pass(&big);
    assert_eq!((verdict, &sent[0][20..22]), (Verdict::Reply(DropReason::TooBig), [3, 4].as_slice()));
    assert_eq!(sent[0][26..28], 1400_u16.to_be_bytes());
    assert_eq!(&sent[0][28..], &big[..548], "the packet as it was, as far as 576 bytes go");

    let (verdict, sent) = gateway.pass(&with(big, |packet| packet[6] = 0));
    assert_eq!((verdict, sent.len()), (Verdict::Forward, 2));
    assert!(sent.iter().all(|packet| packet.len() <= 1400 && packet[4..6] == sent[0][4..6]));
    assert_eq!(see(&whole_of_ipv4(&sent)).payload, payload);
}

#[test]
fn fragments_are_put_together_in_any_order() {
    let payload: Vec<u8> = (0..3000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    for reversed in [false, true] {
        let mut gateway = nat44();
        let mut pieces = fragments_ipv4(&udp((HOST4, 40_000), (SERVER, 53), &payload), 1000);
        if reversed {
            pieces.reverse();
        }
        let last = pieces.pop().unwrap();
        for piece in &pieces {
            assert_eq!(gateway.pass(piece), (Verdict::Hold, Vec::new()));
        }
        let (verdict, sent) = gateway.pass(&last);
        assert_eq!(verdict, Verdict::Forward);
        assert!(sent.iter().all(|packet| packet.len() <= 1500));
        let out = see(&whole_of_ipv4(&sent));
        assert_eq!((out.source, out.payload), (POOL.into(), payload.clone()));

        let mut pieces = fragments_ipv4(&udp((SERVER, 53), (POOL, out.ports.0), &payload), 1000);
        if reversed {
            pieces.reverse();
        }
        let last = pieces.pop().unwrap();
        pieces.iter().for_each(|piece| assert_eq!(gateway.pass(piece).0, Verdict::Hold));
        let (verdict, sent) = gateway.pass(&last);
        assert_eq!(verdict, Verdict::Forward);
        let back = see(&whole_of_ipv4(&sent));
        assert_eq!((back.destination, back.payload), (HOST4.into(), payload.clone()));
    }
}

#[test]
fn packets_that_may_be_fragmented_get_identifications_that_hosts_do_not_share() {
    let mut gateway = nat44();
    let packet = |host, dont_fragment: u8| with(udp((host, 5000), (SERVER, 53), b""), |p| p[6] = dont_fragment);
    let mut seen = HashSet::new();
    for _ in 0..100 {
        for host in [HOST4, OTHER_HOST4] {
            let sent = gateway.pass(&packet(host, 0)).1.remove(0);
            assert!(seen.insert(identification(&sent)), "both hosts sent 0x1234");
        }
    }
    // An atomic packet's means nothing and stays (RFC 6864 section 4.1).
    assert_eq!(identification(&gateway.pass(&packet(HOST4, 0x40)).1[0]), 0x1234);
}

#[test]
fn header_options_stay_and_a_source_route_is_refused() {
    let mut gateway = nat44();
    let with_option = |option: [u8; 8]| {
        let mut packet = udp((HOST4, 5000), (SERVER, 53), b"x");
        packet.splice(20..20, option);
        with(packet, |packet| {
            packet[0] = 0x47;
            packet[3] += 8;
        })
    };
    let alert = [0x94, 4, 0, 0, 1, 1, 1, 0];
    let (verdict, sent) = gateway.pass(&with_option(alert));
    assert_eq!((verdict, &sent[0][20..28]), (Verdict::Forward, alert.as_slice()));
    assert_eq!(sum(&sent[0][..28]), 0xffff);
    let route = [0x83, 7, 4, 192, 0, 2, 99, 0];
    let (verdict, sent) = gateway.pass(&with_option(route));
    assert_eq!((verdict, &sent[0][20..22]), (Verdict::Reply(DropReason::SourceRoute), [3, 5].as_slice()));
}

#[test]
fn a_ttl_that_runs_out_is_told_on_either_side() {
    let mut gateway = nat44();
    let short = with(udp((HOST4, 40_000), (SERVER, 33_434), b""), |packet| packet[8] = 1);
    let (verdict, sent) = gateway.pass(&short);
    assert_eq!((verdict, &sent[0][20..22]), (Verdict::Reply(DropReason::HopLimit), [11, 0].as_slice()));
    assert_eq!((see(&sent[0]).destination, &sent[0][28..]), (HOST4.into(), short.as_slice()));
    assert_eq!(gateway.tables.bindings.count(), 0, "no state for what goes nowhere");
    let out = gateway.forward(&udp((HOST4, 40_000), (SERVER, 53), b""));
    let short = with(udp((SERVER, 53), (POOL, out.ports.0), b""), |packet| packet[8] = 1);
    let (_, sent) = gateway.pass(&short);
    assert_eq!((see(&sent[0]).destination, &sent[0][28..]), (SERVER.into(), short.as_slice()));
}

#[test]
fn what_has_no_ports_is_refused() {
    let mut gateway = nat44();
    let gre = with(udp((HOST4, 40_000), (SERVER, 53), b""), |packet| packet[9] = 47);
    let (verdict, sent) = gateway.pass(&gre);
    assert_eq!((verdict, &sent[0][20..22]), (Verdict::Reply(DropReason::UnsupportedProtocol), [3, 2].as_slice()));
    let timestamp = icmp(HOST4, SERVER, 13, 0, 0, &[0; 12]);
    let (verdict, sent) = gateway.pass(&timestamp);
    assert_eq!((verdict, &sent[0][20..22]), (Verdict::Reply(DropReason::IcmpUntranslatable), [3, 2].as_slice()));
    // A reply is for nobody, from outside nothing is answered.
    for silent in [icmp(HOST4, SERVER, 14, 0, 0, &[0; 12]), icmp(SERVER, POOL, 13, 0, 0, &[0; 12])] {
        assert_eq!(gateway.pass(&silent).0, Verdict::Drop(DropReason::IcmpUntranslatable));
    }
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

#[test]
fn errors_that_come_in_fragments_are_put_together_and_translated() {
    let mut gateway = nat44();
    let router = Ipv4Addr::new(203, 0, 113, 9);
    let out = gateway.pass(&udp((HOST4, 40_000), (SERVER, 53), &[7; 500])).1.remove(0);
    let port = see(&out).ports.0;
    let came = gateway.pass(&udp((SERVER, 53), (POOL, port), &[7; 500])).1.remove(0);
    for reversed in [false, true] {
        let mut inward = fragments_ipv4(&icmp(router, POOL, 11, 0, 0, &out), 400);
        let mut outward = fragments_ipv4(&icmp(HOST4, SERVER, 3, 3, 0, &came), 400);
        if reversed {
            inward.reverse();
            outward.reverse();
        }
        assert_eq!(gateway.pass(&inward[0]).0, Verdict::Hold);
        let error = gateway.forward(&inward[1]);
        assert_eq!((error.source, error.destination), (router.into(), HOST4.into()));
        assert_eq!((see(&error.payload).source, see(&error.payload).ports), (HOST4.into(), (40_000, 53)));
        assert_eq!(gateway.pass(&outward[0]).0, Verdict::Hold);
        let error = gateway.forward(&outward[1]);
        assert_eq!((error.source, error.destination), (POOL.into(), SERVER.into()));
        assert_eq!((see(&error.payload).destination, see(&error.payload).ports), (POOL.into(), (53, port)));
    }
}
