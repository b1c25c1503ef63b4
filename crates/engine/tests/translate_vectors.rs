//! Whole packets from `tests/vectors/checksum.json` (RFC 7915 sections 4 and 5, RFC 6052).

#![expect(clippy::unwrap_used, reason = "a vector that cannot be read fails its test")]

mod bytes;

use bytes::{Buffer, assert_valid, hex, run_vectors};
use serde_json::Value;
use tombolo_engine::mechanism::{
    IdentificationGenerator, Rewrite, TranslateSettings, Translated, UdpZeroChecksum, translate_4to6, translate_6to4,
};
use tombolo_engine::packet::Packet;
use tombolo_engine::parse::{Payload, parse_ipv4, parse_ipv6};
use tombolo_wire::Prefix64;

fn settings() -> TranslateSettings {
    TranslateSettings { udp_zero_4to6: UdpZeroChecksum::Compute, ..TranslateSettings::default() }
}

fn pool6(case: &Value) -> Prefix64 {
    case["pool6"].as_str().unwrap().parse().unwrap()
}

fn translate(case: &Value, packet: &mut Packet<'_>) {
    let pool6 = pool6(case);
    let translated = if case["direction"] == "4to6" {
        let parsed = parse_ipv4(packet).unwrap();
        let to = Rewrite::addresses(pool6.embed(parsed.source), pool6.embed(parsed.destination));
        assert_ne!(parsed.payload, Payload::IcmpError);
        translate_4to6(packet, &parsed, &to, &settings())
    } else {
        let parsed = parse_ipv6(packet).unwrap();
        let to = Rewrite::addresses(pool6.extract(parsed.source).unwrap(), pool6.extract(parsed.destination).unwrap());
        translate_6to4(packet, &parsed, &to, &settings(), &mut IdentificationGenerator::new([1, 2], 0, 1))
    };
    assert_eq!(translated, Ok(Translated::Whole));
}

/// The generator's choice of identification, and the header checksum over it, are not compared.
fn mask_identification(packet: &mut [u8]) {
    packet[4..6].fill(0);
    packet[10..12].fill(0);
}

#[test]
fn packets_become_the_expected_bytes() {
    let is_error = |case: &Value| {
        case["name"].as_str().is_some_and(|name| {
            name.contains("inner")
                || name.starts_with("ICMPv4 ")
                || name.starts_with("ICMPv6 packet")
                || name.starts_with("ICMPv6 time")
        })
    };
    let count = run_vectors(
        "checksum",
        |case| case["kind"] == "packet" && !is_error(case),
        |case| {
            let mut buffer = Buffer::new(&hex(case, "in"));
            let mut packet = buffer.packet();
            translate(case, &mut packet);
            assert_valid(packet.bytes());
            let mut expected = hex(case, "out");
            if case.get("ignore").is_some() {
                mask_identification(packet.bytes_mut());
                mask_identification(&mut expected);
            }
            assert_eq!(packet.bytes(), expected);
        },
    );
    assert_eq!(count, 23);
}
