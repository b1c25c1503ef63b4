//! Properties of the translation of whole packets, super-packets and partial checksums.

#![expect(clippy::unwrap_used, reason = "a packet that cannot be built fails its test")]

mod bytes;

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::{Buffer, assert_valid, finish_checksum, ipv4_packet, ipv6_packet, naive_sum, write_transport_checksum};
use proptest::prelude::*;
use tombolo_engine::mechanism::{
    IcmpAnswer, IdentificationGenerator, Rewrite, TranslateSettings, Translated, UdpZeroChecksum, translate_4to6,
    translate_6to4,
};
use tombolo_engine::packet::{ChecksumState, Offload, Segmentation};
use tombolo_engine::parse::{parse_ipv4, parse_ipv6};
use tombolo_engine::verdict::DropReason;
use tombolo_wire::Port;

const SOURCE4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6);
const DESTINATION6: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0xc633, 0x6409);
const DF: u16 = 0x4000;

fn addresses4() -> Vec<u8> {
    [SOURCE4.octets(), DESTINATION4.octets()].concat()
}

fn addresses6() -> Vec<u8> {
    [SOURCE6.octets(), DESTINATION6.octets()].concat()
}

fn to6() -> Rewrite<Ipv6Addr> {
    Rewrite::addresses(SOURCE6, DESTINATION6)
}

fn to4() -> Rewrite<Ipv4Addr> {
    Rewrite::addresses(SOURCE4, DESTINATION4)
}

fn generator() -> IdentificationGenerator {
    IdentificationGenerator::new([7, 9], 0, 1)
}

fn wide() -> TranslateSettings {
    TranslateSettings { ipv6_mtu: 65575, ipv4_mtu: 65535, lowest_ipv6_mtu: 65575, ..TranslateSettings::default() }
}

/// Protocol number and transport: TCP, UDP, echo, or something unknown; without checksum.
fn transport() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let payload = prop::collection::vec(any::<u8>(), 0..200);
    (0_u8..4, any::<[u8; 8]>(), payload).prop_map(|(kind, first, payload)| match kind {
        0 => {
            let mut tcp = [&first[..], &[0; 4], &[0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]].concat();
            tcp.extend(payload);
            (6, tcp)
        }
        1 => {
            let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
            (17, [&first[..4], &length, &[0, 0], &payload].concat())
        }
        2 => (1, [&[if first[0] & 1 == 0 { 8 } else { 0 }, 0, 0, 0], &first[4..], &payload[..]].concat()),
        _ => (253, payload),
    })
}

fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(16),
        17 => Some(6),
        _ => None,
    }
}

