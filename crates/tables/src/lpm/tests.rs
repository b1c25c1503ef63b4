//! The trie against the model: random and adverse prefix sets, and every state on the way.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::model::Model;
use super::numbers::{Numbers, seconds};
use super::*;
use crate::memory::Heap;

fn route<K: Key>(key: K, len: u8, next_hop: u32) -> Route<K> {
    Route { prefix: Prefix::covering(key, len), next_hop: NextHop::new(next_hop).unwrap() }
}

fn v4(text: &str) -> Prefix<u32> {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), len.parse().unwrap()).unwrap()
}

fn v6(text: &str) -> Prefix<u128> {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), len.parse().unwrap()).unwrap()
}

/// Keys at which answers change: first and last of each prefix, their neighbours, and some inside.
fn edges<K: Key>(routes: &[Route<K>], numbers: &mut Numbers) -> Vec<K> {
    let mut keys = Vec::new();
    let step = u128::MAX.checked_shl(128 - u32::from(K::BITS)).unwrap_or(0).wrapping_neg().max(1);
    for route in routes {
        let first = route.prefix.key().left_aligned();
        let host = u128::MAX.checked_shr(u32::from(route.prefix.prefix_len())).unwrap_or(0);
        let inside = first | (numbers.key::<u128>() & host);
        for bits in [first, first.wrapping_sub(step), first | host, (first | host).wrapping_add(step), inside] {
            keys.push(K::from_left_aligned(bits));
        }
    }
    keys.extend((0..50).map(|_| numbers.key::<K>()));
    keys
}

fn agree<K: Key>(table: &Lpm<K>, model: &Model<K>, keys: &[K]) {
    table.check();
    let mut reader = table.reader();
    let pinned = reader.pin();
    let mut batch = vec![None; keys.len()];
    pinned.lookup_batch(keys, &mut batch);
    for (key, batched) in keys.iter().zip(batch) {
        let found = pinned.lookup(*key);
        let expected = model.lookup(*key);
        assert_eq!(found.map(|found| (found.prefix_len(), found.next_hop())), expected, "key {key:x?}");
        assert_eq!(batched, found, "batched, key {key:x?}");
        assert_eq!(Match::from_word(walk::walk(table.span(), *key)), found, "plain walk, key {key:x?}");
    }
}

const SMALL: Shape = Shape { root_bits: 8, bytes: 1 << 20 };

/// Inserts all, checks; changes and removes at random with checks on the way; removes all, checks
/// empty.
fn lives_and_dies<K: Key>(routes: &[Route<K>], seed: u64) {
    let mut numbers = Numbers(seed);
    let keys = edges(routes, &mut numbers);
    let (mut table, mut model) = (Lpm::new(&mut Heap, "test", SMALL).unwrap(), Model::default());
    for route in routes {
        assert_eq!(table.insert(*route).unwrap(), model.insert(*route));
    }
    agree(&table, &model, &keys);
    assert_eq!(table.routes(), model.routes());
    let built = Lpm::build(&mut Heap, "test", SMALL, routes).unwrap();
    agree(&built, &model, &keys);
    assert_eq!(built.routes(), model.routes());

    for mut table in [table, built] {
        let mut model = model.clone();
        for _ in 0..routes.len() {
            let pick = routes[numbers.below(routes.len() as u64) as usize];
            if numbers.below(3) == 0 {
                let changed = Route { next_hop: NextHop::new(numbers.below(4) as u32).unwrap(), ..pick };
                assert_eq!(table.insert(changed).unwrap(), model.insert(changed));
            } else {
                assert_eq!(table.remove(pick.prefix).unwrap(), model.remove(pick.prefix));
            }
            if numbers.below(8) == 0 {
                agree(&table, &model, &keys);
            }
        }
        agree(&table, &model, &keys);
        for route in routes {
            assert_eq!(table.remove(route.prefix).unwrap(), model.remove(route.prefix));
        }
        agree(&table, &model, &keys);
        assert!(table.is_empty());
        assert_eq!(table.extent(), (0, 0), "an empty table has no nodes");
        table.reclaim();
        assert_eq!((table.memory().nodes, table.memory().retired), (0, 0), "every block came back");
    }
}

fn random_routes<K: Key>(seed: u64, count: usize, dense: bool) -> Vec<Route<K>> {
    let mut numbers = Numbers(seed);
    let base = numbers.key::<u128>();
    let routes = (0..count).map(|_| {
        let len = numbers.below(u64::from(K::BITS) + 1) as u8;
        // Dense: keys that share most bits, so that prefixes nest, branch and end inside skipped
        // bits.
        let flips = numbers.key::<u128>() & numbers.key::<u128>() & numbers.key::<u128>() & numbers.key::<u128>();
        let bits = if dense { base ^ flips } else { numbers.key::<u128>() };
        route(K::from_left_aligned(bits), len, numbers.below(4) as u32)
    });
    routes.collect()
}

