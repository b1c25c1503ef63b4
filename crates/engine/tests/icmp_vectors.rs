//! ICMP mapping, MTU and error-packet vectors (RFC 7915 sections 4.2, 4.3, 5.2, 5.3).

#![expect(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

mod bytes;

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::{Buffer, assert_valid, hex, ipv4_packet, ipv6_packet, naive_sum, run_vectors, write_transport_checksum};
use serde_json::Value;
use tombolo_engine::mechanism::icmp::{map_error_4to6, map_error_6to4};
use tombolo_engine::mechanism::mtu::{
    GROWTH, clamp_segment_size, segment_size_of_softwire, segment_size_of_translation, too_big_4to6, too_big_6to4,
};
use tombolo_engine::mechanism::screen::{screen_ipv4, screen_ipv6};
use tombolo_engine::mechanism::{
    ErrorRewrite, IcmpAnswer, IdentificationGenerator, Rewrite, TranslateSettings, Translated, translate_4to6,
    translate_6to4, translate_error_4to6, translate_error_6to4,
};
use tombolo_engine::packet::{ChecksumState, Packet};
use tombolo_engine::parse::{Parsed, Payload, parse_ipv4, parse_ipv6};
use tombolo_engine::verdict::DropReason;
use tombolo_wire::Prefix64;

fn pool6() -> Prefix64 {
    "2001:db8:122:344::/96".parse().unwrap()
}

fn generator() -> IdentificationGenerator {
    IdentificationGenerator::new([1, 2], 0, 1)
}

fn rewrite6(pool6: Prefix64, parsed: &Parsed<Ipv4Addr>) -> Rewrite<Ipv6Addr> {
    Rewrite::addresses(pool6.embed(parsed.source), pool6.embed(parsed.destination))
}

fn rewrite4(pool6: Prefix64, parsed: &Parsed<Ipv6Addr>) -> Rewrite<Ipv4Addr> {
    Rewrite::addresses(pool6.extract(parsed.source).unwrap(), pool6.extract(parsed.destination).unwrap())
}

/// Translates a packet the way a stateless service does, errors included.
fn to6(packet: &mut Packet<'_>, pool6: Prefix64, settings: &TranslateSettings) -> Result<(), DropReason> {
    let parsed = parse_ipv4(packet)?;
    screen_ipv4(&parsed).map_err(|refusal| refusal.reason)?;
    let Rewrite { source, destination, .. } = rewrite6(pool6, &parsed);
    if parsed.payload != Payload::IcmpError {
        let to = Rewrite::addresses(source, destination);
        return translate_4to6(packet, &parsed, &to, settings).map(|_| ()).map_err(|refusal| refusal.reason);
    }
    let embedded = parsed.embedded(packet)?;
    let to = ErrorRewrite { source, destination, embedded: rewrite6(pool6, &embedded), node: None };
    translate_error_4to6(packet, &parsed, &embedded, &to, settings)
}

fn to4(packet: &mut Packet<'_>, pool6: Prefix64, settings: &TranslateSettings) -> Result<(), DropReason> {
    let parsed = parse_ipv6(packet)?;
    screen_ipv6(&parsed).map_err(|refusal| refusal.reason)?;
    let Rewrite { source, destination, .. } = rewrite4(pool6, &parsed);
    if parsed.payload != Payload::IcmpError {
        let to = Rewrite::addresses(source, destination);
        let translated = translate_6to4(packet, &parsed, &to, settings, &mut generator());
        return translated.map(|_| ()).map_err(|refusal| refusal.reason);
    }
    let embedded = parsed.embedded(packet)?;
    let to = ErrorRewrite { source, destination, embedded: rewrite4(pool6, &embedded), node: None };
    translate_error_6to4(packet, &parsed, &embedded, &to, settings, &mut generator())
}

