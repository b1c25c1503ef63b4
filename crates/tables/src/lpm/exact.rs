//! The routes themselves, by exact prefix: open addressing, linear probing, the writer's alone.
//!
//! Two arrays side by side keep 12-byte records free of padding. Growth is by a half, not by two,
//! and the table runs up to 7/8 full, because its bytes count against the table's bytes a route.

use super::key::{Key, Word};
use super::layout;
use super::prefix::{NextHop, Prefix, Route, mask};

/// One hash table: words of keys, and the entry word of the route beside each (0: an empty slot).
#[derive(Debug, Default)]
struct HashTable<W> {
    keys: Vec<W>,
    entries: Vec<u32>,
    used: usize,
}

impl<W: Word> HashTable<W> {
    fn home(&self, key: W, len: u32) -> usize {
        let spread = u128::from(key.spread(len)) * self.entries.len() as u128;
        #[expect(clippy::cast_possible_truncation, reason = "below the length of a vector")]
        let slot = (spread >> 64) as usize;
        slot
    }

    /// The slot of the prefix, or the empty slot where it would be. There is an empty slot.
    fn probe(&self, key: W, len: u8) -> usize {
        let tag = u32::from(len) + 1;
        let mut slot = self.home(key, tag);
        while self.entries[slot] != 0 && (self.entries[slot] >> 24 != tag || self.keys[slot] != key) {
            slot = self.after(slot);
        }
        slot
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.entries.len() { 0 } else { slot + 1 }
    }

    fn resize(&mut self, slots: usize) {
        let mut larger = Self { keys: vec![W::default(); slots], entries: vec![0; slots], used: self.used };
        for (key, entry) in self.keys.iter().zip(&self.entries).filter(|(_, entry)| **entry != 0) {
            let mut slot = larger.home(*key, entry >> 24);
            while larger.entries[slot] != 0 {
                slot = larger.after(slot);
            }
            larger.keys[slot] = *key;
            larger.entries[slot] = *entry;
        }
        *self = larger;
    }

    fn reserve(&mut self, count: usize) {
        let slots = count + count / 7 + 8;
        if self.entries.len() < slots {
            self.resize(slots);
        }
    }

    fn insert(&mut self, key: W, len: u8, next_hop: NextHop) -> Option<NextHop> {
        if (self.used + 1) * 8 > self.entries.len() * 7 {
            self.resize(self.entries.len() + self.entries.len() / 2 + 8);
        }
        let slot = self.probe(key, len);
        let before = self.entries[slot];
        self.used += usize::from(before == 0);
        self.keys[slot] = key;
        self.entries[slot] = layout::route(len, next_hop.number());
        (before != 0).then(|| NextHop::from_low_bits(before))
    }

    fn find(&self, key: W, len: u8) -> Option<NextHop> {
        if self.used == 0 {
            return None;
        }
        let entry = self.entries[self.probe(key, len)];
        (entry != 0).then(|| NextHop::from_low_bits(entry))
    }

    fn remove(&mut self, key: W, len: u8) -> Option<NextHop> {
        let found = self.find(key, len)?;
        let mut hole = self.probe(key, len);
        self.entries[hole] = 0;
        self.used -= 1;
        // Moves the entries behind the hole back, so that no probe stops short.
        let mut slot = self.after(hole);
        while self.entries[slot] != 0 {
            let home = self.home(self.keys[slot], self.entries[slot] >> 24);
            let stays = if hole <= slot { hole < home && home <= slot } else { hole < home || home <= slot };
            if !stays {
                self.keys[hole] = self.keys[slot];
                self.entries[hole] = std::mem::take(&mut self.entries[slot]);
                hole = slot;
            }
            slot = self.after(slot);
        }
        Some(found)
    }

    fn for_each(&self, mut visit: impl FnMut(W, u8, NextHop)) {
        for (key, entry) in self.keys.iter().zip(&self.entries).filter(|(_, entry)| **entry != 0) {
            #[expect(clippy::cast_possible_truncation, reason = "a prefix length")]
            visit(*key, ((entry >> 24) - 1) as u8, NextHop::from_low_bits(*entry));
        }
    }

    fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<W>() + self.entries.capacity() * size_of::<u32>()
    }
}

/// A store of routes by exact prefix. Those that end within the key's short form, nearly all of a
/// real IPv6 table, take eight bytes less each.
#[derive(Debug, Default)]
pub(super) struct ExactRoutes<K: Key> {
    short: HashTable<K::Short>,
    long: HashTable<K>,
}

/// The short form of a prefix's key, if the prefix ends within it.
fn short<K: Key>(prefix: Prefix<K>) -> Option<K::Short> {
    (prefix.prefix_len() <= K::SHORT_BITS).then(|| prefix.key().short())
}

impl<K: Key> ExactRoutes<K> {
    /// Makes room for these routes.
    pub(super) fn reserve(&mut self, routes: &[Route<K>]) {
        let short = routes.iter().filter(|route| short(route.prefix).is_some()).count();
        self.short.reserve(short);
        if short < routes.len() {
            self.long.reserve(routes.len() - short);
        }
    }

    /// Stores a route; the next hop it had before.
    pub(super) fn insert(&mut self, Route { prefix, next_hop }: Route<K>) -> Option<NextHop> {
        match short(prefix) {
            Some(short) => self.short.insert(short, prefix.prefix_len(), next_hop),
            None => self.long.insert(prefix.key(), prefix.prefix_len(), next_hop),
        }
    }

    /// Removes a route; the next hop it had.
    pub(super) fn remove(&mut self, prefix: Prefix<K>) -> Option<NextHop> {
        match short(prefix) {
            Some(short) => self.short.remove(short, prefix.prefix_len()),
            None => self.long.remove(prefix.key(), prefix.prefix_len()),
        }
    }

    /// The next hop of exactly this prefix.
    pub(super) fn find(&self, prefix: Prefix<K>) -> Option<NextHop> {
        match short(prefix) {
            Some(short) => self.short.find(short, prefix.prefix_len()),
            None => self.long.find(prefix.key(), prefix.prefix_len()),
        }
    }

    /// All routes, in no order.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(Route<K>)) {
        let mut visit = |key, len, next_hop| visit(Route { prefix: Prefix::covering(key, len), next_hop });
        self.short.for_each(|short, len, next_hop| visit(K::from_short(short), len, next_hop));
        self.long.for_each(visit);
    }

    /// Bytes that the store takes.
    pub(super) fn bytes(&self) -> usize {
        self.short.bytes() + self.long.bytes()
    }

    /// The route that covers `prefix` most closely and is shorter than it: the entry word, or none.
    ///
    /// `lengths` counts the routes of each length, so that lengths without routes cost nothing.
    pub(super) fn cover(&self, lengths: &[u32], prefix: Prefix<K>) -> u32 {
        let key = prefix.key().left_aligned();
        for len in (0..prefix.prefix_len()).rev().filter(|len| lengths[usize::from(*len)] > 0) {
            let shorter = Prefix::covering(K::from_left_aligned(key & mask(len)), len);
            if let Some(next_hop) = self.find(shorter) {
                return layout::route(len, next_hop.number());
            }
        }
        layout::NONE
    }
}
