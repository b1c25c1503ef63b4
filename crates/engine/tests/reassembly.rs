//! Fragments come in any order, twice, never, or crafted; memory stays bounded and what comes out
//! is what was sent.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod bytes;

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::{Buffer, assert_valid, ipv4_packet, ipv6_packet, write_transport_checksum};
use proptest::prelude::*;
use tombolo_engine::mechanism::reassembly::Arriving;
use tombolo_engine::mechanism::{
    Fragments, IdentificationGenerator, Reassembly, ReassemblyLimits, Rewrite, Room, TranslateSettings, Translated,
    translate_4to6, translate_6to4,
};
use tombolo_engine::packet::Packet;
use tombolo_engine::parse::{parse_ipv4, parse_ipv6};
use tombolo_engine::verdict::DropReason;

const A4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const B4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
const SECOND: u64 = 1_000_000_000;

fn reassembly() -> Reassembly {
    Reassembly::new(ReassemblyLimits::default(), [1, 2])
}

fn fragments() -> Fragments {
    Fragments::new(ReassemblyLimits::default(), [1, 2], 2)
}

fn udp(length: usize, addresses: &[u8]) -> Vec<u8> {
    let mut udp = vec![0x9c, 0x40, 0, 53, 0, 0, 0, 0];
    udp.extend((0..length - 8).map(|at| u8::try_from(at % 251).unwrap()));
    udp[4..6].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    write_transport_checksum(&mut udp, 6, 17, addresses);
    udp
}

/// The pieces of `payload` at `cuts`, which are in units of 8 bytes: (offset in units, more,
/// bytes).
fn pieces(payload: &[u8], cuts: &[usize]) -> Vec<(u16, bool, Vec<u8>)> {
    let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut * 8).filter(|&cut| cut > 0 && cut < payload.len()).collect();
    bounds.extend([0, payload.len()]);
    bounds.sort_unstable();
    bounds.dedup();
    bounds
        .windows(2)
        .map(|pair| {
            let offset = u16::try_from(pair[0] / 8).unwrap();
            (offset, pair[1] < payload.len(), payload[pair[0]..pair[1]].to_vec())
        })
        .collect()
}

fn fragment4(offset: u16, more: bool, bytes: &[u8]) -> Vec<u8> {
    ipv4_packet(A4, B4, 17, offset | if more { 0x2000 } else { 0 }, bytes)
}

fn fragment6(offset: u16, more: bool, bytes: &[u8]) -> Vec<u8> {
    let mut payload = vec![17, 0];
    payload.extend((offset << 3 | u16::from(more)).to_be_bytes());
    payload.extend([0x80, 0, 0x12, 0x34]);
    payload.extend(bytes);
    ipv6_packet(A6, B6, 44, &payload)
}

/// Hands a fragment in; gives the whole datagram, or none.
fn accept4(reassembly: &mut Reassembly, bytes: &[u8], now: u64) -> Result<Option<Vec<u8>>, DropReason> {
    let mut buffer = Buffer::new(bytes);
    let mut packet = buffer.packet();
    let parsed = parse_ipv4(&mut packet)?;
    let Some(piece) = Arriving::ipv4(&packet, &parsed, None)? else { return Ok(None) };
    let complete = reassembly.accept(&piece, now)?;
    complete.map(|complete| Ok(complete.into_ipv4(&mut Room::default())?.0.bytes().to_vec())).transpose()
}

fn accept6(reassembly: &mut Reassembly, bytes: &[u8], now: u64) -> Result<Option<Vec<u8>>, DropReason> {
    let mut buffer = Buffer::new(bytes);
    let mut packet = buffer.packet();
    let parsed = parse_ipv6(&mut packet)?;
    let Some(piece) = Arriving::ipv6(&packet, &parsed)? else { return Ok(None) };
    let Some(complete) = reassembly.accept(&piece, now)? else { return Ok(None) };
    let mut room = Room::default();
    let (packet, parsed) = complete.into_ipv6(&mut room)?;
    assert!(!parsed.dont_fragment && !parsed.is_piece());
    Ok(Some(packet.bytes().to_vec()))
}

