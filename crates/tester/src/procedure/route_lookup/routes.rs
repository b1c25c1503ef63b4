//! The tables that are looked up in.
//!
//! [`Distribution::Random`]: the slides' "random routes": any address, any length from 8 to 32 (16 to 64 for
//! IPv6), uniformly.
//!
//! [`Distribution::Global`]: a table like the Internet's. IPv4 lengths in the proportions of the RIPE RIS
//! histogram that the repository zhu849/IP-Address-Lookup-Algorithms publishes (folder
//! `prefix_len_anaysis`, 196,730 routes: 59.6 % /24, 11.7 % /22, 10.2 % /23). IPv6 lengths in round
//! shares chosen to meet what the AS131072 report of bgp.potaroo.net states of 7 March 2025:
//! 219,475 routes, average length 42.8, 57 % more specific than another route. A route longer than
//! an aggregate lies inside an aggregate with the same odds (57 %; half for IPv4), neighbours to
//! routes that are already there, and else anywhere in the unicast space: addresses that no
//! registry hands out together make more nodes than real ones, not fewer.

use std::collections::HashSet;

use tombolo_tables::lpm::{NextHop, Prefix, Route};

use super::keys::{Drawn, Numbers};

/// What the routes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Uniform addresses and lengths.
    Random,
    /// As in the Internet's tables.
    Global,
}

/// Next hops in use: as many as a large router has neighbours.
const NEXT_HOPS: u64 = 256;

/// The shape of a family's tables.
pub trait Shaped: Drawn {
    /// Shortest and longest random route.
    const RANDOM_LENGTHS: (u8, u8);
    /// Lengths of a global table and their weights.
    const GLOBAL_LENGTHS: &'static [(u8, u32)];
    /// Routes up to this length are aggregates, which others lie in.
    const AGGREGATE: u8;
    /// Of a thousand longer routes, those inside an aggregate.
    const INSIDE: u64;
    /// A random address of the space that registries hand out.
    fn unicast(numbers: &mut Numbers) -> Self;
}

impl Shaped for u32 {
    const RANDOM_LENGTHS: (u8, u8) = (8, 32);
    const GLOBAL_LENGTHS: &'static [(u8, u32)] = &[
        (8, 3),
        (9, 3),
        (10, 11),
        (11, 29),
        (12, 117),
        (13, 193),
        (14, 341),
        (15, 552),
        (16, 2454),
        (17, 1880),
        (18, 3792),
        (19, 6761),
        (20, 9161),
        (21, 11054),
        (22, 22947),
        (23, 19978),
        (24, 117_227),
        (25, 5),
        (26, 4),
        (27, 3),
        (28, 2),
        (29, 5),
        (30, 13),
        (31, 5),
        (32, 186),
    ];
    const AGGREGATE: u8 = 20;
    const INSIDE: u64 = 500;

    fn unicast(numbers: &mut Numbers) -> Self {
        // 1.0.0.0 to 223.255.255.255.
        let top = 1 + numbers.below(223);
        ((top << 24 | numbers.below(1 << 24)) & 0xffff_ffff) as u32
    }
}

impl Shaped for u128 {
    const RANDOM_LENGTHS: (u8, u8) = (16, 64);
    const GLOBAL_LENGTHS: &'static [(u8, u32)] = &[
        (20, 1),
        (24, 2),
        (28, 4),
        (29, 28),
        (30, 5),
        (32, 130),
        (33, 14),
        (34, 12),
        (35, 6),
        (36, 45),
        (38, 12),
        (40, 90),
        (42, 30),
        (44, 95),
        (45, 12),
        (46, 50),
        (47, 34),
        (48, 430),
    ];
    const AGGREGATE: u8 = 36;
    const INSIDE: u64 = 570;

    fn unicast(numbers: &mut Numbers) -> Self {
        // 2001::/16, and the /12 of each of the five registries.
        let base = [0x2001u128 << 112, 0x2400 << 112, 0x2600 << 112, 0x2800 << 112, 0x2a00 << 112, 0x2c00 << 112];
        let place = numbers.index(base.len());
        let fixed = if place == 0 { 16 } else { 12 };
        base[place] | numbers.wide() >> fixed
    }
}

