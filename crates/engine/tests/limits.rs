//! Limits of subscribers, ports in blocks and by computation, floods.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use support::*;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::{Allocation, Blocks, Deterministic, PortHolder, Subscribers};
use tombolo_engine::mapping::deterministic::{DeterministicMap, Order};
use tombolo_engine::mapping::pool::PortRanges;
use tombolo_engine::mechanism::napt::{Policy, SubscriberIs};
use tombolo_engine::{DropReason, Verdict};

const SERVER6: fn() -> Ipv6Addr = || embed(SERVER);

/// A datagram of host number `host`, which has a /64 of its own.
fn from(host: u16, port: u16) -> Vec<u8> {
    udp((Ipv6Addr::new(0x2001, 0xdb8, 2, host, 0, 0, 0, 1), port), (SERVER6(), 53), b"")
}

fn reason(verdict: Verdict) -> Option<DropReason> {
    match verdict {
        Verdict::Reply(reason) | Verdict::Drop(reason) => Some(reason),
        _ => None,
    }
}

#[test]
fn sessions_of_a_subscriber_are_limited_and_counted_back() {
    for nat44 in [false, true] {
        let policy = Policy { sessions_per_subscriber: Some(5), ..Policy::default() };
        let mut gateway = Gateway::new(Setup { policy, nat44, ..Setup::default() });
        let (host, other): (IpAddr, IpAddr) =
            if nat44 { (HOST4.into(), OTHER_HOST4.into()) } else { (HOST.into(), OTHER_HOST.into()) };
        let server: IpAddr = if nat44 { SERVER.into() } else { SERVER6().into() };
        let to = |host, remote| udp((host, 40_000), (server, remote), b"");
        let outs: Vec<_> = (1..=5).map(|remote| gateway.forward(&to(host, remote))).collect();
        assert_eq!(gateway.pass(&to(host, 6)).0, Verdict::Reply(DropReason::SubscriberLimit));
        // What comes from outside does not count until it is answered; known ones go on, and so do
        // others.
        let stranger = Ipv4Addr::new(203, 0, 113, 9);
        gateway.forward(&udp((stranger, 1), (POOL, outs[0].ports.0), b""));
        gateway.forward(&to(host, 3));
        gateway.forward(&to(other, 6));
        gateway.audit();
        // Four fall silent; what is over makes room, whether the sweep or a packet finds it.
        gateway.wait(200);
        gateway.forward(&to(host, 1));
        gateway.wait(150);
        gateway.forward(&to(host, 2));
        gateway.audit();
        gateway.sweep();
        for remote in 7..=9 {
            gateway.forward(&to(host, remote));
        }
        assert_eq!(gateway.pass(&to(host, 10)).0, Verdict::Reply(DropReason::SubscriberLimit));
        gateway.audit();
        gateway.wait(400);
        gateway.sweep();
        assert_eq!(gateway.tables.subscribers.count(), 0);
        gateway.audit();
    }
}

#[test]
fn new_bindings_of_a_subscriber_come_at_the_rate() {
    let policy = Policy { binding_rate: Some(10), ..Policy::default() };
    let mut gateway = Gateway::new(Setup { policy, ..Setup::default() });
    let forwarded = |gateway: &mut Gateway, host, ports: std::ops::Range<u16>| {
        ports.filter(|&port| gateway.pass(&from(host, port)).0 == Verdict::Forward).count()
    };
    assert_eq!(forwarded(&mut gateway, 1, 1000..1100), 20);
    assert_eq!(forwarded(&mut gateway, 2, 1000..1100), 20, "each subscriber has a rate of its own");
    assert_eq!(forwarded(&mut gateway, 1, 1000..1020), 20, "bindings that are there cost nothing");
    gateway.wait(2);
    assert!((10..=20).contains(&forwarded(&mut gateway, 1, 2000..2100)));
    assert!(gateway.totals().drops().any(|(reason, count)| reason == DropReason::RateLimited && count >= 160));
}