const A4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const B4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// UDP from B to A, 40 bytes of IPv4.
fn inner4() -> Vec<u8> {
    let mut udp = vec![0x9c, 0x40, 0, 53, 0, 20, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    write_transport_checksum(&mut udp, 6, 17, &[B4.octets(), A4.octets()].concat());
    ipv4_packet(B4, A4, 17, 0x4000, &udp)
}

fn inner6() -> Vec<u8> {
    let (a, b) = (pool6().embed(A4), pool6().embed(B4));
    let mut udp = vec![0x9c, 0x40, 0, 53, 0, 20, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    write_transport_checksum(&mut udp, 6, 17, &[b.octets(), a.octets()].concat());
    ipv6_packet(b, a, 17, &udp)
}

fn message4(kind: u8, code: u8, rest: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(body);
    let checksum = !naive_sum(&[&message]);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    ipv4_packet(A4, B4, 1, 0, &message)
}

fn message6(kind: u8, code: u8, rest: u32, body: &[u8]) -> Vec<u8> {
    let (a, b) = (pool6().embed(A4), pool6().embed(B4));
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(body);
    write_transport_checksum(&mut message, 2, 58, &[a.octets(), b.octets()].concat());
    ipv6_packet(a, b, 58, &message)
}

fn translate4(kind: u8, code: u8, rest: u32, body: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut buffer = Buffer::new(&message4(kind, code, rest, body));
    let mut packet = buffer.packet();
    to6(&mut packet, pool6(), &TranslateSettings::default())?;
    assert_valid(packet.bytes());
    Ok(packet.bytes().to_vec())
}

fn translate6(kind: u8, code: u8, rest: u32, body: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut buffer = Buffer::new(&message6(kind, code, rest, body));
    let mut packet = buffer.packet();
    to4(&mut packet, pool6(), &TranslateSettings::default())?;
    assert_valid(packet.bytes());
    Ok(packet.bytes().to_vec())
}

/// The numbers that a vector's type or code stands for: one, a list, a range, or all.
fn numbers(value: &Value) -> Vec<u8> {
    let all = || (0..=255).collect();
    match value {
        Value::Number(number) => vec![u8::try_from(number.as_u64().unwrap()).unwrap()],
        Value::Array(list) => list.iter().flat_map(numbers).collect(),
        Value::String(text) if text == "any" => all(),
        Value::String(text) => text
            .split(',')
            .flat_map(|part| {
                let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
                first.parse::<u8>().unwrap()..=last.parse().unwrap()
            })
            .collect(),
        _ => panic!("{value}"),
    }
}

#[test]
fn types_and_codes_map_as_listed() {
    let is_row = |case: &Value| case.get("in_type").is_some();
    let count = run_vectors("icmp_map", is_row, |case| {
        let to_v6 = case["direction"] == "4to6";
        if case["in_type"].as_str().is_some_and(|text| text.starts_with("IGMP")) {
            let mut buffer = Buffer::new(&ipv4_packet(A4, B4, 2, 0, &[0x16; 8]));
            let result = to6(&mut buffer.packet(), pool6(), &TranslateSettings::default());
            assert_eq!(result, Err(DropReason::UnsupportedProtocol));
            return;
        }
        for kind in numbers(&case["in_type"]) {
            for code in numbers(&case["in_code"]) {
                let pointer = u32::try_from(case["in_pointer"].as_u64().unwrap_or(0)).unwrap();
                let is_too_big = if to_v6 { (kind, code) == (3, 4) } else { kind == 2 };
                let rest = match (to_v6, is_too_big) {
                    (_, true) => 1400,
                    (true, _) => pointer << 24,
                    (false, _) => pointer,
                };
                let result = if to_v6 {
                    translate4(kind, code, rest, &inner4())
                } else {
                    translate6(kind, code, rest, &inner6())
                };
                if case["action"] == "drop" {
                    assert!(result.is_err(), "{kind}/{code} {pointer}");
                    continue;
                }
                let out = result.unwrap();
                let out = if to_v6 { &out[40..] } else { &out[20..] };
                assert_eq!(u64::from(out[0]), case["out_type"].as_u64().unwrap(), "{kind}/{code}");
                let expected_code = case["out_code"].as_u64().unwrap_or_else(|| u64::from(code));
                assert_eq!(u64::from(out[1]), expected_code, "{kind}/{code}");
                let pointer_out = case.get("pointer_out").or_else(|| case.get("out_pointer")).and_then(Value::as_u64);
                if let Some(pointer_out) = pointer_out {
                    let word = u32::from_be_bytes(out[4..8].try_into().unwrap());
                    assert_eq!(u64::from(if to_v6 { word } else { word >> 24 }), pointer_out);
                }
            }
        }
    });
    assert!(count > 150, "{count}");
}

#[test]
fn conditions_in_words_hold() {
    // Error about an error, both ways.
    assert_eq!(translate4(3, 1, 0, &message4(11, 0, 0, &inner4())), Err(DropReason::IcmpErrorUnusable));
    assert_eq!(translate6(1, 0, 0, &message6(3, 0, 0, &inner6())), Err(DropReason::IcmpErrorUnusable));
    // Errors from sources that are otherwise illegal.
    for source in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST] {
        let mut message = message4(11, 0, 0, &inner4()).split_off(20);
        let mut buffer = Buffer::new(&ipv4_packet(source, B4, 1, 0, &message));
        assert_eq!(to6(&mut buffer.packet(), pool6(), &TranslateSettings::default()), Ok(()));
        message[0] = 8;
        let mut buffer = Buffer::new(&ipv4_packet(source, B4, 1, 0, &message));
        let result = to6(&mut buffer.packet(), pool6(), &TranslateSettings::default());
        assert_eq!(result, Err(DropReason::IllegalSource));
    }
    // Damaged errors.
    let mut damaged = message4(3, 1, 0, &inner4());
    damaged[50] ^= 1;
    let mut buffer = Buffer::new(&damaged);
    assert_eq!(to6(&mut buffer.packet(), pool6(), &TranslateSettings::default()), Err(DropReason::BadChecksum));
    let mut damaged = message6(1, 1, 0, &inner6());
    damaged[90] ^= 1;
    let mut buffer = Buffer::new(&damaged);
    assert_eq!(to4(&mut buffer.packet(), pool6(), &TranslateSettings::default()), Err(DropReason::BadChecksum));
    // Fragmented messages.
    for word in [0x2000, 3] {
        let message = message4(8, 0, 0, &[0; 16]).split_off(20);
        let mut buffer = Buffer::new(&ipv4_packet(A4, B4, 1, word, &message));
        let result = to6(&mut buffer.packet(), pool6(), &TranslateSettings::default());
        assert_eq!(result, Err(DropReason::FragmentUntranslatable));
    }
}

#[test]
fn error_packets_become_the_expected_bytes() {
    let names = ["ICMPv4 ", "ICMPv6 packet too big", "ICMPv6 time"];
    let is_error = |case: &Value| {
        case["kind"] == "packet"
            && case["name"].as_str().is_some_and(|name| names.iter().any(|start| name.starts_with(start)))
    };
    let count = run_vectors("checksum", is_error, |case| {
        let pool6 = case["pool6"].as_str().unwrap().parse().unwrap();
        let mut buffer = Buffer::new(&hex(case, "in"));
        let mut packet = buffer.packet();
        let settings = TranslateSettings::default();
        let mut expected = hex(case, "out");
        if case["direction"] == "4to6" {
            to6(&mut packet, pool6, &settings).unwrap();
        } else {
            to4(&mut packet, pool6, &settings).unwrap();
            // The outer identification is the generator's.
            packet.bytes_mut()[4..6].fill(0);
            packet.bytes_mut()[10..12].fill(0);
            expected[10..12].fill(0);
        }
        assert_eq!(packet.bytes(), expected);
    });
    assert_eq!(count, 6);
}

fn field(case: &Value, key: &str) -> u32 {
    u32::try_from(case[key].as_u64().unwrap_or_else(|| panic!("no {key}"))).unwrap()
}

fn links(case: &Value) -> TranslateSettings {
    let (ipv6_mtu, ipv4_mtu) = (field(case, "ipv6_nexthop_mtu"), field(case, "ipv4_nexthop_mtu"));
    TranslateSettings { ipv6_mtu, ipv4_mtu, ..TranslateSettings::default() }
}

#[test]
fn reported_sizes_are_translated() {
    let is = |kind: &'static str| move |case: &Value| case["kind"] == kind;
    let check_4to6 = |case: &Value| {
        let mtu = u16::try_from(field(case, "icmp4_mtu")).unwrap();
        let reported = too_big_4to6(mtu, field(case, "inner_total_length"), &links(case));
        assert_eq!(reported, field(case, "expect_icmp6_mtu"));
    };
    assert_eq!(run_vectors("mtu", is("ptb_4to6"), check_4to6), 21);
    assert_eq!(run_vectors("mtu", is("ptb_4to6_plateau"), check_4to6), 15);
    let check_6to4 = |case: &Value| {
        let reported = too_big_6to4(field(case, "icmp6_mtu"), GROWTH, &links(case));
        assert_eq!(reported.map(u32::from), Some(field(case, "expect_icmp4_mtu")));
    };
    assert_eq!(run_vectors("mtu", is("ptb_6to4"), check_6to4), 14);
    let check_invalid = |case: &Value| assert_eq!(too_big_6to4(field(case, "icmp6_mtu"), GROWTH, &links(case)), None);
    assert_eq!(run_vectors("mtu", is("ptb_6to4_invalid"), check_invalid), 4);
}

#[test]
fn segment_sizes_are_clamped() {
    let clamp = |limit: u16, announced: u32| {
        let announced = u16::try_from(announced).unwrap();
        let mut segment = vec![0; 20];
        segment[12] = 0x60;
        segment[13] = 2;
        segment.extend([2, 4]);
        segment.extend(announced.to_be_bytes());
        clamp_segment_size(&mut segment, limit, ChecksumState::Complete);
        u32::from(u16::from_be_bytes([segment[22], segment[23]]))
    };
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "mss_clamp_nat64",
        |case| {
            let limit = segment_size_of_translation(field(case, "ipv4_mtu"), field(case, "ipv6_mtu"));
            assert_eq!(clamp(limit, field(case, "mss_in")), field(case, "expect_mss"));
        },
    );
    assert_eq!(count, 5);
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "mss_clamp_softwire",
        |case| {
            let limit = segment_size_of_softwire(field(case, "ipv6_mtu"));
            assert_eq!(clamp(limit, field(case, "mss_in")), field(case, "expect_mss"));
        },
    );
    assert_eq!(count, 4);
}

