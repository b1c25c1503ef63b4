//! The softwire mechanism: `tests/vectors/mtu.json` (RFC 2473, RFC 6333), headers, super-packets,
//! errors from the path.

#![expect(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

mod bytes;

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::{Buffer, assert_valid, ipv4_packet, ipv6_packet, naive_sum, run_vectors, write_transport_checksum};
use tombolo_engine::DropReason;
use tombolo_engine::mechanism::echo::answer_echo_ipv6;
use tombolo_engine::mechanism::fragment::send_fragments;
use tombolo_engine::mechanism::softwire::{
    DontFragment, Fragments, Softwire, SoftwireSettings, decapsulate, encapsulate, put_back, relay_error, take_step,
};
use tombolo_engine::mechanism::{IcmpAnswer, IdentificationGenerator, TrafficClass};
use tombolo_engine::packet::{ChecksumState, Offload, Packet, Segmentation};
use tombolo_engine::parse::{parse_ipv4, parse_ipv6};

const HERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
const THERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
const ENDS: Softwire = Softwire { local: HERE, remote: THERE };
const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const DF: u16 = 0x4000;
const MF: u16 = 0x2000;

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What comes out of the softwire's entry.
fn enter(packet: &[u8], offload: Offload, settings: &SoftwireSettings) -> Result<Vec<Vec<u8>>, IcmpAnswer> {
    let mut buffer = Buffer::new(packet);
    buffer.offload = offload;
    let mut packet = buffer.packet();
    let parsed = parse_ipv4(&mut packet).unwrap();
    settings.check_size(&packet, &parsed).map_err(|refusal| refusal.answer.unwrap())?;
    let mut sent = Vec::new();
    let mut outbox = |packet: &mut Packet<'_>| {
        assert_eq!(packet.offload, Offload::default());
        assert_valid(packet.bytes());
        sent.push(packet.bytes().to_vec());
    };
    encapsulate(&mut packet, &parsed, ENDS, settings, 0x8000_0001, &mut outbox).unwrap();
    Ok(sent)
}

fn udp(length: usize) -> Vec<u8> {
    let mut datagram = vec![0x9c, 0x40, 0, 53, 0, 0, 0, 0];
    datagram.extend((8..length).map(|n| u8::try_from(n % 251).unwrap()));
    datagram[4..6].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    write_transport_checksum(&mut datagram, 6, 17, &[A.octets(), B.octets()].concat());
    datagram
}

/// Takes off the outer headers of fragments or of one whole packet.
fn leave(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut inner = Vec::new();
    for packet in packets {
        assert_eq!((&packet[8..24], &packet[24..40]), (&HERE.octets()[..], &THERE.octets()[..]));
        assert_eq!((packet[6], packet[7]), (if packets.len() > 1 { 44 } else { 4 }, 64));
        if packets.len() > 1 {
            assert_eq!((packet[40], usize::from(word(packet, 42) & !7)), (4, inner.len()));
            assert_eq!(word(packet, 42) & 1 == 1, packet != packets.last().unwrap());
            assert_eq!(packet[44..48], [0x80, 0, 0, 1]);
        }
        inner.extend_from_slice(&packet[if packets.len() > 1 { 48 } else { 40 }..]);
    }
    inner
}

