//! Errors that the gateway originates: their bytes, and when there is none.

mod bytes;

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::{Buffer, assert_valid, ipv4_packet, ipv6_packet};
use tombolo_engine::mechanism::reply::{
    answer_ipv4, answer_ipv6, may_answer_ipv4, may_answer_ipv6, reply_ipv4, reply_ipv6,
};
use tombolo_engine::mechanism::screen::{screen_ipv4, screen_ipv6};
use tombolo_engine::mechanism::{IcmpAnswer, IdentificationGenerator};
use tombolo_engine::parse::{parse_ipv4, parse_ipv6};

const A4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const B4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const GATEWAY4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);

#[test]
fn an_error_quotes_the_packet_and_goes_to_its_source() {
    let original = ipv4_packet(A4, B4, 253, 0x4000, &[7; 1000]);
    let mut buffer = Buffer::new(&original);
    let mut packet = buffer.packet();
    let parsed = parse_ipv4(&mut packet).unwrap();
    let mut identifications = IdentificationGenerator::new([1, 2], 0, 1);
    reply_ipv4(&mut packet, &parsed, GATEWAY4, IcmpAnswer::TooBig { mtu: 1260 }, &mut identifications).unwrap();
    assert_valid(packet.bytes());
    assert_eq!(packet.len(), 576);
    assert_eq!(packet.bytes()[12..20], [GATEWAY4.octets(), A4.octets()].concat());
    assert_eq!(packet.bytes()[20..22], [3, 4]);
    assert_eq!(packet.bytes()[24..28], [0, 0, 0x04, 0xec]);
    assert_eq!(packet.bytes()[28..], original[..548]);

    let original = ipv6_packet(A6, B6, 253, &[7; 1400]);
    let mut buffer = Buffer::new(&original);
    let mut packet = buffer.packet();
    let parsed = parse_ipv6(&mut packet).unwrap();
    reply_ipv6(&mut packet, &parsed, GATEWAY6, IcmpAnswer::TooBig { mtu: 1000 }).unwrap();
    assert_valid(packet.bytes());
    assert_eq!(packet.len(), 1280);
    assert_eq!(packet.bytes()[40..48], [2, 0, packet.bytes()[42], packet.bytes()[43], 0, 0, 0x05, 0]);
    assert_eq!(packet.bytes()[48..], original[..1232]);
}

#[test]
fn nobody_is_told_about_errors_pieces_and_packets_to_many() {
    let answers4 = |bytes: Vec<u8>| {
        let mut buffer = Buffer::new(&bytes);
        may_answer_ipv4(&parse_ipv4(&mut buffer.packet()).unwrap())
    };
    assert!(answers4(ipv4_packet(A4, B4, 253, 0, &[])));
    assert!(answers4(ipv4_packet(A4, B4, 253, 0x2000, &[0; 8])), "a first fragment");
    assert!(!answers4(ipv4_packet(A4, B4, 253, 5, &[])), "another fragment");
    assert!(!answers4(ipv4_packet(A4, B4, 1, 0, &[3, 1, 0, 0, 0, 0, 0, 0])), "an error");
    assert!(answers4(ipv4_packet(A4, B4, 1, 0, &[8, 0, 0, 0, 0, 0, 0, 0])), "an echo");
    assert!(!answers4(ipv4_packet(A4, Ipv4Addr::BROADCAST, 253, 0, &[])));
    assert!(!answers4(ipv4_packet(Ipv4Addr::UNSPECIFIED, B4, 253, 0, &[])));

    let answers6 = |bytes: Vec<u8>, answer| {
        let mut buffer = Buffer::new(&bytes);
        let mut packet = buffer.packet();
        let parsed = parse_ipv6(&mut packet).unwrap();
        may_answer_ipv6(&packet, &parsed, answer)
    };
    let many = "ff02::1".parse().unwrap();
    assert!(answers6(ipv6_packet(A6, B6, 253, &[]), IcmpAnswer::Prohibited));
    assert!(!answers6(ipv6_packet(A6, many, 253, &[]), IcmpAnswer::Prohibited));
    assert!(answers6(ipv6_packet(A6, many, 253, &[]), IcmpAnswer::TooBig { mtu: 1280 }));
    assert!(!answers6(ipv6_packet(A6, B6, 58, &[1, 0, 0, 0, 0, 0, 0, 0]), IcmpAnswer::Prohibited));
    assert!(!answers6(ipv6_packet(A6, B6, 58, &[137, 0, 0, 0, 0, 0, 0, 0]), IcmpAnswer::Prohibited));
    assert!(!answers6(ipv6_packet(Ipv6Addr::UNSPECIFIED, B6, 253, &[]), IcmpAnswer::Prohibited));
}

#[test]
fn what_is_refused_names_the_error_that_the_rfc_gives() {
    let refusal4 = |bytes: Vec<u8>| {
        let mut buffer = Buffer::new(&bytes);
        screen_ipv4(&parse_ipv4(&mut buffer.packet()).unwrap()).unwrap_err()
    };
    let mut expiring = ipv4_packet(A4, B4, 253, 0, &[]);
    expiring[8] = 1;
    expiring[10..12].fill(0);
    let checksum = !bytes::naive_sum(&[&expiring]);
    expiring[10..12].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(answer_ipv4(refusal4(expiring).answer.unwrap()), (11, 0, 0));

    let refusal6 = |bytes: Vec<u8>| {
        let mut buffer = Buffer::new(&bytes);
        screen_ipv6(&parse_ipv6(&mut buffer.packet()).unwrap()).unwrap_err()
    };
    let mut expiring = ipv6_packet(A6, B6, 253, &[]);
    expiring[7] = 0;
    assert_eq!(answer_ipv6(refusal6(expiring).answer.unwrap()), (3, 0, 0));
    let routing = [253, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(answer_ipv6(refusal6(ipv6_packet(A6, B6, 43, &routing)).answer.unwrap()), (4, 0, 43));
    let behind_hop_by_hop = [&[43, 0, 0, 0, 0, 0, 0, 0], &routing[..]].concat();
    assert_eq!(answer_ipv6(refusal6(ipv6_packet(A6, B6, 0, &behind_hop_by_hop)).answer.unwrap()), (4, 0, 51));
    let after_fragment = [60, 0, 0, 1, 0, 0, 0, 1, 253, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(answer_ipv6(refusal6(ipv6_packet(A6, B6, 44, &after_fragment)).answer.unwrap()), (1, 1, 0));
}

#[test]
fn every_generated_error_of_the_vectors_has_its_answer() {
    // The table names conditions in words; here are the answers that stand for the ones of
    // stateless translation.
    assert_eq!(answer_ipv4(IcmpAnswer::Prohibited), (3, 13, 0));
    assert_eq!(answer_ipv6(IcmpAnswer::Prohibited), (1, 1, 0));
    assert_eq!(answer_ipv4(IcmpAnswer::SourceRouteFailed), (3, 5, 0));
    assert_eq!(answer_ipv4(IcmpAnswer::TooBig { mtu: 1480 }), (3, 4, 1480));
    assert_eq!(answer_ipv6(IcmpAnswer::TooBig { mtu: 1020 }), (2, 0, 1280));
    assert_eq!(answer_ipv6(IcmpAnswer::ProtocolUnreachable), (1, 4, 0));
    assert_eq!(answer_ipv4(IcmpAnswer::ProtocolUnreachable), (3, 2, 0));
    assert_eq!(answer_ipv6(IcmpAnswer::HostUnreachable), (1, 3, 0));
    assert_eq!(answer_ipv6(IcmpAnswer::SourcePolicy), (1, 5, 0));
}