#[test]
fn random_prefixes_agree_with_the_model() {
    // As long as the torture tests: TOMBOLO_TORTURE_SECONDS=600 for the long run.
    let until = Instant::now() + Duration::from_secs_f64(seconds());
    let mut seed = 0;
    while seed < 4 || Instant::now() < until {
        seed += 1;
        for dense in [false, true] {
            lives_and_dies(&random_routes::<u32>(seed, 200, dense), seed);
            lives_and_dies(&random_routes::<u128>(seed, 200, dense), seed);
        }
    }
}

#[test]
fn nested_chains_of_all_lengths_agree_with_the_model() {
    for seed in 0..4 {
        let key = Numbers(seed).key::<u128>();
        let chain = |order: fn(u8) -> u8, bits: u8| (0..=bits).map(order).map(|len| (len, u32::from(len)));
        let upward: Vec<_> = chain(|len| len, 128).map(|(len, hop)| route(key, len, hop)).collect();
        let downward: Vec<_> = chain(|len| 128 - len, 128).map(|(len, hop)| route(key, len, hop)).collect();
        let mixed: Vec<_> =
            chain(|len| ((u16::from(len) * 50) % 129) as u8, 128).map(|(len, hop)| route(key, len, hop)).collect();
        for routes in [upward, downward, mixed] {
            lives_and_dies(&routes, seed);
        }
        let key = (key >> 96) as u32;
        let upward: Vec<_> = (0..=32).map(|len| route(key, len, u32::from(len))).collect();
        let downward: Vec<_> = (0..=32).rev().map(|len| route(key, len, u32::from(len))).collect();
        lives_and_dies(&upward, seed);
        lives_and_dies(&downward, seed);
    }
}

#[test]
fn a_default_route_alone_answers_for_every_key() {
    lives_and_dies(&[route(0u32, 0, 7)], 1);
    lives_and_dies(&[route(0u128, 0, 7)], 1);
}

#[test]
fn host_routes_and_their_neighbours_agree_with_the_model() {
    let mut numbers = Numbers(5);
    let (key4, key6) = (numbers.key::<u32>(), numbers.key::<u128>());
    let hosts4: Vec<_> = (0..300).map(|i| route(key4.wrapping_add(i), 32, i % 5)).collect();
    let hosts6: Vec<_> = (0..300).map(|i| route(key6.wrapping_add(u128::from(i)), 128, i % 5)).collect();
    lives_and_dies(&hosts4, 1);
    lives_and_dies(&hosts6, 1);
}

#[test]
fn duplicates_count_once_and_the_last_wins() {
    let routes: Vec<_> = (0..20).map(|i| route(0x0a00_0000u32, 8, i)).collect();
    let table = Lpm::build(&mut Heap, "test", SMALL, &routes).unwrap();
    assert_eq!(table.routes(), [routes[19]]);
    lives_and_dies(&routes, 1);
    // Neighbours of one length and one next hop look alike in the trie and are still two routes.
    let twins = [route(0u32, 1, 3), route(0x8000_0000, 1, 3), route(0x0a00_0000, 8, 3), route(0x0b00_0000, 8, 3)];
    lives_and_dies(&twins, 1);
    let deep = [route(1u128 << 60, 68, 3), route((1u128 << 60) | 1 << 59, 69, 3), route(1u128 << 60, 69, 3)];
    lives_and_dies(&deep, 1);
}

#[test]
fn bad_prefixes_and_next_hops_are_refused_with_the_remedy() {
    let error = Prefix::<u32>::new([10, 0, 0, 1].into(), 8).unwrap_err();
    assert_eq!(error.to_string(), "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8");
    let error = Prefix::<u32>::new([10, 0, 0, 1].into(), 33).unwrap_err();
    assert_eq!(error.to_string(), "prefix length 33 of 10.0.0.1 is over 32");
    let error = Prefix::<u128>::new("2001:db8::1".parse().unwrap(), 129).unwrap_err();
    assert_eq!(error.to_string(), "prefix length 129 of 2001:db8::1 is over 128");
    let error = NextHop::new(1 << 24).unwrap_err();
    assert_eq!(error.to_string(), "next hop 16777216 is over 16777215");
    let error = Lpm::<u32>::new(&mut Heap, "test", Shape { root_bits: 30, bytes: 1 << 20 }).unwrap_err();
    assert!(error.to_string().contains("8 to 24 bits"), "{error}");
}

#[test]
fn the_largest_next_hop_comes_back_whole() {
    lives_and_dies(&[route(0u128, 128, NextHop::MAX), route(0u128, 0, NextHop::MAX)], 1);
}

#[test]
fn a_prefix_says_what_it_contains() {
    assert!(v4("10.0.0.0/8").contains(0x0aff_ffff));
    assert!(!v4("10.0.0.0/8").contains(0x0b00_0000));
    assert!(v6("::/0").contains(u128::MAX));
    assert_eq!(v6("2001:db8::/32").to_string(), "2001:db8::/32");
}