#[test]
fn a_flood_from_invented_sources_is_limited_and_harms_nobody() {
    let policy = Policy { subscriber_rate: Some(20), ..Policy::default() };
    let mut gateway = Gateway::new(Setup { policy, ..Setup::default() });
    gateway.forward(&from(0, 5000));
    let mut admitted = 0;
    for second in 0..3_u16 {
        for host in 0..1000 {
            admitted += usize::from(gateway.pass(&from(1 + second * 1000 + host, 5000)).0 == Verdict::Forward);
        }
        gateway.forward(&from(0, 5000));
        gateway.forward(&from(0, 6000 + second));
        gateway.wait(1);
    }
    assert!((20..=80).contains(&admitted), "{admitted}");
    let (_, refused) = gateway.totals().drops().find(|(reason, _)| *reason == DropReason::RateLimited).unwrap();
    assert_eq!(refused, 3000 - admitted as u64);
    gateway.audit();
}

#[test]
fn exhaustion_by_invented_sources_admits_nobody_without_a_port_and_keeps_what_is_there() {
    let mut gateway = Gateway::new(Setup { ports: 2000..=2049, subscribers: 1000, ..Setup::default() });
    let verdicts: Vec<_> = (0..500).map(|host| gateway.pass(&from(host, 5000)).0).collect();
    assert_eq!(verdicts.iter().filter(|&&verdict| verdict == Verdict::Forward).count(), 50);
    assert!(verdicts[50..].iter().all(|&verdict| reason(verdict) == Some(DropReason::PoolExhausted)));
    assert_eq!(gateway.tables.subscribers.count(), 50);
    for host in 0..50 {
        gateway.forward(&from(host, 5000));
    }
    gateway.audit();
}

#[test]
fn a_prefix_may_be_one_subscriber() {
    let policy = Policy {
        bindings_per_subscriber: Some(3),
        subscriber: SubscriberIs::Host { prefix_length: 64 },
        ..Policy::default()
    };
    let last_address = Ipv4Addr::new(192, 0, 2, 14);
    let mut gateway = Gateway::new(Setup { policy, last_address, ..Setup::default() });
    let host = |prefix: u16, host| Ipv6Addr::new(0x2001, 0xdb8, 2, prefix, 0, 0, 9, host);
    let mut send = |prefix, n| gateway.pass(&udp((host(prefix, n), 1000), (SERVER6(), 53), b""));
    let sources: HashSet<_> = (0..3).map(|n| see(&send(1, n).1[0]).source).collect();
    assert_eq!(sources.len(), 1, "one outside address for the prefix");
    assert_eq!(send(1, 3).0, Verdict::Reply(DropReason::SubscriberLimit));
    assert_eq!(send(2, 3).0, Verdict::Forward);
    gateway.audit();
}

#[test]
fn subscribers_get_blocks_of_ports_and_further_ones_as_they_need_them() {
    let allocation = Allocation::Blocks(Blocks { size: 64, most: 2 });
    let setup = Setup { allocation, ports: 1024..=1535, bindings: 2000, sessions: 2000, ..Setup::default() };
    let mut gateway = Gateway::new(setup);
    let mut owners: HashMap<u16, u16> = HashMap::new();
    for host in 0..3_u16 {
        let mut ports = HashSet::new();
        for n in 0..128 {
            let port = gateway.forward(&from(host, 5000 + n)).ports.0;
            assert!(ports.insert(port));
            let blocks: HashSet<_> = ports.iter().map(|port| port / 64).collect();
            assert_eq!(blocks.len(), if n < 64 { 1 } else { 2 }, "a block is filled before the next is given");
            assert_eq!(*owners.entry(port / 64).or_insert(host), host, "a block has one owner");
        }
        assert_eq!(reason(gateway.pass(&from(host, 9000)).0), Some(DropReason::SubscriberLimit));
    }
    // Other protocols have the same blocks.
    let syn = gateway.forward(&tcp((Ipv6Addr::new(0x2001, 0xdb8, 2, 1, 0, 0, 0, 1), 5000), (SERVER6(), 80), SYN, b""));
    assert_eq!(owners.get(&(syn.ports.0 / 64)), Some(&1));
    // Two blocks are left; who comes then gets none.
    gateway.forward(&from(3, 1));
    gateway.forward(&from(4, 1));
    assert_eq!(reason(gateway.pass(&from(5, 1)).0), Some(DropReason::PoolExhausted));
    gateway.audit();
    // When its bindings are over, a subscriber goes and its blocks are kept back, then given out
    // again.
    gateway.wait(310);
    gateway.sweep();
    gateway.wait(10);
    gateway.sweep();
    assert_eq!(gateway.tables.subscribers.count(), 0);
    assert_eq!(reason(gateway.pass(&from(5, 1)).0), Some(DropReason::PoolExhausted));
    gateway.wait(130);
    gateway.forward(&from(5, 1));
    gateway.audit();
}

