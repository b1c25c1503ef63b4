//! Addresses of a pool that are for certain hosts alone.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use support::*;
use tombolo_engine::mapping::allocation::{Allocation, Blocks};
use tombolo_engine::mapping::assigned::Span;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::settle::{Ended, foresee, settle};
use tombolo_engine::{DropReason, Verdict};

fn span(first: u8, last: u8) -> Span {
    (Ipv4Addr::new(192, 0, 2, first), Ipv4Addr::new(192, 0, 2, last))
}

/// A NAT64 with 192.0.2.1 to .8, of which these are for these prefixes.
fn gateway(allocation: Allocation, assigned: &[(&str, Span)]) -> Gateway {
    let mut gateway = Gateway::new(Setup { last_address: span(8, 8).0, allocation, ..Setup::default() });
    assign(&mut gateway, assigned);
    gateway
}

fn assign(gateway: &mut Gateway, assigned: &[(&str, Span)]) {
    let assigned = assigned.iter().map(|(text, span)| (parse_prefix(text).unwrap(), *span));
    let nat = &mut gateway.nat64().nat;
    nat.pool = nat.pool.clone().with_assigned(assigned);
}

fn host(network: u16, n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, n)
}

/// The addresses that twenty hosts of a network leave from, each with two ports.
fn addresses(gateway: &mut Gateway, network: u16) -> HashSet<u8> {
    let mut found = HashSet::new();
    for n in 1..=20 {
        let sources = [1000, 2000]
            .map(|port| gateway.forward(&udp((host(network, n), port), (embed(SERVER), 53), b"query")).source);
        assert_eq!(sources[0], sources[1], "paired");
        let IpAddr::V4(source) = sources[0] else { panic!("{sources:?}") };
        found.insert(source.octets()[3]);
    }
    found
}

#[test]
fn hosts_get_the_addresses_that_are_for_them_and_others_the_rest() {
    for allocation in [Allocation::Ports, Allocation::Blocks(Blocks { size: 64, most: 4 })] {
        let mut gateway = gateway(allocation, &[("2001:db8::/32", span(3, 4)), ("2001:db8:7::/48", span(8, 8))]);
        assert_eq!(addresses(&mut gateway, 1), HashSet::from([3, 4]));
        assert_eq!(addresses(&mut gateway, 7), HashSet::from([8]));
        let other = gateway.forward(&udp(("fd00::1".parse::<Ipv6Addr>().unwrap(), 7), (embed(SERVER), 53), b"query"));
        assert!(![3, 4, 8].map(|last| IpAddr::from(span(last, last).0)).contains(&other.source), "{other:?}");
        gateway.audit();
    }
}

#[test]
fn a_full_address_is_not_helped_by_those_of_others() {
    let mut gateway = Gateway::new(Setup { ports: 1024..=1025, last_address: span(4, 4).0, ..Setup::default() });
    assign(&mut gateway, &[("2001:db8:7::/48", span(4, 4))]);
    let query = |n| udp((host(7, n), 1000), (embed(SERVER), 53), b"query");
    for n in 1..=2 {
        assert_eq!(gateway.pass(&query(n)).0, Verdict::Forward);
    }
    assert_eq!(gateway.pass(&query(3)).0, Verdict::Reply(DropReason::PoolExhausted));
    gateway.forward(&udp((HOST, 1000), (embed(SERVER), 53), b"query"));
}

#[test]
fn who_has_no_address_is_told_that_it_is_prohibited() {
    let mut gateway = gateway(Allocation::Ports, &[("2001:db8:7::/48", span(1, 8))]);
    let (verdict, sent) = gateway.pass(&udp((HOST, 1000), (embed(SERVER), 53), b"query"));
    assert_eq!((verdict, &sent[0][40..42]), (Verdict::Reply(DropReason::Denied), [1, 1].as_slice()));
    assert_eq!(gateway.tables.subscribers.iter().count(), 0);
}

#[test]
fn a_reload_ends_what_is_at_addresses_for_others_and_gives_new_ones() {
    let mut gateway = gateway(Allocation::Ports, &[("2001:db8:7::/48", span(8, 8))]);
    addresses(&mut gateway, 7);
    addresses(&mut gateway, 6);
    let former = gateway.plan.clone();
    assign(&mut gateway, &[("2001:db8:7::/48", span(7, 7))]);
    let foreseen = foresee(&gateway.tables, &former, &gateway.plan);
    let mut gone = Vec::new();
    let ended = settle(&gateway.tables, &former, &gateway.plan, gateway.now, &mut |binding| gone.push(*binding));
    assert_eq!(foreseen, ended);
    assert!(ended.keys().all(|loss| loss.why == Ended::Allocation), "{ended:?}");
    // All of the seventh network, and of the sixth those who were at what is the seventh's now.
    let of = |network: u8| gone.iter().filter(|binding| binding.inside.ipv6[5] == network).count();
    assert_eq!(of(7), 40);
    assert!(gone.iter().all(|binding| binding.outside_ipv4[3] == if binding.inside.ipv6[5] == 7 { 8 } else { 7 }));
    assert_eq!(addresses(&mut gateway, 7), HashSet::from([7]));
    assert!(!addresses(&mut gateway, 6).contains(&7));
    gateway.audit();
}