#[test]
fn sizes_and_fragments_are_those_of_the_vectors() {
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "tunnel_4in6",
        |case| {
            let number = |key: &str| u32::try_from(case[key].as_u64().unwrap()).unwrap();
            let settings = SoftwireSettings { ipv6_mtu: number("ipv6_path_mtu"), ..SoftwireSettings::default() };
            assert_eq!(settings.mtu(), number("tunnel_mtu"));
            let length = number("inner_total_length") as usize;
            let df = if number("df") == 1 { DF } else { 0 };
            let packet = ipv4_packet(A, B, 17, df, &udp(length - 20));
            let result = enter(&packet, Offload::default(), &settings);
            if case["expect"] == "ICMPv4 3/4" {
                assert_eq!(result, Err(IcmpAnswer::TooBig { mtu: number("expect_mtu") }));
                let settings = SoftwireSettings { dont_fragment: DontFragment::Override, ..settings };
                assert_eq!(leave(&enter(&packet, Offload::default(), &settings).unwrap()), packet);
                return;
            }
            let sent = result.unwrap();
            let found: Vec<_> = sent.iter().map(Vec::len).collect();
            let expected: Vec<usize> = match case["fragments"].as_array() {
                Some(fragments) => {
                    fragments.iter().map(|f| usize::try_from(f["ipv6_size"].as_u64().unwrap()).unwrap()).collect()
                }
                None => vec![number("outer_size") as usize],
            };
            assert_eq!(found, expected);
            assert_eq!(leave(&sent), packet);
        },
    );
    assert_eq!(count, 12);
}

/// An ICMPv6 error about a packet that went through the softwire.
fn error(kind: u8, code: u8, rest: u32, about: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend_from_slice(&about[..about.len().min(1232)]);
    let router = "2001:db8:5::1".parse::<Ipv6Addr>().unwrap();
    write_transport_checksum(&mut message, 2, 58, &[router.octets(), HERE.octets()].concat());
    ipv6_packet(router, HERE, 58, &message)
}

fn relay(bytes: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut buffer = Buffer::new(bytes);
    let mut packet = buffer.packet();
    let parsed = parse_ipv6(&mut packet).unwrap();
    let from = Ipv4Addr::new(192, 0, 0, 1);
    let mut identifications = IdentificationGenerator::new([1, 2], 0, 1);
    let (end, error) = relay_error(&mut packet, &parsed, from, &mut identifications)?;
    assert_eq!((end, error.source, error.destination), (THERE, from, A));
    assert_valid(packet.bytes());
    Ok(packet.bytes().to_vec())
}

#[test]
fn packet_too_big_from_the_path_is_relayed_as_in_the_vectors() {
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "tunnel_ptb_relay",
        |case| {
            let number = |key: &str| u32::try_from(case[key].as_u64().unwrap()).unwrap();
            let about = |df| {
                let inner = ipv4_packet(A, B, 17, df, &udp(1400));
                if number("tunnel_header_bytes") == 40 {
                    ipv6_packet(HERE, THERE, 4, &inner)
                } else {
                    ipv6_packet(HERE, THERE, 44, &[&[4, 0, 0, 1, 0, 0, 0, 7][..], &inner].concat())
                }
            };
            let relayed = relay(&error(2, 0, number("icmp6_mtu"), &about(DF))).unwrap();
            assert_eq!((relayed[20], relayed[21]), (3, 4));
            assert_eq!(u32::from(word(&relayed, 26)), number("expect_icmp4_mtu"));
            assert_eq!(relayed.len(), 576);
            let quoted = ipv4_packet(A, B, 17, DF, &udp(1400));
            assert_eq!(relayed[28..], quoted[..548]);
            // Nobody can do anything about it.
            assert_eq!(relay(&error(2, 0, number("icmp6_mtu"), &about(0))), Err(DropReason::TooBig));
        },
    );
    assert_eq!(count, 4);
}