proptest! {
    #[test]
    fn any_order_and_any_duplicates_give_the_datagram_once(
        length in 24_usize..6000, cuts in prop::collection::vec(2_usize..700, 1..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..30), is_v6 in any::<bool>(),
    ) {
        let addresses = if is_v6 { [A6.octets(), B6.octets()].concat() } else { [A4.octets(), B4.octets()].concat() };
        let payload = udp(length, &addresses);
        let pieces = pieces(&payload, &cuts);
        prop_assume!(pieces.len() > 1);
        let mut reassembly = reassembly();
        // Some at random, some of them more than once; then all of them, backwards.
        let random = order.iter().map(|index| index.index(pieces.len()));
        let mut whole = None;
        for number in random.chain((0..pieces.len()).rev()) {
            let (offset, more, bytes) = &pieces[number];
            let result = if is_v6 {
                accept6(&mut reassembly, &fragment6(*offset, *more, bytes), SECOND)
            } else {
                accept4(&mut reassembly, &fragment4(*offset, *more, bytes), SECOND)
            };
            whole = result.unwrap();
            if whole.is_some() {
                break;
            }
        }
        let whole = whole.unwrap();
        assert_valid(&whole);
        prop_assert_eq!(&whole[if is_v6 { 40 } else { 20 }..], &payload[..]);
        prop_assert_eq!((reassembly.memory(), reassembly.datagrams()), (0, 0));
    }

    #[test]
    fn memory_and_count_stay_in_bounds_whatever_comes(
        fragments in prop::collection::vec((0_u16..40, any::<bool>(), 1_usize..60, 0_u8..20, 0_u64..4), 0..400),
    ) {
        let limits = ReassemblyLimits { memory: 20_000, datagrams: 10, timeout: 2 * SECOND };
        let mut reassembly = Reassembly::new(limits, [3, 4]);
        let mut now = SECOND;
        for (offset, more, units, host, wait) in fragments {
            now += wait * SECOND / 2;
            let source = Ipv4Addr::new(198, 51, 100, host);
            let word = offset | if more { 0x2000 } else { 0 };
            let mut buffer = Buffer::new(&ipv4_packet(source, B4, 17, word, &vec![host; units * 8]));
            let mut packet = buffer.packet();
            if let Ok(parsed) = parse_ipv4(&mut packet)
                && let Ok(Some(piece)) = Arriving::ipv4(&packet, &parsed, None)
            {
                let _ = reassembly.accept(&piece, now);
            }
            prop_assert!(reassembly.memory() <= limits.memory && reassembly.datagrams() <= 10);
        }
        reassembly.expire(now + 2 * SECOND);
        prop_assert_eq!((reassembly.memory(), reassembly.datagrams()), (0, 0));
    }
}

#[test]
fn an_overlap_gives_the_whole_datagram_up_and_what_comes_later() {
    let payload = udp(64, &[A4.octets(), B4.octets()].concat());
    let mut reassembly = reassembly();
    assert_eq!(accept4(&mut reassembly, &fragment4(0, true, &payload[..32]), 0), Ok(None));
    let overlapping = accept4(&mut reassembly, &fragment4(3, true, &payload[24..48]), 0);
    assert_eq!(overlapping, Err(DropReason::FragmentInvalid));
    assert_eq!(reassembly.memory(), 0);
    assert_eq!(accept4(&mut reassembly, &fragment4(4, false, &payload[32..]), 0), Err(DropReason::FragmentInvalid));
    // Its time over, the identification is free again.
    let later = 3 * SECOND;
    assert_eq!(accept4(&mut reassembly, &fragment4(0, true, &payload[..32]), later), Ok(None));
    assert!(accept4(&mut reassembly, &fragment4(4, false, &payload[32..]), later).unwrap().is_some());
}

#[test]
fn a_second_piece_with_other_bytes_is_no_duplicate() {
    let mut reassembly = reassembly();
    assert_eq!(accept4(&mut reassembly, &fragment4(0, true, &[9; 32]), 0), Ok(None));
    assert_eq!(accept4(&mut reassembly, &fragment4(0, true, &[1; 32]), 0), Err(DropReason::FragmentInvalid));
}

