//! Pools whose ports are handed out in blocks, in computed shares, or lie in several runs.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::{Allocation, Blocks, Deterministic, Subscribers};
use tombolo_engine::mapping::deterministic::{DeterministicMap, Order};
use tombolo_engine::mapping::pool::{PoolRange, PortRanges};
use tombolo_engine::mechanism::TranslateSettings;
use tombolo_engine::mechanism::napt::{Nat, Policy, SubscriberIs};

use crate::plans::{self, Case, nat44_case, nat64_case};

/// Ports in a block.
const SIZE: u16 = 64;

pub(crate) fn cases() -> Vec<Case> {
    let plain = Policy::default();
    let pairs = Policy { subscriber: SubscriberIs::Host { prefix_length: 127 }, ..plain };
    let nat64 = |name, policy| {
        nat64_case(name, "64:ff9b::/96", policy, TranslateSettings::default(), vec![plans::pool(1024..=1060, 0)])
    };
    vec![
        nat64("nat64, subscribers are prefixes", pairs),
        in_blocks(nat44_case("nat44, blocks", plain, 1500)),
        in_blocks(nat64("nat64, blocks of prefixes", pairs)),
        with_runs(nat44_case("nat44, several runs", plain, 1500)),
        in_shares(nat44_case("nat44, shares", plain, 1500), hosts(), Order::FillAddress, None),
        in_shares(nat44_case("nat44, shares in turn", plain, 1500), hosts(), Order::RotateAddresses, None),
        in_shares(nat64("nat64, shares of hosts", plain), prefixes(128), Order::FillAddress, None),
        in_shares(nat64("nat64, shares of prefixes", pairs), prefixes(127), Order::RotateAddresses, None),
        in_shares(nat44_case("nat44, shares and blocks", plain, 1500), hosts(), Order::FillAddress, Some(blocks())),
    ]
}

fn blocks() -> Blocks {
    Blocks { size: SIZE.into(), most: 3 }
}

/// Blocks of which few ports are handed out, so that they are soon full.
pub(crate) fn in_blocks(case: Case) -> Case {
    let first = |block: u16| block * SIZE;
    let few = (17..26).map(|block| first(block) + 3..=first(block) + 8);
    let others = [first(8) + 1..=first(8) + 4, first(28)..=first(29) + 7];
    changed(case, few.chain(others), |_| Allocation::Blocks(blocks()))
}

fn with_runs(case: Case) -> Case {
    let runs = [
        80..=83,
        1024..=1029,
        1033..=1038,
        1050..=1050,
        1060..=1064,
        1100..=1107,
        1200..=1200,
        1300..=1301,
        1900..=1905,
    ];
    changed(case, runs, |_| Allocation::Ports)
}

fn in_shares(case: Case, subscribers: Subscribers, order: Order, blocks: Option<Blocks>) -> Case {
    changed(case, [1024..=1050, 1060..=1103], |nat| {
        let pool = &nat.pool;
        let outside = (0..pool.addresses()).map(|place| pool.address(place).unwrap()).collect();
        let hosts = u32::try_from(subscribers.count()).unwrap();
        let reserved = pool.ranges()[0].ports[0].complement();
        let map = DeterministicMap::new(Ipv4Addr::UNSPECIFIED, hosts, outside, &reserved, 2, order).unwrap();
        Allocation::Deterministic(Arc::new(Deterministic::new(subscribers, map, blocks)))
    })
}

/// Those inside of a NAT44.
fn hosts() -> Subscribers {
    let range = |third, last| Ipv4Addr::new(10, 0, third, 0)..=Ipv4Addr::new(10, 0, third, last);
    Subscribers::Ipv4(AddressRanges::new([range(0, 15), range(1, 3)]))
}

/// Those inside of a NAT64 but for the last ones, which have no share.
fn prefixes(length: u8) -> Subscribers {
    Subscribers::Ipv6 { first: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0), length, count: 6 >> (128 - length) }
}

/// The same case with other ports, handed out in another way.
fn changed(
    case: Case,
    ports: impl IntoIterator<Item = RangeInclusive<u16>>,
    allocation: impl FnOnce(&Nat) -> Allocation,
) -> Case {
    let (name, mut plan, build) = case;
    let nat = plan.services[0].kind.nat_mut().unwrap();
    let ports = PortRanges::new(ports);
    let has_other_ports = |range: &PoolRange| PoolRange {
        ports: [ports.clone(), ports.clone(), ports.clone()],
        span: 80..=2000,
        ..range.clone()
    };
    let ranges = nat.pool.ranges().iter().map(has_other_ports).collect();
    nat.pool = nat.pool.with_ranges(ranges);
    nat.pool = nat.pool.clone().with_allocation(allocation(nat));
    plan.capacity.outside_slots = plan.outside_slots().unwrap();
    (name, plan, build)
}