#[test]
fn other_errors_from_the_path_become_host_unreachable_and_useless_ones_nothing() {
    let about = ipv6_packet(HERE, THERE, 4, &ipv4_packet(A, B, 17, 0, &udp(20)));
    for (kind, code) in [(1, 0), (1, 3), (3, 0), (4, 1)] {
        let relayed = relay(&error(kind, code, 0, &about)).unwrap();
        assert_eq!((relayed[20], relayed[21]), (3, 1));
    }
    let unusable = |about: &[u8]| assert_eq!(relay(&error(1, 0, 0, about)), Err(DropReason::IcmpErrorUnusable));
    // Not sent from here; not a softwire's packet; too little of it; an error about an error; a
    // later piece.
    unusable(&ipv6_packet(THERE, HERE, 4, &ipv4_packet(A, B, 17, 0, &udp(20))));
    unusable(&ipv6_packet(HERE, THERE, 17, &udp(20)));
    unusable(&about[..60 + 7]);
    unusable(&ipv6_packet(HERE, THERE, 4, &ipv4_packet(A, B, 1, 0, &[3; 36])));
    unusable(&ipv6_packet(HERE, THERE, 4, &ipv4_packet(A, B, 17, 3, &[0; 32])));
    assert_eq!(relay(&error(2, 0, 1279, &about)), Err(DropReason::IcmpErrorUnusable));
    let mut damaged = error(1, 0, 0, &about);
    damaged[45] ^= 1;
    assert_eq!(relay(&damaged), Err(DropReason::BadChecksum));
}

/// What leaves the softwire of a packet with these outer headers around `payload`.
fn exit(outer: &[u8], settings: &SoftwireSettings) -> Result<Vec<u8>, DropReason> {
    let mut buffer = Buffer::new(outer);
    let mut packet = buffer.packet();
    let parsed = parse_ipv6(&mut packet).unwrap();
    decapsulate(&mut packet, &parsed, settings).map_err(|refusal| refusal.reason)?;
    assert_valid(packet.bytes());
    let inner = packet.bytes().to_vec();
    put_back(&mut packet, &parsed).unwrap();
    assert_eq!(packet.bytes()[..40], outer[..40]);
    Ok(inner)
}