#[test]
fn two_ends_or_pieces_behind_the_end_contradict() {
    let mut reassembly = reassembly();
    assert_eq!(accept4(&mut reassembly, &fragment4(8, false, &[0; 8]), 0), Ok(None));
    assert_eq!(accept4(&mut reassembly, &fragment4(20, false, &[0; 8]), 0), Err(DropReason::FragmentInvalid));
    let mut reassembly = self::reassembly();
    assert_eq!(accept6(&mut reassembly, &fragment6(8, true, &[0; 8]), 0), Ok(None));
    assert_eq!(accept6(&mut reassembly, &fragment6(4, false, &[0; 8]), 0), Err(DropReason::FragmentInvalid));
}

#[test]
fn pieces_are_given_up_when_the_others_do_not_come() {
    let mut reassembly = reassembly();
    assert_eq!(accept4(&mut reassembly, &fragment4(0, true, &[9; 32]), SECOND), Ok(None));
    reassembly.expire(3 * SECOND - 1);
    assert_eq!((reassembly.datagrams(), reassembly.take_timed_out()), (1, 0));
    reassembly.expire(3 * SECOND);
    assert_eq!((reassembly.datagrams(), reassembly.memory(), reassembly.take_timed_out()), (0, 0, 1));
}

#[test]
fn a_flood_from_one_source_leaves_room_for_others() {
    let limits = ReassemblyLimits { memory: 100_000, datagrams: 1000, timeout: 2 * SECOND };
    let mut reassembly = Reassembly::new(limits, [1, 2]);
    let mut refused = 0;
    for identification in 0..500_u16 {
        let mut bytes = fragment4(0, true, &[9; 800]);
        bytes[4..6].copy_from_slice(&identification.to_be_bytes());
        tombolo_wire::ipv4::write_checksum(&mut bytes);
        match accept4(&mut reassembly, &bytes, SECOND) {
            Ok(None) => {}
            other => {
                assert_eq!(other, Err(DropReason::FragmentMemory));
                refused += 1;
            }
        }
    }
    assert!(refused > 400 && reassembly.memory() <= 25_000);
    assert!(reassembly.datagrams() < 100, "what is refused leaves nothing behind");
    let payload = udp(64, &[A6.octets(), B6.octets()].concat());
    assert_eq!(accept6(&mut reassembly, &fragment6(4, false, &payload[32..]), SECOND), Ok(None));
    assert!(accept6(&mut reassembly, &fragment6(0, true, &payload[..32]), SECOND).unwrap().is_some());
}

#[test]
fn congestion_that_one_piece_met_is_told_of_the_whole() {
    let payload = udp(64, &[A6.octets(), B6.octets()].concat());
    let mut reassembly = reassembly();
    let mut first = fragment6(0, true, &payload[..32]);
    first[1] = 0x20;
    let mut second = fragment6(4, false, &payload[32..]);
    second[1] = 0x30;
    assert_eq!(accept6(&mut reassembly, &second, 0), Ok(None));
    assert_eq!(accept6(&mut reassembly, &first, 0).unwrap().unwrap()[..2], [0x60, 0x30]);
}

#[test]
fn a_whole_packet_is_not_held() {
    let mut reassembly = reassembly();
    let whole = ipv4_packet(A4, B4, 253, 0, &[0; 9]);
    assert_eq!(accept4(&mut reassembly, &whole, 0), Ok(None));
    assert_eq!(reassembly.datagrams(), 0);
}

