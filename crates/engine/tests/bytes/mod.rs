//! What the engine's tests share: vectors, packets, and a check of packets that uses none of the
//! engine's code.

#![allow(dead_code, reason = "every test binary uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test that cannot read its data fails")]

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Packet};

/// Runs `check` on all cases of a file that `select` picks; returns their number.
pub(crate) fn run_vectors(file: &str, select: impl Fn(&Value) -> bool, check: impl Fn(&Value)) -> usize {
    let path = format!("{}/../../tests/vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let document: Value = serde_json::from_str(&text).unwrap();
    let cases: Vec<_> = document["cases"].as_array().unwrap().iter().filter(|case| select(case)).collect();
    for case in &cases {
        println!("{} {}", case["id"], case["name"]);
        check(case);
    }
    cases.len()
}

pub(crate) fn hex(case: &Value, key: &str) -> Vec<u8> {
    let digits = case[key].as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// A buffer with room in front and behind, and the packet in it.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
    pub(crate) offload: Offload,
}

impl Buffer {
    pub(crate) fn new(packet: &[u8]) -> Self {
        let mut bytes = vec![0xee; HEADROOM];
        bytes.extend_from_slice(packet);
        bytes.resize(bytes.len() + 256, 0xdd);
        Self { bytes, length: packet.len(), offload: Offload::default() }
    }

    pub(crate) fn packet(&mut self) -> Packet<'_> {
        Packet::new(&mut self.bytes, HEADROOM, self.length, self.offload).unwrap()
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(bytes[at]) << 8 | u32::from(bytes[at + 1])
}

/// RFC 1071 word by word.
pub(crate) fn naive_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum.try_into().unwrap()
}

/// Checks versions, lengths and all checksums of a whole packet, or of a fragment as far as one
/// can. Panics if one is wrong. UDP without checksum passes in IPv4 only.
pub(crate) fn assert_valid(packet: &[u8]) {
    let (addresses, mut protocol, mut at) = match packet[0] >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            assert_eq!(word(packet, 2) as usize, packet.len(), "total length");
            assert_eq!(naive_sum(&[&packet[..header]]), 0xffff, "header checksum");
            if word(packet, 6) & 0x3fff != 0 {
                return;
            }
            (packet[12..20].to_vec(), packet[9], header)
        }
        6 => {
            assert_eq!(word(packet, 4) as usize, packet.len() - 40, "payload length");
            (packet[8..40].to_vec(), packet[6], 40)
        }
        version => panic!("version {version}"),
    };
    if protocol == 44 {
        if word(packet, at + 2) & 0xfff9 != 0 {
            return;
        }
        (protocol, at) = (packet[at], at + 8);
    }
    let transport = &packet[at..];
    let length = u32::try_from(transport.len()).unwrap().to_be_bytes();
    let is_v4 = packet[0] >> 4 == 4;
    let sum = match protocol {
        1 if is_v4 => naive_sum(&[transport]),
        17 => {
            let datagram = word(transport, 4) as usize;
            if word(transport, 6) == 0 {
                assert!(is_v4, "UDP over IPv6 without checksum");
                return;
            }
            let length = u32::try_from(datagram).unwrap().to_be_bytes();
            naive_sum(&[&addresses, &[0, protocol], &length, &transport[..datagram]])
        }
        6 | 58 => naive_sum(&[&addresses, &[0, protocol], &length, transport]),
        _ => return,
    };
    assert_eq!(sum, 0xffff, "checksum of protocol {protocol} in {packet:02x?}");
}

/// Completes a partial checksum the way a network card does.
pub(crate) fn finish_checksum(packet: &mut Packet<'_>) {
    if let ChecksumState::Partial { start, offset } = packet.offload.checksum {
        let transport = &mut packet.bytes_mut()[usize::from(start)..];
        let checksum = !naive_sum(&[transport]);
        transport[usize::from(offset)..usize::from(offset) + 2].copy_from_slice(&checksum.to_be_bytes());
        packet.offload.checksum = ChecksumState::Complete;
    }
}

/// An IPv4 packet with a right header checksum.
pub(crate) fn ipv4_packet(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    fragment_word: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    packet[6..8].copy_from_slice(&fragment_word.to_be_bytes());
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    let checksum = !naive_sum(&[&packet]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 packet.
pub(crate) fn ipv6_packet(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next_header, 64];
    packet[4..6].copy_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend_from_slice(&source.octets());
    packet.extend_from_slice(&destination.octets());
    packet.extend_from_slice(payload);
    packet
}

/// Writes the checksum of a TCP, UDP or ICMPv6 `transport` between two addresses given as bytes.
pub(crate) fn write_transport_checksum(transport: &mut [u8], at: usize, protocol: u8, addresses: &[u8]) {
    transport[at..at + 2].fill(0);
    let length = u32::try_from(transport.len()).unwrap().to_be_bytes();
    let checksum = !naive_sum(&[addresses, &[0, protocol], &length, transport]);
    transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
