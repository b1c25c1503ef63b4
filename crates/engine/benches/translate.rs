//! Stateless translation in memory: nanoseconds and allocations per packet, from the parse to the
//! outbox.
//!
//! `cargo bench -p tombolo-engine --bench translate` prints the median of 15 rounds for each id.
//! One packet that stays in the cache: this is the cost of the work, not of the memory.

mod counting;

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use tombolo_engine::mechanism::screen::{screen_ipv4, screen_ipv6};
use tombolo_engine::mechanism::{IdentificationGenerator, Rewrite, TranslateSettings, translate_4to6, translate_6to4};
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::parse::{AnyParsed, parse};
use tombolo_wire::{Ipv4Header, Ipv6Header, Prefix64, Protocol, Sum, ipv4};

use crate::counting::allocations;

const ROUNDS: usize = 15;
const PACKETS: u32 = 1_000_000;
const A4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const B4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

fn prefix() -> Prefix64 {
    "2001:db8:1::/96".parse().unwrap_or(Prefix64::WELL_KNOWN)
}

fn udp4(size: u16) -> Vec<u8> {
    let mut bytes = vec![0; size.into()];
    let header = Ipv4Header {
        tos: 0,
        total_length: size,
        identification: 1,
        fragment_word: ipv4::DF,
        ttl: 64,
        protocol: Protocol::UDP,
        source: A4,
        destination: B4,
    };
    header.emit(&mut bytes);
    fill_udp(&mut bytes[20..]);
    bytes
}

fn udp6(size: u16) -> Vec<u8> {
    let mut bytes = vec![0; size.into()];
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: size - 40,
        next_header: Protocol::UDP,
        hop_limit: 64,
        source: prefix().embed(A4),
        destination: prefix().embed(B4),
    };
    header.emit(&mut bytes);
    fill_udp(&mut bytes[40..]);
    bytes
}

fn fill_udp(transport: &mut [u8]) {
    let length = u16::try_from(transport.len()).unwrap_or_default().to_be_bytes();
    transport[..8].copy_from_slice(&[0x9c, 0x40, 0, 53, length[0], length[1], 0x12, 0x34]);
}

/// One packet all the way; false if it did not leave.
fn pass(bytes: &mut [u8], length: usize, identifications: &mut IdentificationGenerator, sent: &mut u64) -> bool {
    let settings = TranslateSettings { ipv6_mtu: 9000, ipv4_mtu: 9000, ..TranslateSettings::default() };
    let prefix = prefix_of_bench();
    let Some(mut packet) = Packet::new(bytes, HEADROOM, length, Offload::default()) else { return false };
    let mut outbox = |packet: &mut Packet<'_>| *sent += black_box(packet.bytes()).len() as u64;
    match parse(&mut packet) {
        Ok(AnyParsed::V4(parsed)) if screen_ipv4(&parsed).is_ok() => {
            let to = Rewrite::<Ipv6Addr>::addresses(prefix.embed(parsed.source), prefix.embed(parsed.destination));
            translate_4to6(&mut packet, &parsed, &to, &settings)
                .is_ok_and(|translated| translated.send(&mut packet, &mut outbox).is_ok())
        }
        Ok(AnyParsed::V6(parsed)) if screen_ipv6(&parsed).is_ok() => {
            let (Some(source), Some(destination)) = (prefix.extract(parsed.source), prefix.extract(parsed.destination))
            else {
                return false;
            };
            let to = Rewrite::addresses(source, destination);
            translate_6to4(&mut packet, &parsed, &to, &settings, identifications)
                .is_ok_and(|translated| translated.send(&mut packet, &mut outbox).is_ok())
        }
        _ => false,
    }
}

static PREFIX: std::sync::OnceLock<Prefix64> = std::sync::OnceLock::new();

fn prefix_of_bench() -> Prefix64 {
    *PREFIX.get_or_init(prefix)
}

/// Nanoseconds a packet; the headers are put back before each, and that is measured too.
fn round(original: &[u8], identifications: &mut IdentificationGenerator) -> f64 {
    let mut buffer = vec![0; HEADROOM + original.len()];
    buffer[HEADROOM..].copy_from_slice(original);
    let headers = original.len().min(64);
    let mut sent = 0;
    let before = Instant::now();
    for _ in 0..PACKETS {
        buffer[HEADROOM..HEADROOM + headers].copy_from_slice(&original[..headers]);
        assert!(pass(black_box(&mut buffer), original.len(), identifications, &mut sent));
    }
    black_box(sent);
    before.elapsed().as_secs_f64() * 1e9 / f64::from(PACKETS)
}

/// Nanoseconds for the sum of `bytes`.
fn sum_round(bytes: &[u8]) -> f64 {
    const SUMS: u32 = 10_000;
    let before = Instant::now();
    for _ in 0..SUMS {
        black_box(Sum::ZERO.bytes(black_box(bytes)).fold());
    }
    before.elapsed().as_secs_f64() * 1e9 / f64::from(SUMS)
}

fn main() {
    let cases = [
        ("engine/translate/4to6-udp-64", udp4(64)),
        ("engine/translate/6to4-udp-84", udp6(84)),
        ("engine/translate/4to6-udp-1400", udp4(1400)),
        ("engine/translate/6to4-udp-1420", udp6(1420)),
    ];
    let mut identifications = IdentificationGenerator::new([1, 2], 0, 1);
    println!("{:<34} {:>10} {:>8} {:>20}", "id", "ns/packet", "Mpps", "allocations/packet");
    for (id, packet) in cases {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&packet, &mut identifications)).collect();
        rounds.sort_by(f64::total_cmp);
        let median = rounds[ROUNDS / 2];
        let before = allocations();
        round(&packet, &mut identifications);
        // One buffer a round.
        let allocated = allocations() - before - 1;
        println!("{id:<34} {median:>10.1} {:>8.1} {:>20.6}", 1e3 / median, allocated as f64 / f64::from(PACKETS));
    }
    for size in [20, 1460, 65_000] {
        let bytes = vec![0x5a; size];
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| sum_round(&bytes)).collect();
        rounds.sort_by(f64::total_cmp);
        let nanoseconds = rounds[ROUNDS / 2];
        println!(
            "{:<34} {nanoseconds:>10.1} ns {:>8.1} GB/s",
            format!("wire/checksum/{size}"),
            size as f64 / nanoseconds
        );
    }
}
