//! Translation there and back: what comes back carries what was sent, and what was right stays
//! right.
//!
//! Kept: transport and payload (the checksum but for zero and its twin), protocol, TOS, more or
//! less two hops. Lost, as RFC 7915 wants it: IPv4 options, IPv6 extension headers and the flow
//! label.

#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use tombolo_engine::mechanism::screen::{screen_ipv4, screen_ipv6};
use tombolo_engine::mechanism::{
    ErrorRewrite, IdentificationGenerator, Rewrite, TranslateSettings, Translated, UdpZeroChecksum, translate_4to6,
    translate_6to4, translate_error_4to6, translate_error_6to4,
};
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::parse::{AnyParsed, Parsed, Payload, parse};
use tombolo_fuzz::{LATER, REPAIR, SEGMENTS, check_structure, layout, packets, repair, transport_verifies};
use tombolo_wire::Prefix64;

fuzz_target!(|data: &[u8]| {
    let Some((_, data)) = data.split_first() else { return };
    let mut identifications = IdentificationGenerator::new([1, 2], 0, 1);
    for (control, bytes) in packets(data) {
        let mut bytes = bytes.to_vec();
        if control & REPAIR != 0 {
            repair(&mut bytes);
        }
        let ipv4_mtu = if control & LATER != 0 { 576 } else { 1500 };
        let lowest_ipv6_mtu = if control & SEGMENTS != 0 { 1400 } else { 1280 };
        let settings = TranslateSettings {
            ipv4_mtu,
            lowest_ipv6_mtu,
            udp_zero_4to6: UdpZeroChecksum::Compute,
            udp_zero_6to4: UdpZeroChecksum::Forward,
            ..TranslateSettings::default()
        };
        there_and_back(&bytes, &settings, &mut identifications);
    }
});

fn there_and_back(bytes: &[u8], settings: &TranslateSettings, identifications: &mut IdentificationGenerator) {
    let mut buffer = buffer(bytes);
    let Some(mut packet) = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()) else { return };
    match parse(&mut packet) {
        Ok(AnyParsed::V4(parsed)) if screen_ipv4(&parsed).is_ok() => {
            let original = packet.bytes().to_vec();
            if parsed.payload == Payload::IcmpError {
                return error_to6(&mut packet, &parsed, settings);
            }
            let mut sent = Vec::new();
            let to = Rewrite::addresses(embed(parsed.source), embed(parsed.destination));
            let Ok(translated) = translate_4to6(&mut packet, &parsed, &to, settings) else { return };
            if collect(translated, &mut packet, &mut sent) {
                assert!(sent.iter().all(|piece| piece.len() <= 1500));
                let back: Vec<_> = sent.iter().map(|piece| back_to4(piece, settings, identifications)).collect();
                compare(&original, parsed.is_piece(), &sent, &back);
            }
        }
        Ok(AnyParsed::V6(parsed)) if screen_ipv6(&parsed).is_ok() => {
            if parsed.payload == Payload::IcmpError {
                return error_to4(&mut packet, &parsed, settings, identifications);
            }
            let original = packet.bytes().to_vec();
            let mut sent = Vec::new();
            let to = Rewrite::addresses(extract(parsed.source), extract(parsed.destination));
            let Ok(translated) = translate_6to4(&mut packet, &parsed, &to, settings, identifications) else { return };
            if collect(translated, &mut packet, &mut sent) {
                assert!(sent.iter().all(|piece| piece.len() <= settings.ipv4_mtu as usize));
                let back: Vec<_> =
                    sent.iter().map(|piece| back_to6(piece, parsed.source, parsed.destination, settings)).collect();
                compare(&original, parsed.is_piece(), &sent, &back);
            }
        }
        _ => {}
    }
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0xee; HEADROOM];
    buffer.extend_from_slice(bytes);
    buffer.resize(buffer.len() + 256, 0xdd);
    buffer
}

/// What leaves, checked; false if it could not leave.
fn collect(translated: Translated, packet: &mut Packet<'_>, sent: &mut Vec<Vec<u8>>) -> bool {
    let mut outbox = |packet: &mut Packet<'_>| {
        check_structure(packet.bytes());
        sent.push(packet.bytes().to_vec());
    };
    translated.send(packet, &mut outbox).is_ok()
}

fn back_to4(piece: &[u8], settings: &TranslateSettings, identifications: &mut IdentificationGenerator) -> Vec<Vec<u8>> {
    let (mut buffer, mut sent) = (buffer(piece), Vec::new());
    let mut packet = Packet::new(&mut buffer, HEADROOM, piece.len(), Offload::default()).expect("it fits");
    let parsed = match parse(&mut packet) {
        Ok(AnyParsed::V6(parsed)) => parsed,
        other => panic!("what was sent is no packet: {other:?}"),
    };
    // A packet that arrived with one hop has none left; what RFC 7915 does not let through is not
    // sent twice either.
    if screen_ipv6(&parsed).is_err() {
        return sent;
    }
    let to = Rewrite::addresses(extract(parsed.source), extract(parsed.destination));
    if let Ok(translated) = translate_6to4(&mut packet, &parsed, &to, settings, identifications) {
        collect(translated, &mut packet, &mut sent);
    }
    sent
}

