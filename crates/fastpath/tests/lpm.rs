//! The reader in the kernel against the reader in Rust, on the same bytes.

#![expect(clippy::unwrap_used, reason = "a test")]

use tombolo_fastpath::lpm::KernelReader;
use tombolo_tables::lpm::{Key, NextHop, Prefix, Route, Shape};

const KEYS: usize = 1_000_000;
const ROUTES: usize = 100_000;

/// A deterministic source of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.draw()) << 64 | u128::from(self.draw())
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % bound as u64).unwrap()
    }
}

fn routes<K: Key>(numbers: &mut Numbers) -> Vec<Route<K>> {
    let chain = numbers.wide();
    let route = |index: usize| {
        // A nested chain of all lengths, then random routes of all lengths.
        let nested = index <= usize::from(K::BITS);
        let len = if nested { index } else { numbers.below(usize::from(K::BITS) + 1) };
        let key = if nested { chain } else { numbers.wide() };
        let next_hop = NextHop::new(u32::try_from(numbers.below(1 << 24)).unwrap()).unwrap();
        Route { prefix: Prefix::covering(K::from_left_aligned(key), u8::try_from(len).unwrap()), next_hop }
    };
    (0..ROUTES).map(route).collect()
}

/// Half random keys, half inside routes: first, last and somewhere between.
fn keys<K: Key>(routes: &[Route<K>], numbers: &mut Numbers) -> Vec<K> {
    let key = |index: usize| {
        let random = numbers.wide();
        let prefix = routes[numbers.below(routes.len())].prefix;
        let host = u128::MAX.checked_shr(u32::from(prefix.prefix_len())).unwrap_or(0);
        let first = prefix.key().left_aligned();
        K::from_left_aligned(match index % 8 {
            0 => first,
            1 => first | host,
            2 => first.wrapping_sub(1),
            3 => first | random & host,
            _ => random,
        })
    };
    (0..KEYS).map(key).collect()
}

fn agree<K: Key>(reader: &KernelReader<K>, keys: &[K]) {
    let answers = reader.look_up(keys).unwrap();
    let mut rust = reader.table.reader();
    let pinned = rust.pin();
    let mut found = 0;
    for (key, answer) in keys.iter().zip(&answers) {
        let expected = pinned.lookup(*key).map(|found| (found.prefix_len(), found.next_hop().number()));
        assert_eq!(*answer, expected, "key {key:x?}");
        found += usize::from(expected.is_some());
    }
    assert_eq!(answers.len(), KEYS);
    assert!(found > KEYS / 4, "only {found} keys had a route");
}

fn the_kernel_agrees<K: Key>(seed: u64) {
    let mut numbers = Numbers(seed);
    let routes = routes::<K>(&mut numbers);
    let keys = keys(&routes, &mut numbers);
    let shape = Shape { root_bits: 16, bytes: 16 << 20 };
    let mut reader = KernelReader::new(shape, &routes, KEYS).unwrap();
    agree(&reader, &keys);
    // And again after half of the routes went, one at a time, nodes changing in place.
    for route in routes.iter().step_by(2) {
        reader.table.remove(route.prefix).unwrap();
    }
    // The default route is one of them; the kernel finds what is left.
    reader.table.insert(Route { prefix: Prefix::covering(keys[0], 0), ..routes[0] }).unwrap();
    agree(&reader, &keys);
}

#[test]
fn the_reader_in_the_kernel_agrees_with_rust_on_a_million_ipv4_keys() {
    if tombolo_lab::skip_without("the reader in the kernel", &[]) {
        return;
    }
    the_kernel_agrees::<u32>(1);
}

#[test]
fn the_reader_in_the_kernel_agrees_with_rust_on_a_million_ipv6_keys() {
    if tombolo_lab::skip_without("the reader in the kernel", &[]) {
        return;
    }
    the_kernel_agrees::<u128>(2);
}