/// `count` different routes.
#[must_use]
pub fn routes<K: Shaped>(distribution: Distribution, count: usize, seed: u64) -> Vec<Route<K>> {
    let mut numbers = Numbers(seed);
    let (mut seen, mut routes) = (HashSet::with_capacity(count), Vec::with_capacity(count));
    let mut aggregates: Vec<Prefix<K>> = Vec::new();
    while routes.len() < count {
        let prefix = match distribution {
            Distribution::Random => random(&mut numbers),
            Distribution::Global => global(&mut numbers, &aggregates),
        };
        if seen.insert(prefix) {
            if prefix.prefix_len() <= K::AGGREGATE {
                aggregates.push(prefix);
            }
            let number = u32::try_from(numbers.below(NEXT_HOPS)).unwrap_or(0);
            routes.extend(NextHop::new(number).ok().map(|next_hop| Route { prefix, next_hop }));
        }
    }
    routes
}

fn random<K: Shaped>(numbers: &mut Numbers) -> Prefix<K> {
    let (shortest, longest) = K::RANDOM_LENGTHS;
    let len = shortest + u8::try_from(numbers.below(u64::from(longest - shortest) + 1)).unwrap_or(0);
    Prefix::covering(K::from_left_aligned(numbers.wide()), len)
}

fn global<K: Shaped>(numbers: &mut Numbers, aggregates: &[Prefix<K>]) -> Prefix<K> {
    let total: u32 = K::GLOBAL_LENGTHS.iter().map(|(_, weight)| weight).sum();
    let mut ticket = numbers.below(u64::from(total));
    let len = K::GLOBAL_LENGTHS.iter().find_map(|(len, weight)| match ticket.checked_sub(u64::from(*weight)) {
        Some(rest) => {
            ticket = rest;
            None
        }
        None => Some(*len),
    });
    let len = len.unwrap_or(K::AGGREGATE);
    if len <= K::AGGREGATE || aggregates.is_empty() || numbers.below(1000) >= K::INSIDE {
        return Prefix::covering(K::unicast(numbers), len);
    }
    // Few aggregates hold most of the longer routes: the smaller of two picks, squared odds.
    let pick = numbers.index(aggregates.len()).min(numbers.index(aggregates.len()));
    let outer = aggregates[pick];
    let host = u128::MAX.checked_shr(u32::from(outer.prefix_len())).unwrap_or(0);
    Prefix::covering(K::from_left_aligned(outer.key().left_aligned() | numbers.wide() & host), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_global_ipv6_table_has_the_published_average_length_and_share_of_more_specifics() {
        let routes = routes::<u128>(Distribution::Global, 219_475, 1);
        let total: usize = routes.iter().map(|route| usize::from(route.prefix.prefix_len())).sum();
        let average = total as f64 / routes.len() as f64;
        assert!((average - 42.8).abs() < 0.3, "average length {average}");
        let all: HashSet<_> = routes.iter().map(|route| route.prefix).collect();
        let covered = |prefix: &Prefix<u128>| {
            (16..prefix.prefix_len()).any(|len| all.contains(&Prefix::covering(prefix.key(), len)))
        };
        let inside = all.iter().filter(|prefix| covered(prefix)).count();
        let share = inside as f64 / routes.len() as f64;
        assert!((share - 0.57).abs() < 0.05, "share of more specifics {share}");
    }

    #[test]
    fn routes_are_different_and_as_many_as_asked_for() {
        for distribution in [Distribution::Random, Distribution::Global] {
            let routes = routes::<u32>(distribution, 10_000, 7);
            let different: HashSet<_> = routes.iter().map(|route| route.prefix).collect();
            assert_eq!(different.len(), 10_000);
        }
    }
}