/// Ten hosts on one address whose ports are 1024 to 2047: eleven shares of 93 ports each, and one
/// for all.
fn deterministic(nat44: bool, blocks: Option<Blocks>) -> (Gateway, Arc<Deterministic>) {
    let hosts = if nat44 {
        Subscribers::Ipv4(AddressRanges::new([Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 0, 9)]))
    } else {
        Subscribers::Ipv6 { first: Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0), length: 64, count: 10 }
    };
    let reserved = PortRanges::new([0..=1023, 2048..=65_535]);
    let map = DeterministicMap::new([0; 4].into(), 10, vec![POOL], &reserved, 1, Order::FillAddress).unwrap();
    let shares = Arc::new(Deterministic::new(hosts, map, blocks));
    let policy = Policy { subscriber: SubscriberIs::Host { prefix_length: 64 }, ..Policy::default() };
    let allocation = Allocation::Deterministic(Arc::clone(&shares));
    let setup =
        Setup { allocation, policy, nat44, ports: 1024..=2047, bindings: 2000, sessions: 2000, ..Setup::default() };
    (Gateway::new(setup), shares)
}

#[test]
fn deterministic_ports_lead_back_to_their_host() {
    for nat44 in [false, true] {
        let (mut gateway, shares) = deterministic(nat44, None);
        let address = |host: u16| -> IpAddr {
            let ipv4 = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + u32::from(host));
            if nat44 { ipv4.into() } else { Ipv6Addr::new(0x2001, 0xdb8, 2, host, 0, 0, 0, 1).into() }
        };
        let server: IpAddr = if nat44 { SERVER.into() } else { SERVER6().into() };
        let packet = |host, port| udp((address(host), port), (server, 53), b"");
        for host in 0..10_u16 {
            let first = match address(host) {
                IpAddr::V4(ipv4) => IpAddr::V4(ipv4),
                IpAddr::V6(ipv6) => Ipv6Addr::from_bits(ipv6.to_bits() >> 64 << 64).into(),
            };
            for n in 0..93 {
                let port = gateway.forward(&packet(host, 5000 + n)).ports.0;
                assert_eq!(shares.owner(POOL, port), Some(PortHolder::Subscriber(first)), "{host} {port}");
            }
        }
        // Beyond the share: the dynamic pool.
        let port = gateway.forward(&packet(3, 9000)).ports.0;
        assert_eq!(shares.owner(POOL, port), Some(PortHolder::Dynamic));
        // Others have no share and get nothing; they are told.
        assert_eq!(gateway.pass(&packet(10, 5000)).0, Verdict::Reply(DropReason::Denied));
        gateway.audit();
    }
}

#[test]
fn the_dynamic_pool_may_be_given_out_in_blocks() {
    // The dynamic pool is 1954 to 2047: the end of one block of 64 ports, and a whole one.
    let (mut gateway, shares) = deterministic(false, Some(Blocks { size: 64, most: 1 }));
    assert_eq!(shares.dynamic_ports(), Some((1954, 2047)));
    let mut dynamic = |host: u16| -> HashSet<u16> {
        let ports =
            (0..300).filter_map(|n| gateway.pass(&from(host, 5000 + n)).1.first().map(|sent| see(sent).ports.0));
        ports.filter(|port| (1954..=2047).contains(port)).map(|port| port / 64).collect()
    };
    let (first, second) = (dynamic(1), dynamic(2));
    assert!(first.len() == 1 && second.len() == 1 && first != second, "{first:?} {second:?}");
    assert_eq!(dynamic(3), HashSet::new());
    gateway.audit();
}
