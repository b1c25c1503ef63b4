//! The routes themselves, by exact prefix: open addressing, linear probing, the writer's alone.
//!
//! Two arrays side by side keep 12-byte records free of padding. Growth is by a half, not by two,
//! and the table runs up to 7/8 full, because its bytes count against the table's bytes a route.

use super::key::Key;
use super::layout;
use super::prefix::{NextHop, Prefix, Route, mask};

/// A store of routes by exact prefix.
pub trait ExactRoutes<K: Key>: Default + Send {
    /// Makes room for `count` routes in all.
    fn reserve(&mut self, routes: &[Route<K>]);
    /// Stores a route; the next hop it had before.
    fn insert(&mut self, route: Route<K>) -> Option<NextHop>;
    /// Removes a route; the next hop it had.
    fn remove(&mut self, prefix: Prefix<K>) -> Option<NextHop>;
    /// The next hop of exactly this prefix.
    fn find(&self, prefix: Prefix<K>) -> Option<NextHop>;
    /// All routes, in no order.
    fn for_each(&self, visit: &mut dyn FnMut(Route<K>));
    /// Bytes that the store takes.
    fn bytes(&self) -> usize;
}

/// One hash table: addresses of type `A`, and the entry word of the route beside each (0: empty
/// place).
#[derive(Debug, Default)]
struct Places<A> {
    addresses: Vec<A>,
    words: Vec<u32>,
    used: usize,
}

trait Address: Copy + Eq + Default {
    fn hash(self, len: u32) -> u64;
}

/// Multiply-and-fold: one multiplication of 64 to 128 bits (wyhash's mixing step).
fn fold(value: u64, seed: u64) -> u64 {
    let product = u128::from(value ^ 0x9e37_79b9_7f4a_7c15) * u128::from(seed ^ 0xe703_7ed1_a0b4_28db);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

impl Address for u32 {
    fn hash(self, len: u32) -> u64 {
        fold(u64::from(self) << 32 | u64::from(len), 0x8ebc_6af0_9c88_c6e3)
    }
}

impl Address for u64 {
    fn hash(self, len: u32) -> u64 {
        fold(self, u64::from(len) << 32 | 0x1d8e_4e27)
    }
}

impl Address for u128 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
    fn hash(self, len: u32) -> u64 {
        fold((self >> 64) as u64, fold(self as u64, u64::from(len)))
    }
}

impl<A: Address> Places<A> {
    fn place(&self, address: A, len: u32) -> usize {
        let spread = u128::from(address.hash(len)) * self.words.len() as u128;
        #[expect(clippy::cast_possible_truncation, reason = "below the length of a vector")]
        let place = (spread >> 64) as usize;
        place
    }

    /// The place of the prefix, or the empty place where it would be. There is an empty place.
    fn probe(&self, address: A, len: u8) -> usize {
        let tag = u32::from(len) + 1;
        let mut place = self.place(address, tag);
        while self.words[place] != 0 && (self.words[place] >> 24 != tag || self.addresses[place] != address) {
            place = self.after(place);
        }
        place
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.words.len() { 0 } else { place + 1 }
    }

    fn resize(&mut self, places: usize) {
        let mut larger = Self { addresses: vec![A::default(); places], words: vec![0; places], used: self.used };
        for (address, word) in self.addresses.iter().zip(&self.words).filter(|(_, word)| **word != 0) {
            let mut place = larger.place(*address, word >> 24);
            while larger.words[place] != 0 {
                place = larger.after(place);
            }
            larger.addresses[place] = *address;
            larger.words[place] = *word;
        }
        *self = larger;
    }

    fn reserve(&mut self, count: usize) {
        let places = count + count / 7 + 8;
        if self.words.len() < places {
            self.resize(places);
        }
    }

    fn insert(&mut self, address: A, len: u8, next_hop: NextHop) -> Option<NextHop> {
        if (self.used + 1) * 8 > self.words.len() * 7 {
            self.resize(self.words.len() + self.words.len() / 2 + 8);
        }
        let place = self.probe(address, len);
        let before = self.words[place];
        self.used += usize::from(before == 0);
        self.addresses[place] = address;
        self.words[place] = layout::route(len, next_hop.number());
        (before != 0).then(|| NextHop::from_low_bits(before))
    }

    fn find(&self, address: A, len: u8) -> Option<NextHop> {
        if self.used == 0 {
            return None;
        }
        let word = self.words[self.probe(address, len)];
        (word != 0).then(|| NextHop::from_low_bits(word))
    }