/// Protocol 253 of a given size, with options.
fn sized4(total: u32, ihl: u32, word: u16) -> Vec<u8> {
    let mut bytes = ipv4_packet(A4, B4, 253, word, &vec![1; total as usize - 20]);
    bytes[0] = 0x40 | u8::try_from(ihl).unwrap();
    bytes[10..12].fill(0);
    let checksum = !naive_sum(&[&bytes[..ihl as usize * 4]]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Sends what `translate` says and returns the packets.
fn send(translated: Translated, packet: &mut Packet<'_>) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    translated.send(packet, &mut |packet: &mut Packet<'_>| sent.push(packet.bytes().to_vec())).unwrap();
    for packet in &sent {
        assert_valid(packet);
    }
    sent
}

#[test]
fn packets_with_df_fit_or_are_answered() {
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "df_set_4to6",
        |case| {
            let mut buffer = Buffer::new(&sized4(field(case, "ipv4_total_length"), field(case, "ihl"), 0x4000));
            let mut packet = buffer.packet();
            let parsed = parse_ipv4(&mut packet).unwrap();
            let settings =
                TranslateSettings { ipv6_mtu: field(case, "ipv6_nexthop_mtu"), ..TranslateSettings::default() };
            let result = translate_4to6(&mut packet, &parsed, &rewrite6(pool6(), &parsed), &settings);
            if case["expect"].as_str().unwrap().starts_with("forward") {
                assert_eq!(result, Ok(Translated::Whole));
                assert_eq!(packet.len(), field(case, "translated_size") as usize);
                assert_eq!(packet.bytes()[6], 253, "no Fragment header");
            } else {
                let refusal = result.unwrap_err();
                assert_eq!(refusal.answer, Some(IcmpAnswer::TooBig { mtu: field(case, "expect_mtu") }));
            }
        },
    );
    assert_eq!(count, 10);
}