#[test]
fn congestion_and_class_cross_as_rfc_6040_and_rfc_6333_say() {
    let inner = |tos: u8| {
        let mut packet = ipv4_packet(A, B, 17, 0, &udp(20));
        packet[1] = tos;
        packet[10..12].fill(0);
        let checksum = !naive_sum(&[&packet[..20]]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    let around = |class: u8, tos: u8| {
        let mut packet = ipv6_packet(THERE, HERE, 4, &inner(tos));
        packet[0] |= class >> 4;
        packet[1] = class << 4;
        packet
    };
    let uniform = SoftwireSettings::default();
    let pipe = SoftwireSettings { traffic_class: TrafficClass::Force(0xb8), ..uniform };
    // RFC 6040 figure 4: rows not-ECT, ECT(0), ECT(1), CE inside; columns the same outside.
    let table = [
        (0, [Some(0), Some(0), Some(0), None]),
        (2, [Some(2), Some(2), Some(1), Some(3)]),
        (1, [Some(1), Some(1), Some(1), Some(3)]),
        (3, [Some(3), Some(3), Some(3), Some(3)]),
    ];
    for (arriving, row) in table {
        for (outside, expected) in [0, 2, 1, 3].into_iter().zip(row) {
            let result = exit(&around(0x48 | outside, 0x28 | arriving), &uniform);
            assert_eq!(result.map(|packet| packet[1]).ok(), expected.map(|ecn: u8| 0x48 | ecn));
            let result = exit(&around(0x48 | outside, 0x28 | arriving), &pipe);
            assert_eq!(result.map(|packet| packet[1]).ok(), expected.map(|ecn: u8| 0x28 | ecn));
        }
        let class = |packet: &[u8]| packet[0] << 4 | packet[1] >> 4;
        let enter = |settings| enter(&inner(0x28 | arriving), Offload::default(), settings).unwrap();
        assert_eq!(class(&enter(&uniform)[0]), 0x28 | arriving);
        assert_eq!(class(&enter(&pipe)[0]), 0xb8 | arriving);
    }
    assert_eq!(exit(&around(3, 0), &uniform), Err(DropReason::CongestionNotEct));
}

#[test]
fn what_is_no_ipv4_packet_inside_is_named() {
    let settings = SoftwireSettings::default();
    let inner = ipv4_packet(A, B, 17, 0, &udp(20));
    let around = |next, payload: &[u8]| exit(&ipv6_packet(THERE, HERE, next, payload), &settings);
    assert_eq!(around(4, &inner), Ok(inner.clone()));
    // An encapsulation limit is passed over (RFC 2473 section 4.1.1), and so is padding behind the
    // packet inside.
    assert_eq!(around(60, &[&[4, 0, 4, 1, 4, 1, 1, 0][..], &inner].concat()), Ok(inner.clone()));
    assert_eq!(around(4, &[&inner[..], &[0; 9]].concat()), Ok(inner.clone()));
    assert_eq!(around(44, &[&[4, 0, 0, 0, 0, 0, 0, 7][..], &inner].concat()), Ok(inner.clone()));
    assert_eq!(around(4, &[]), Err(DropReason::NotIpv4Inside));
    assert_eq!(around(4, &ipv6_packet(HERE, THERE, 17, &[0; 8])), Err(DropReason::NotIpv4Inside));
    assert_eq!(around(41, &ipv6_packet(HERE, THERE, 4, &inner)), Err(DropReason::TunnelInTunnel));
    assert_eq!(around(17, &udp(20)), Err(DropReason::NotIpv4Inside));
    assert_eq!(around(4, &inner[..30]), Err(DropReason::Malformed));
    let mut damaged = inner.clone();
    damaged[8] ^= 1;
    assert_eq!(around(4, &damaged), Err(DropReason::BadChecksum));
    assert_eq!(around(43, &[&[4, 0, 0, 1, 0, 0, 0, 0][..], &inner].concat()), Err(DropReason::RoutingHeader));
    assert_eq!(
        around(44, &[&[4, 0, 0, 1, 0, 0, 0, 7][..], &inner[..24]].concat()),
        Err(DropReason::FragmentUntranslatable)
    );
}

#[test]
fn a_step_costs_one_and_a_last_step_is_refused() {
    for (ttl, expected) in [(64, Some(63)), (2, Some(1)), (1, None), (0, None)] {
        let mut bytes = ipv4_packet(A, B, 17, 0, &udp(20));
        bytes[8] = ttl;
        bytes[10..12].fill(0);
        let checksum = !naive_sum(&[&bytes[..20]]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        let mut buffer = Buffer::new(&bytes);
        let mut packet = buffer.packet();
        let parsed = parse_ipv4(&mut packet).unwrap();
        let result = take_step(&mut packet, &parsed);
        assert_eq!(result.map(|()| packet.bytes()[8]).ok(), expected);
        assert_valid(packet.bytes());
    }
}

#[test]
fn fragments_inside_are_whole_packets_outside() {
    let settings = SoftwireSettings { fragments: Fragments::Inner, ipv6_mtu: 1280, ..SoftwireSettings::default() };
    let packet = ipv4_packet(A, B, 17, 0, &udp(2980));
    let sent = enter(&packet, Offload::default(), &settings).unwrap();
    assert_eq!(sent.len(), 3);
    let mut payload = Vec::new();
    for outer in &sent {
        let inner = leave(std::slice::from_ref(outer));
        assert!(outer.len() <= 1280);
        assert_eq!(usize::from(word(&inner, 6) & 0x1fff) * 8, payload.len());
        assert_eq!(word(&inner, 6) & MF != 0, outer != sent.last().unwrap());
        payload.extend_from_slice(&inner[20..]);
    }
    assert_eq!(payload, packet[20..]);
    let with_df = ipv4_packet(A, B, 17, DF, &udp(1300));
    assert_eq!(enter(&with_df, Offload::default(), &settings), Err(IcmpAnswer::TooBig { mtu: 1240 }));
}

/// A TCP super-packet as the kernel gives it: a partial checksum, all flags set that segments treat
/// specially.
fn tcp_super_packet(options: usize, payload: usize) -> (Vec<u8>, Offload) {
    let mut segment = vec![0x9c, 0x40, 0, 80, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 9, 0, 0x99, 0x20, 0, 0, 0, 0, 0];
    segment[12] = u8::try_from((20 + options) * 4).unwrap();
    segment.extend(std::iter::repeat_n(1, options));
    segment.extend((0..payload).map(|n| u8::try_from(n * 7 % 253).unwrap()));
    let length = u16::try_from(segment.len()).unwrap().to_be_bytes();
    let pseudo = naive_sum(&[&A.octets(), &B.octets(), &[0, 6], &length]);
    segment[16..18].copy_from_slice(&pseudo.to_be_bytes());
    (
        segment,
        Offload {
            segmentation: Segmentation::Tcp { size: 1360, ecn: true },
            checksum: ChecksumState::Partial { start: 20, offset: 16 },
        },
    )
}

#[test]
fn a_tcp_super_packet_enters_segment_by_segment() {
    for (options, payload) in [(0, 1360), (12, 1361), (12, 50_000), (40, 64_000)] {
        let (segment, offload) = tcp_super_packet(options, payload);
        let sent = enter(&ipv4_packet(A, B, 6, DF, &segment), offload, &SoftwireSettings::default()).unwrap();
        assert_eq!(sent.len(), payload.div_ceil(1360));
        let (mut bytes, mut number) = (Vec::new(), 0_u16);
        for outer in &sent {
            let inner = leave(std::slice::from_ref(outer));
            assert_valid(&inner);
            assert!(outer.len() <= 1500);
            assert_eq!(word(&inner, 4), 0x1234 + number);
            let sequence = u32::from_be_bytes(inner[24..28].try_into().unwrap());
            assert_eq!(sequence, 0xffff_f000_u32.wrapping_add(u32::try_from(bytes.len()).unwrap()));
            // CWR 0x80 on the first, FIN and PSH 0x09 on the last, ACK 0x10 on all.
            let expected = 0x10
                | if number == 0 { 0x80 } else { 0 }
                | if usize::from(number) + 1 == sent.len() { 0x09 } else { 0 };
            assert_eq!(inner[33], expected);
            assert_eq!(inner[40..40 + options], vec![1; options]);
            bytes.extend_from_slice(&inner[40 + options..]);
            number += 1;
        }
        assert_eq!(bytes, segment[20 + options..]);
    }
}

#[test]
fn a_super_packet_whose_segments_do_not_fit_is_too_big() {
    let (segment, mut offload) = tcp_super_packet(12, 20_000);
    offload.segmentation = Segmentation::Tcp { size: 1448, ecn: false };
    let packet = ipv4_packet(A, B, 6, DF, &segment);
    assert_eq!(enter(&packet, offload, &SoftwireSettings::default()), Err(IcmpAnswer::TooBig { mtu: 1460 }));
}

#[test]
fn a_udp_super_packet_enters_datagram_by_datagram() {
    let mut datagram = udp(8 + 4000);
    let pseudo = naive_sum(&[&A.octets(), &B.octets(), &[0, 17], &4008_u16.to_be_bytes()]);
    datagram[6..8].copy_from_slice(&pseudo.to_be_bytes());
    let offload = Offload {
        segmentation: Segmentation::Udp { size: 1200 },
        checksum: ChecksumState::Partial { start: 20, offset: 6 },
    };
    let sent = enter(&ipv4_packet(A, B, 17, 0, &datagram), offload, &SoftwireSettings::default()).unwrap();
    let inner: Vec<_> = sent.iter().map(|outer| leave(std::slice::from_ref(outer))).collect();
    inner.iter().for_each(|packet| assert_valid(packet));
    let payloads: Vec<_> = inner.iter().flat_map(|packet| packet[28..].to_vec()).collect();
    assert_eq!(inner.iter().map(Vec::len).collect::<Vec<_>>(), [1228, 1228, 1228, 428]);
    assert_eq!(payloads, datagram[8..]);
}

#[test]
fn a_checksum_left_to_the_card_is_complete_inside() {
    let mut datagram = udp(100);
    let pseudo = naive_sum(&[&A.octets(), &B.octets(), &[0, 17], &100_u16.to_be_bytes()]);
    datagram[6..8].copy_from_slice(&pseudo.to_be_bytes());
    let offload = Offload { checksum: ChecksumState::Partial { start: 20, offset: 6 }, ..Offload::default() };
    let sent = enter(&ipv4_packet(A, B, 17, DF, &datagram), offload, &SoftwireSettings::default()).unwrap();
    assert_valid(&leave(&sent));
}

#[test]
fn a_tunnel_address_answers_an_echo_and_nothing_else() {
    let mut message = vec![128, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend_from_slice(&[7; 3000]);
    write_transport_checksum(&mut message, 2, 58, &[THERE.octets(), HERE.octets()].concat());
    for (packet, verdict) in [
        (ipv6_packet(THERE, HERE, 58, &message), Ok(())),
        (ipv6_packet(THERE, HERE, 60, &[&[58, 0, 1, 4, 0, 0, 0, 0][..], &message].concat()), Ok(())),
        (ipv6_packet(Ipv6Addr::UNSPECIFIED, HERE, 58, &message), Err(DropReason::IllegalSource)),
        (ipv6_packet(THERE, HERE, 58, &[129, 0, 0, 0, 0, 0, 0, 0]), Err(DropReason::IcmpUntranslatable)),
        (ipv6_packet(THERE, HERE, 58, &[135; 24]), Err(DropReason::IcmpUntranslatable)),
    ] {
        let mut buffer = Buffer::new(&packet);
        let mut packet = buffer.packet();
        let parsed = parse_ipv6(&mut packet).unwrap();
        let mut sent = Vec::new();
        let mut outbox = |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec());
        let result = answer_echo_ipv6(&mut packet, &parsed);
        assert_eq!(result, verdict);
        if result.is_err() {
            continue;
        }
        send_fragments(&mut packet, 1500, 0, &mut outbox).unwrap();
        let payload: Vec<u8> = sent.iter().flat_map(|piece| piece[48..].to_vec()).collect();
        let whole = ipv6_packet(HERE, THERE, 58, &payload);
        assert_valid(&whole);
        assert_eq!((payload[0], &payload[4..]), (129, &message[4..]));
    }
}

/// The segment size that a SYN inside announces.
fn announced(packet: &[u8]) -> u16 {
    assert_eq!(packet[40..42], [2, 4]);
    word(packet, 42)
}

#[test]
fn syns_announce_what_fits_the_softwire_either_way() {
    let syn = |flags: u8, size: u16| {
        let mut segment = vec![0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, flags, 0x20, 0, 0, 0, 0, 0, 2, 4];
        segment.extend(size.to_be_bytes());
        write_transport_checksum(&mut segment, 16, 6, &[A.octets(), B.octets()].concat());
        ipv4_packet(A, B, 6, DF, &segment)
    };
    let clamping = SoftwireSettings { largest_segment: Some(1420), ..SoftwireSettings::default() };
    let in_and_out = |packet: &[u8], settings: &SoftwireSettings| {
        let inside = leave(&enter(packet, Offload::default(), settings).unwrap());
        let outside = exit(&ipv6_packet(THERE, HERE, 4, packet), settings).unwrap();
        assert_valid(&inside);
        assert_valid(&outside);
        [announced(&inside), announced(&outside)]
    };
    // SYN, and SYN with ACK; never raised; no other segment; and not if it is switched off.
    assert_eq!(in_and_out(&syn(0x02, 1460), &clamping), [1420, 1420]);
    assert_eq!(in_and_out(&syn(0x12, 1460), &clamping), [1420, 1420]);
    assert_eq!(in_and_out(&syn(0x02, 1200), &clamping), [1200, 1200]);
    assert_eq!(in_and_out(&syn(0x10, 1460), &clamping), [1460, 1460]);
    assert_eq!(in_and_out(&syn(0x02, 1460), &SoftwireSettings::default()), [1460, 1460]);
}