/// Hands all fragments of a datagram in, translates it and fragments it again.
#[test]
fn a_datagram_crosses_the_gateway_in_fragments_both_ways() {
    let payload = udp(4000, &[A4.octets(), B4.octets()].concat());
    let (fragments, mut room) = (fragments(), Room::default());
    let mut crossed = Vec::new();
    for (offset, more, bytes) in pieces(&payload, &[185, 370]) {
        let mut buffer = Buffer::new(&fragment4(offset, more, &bytes));
        let mut packet = buffer.packet();
        let parsed = parse_ipv4(&mut packet).unwrap();
        let accepted = fragments.accept_ipv4(&packet, &parsed, None, SECOND, &mut room).unwrap();
        let Some((mut whole, parsed)) = accepted else { continue };
        let to = Rewrite::addresses(A6, B6);
        let translated = translate_4to6(&mut whole, &parsed, &to, &TranslateSettings::default()).unwrap();
        assert!(matches!(translated, Translated::Fragments { limit: 1280, identification: 0x1234 }));
        let mut outbox = |packet: &mut Packet<'_>| crossed.push(packet.bytes().to_vec());
        translated.send(&mut whole, &mut outbox).unwrap();
    }
    assert_eq!(crossed.len(), 4);

    let mut back = Vec::new();
    for bytes in crossed.iter().rev() {
        assert!(bytes.len() <= 1280);
        let mut buffer = Buffer::new(bytes);
        let mut packet = buffer.packet();
        let parsed = parse_ipv6(&mut packet).unwrap();
        let accepted = fragments.accept_ipv6(&packet, &parsed, SECOND, &mut room).unwrap();
        let Some((mut whole, parsed)) = accepted else { continue };
        assert_valid(whole.bytes());
        let to = Rewrite::addresses(A4, B4);
        let mut identifications = IdentificationGenerator::new([1, 2], 0, 1);
        let translated =
            translate_6to4(&mut whole, &parsed, &to, &TranslateSettings::default(), &mut identifications).unwrap();
        let mut outbox = |packet: &mut Packet<'_>| back.push(packet.bytes().to_vec());
        translated.send(&mut whole, &mut outbox).unwrap();
    }
    assert_eq!(back.len(), 3);
    let (mut reassembly, mut whole) = (reassembly(), None);
    for bytes in &back {
        assert_valid(bytes);
        assert_eq!(bytes[4..6], [0x12, 0x34]);
        whole = accept4(&mut reassembly, bytes, SECOND).unwrap();
    }
    assert_eq!(whole.unwrap()[20..], payload);
}

#[test]
fn the_same_addresses_behind_two_softwires_are_two_datagrams() {
    let (fragments, mut room) = (fragments(), Room::default());
    let mut accept = |softwire: Ipv6Addr, bytes: &[u8]| {
        let mut buffer = Buffer::new(bytes);
        let mut packet = buffer.packet();
        let parsed = parse_ipv4(&mut packet).unwrap();
        let whole = fragments.accept_ipv4(&packet, &parsed, Some(softwire), 0, &mut room).unwrap();
        whole.map(|(packet, _)| packet.bytes()[20..].to_vec())
    };
    let datagram = |length| udp(length, &[A4.octets(), B4.octets()].concat());
    let (one, other) = (datagram(100), datagram(200));
    assert_eq!(accept(A6, &fragment4(0, true, &one[..64])), None);
    assert_eq!(accept(B6, &fragment4(0, true, &other[..64])), None);
    assert_eq!(accept(A6, &fragment4(8, false, &one[64..])), Some(one));
    assert_eq!(accept(B6, &fragment4(8, false, &other[64..])), Some(other));
}

/// Four workers, each of which gets one piece of each datagram, at its own pace: every datagram is put together once.
#[test]
fn pieces_that_come_by_several_workers_meet() {
    const DATAGRAMS: u16 = 2000;
    let fragments = Fragments::new(ReassemblyLimits::default(), [1, 2], 4);
    let payload = udp(4096, &[A4.octets(), B4.octets()].concat());
    let pieces = pieces(&payload, &[128, 256, 384]);
    let put_together = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (worker, (offset, more, bytes)) in pieces.iter().enumerate() {
            let (fragments, put_together, payload) = (&fragments, &put_together, &payload);
            scope.spawn(move || {
                let mut room = Room::default();
                for number in 0..DATAGRAMS {
                    // Not all in the same order.
                    let identification = if worker % 2 == 0 { number } else { number ^ 7 };
                    let mut bytes = fragment4(*offset, *more, bytes);
                    bytes[4..6].copy_from_slice(&identification.to_be_bytes());
                    tombolo_wire::ipv4::write_checksum(&mut bytes);
                    let mut buffer = Buffer::new(&bytes);
                    let mut packet = buffer.packet();
                    let parsed = parse_ipv4(&mut packet).unwrap();
                    let whole = fragments.accept_ipv4(&packet, &parsed, None, SECOND, &mut room).unwrap();
                    if let Some((whole, _)) = whole {
                        assert_eq!(whole.bytes()[20..], payload[..]);
                        put_together.lock().unwrap().push(identification);
                    }
                }
            });
        }
    });
    let mut put_together = put_together.into_inner().unwrap();
    put_together.sort_unstable();
    assert_eq!(put_together, (0..DATAGRAMS).collect::<Vec<_>>());
    assert_eq!(fragments.expire(10 * SECOND), (0, 0));
}