#[test]
fn packets_without_df_are_cut_to_the_lowest_ipv6_mtu() {
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "df_clear_4to6",
        |case| {
            let more = if field(case, "mf") == 1 { 0x2000 } else { 0 };
            let word = u16::try_from(field(case, "fragment_offset_units")).unwrap() | more;
            let mut buffer = Buffer::new(&sized4(field(case, "ipv4_total_length"), field(case, "ihl"), word));
            let mut packet = buffer.packet();
            let parsed = parse_ipv4(&mut packet).unwrap();
            let settings = TranslateSettings {
                lowest_ipv6_mtu: field(case, "lowest_ipv6_mtu"),
                ipv6_mtu: 9000,
                ..TranslateSettings::default()
            };
            let translated = translate_4to6(&mut packet, &parsed, &rewrite6(pool6(), &parsed), &settings).unwrap();
            let sent = send(translated, &mut packet);
            let expected = case["expect"].as_array().unwrap();
            assert_eq!(sent.len(), expected.len());
            for (sent, expected) in sent.iter().zip(expected) {
                assert_eq!(sent.len(), field(expected, "ipv6_size") as usize);
                if expected["fragment_header"] == false {
                    assert_eq!(sent[6], 253);
                    continue;
                }
                let word = u16::from_be_bytes([sent[42], sent[43]]);
                assert_eq!((sent[6], sent[40]), (44, 253));
                assert_eq!(u32::from(word >> 3), field(expected, "fragment_offset_units"));
                assert_eq!(u32::from(word & 1), field(expected, "m_flag"));
                assert_eq!(sent[44..48], [0, 0, 0x12, 0x34]);
            }
        },
    );
    assert_eq!(count, 11);
}