fn fills_up_and_stays_right<K: Key>() {
    let shape = Shape { root_bits: 8, bytes: 16 << 10 };
    let mut numbers = Numbers(9);
    let (mut table, mut model) = (Lpm::<K>::new(&mut Heap, "test", shape).unwrap(), Model::default());
    let mut refused = 0;
    for index in 0..4000u32 {
        let route = route(numbers.key::<K>(), numbers.below(u64::from(K::BITS) + 1) as u8, index);
        match table.insert(route) {
            Ok(before) => assert_eq!(before, model.insert(route)),
            Err(error) => {
                assert!(error.to_string().contains("is full"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "the table never filled up");
    let routes = model.routes();
    agree(&table, &model, &edges(&routes, &mut numbers));
    for route in routes {
        assert_eq!(table.remove(route.prefix).unwrap(), model.remove(route.prefix));
    }
    assert_eq!(table.extent(), (0, 0));
}

#[test]
fn a_full_table_refuses_keeps_what_it_has_and_can_shrink() {
    fills_up_and_stays_right::<u32>();
    fills_up_and_stays_right::<u128>();
}

#[test]
fn a_pinned_reader_delays_reuse_and_nothing_else() {
    let mut table = Lpm::<u32>::new(&mut Heap, "test", Shape { root_bits: 8, bytes: 8 << 10 }).unwrap();
    let mut reader = table.reader();
    let pinned = reader.pin();
    let mut numbers = Numbers(3);
    let full = (0..10_000).find_map(|_| {
        let route = route(numbers.key::<u32>(), 32, 1);
        table.insert(route).err().or_else(|| table.remove(route.prefix).err())
    });
    assert!(matches!(full, Some(LpmError::Full { retired: 1.., .. })), "{full:?}");
    drop(pinned);
    table.insert(route(1, 32, 1)).unwrap();
}

#[test]
fn exact_routes_survive_growth_and_removal() {
    let routes = random_routes::<u128>(77, 3000, false);
    let (mut table, mut model) =
        (Lpm::new(&mut Heap, "test", Shape { root_bits: 8, bytes: 4 << 20 }).unwrap(), Model::default());
    for route in &routes {
        assert_eq!(table.insert(*route).unwrap(), model.insert(*route));
    }
    for route in routes.iter().step_by(2) {
        assert_eq!(table.remove(route.prefix).unwrap(), model.remove(route.prefix));
    }
    assert_eq!(table.routes(), model.routes());
    assert_eq!(table.len(), model.routes().len());
    for route in &routes {
        assert_eq!(
            table.find(route.prefix).is_some(),
            model.routes().binary_search_by_key(&route.prefix, |r| r.prefix).is_ok()
        );
    }
}

#[test]
fn an_ipv6_route_costs_one_node_and_not_a_chain() {
    let routes: Vec<_> =
        random_routes::<u128>(1, 1000, false).into_iter().filter(|r| r.prefix.prefix_len() > 16).collect();
    let table = Lpm::build(&mut Heap, "test", Shape { root_bits: 16, bytes: 4 << 20 }, &routes).unwrap();
    let (nodes, depth) = table.extent();
    assert!(nodes < routes.len() * 3 / 2 && depth <= 4, "{nodes} nodes, {depth} deep, {} routes", routes.len());
}

/// A step of a random history: a prefix close to a few bases, and what to do with it.
fn steps<K: Key>() -> impl Strategy<Value = Vec<(u8, u8, u128, u8)>> {
    prop::collection::vec((0u8..3, 0u8..4, any::<u128>(), 0..=K::BITS), 1..60)
}

fn history<K: Key>(steps: &[(u8, u8, u128, u8)]) {
    let (mut table, mut model) = (Lpm::<K>::new(&mut Heap, "test", SMALL).unwrap(), Model::default());
    let mut seen = Vec::new();
    for (action, hop, bits, len) in steps {
        // Keys are near zero or near a base, so that the prefixes meet.
        let near = bits & (bits << 3) & (bits << 7) ^ u128::from(*hop) << 120;
        let route = route(K::from_left_aligned(near), *len, u32::from(*hop));
        seen.push(route);
        if *action == 0 {
            let victim = seen[*bits as usize % seen.len()].prefix;
            assert_eq!(table.remove(victim).unwrap(), model.remove(victim));
        } else {
            assert_eq!(table.insert(route).unwrap(), model.insert(route));
        }
        let keys = edges(&seen, &mut Numbers(1));
        agree(&table, &model, &keys);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_history_agrees_with_the_model_ipv4(steps in steps::<u32>()) {
        history::<u32>(&steps);
    }

    #[test]
    fn every_history_agrees_with_the_model_ipv6(steps in steps::<u128>()) {
        history::<u128>(&steps);
    }
}