fn packet4(protocol: u8, mut transport: Vec<u8>) -> Vec<u8> {
    if let Some(at) = checksum_at(protocol) {
        write_transport_checksum(&mut transport, at, protocol, &addresses4());
        if protocol == 17 && transport[6..8] == [0, 0] {
            transport[6..8].fill(0xff);
        }
    }
    if protocol == 1 {
        let checksum = !naive_sum(&[&transport]);
        transport[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    ipv4_packet(SOURCE4, DESTINATION4, protocol, DF, &transport)
}

proptest! {
    #[test]
    fn there_and_back_restores_the_packet(
        (protocol, transport) in transport(), port in prop::option::of(any::<u16>()), tos in any::<u8>(),
    ) {
        let mut original = packet4(protocol, transport);
        original[1] = tos;
        original[10..12].fill(0);
        let checksum = !naive_sum(&[&original[..20]]);
        original[10..12].copy_from_slice(&checksum.to_be_bytes());
        let mut buffer = Buffer::new(&original);
        let mut packet = buffer.packet();
        let parsed = parse_ipv4(&mut packet).unwrap();
        let to = Rewrite { source_port: port.map(Port), ..to6() };
        prop_assert_eq!(translate_4to6(&mut packet, &parsed, &to, &wide()), Ok(Translated::Whole));
        assert_valid(packet.bytes());
        prop_assert_eq!(packet.len(), original.len() + 20);

        let back = parse_ipv6(&mut packet).unwrap();
        prop_assert_eq!((back.source, back.destination), (SOURCE6, DESTINATION6));
        if let Some(port) = port && protocol != 253 {
            prop_assert_eq!(back.source_port, Port(port));
        }
        let to = Rewrite { source_port: port.map(|_| parsed.source_port), ..to4() };
        prop_assert_eq!(translate_6to4(&mut packet, &back, &to, &wide(), &mut generator()), Ok(Translated::Whole));
        assert_valid(packet.bytes());
        // TTL went down by two; identification and DF are the translator's.
        prop_assert_eq!(packet.bytes()[8], original[8] - 2);
        prop_assert_eq!(&packet.bytes()[..2], &original[..2]);
        prop_assert_eq!(&packet.bytes()[12..], &original[12..]);
    }

    #[test]
    fn partial_checksums_end_up_right(
        is_tcp in any::<bool>(), payload in prop::collection::vec(any::<u8>(), 0..120), port in any::<u16>(),
        to_v6 in any::<bool>(),
    ) {
        let (protocol, at) = if is_tcp { (6_u8, 16_usize) } else { (17, 6) };
        let mut transport = vec![0; if is_tcp { 20 } else { 8 }];
        if is_tcp { transport[12] = 0x50; }
        transport.extend(payload);
        let length = u16::try_from(transport.len()).unwrap();
        if !is_tcp { transport[4..6].copy_from_slice(&length.to_be_bytes()); }
        let addresses = if to_v6 { addresses4() } else { addresses6() };
        let partial = naive_sum(&[&addresses, &[0, protocol], &length.to_be_bytes()]);
        transport[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        let bytes = if to_v6 {
            ipv4_packet(SOURCE4, DESTINATION4, protocol, DF, &transport)
        } else {
            ipv6_packet(SOURCE6, DESTINATION6, protocol, &transport)
        };
        let mut buffer = Buffer::new(&bytes);
        let start = if to_v6 { 20 } else { 40 };
        buffer.offload.checksum = ChecksumState::Partial { start, offset: u16::try_from(at).unwrap() };
        let mut packet = buffer.packet();
        if to_v6 {
            let parsed = parse_ipv4(&mut packet).unwrap();
            let to = Rewrite { destination_port: Some(Port(port)), ..to6() };
            prop_assert_eq!(translate_4to6(&mut packet, &parsed, &to, &wide()), Ok(Translated::Whole));
        } else {
            let parsed = parse_ipv6(&mut packet).unwrap();
            let to = Rewrite { destination_port: Some(Port(port)), ..to4() };
            prop_assert!(translate_6to4(&mut packet, &parsed, &to, &wide(), &mut generator()).is_ok());
        }
        let moved = if to_v6 { 40 } else { 20 };
        prop_assert_eq!(packet.offload.checksum, ChecksumState::Partial { start: moved, offset: u16::try_from(at).unwrap() });
        finish_checksum(&mut packet);
        assert_valid(packet.bytes());
    }

}

fn super_packet(length: usize) -> (Vec<u8>, Offload) {
    let mut tcp = vec![0; 20 + length];
    tcp[12] = 0x50;
    let segment_length = u16::try_from(tcp.len()).unwrap();
    let partial = naive_sum(&[&addresses4(), &[0, 6], &segment_length.to_be_bytes()]);
    tcp[16..18].copy_from_slice(&partial.to_be_bytes());
    let offload = Offload {
        segmentation: Segmentation::Tcp { size: 1440, ecn: true },
        checksum: ChecksumState::Partial { start: 20, offset: 16 },
    };
    (ipv4_packet(SOURCE4, DESTINATION4, 6, DF, &tcp), offload)
}

#[test]
fn a_super_packet_of_64_kib_is_translated_whole_and_keeps_its_segments() {
    let (bytes, offload) = super_packet(65_535 - 40);
    let mut buffer = Buffer::new(&bytes);
    buffer.offload = offload;
    let mut packet = buffer.packet();
    let parsed = parse_ipv4(&mut packet).unwrap();
    assert_eq!(translate_4to6(&mut packet, &parsed, &to6(), &TranslateSettings::default()), Ok(Translated::Whole));
    assert_eq!(packet.offload.segmentation, Segmentation::Tcp { size: 1440, ecn: true });
    assert_eq!(packet.len(), 65_555);
    let parsed = parse_ipv6(&mut packet).unwrap();
    let back = translate_6to4(&mut packet, &parsed, &to4(), &TranslateSettings::default(), &mut generator());
    assert_eq!(back, Ok(Translated::Whole));
    assert_eq!(packet.bytes()[12..], bytes[12..]);
    assert_eq!(packet.offload, offload);
    assert_eq!(packet.bytes()[6..8], [0x40, 0], "DF by the size of the segments");
}

#[test]
fn a_super_packet_whose_segments_are_too_big_is_answered_or_cut_smaller() {
    let (bytes, mut offload) = super_packet(20_000);
    offload.segmentation = Segmentation::Tcp { size: 1460, ecn: false };
    let mut buffer = Buffer::new(&bytes);
    buffer.offload = offload;
    let mut packet = buffer.packet();
    let parsed = parse_ipv4(&mut packet).unwrap();
    let refused = translate_4to6(&mut packet, &parsed, &to6(), &TranslateSettings::default()).unwrap_err();
    assert_eq!((refused.reason, refused.answer), (DropReason::TooBig, Some(IcmpAnswer::TooBig { mtu: 1480 })));
    assert_eq!(packet.bytes(), bytes, "a packet that is too big is untouched: the answer quotes it");

    let without_df = tombolo_engine::parse::Parsed { dont_fragment: false, ..parsed };
    assert_eq!(translate_4to6(&mut packet, &without_df, &to6(), &TranslateSettings::default()), Ok(Translated::Whole));
    assert_eq!(packet.offload.segmentation, Segmentation::Tcp { size: 1220, ecn: false });
}

#[test]
fn datagrams_of_a_super_packet_are_cut_and_fragmented() {
    for (to_v6, size, limit) in [(true, 1300_u16, 1280_usize), (false, 1200, 576)] {
        let payload: Vec<u8> = (0..5000_u32).map(|at| u8::try_from(at % 253).unwrap()).collect();
        let length = u16::try_from(8 + payload.len()).unwrap();
        let mut udp = vec![0, 9, 0, 10];
        udp.extend(length.to_be_bytes());
        let addresses = if to_v6 { addresses4() } else { addresses6() };
        udp.extend(naive_sum(&[&addresses, &[0, 17], &length.to_be_bytes()]).to_be_bytes());
        udp.extend(&payload);
        let bytes = if to_v6 {
            ipv4_packet(SOURCE4, DESTINATION4, 17, 0, &udp)
        } else {
            ipv6_packet(SOURCE6, DESTINATION6, 17, &udp)
        };
        let mut buffer = Buffer::new(&bytes);
        let start = if to_v6 { 20 } else { 40 };
        buffer.offload =
            Offload { segmentation: Segmentation::Udp { size }, checksum: ChecksumState::Partial { start, offset: 6 } };
        let mut packet = buffer.packet();
        let settings = TranslateSettings { ipv4_mtu: 576, ..TranslateSettings::default() };
        let translated = if to_v6 {
            let parsed = parse_ipv4(&mut packet).unwrap();
            translate_4to6(&mut packet, &parsed, &to6(), &settings).unwrap()
        } else {
            let parsed = parse_ipv6(&mut packet).unwrap();
            translate_6to4(&mut packet, &parsed, &to4(), &settings, &mut generator()).unwrap()
        };
        let mut received: Vec<u8> = Vec::new();
        let fragments = tombolo_engine::mechanism::Fragments::new(Default::default(), [1, 2], 1);
        let mut room = tombolo_engine::mechanism::Room::default();
        let mut outbox = |packet: &mut tombolo_engine::packet::Packet<'_>| {
            assert!(packet.len() <= limit);
            assert_valid(packet.bytes());
            // Whole ones are the last datagram; pieces are put together again.
            let (whole, header) = if to_v6 {
                let parsed = parse_ipv6(packet).unwrap();
                let whole = fragments.accept_ipv6(packet, &parsed, 0, &mut room).unwrap();
                let bytes = whole.map(|(whole, _)| whole.bytes().to_vec());
                (if parsed.is_piece() { bytes } else { Some(packet.bytes().to_vec()) }, 40)
            } else {
                let parsed = parse_ipv4(packet).unwrap();
                let whole = fragments.accept_ipv4(packet, &parsed, None, 0, &mut room).unwrap();
                let bytes = whole.map(|(whole, _)| whole.bytes().to_vec());
                (if parsed.is_piece() { bytes } else { Some(packet.bytes().to_vec()) }, 20)
            };
            if let Some(whole) = whole {
                assert_valid(&whole);
                assert!(whole.len() <= header + 8 + usize::from(size));
                received.extend(&whole[header + 8..]);
            }
        };
        translated.send(&mut packet, &mut outbox).unwrap();
        assert_eq!(received, payload);
    }
}

#[test]
fn datagrams_without_checksum_follow_the_settings() {
    let bytes = ipv4_packet(SOURCE4, DESTINATION4, 17, DF, &[0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4]);
    let with = |zero| {
        let mut buffer = Buffer::new(&bytes);
        let mut packet = buffer.packet();
        let parsed = parse_ipv4(&mut packet).unwrap();
        let settings = TranslateSettings { udp_zero_4to6: zero, ..TranslateSettings::default() };
        translate_4to6(&mut packet, &parsed, &to6(), &settings).map(|_| packet.bytes().to_vec())
    };
    assert_eq!(with(UdpZeroChecksum::Drop).unwrap_err().reason, DropReason::UdpChecksumZero);
    assert_valid(&with(UdpZeroChecksum::Compute).unwrap());
    assert_eq!(with(UdpZeroChecksum::Forward).unwrap()[46..48], [0, 0]);
}

#[test]
fn datagrams_without_checksum_from_ipv6_are_dropped_by_default() {
    let mut buffer = Buffer::new(&ipv6_packet(SOURCE6, DESTINATION6, 17, &[0, 1, 0, 2, 0, 8, 0, 0]));
    let mut packet = buffer.packet();
    let parsed = parse_ipv6(&mut packet).unwrap();
    let result = translate_6to4(&mut packet, &parsed, &to4(), &TranslateSettings::default(), &mut generator());
    assert_eq!(result.unwrap_err().reason, DropReason::UdpChecksumZero);
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut bytes = packet4(6, vec![0; 12].into_iter().chain([0x50, 0, 0, 0, 0, 0, 0, 0, 9, 9]).collect());
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let mut buffer = Buffer::new(&bytes);
    let mut packet = buffer.packet();
    let parsed = parse_ipv4(&mut packet).unwrap();
    assert!(translate_4to6(&mut packet, &parsed, &to6(), &TranslateSettings::default()).is_ok());
    let sum = naive_sum(&[&packet.bytes()[8..40], &[0, 6, 0, 22], &packet.bytes()[40..]]);
    assert_ne!(sum, 0xffff);
}