fn sized6(case: &Value) -> Vec<u8> {
    let size = field(case, "ipv6_total_size") as usize;
    let (a, b) = (pool6().embed(A4), pool6().embed(B4));
    if case["has_fragment_header"] == false {
        return ipv6_packet(a, b, 253, &vec![1; size - 40]);
    }
    let offset = case["fragment_offset_units"].as_u64().unwrap_or(0);
    let word = u16::try_from(offset << 3 | case["m_flag"].as_u64().unwrap_or(0)).unwrap();
    let mut payload = vec![253, 0];
    payload.extend(word.to_be_bytes());
    payload.extend([0x12, 0x34, 0x56, 0x78]);
    payload.extend(vec![1; size - 48]);
    ipv6_packet(a, b, 44, &payload)
}

#[test]
fn flags_and_identification_of_ipv4_follow_the_size_and_the_fragment_header() {
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "df_6to4",
        |case| {
            let mut buffer = Buffer::new(&sized6(case));
            let mut packet = buffer.packet();
            let parsed = parse_ipv6(&mut packet).unwrap();
            let settings = TranslateSettings { ipv4_mtu: 9000, ..TranslateSettings::default() };
            let to = rewrite4(pool6(), &parsed);
            assert_eq!(translate_6to4(&mut packet, &parsed, &to, &settings, &mut generator()), Ok(Translated::Whole));
            assert_valid(packet.bytes());
            let word = u16::from_be_bytes([packet.bytes()[6], packet.bytes()[7]]);
            assert_eq!(packet.len(), field(case, "ipv4_total_length") as usize);
            assert_eq!(u32::from(word >> 14), field(case, "expect_df"));
            assert_eq!(u32::from(word >> 13 & 1), field(case, "expect_mf"));
            assert_eq!(u32::from(word & 0x1fff), field(case, "expect_fragment_offset"));
            if case["identification"] == "0x5678" {
                assert_eq!(packet.bytes()[4..6], [0x56, 0x78]);
            }
        },
    );
    assert_eq!(count, 10);
}