    fn remove(&mut self, address: A, len: u8) -> Option<NextHop> {
        let found = self.find(address, len)?;
        let mut hole = self.probe(address, len);
        self.words[hole] = 0;
        self.used -= 1;
        // Moves the entries behind the hole back, so that no probe stops short.
        let mut place = self.after(hole);
        while self.words[place] != 0 {
            let home = self.place(self.addresses[place], self.words[place] >> 24);
            let stays = if hole <= place { hole < home && home <= place } else { hole < home || home <= place };
            if !stays {
                self.addresses[hole] = self.addresses[place];
                self.words[hole] = std::mem::take(&mut self.words[place]);
                hole = place;
            }
            place = self.after(place);
        }
        Some(found)
    }

    fn for_each(&self, mut visit: impl FnMut(A, u8, NextHop)) {
        for (address, word) in self.addresses.iter().zip(&self.words).filter(|(_, word)| **word != 0) {
            #[expect(clippy::cast_possible_truncation, reason = "a prefix length")]
            visit(*address, ((word >> 24) - 1) as u8, NextHop::from_low_bits(*word));
        }
    }

    fn bytes(&self) -> usize {
        self.addresses.capacity() * size_of::<A>() + self.words.capacity() * size_of::<u32>()
    }
}

/// Routes of 32-bit keys.
#[derive(Debug, Default)]
pub struct Ipv4Routes(Places<u32>);

impl ExactRoutes<u32> for Ipv4Routes {
    fn reserve(&mut self, routes: &[Route<u32>]) {
        self.0.reserve(routes.len());
    }

    fn insert(&mut self, route: Route<u32>) -> Option<NextHop> {
        self.0.insert(route.prefix.key(), route.prefix.prefix_len(), route.next_hop)
    }

    fn remove(&mut self, prefix: Prefix<u32>) -> Option<NextHop> {
        self.0.remove(prefix.key(), prefix.prefix_len())
    }

    fn find(&self, prefix: Prefix<u32>) -> Option<NextHop> {
        self.0.find(prefix.key(), prefix.prefix_len())
    }

    fn for_each(&self, visit: &mut dyn FnMut(Route<u32>)) {
        self.0.for_each(|key, len, next_hop| visit(Route { prefix: Prefix::covering(key, len), next_hop }));
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// Routes of 128-bit keys. Those of up to 64 bits, nearly all of a real table, take eight bytes
/// less each.
#[derive(Debug, Default)]
pub struct Ipv6Routes {
    short: Places<u64>,
    long: Places<u128>,
}

/// The first half of a key whose prefix has at most 64 bits.
fn first_half(prefix: Prefix<u128>) -> Option<u64> {
    let half = (prefix.key() >> 64) as u64;
    (prefix.prefix_len() <= 64).then_some(half)
}

impl ExactRoutes<u128> for Ipv6Routes {
    fn reserve(&mut self, routes: &[Route<u128>]) {
        let short = routes.iter().filter(|route| route.prefix.prefix_len() <= 64).count();
        self.short.reserve(short);
        self.long.reserve(routes.len() - short);
    }

    fn insert(&mut self, route: Route<u128>) -> Option<NextHop> {
        let (prefix, len) = (route.prefix, route.prefix.prefix_len());
        match first_half(prefix) {
            Some(half) => self.short.insert(half, len, route.next_hop),
            None => self.long.insert(prefix.key(), len, route.next_hop),
        }
    }

    fn remove(&mut self, prefix: Prefix<u128>) -> Option<NextHop> {
        match first_half(prefix) {
            Some(half) => self.short.remove(half, prefix.prefix_len()),
            None => self.long.remove(prefix.key(), prefix.prefix_len()),
        }
    }

    fn find(&self, prefix: Prefix<u128>) -> Option<NextHop> {
        match first_half(prefix) {
            Some(half) => self.short.find(half, prefix.prefix_len()),
            None => self.long.find(prefix.key(), prefix.prefix_len()),
        }
    }

    fn for_each(&self, visit: &mut dyn FnMut(Route<u128>)) {
        self.short.for_each(|half, len, next_hop| {
            visit(Route { prefix: Prefix::covering(u128::from(half) << 64, len), next_hop });
        });
        self.long.for_each(|key, len, next_hop| visit(Route { prefix: Prefix::covering(key, len), next_hop }));
    }

    fn bytes(&self) -> usize {
        self.short.bytes() + self.long.bytes()
    }
}

/// The route that covers `prefix` most closely and is shorter than it: the entry word, or none.
///
/// `lengths` counts the routes of each length, so that lengths without routes cost nothing.
pub(super) fn cover<K: Key>(routes: &K::Routes, lengths: &[u32], prefix: Prefix<K>) -> u32 {
    let key = prefix.key().left_aligned();
    for len in (0..prefix.prefix_len()).rev().filter(|len| lengths[usize::from(*len)] > 0) {
        let shorter = Prefix::covering(K::from_left_aligned(key & mask(len)), len);
        if let Some(next_hop) = routes.find(shorter) {
            return layout::route(len, next_hop.number());
        }
    }
    layout::NONE
}