fn back_to6(piece: &[u8], source: Ipv6Addr, destination: Ipv6Addr, settings: &TranslateSettings) -> Vec<Vec<u8>> {
    let (mut buffer, mut sent) = (buffer(piece), Vec::new());
    let mut packet = Packet::new(&mut buffer, HEADROOM, piece.len(), Offload::default()).expect("it fits");
    let parsed = match parse(&mut packet) {
        Ok(AnyParsed::V4(parsed)) => parsed,
        other => panic!("what was sent is no packet: {other:?}"),
    };
    if screen_ipv4(&parsed).is_err() {
        return sent;
    }
    if let Ok(translated) = translate_4to6(&mut packet, &parsed, &Rewrite::addresses(source, destination), settings) {
        collect(translated, &mut packet, &mut sent);
    }
    sent
}

/// What crossed twice against the original. `between` is what was between, `back` what became of
/// each of it.
fn compare(original: &[u8], is_piece: bool, between: &[Vec<u8>], back: &[Vec<Vec<u8>>]) {
    let before = layout(original).expect("it was parsed");
    if let (Some(true), [one]) = (transport_verifies(original), between) {
        assert_ne!(transport_verifies(one), Some(false), "a right checksum became wrong");
    }
    // A fragment may be too big for the way back, and its sisters not.
    if back.iter().any(Vec::is_empty) {
        return;
    }
    let back: Vec<_> = back.iter().flatten().collect();
    let head = |bytes: &[u8]| match bytes[0] >> 4 {
        4 => (bytes[1], bytes[8]),
        _ => (bytes[0] << 4 | bytes[1] >> 4, bytes[7]),
    };
    let mut pieces = Vec::new();
    for packet in back {
        let found = layout(packet).expect("it was checked");
        assert_eq!((found.version, found.protocol), (before.version, before.protocol));
        assert_eq!(head(packet).0, head(original).0, "traffic class");
        assert_eq!(i32::from(head(packet).1), i32::from(head(original).1) - 2, "hop limit");
        pieces.push((offset(packet), &packet[found.transport..]));
    }
    pieces.sort_by_key(|(offset, _)| *offset);
    let first = offset(original);
    let mut transport = Vec::new();
    for (offset, bytes) in pieces {
        assert_eq!(offset, first + transport.len(), "a hole, or an overlap");
        transport.extend_from_slice(bytes);
    }
    let mut expected = original[before.transport..].to_vec();
    assert_eq!(transport.len(), expected.len());
    if let Some(at) = transport_checksum(before.protocol, before.version).filter(|_| first == 0) {
        if at + 2 <= expected.len() {
            let (found, sent) = (word(&transport, at), word(&expected, at));
            let computed = before.protocol == 17 && sent == 0;
            // Zero has two faces in one's complement, and a fragment's missing end has no say in
            // it.
            let twins = |word: u16| if word == 0xffff { 0 } else { word };
            assert!(computed || twins(found) == twins(sent), "checksum {sent:04x} became {found:04x}");
            transport[at..at + 2].copy_from_slice(&expected[at..at + 2]);
        }
    } else {
        assert!(is_piece || first == 0);
    }
    expected.truncate(transport.len());
    assert_eq!(transport, expected, "the payload changed");
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

const fn transport_checksum(protocol: u8, version: u8) -> Option<usize> {
    match (protocol, version) {
        (6, _) => Some(16),
        (17, _) => Some(6),
        (1, 4) | (58, 6) => Some(2),
        _ => None,
    }
}

/// Offset of a fragment in bytes.
fn offset(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 {
        return usize::from(word(packet, 6) & 0x1fff) * 8;
    }
    let (mut next, mut at) = (packet[6], 40);
    while let 0 | 43 | 60 = next {
        (next, at) = (packet[at], at + 8 + usize::from(packet[at + 1]) * 8);
    }
    if next == 44 { usize::from(word(packet, at + 2) & 0xfff8) } else { 0 }
}

fn error_to6(packet: &mut Packet<'_>, parsed: &Parsed<Ipv4Addr>, settings: &TranslateSettings) {
    let Ok(embedded) = parsed.embedded(packet) else { return };
    let to = ErrorRewrite {
        source: embed(parsed.source),
        destination: embed(parsed.destination),
        embedded: Rewrite::addresses(embed(embedded.source), embed(embedded.destination)),
        node: None,
    };
    if translate_error_4to6(packet, parsed, &embedded, &to, settings).is_ok() {
        check_structure(packet.bytes());
        assert!(packet.len() <= 1280, "an ICMPv6 error of {} bytes", packet.len());
        assert_eq!(transport_verifies(packet.bytes()), Some(true));
    }
}

fn error_to4(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    settings: &TranslateSettings,
    identifications: &mut IdentificationGenerator,
) {
    let Ok(embedded) = parsed.embedded(packet) else { return };
    let to = ErrorRewrite {
        source: extract(parsed.source),
        destination: extract(parsed.destination),
        embedded: Rewrite::addresses(extract(embedded.source), extract(embedded.destination)),
        node: Some(parsed.source),
    };
    if translate_error_6to4(packet, parsed, &embedded, &to, settings, identifications).is_ok() {
        check_structure(packet.bytes());
        assert!(packet.len() <= 576, "an ICMP error of {} bytes", packet.len());
        assert_eq!(transport_verifies(packet.bytes()), Some(true));
    }
}

fn embed(address: Ipv4Addr) -> Ipv6Addr {
    Prefix64::WELL_KNOWN.embed(address)
}

/// Some IPv4 address for an IPv6 address, one that may be used.
fn extract(address: Ipv6Addr) -> Ipv4Addr {
    Prefix64::WELL_KNOWN.extract(address).unwrap_or_else(|| {
        let [.., b, c, d] = address.octets();
        Ipv4Addr::new(198, b, c, d)
    })
}