#[test]
fn packets_to_small_ipv4_links_are_cut_or_answered() {
    let count = run_vectors(
        "mtu",
        |case| case["kind"] == "size_6to4",
        |case| {
            let mut buffer = Buffer::new(&sized6(case));
            let mut packet = buffer.packet();
            let parsed = parse_ipv6(&mut packet).unwrap();
            let settings =
                TranslateSettings { ipv4_mtu: field(case, "ipv4_nexthop_mtu"), ..TranslateSettings::default() };
            let result = translate_6to4(&mut packet, &parsed, &rewrite4(pool6(), &parsed), &settings, &mut generator());
            match case["expect"].as_str().unwrap() {
                "forward" => assert_eq!(result, Ok(Translated::Whole)),
                "fragment in IPv4" => {
                    let sent = send(result.unwrap(), &mut packet);
                    if let Some(count) = case["fragment_count"].as_u64() {
                        assert_eq!(sent.len() as u64, count);
                        return;
                    }
                    let expected = case["fragments"].as_array().unwrap();
                    assert_eq!(sent.len(), expected.len());
                    for (sent, expected) in sent.iter().zip(expected) {
                        let word = u16::from_be_bytes([sent[6], sent[7]]);
                        assert_eq!(sent.len(), field(expected, "total_length") as usize);
                        assert_eq!(u32::from(word & 0x1fff), field(expected, "fragment_offset_units"));
                        assert_eq!(u32::from(word >> 13), field(expected, "mf"), "MF, and never DF");
                    }
                }
                _ => {
                    let mtu = field(case, "expect_mtu");
                    assert_eq!(result.unwrap_err().answer, Some(IcmpAnswer::TooBig { mtu }));
                }
            }
        },
    );
    assert_eq!(count, 13);
}

#[test]
fn the_pure_maps_agree_with_the_packets() {
    let settings = TranslateSettings::default();
    assert_eq!(map_error_4to6(3, 2, 0, 60, &settings).unwrap().rest, 6);
    assert!(map_error_6to4(2, 0, 1279, GROWTH, &settings).is_err());
}

/// Body of `length` bytes in which the embedded packet says that it is `claimed` bytes long.
fn cut_inner4(length: usize, claimed: u16) -> Vec<u8> {
    let mut inner = inner4();
    inner[2..4].copy_from_slice(&claimed.to_be_bytes());
    inner[10..12].fill(0);
    let checksum = !naive_sum(&[&inner[..20]]);
    inner[10..12].copy_from_slice(&checksum.to_be_bytes());
    inner.resize(length, 0x77);
    inner
}

#[test]
fn a_long_error_is_cut_at_1280_and_at_576_and_the_embedded_length_is_kept() {
    let out = translate4(11, 0, 0, &cut_inner4(1472, 1500)).unwrap();
    assert_eq!(out.len(), 1280);
    assert_eq!(out[48 + 4..48 + 6], 1480_u16.to_be_bytes());
    let mut inner = inner6();
    inner[4..6].copy_from_slice(&1460_u16.to_be_bytes());
    inner.resize(1232, 0x77);
    let out = translate6(3, 0, 0, &inner).unwrap();
    assert_eq!(out.len(), 576);
    assert_eq!(out[28 + 2..28 + 4], 1480_u16.to_be_bytes());
}

#[test]
fn an_embedded_packet_of_eight_bytes_gets_ports_and_no_more() {
    let mut tcp = vec![0x9c, 0x40, 0, 80, 1, 2, 3, 4];
    let inner = ipv4_packet(B4, A4, 6, 0x4000, &tcp);
    let mut buffer = Buffer::new(&message4(3, 3, 0, &inner));
    let mut packet = buffer.packet();
    let parsed = parse_ipv4(&mut packet).unwrap();
    let embedded = parsed.embedded(&packet).unwrap();
    let mut inner_to = rewrite6(pool6(), &embedded);
    inner_to.source_port = Some(tombolo_wire::Port(7));
    let Rewrite { source, destination, .. } = rewrite6(pool6(), &parsed);
    let to = ErrorRewrite { source, destination, embedded: inner_to, node: None };
    translate_error_4to6(&mut packet, &parsed, &embedded, &to, &TranslateSettings::default()).unwrap();
    assert_valid(packet.bytes());
    tcp[..2].copy_from_slice(&[0, 7]);
    assert_eq!(packet.bytes()[88..], tcp);
}

#[test]
fn an_embedded_fragment_gets_a_fragment_header_and_loses_it_again() {
    let inner = ipv4_packet(B4, A4, 17, 0x2000 | 5, &[9; 16]);
    let out = translate4(11, 1, 0, &inner).unwrap();
    let embedded = &out[48..];
    assert_eq!((embedded[6], embedded[40]), (44, 17));
    assert_eq!(embedded[42..48], [0, 5 << 3 | 1, 0, 0, 0x12, 0x34]);
    let back = translate6(3, 1, 0, embedded).unwrap();
    assert_eq!(back[28..], inner);
}

#[test]
fn extensions_move_with_their_lengths() {
    let extension = [0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4];
    // T33: 132 bytes are 33 units of 4; 20 more are 19 units of 8; and back.
    let mut body = cut_inner4(132, 1500);
    body.extend(extension);
    let out = translate4(11, 0, 33 << 16, &body).unwrap();
    assert_eq!((out[44], out.len()), (19, 48 + 152 + 12));
    assert_eq!(out[48 + 152..], extension);
    let back = translate6(3, 0, 19 << 24, &out[48..]).unwrap();
    assert_eq!((back[25], back.len()), (33, 28 + 132 + 12));
    assert_eq!(back[28 + 132..], extension);
    // T27: a parameter problem of ICMPv6 cannot carry one.
    let out = translate4(3, 2, 33 << 16, &body).unwrap();
    assert_eq!((out.len(), &out[44..48]), (48 + 152, &[0, 0, 0, 6][..]));
    // Padding in front of an extension is no part of the packet.
    let mut body = inner4();
    body.resize(128, 0);
    body.extend(extension);
    let out = translate4(11, 0, 32 << 16, &body).unwrap();
    assert_eq!((out[44], out.len()), (16, 48 + 128 + 12));
    assert!(out[48 + 60..48 + 128].iter().all(|&byte| byte == 0));
}

#[test]
fn a_node_without_ipv4_address_is_named_in_an_extension() {
    let mut buffer = Buffer::new(&message6(3, 0, 0, &inner6()));
    let mut packet = buffer.packet();
    let parsed = parse_ipv6(&mut packet).unwrap();
    let embedded = parsed.embedded(&packet).unwrap();
    let Rewrite { source, destination, .. } = rewrite4(pool6(), &parsed);
    let node = "2001:db8:ffff::1".parse::<Ipv6Addr>().unwrap();
    let to = ErrorRewrite { source, destination, embedded: rewrite4(pool6(), &embedded), node: Some(node) };
    translate_error_6to4(&mut packet, &parsed, &embedded, &to, &TranslateSettings::default(), &mut generator())
        .unwrap();
    assert_valid(packet.bytes());
    let out = packet.bytes();
    assert_eq!((out[25], out.len()), (32, 28 + 128 + 28));
    assert_eq!(naive_sum(&[&out[156..]]), 0xffff);
    assert_eq!(out[168..184], node.octets());
}
