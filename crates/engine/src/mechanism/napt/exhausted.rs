//! What was found to have no free port, so that a flood does not search it again and again.
//!
//! A search passes all ports of an address. What it finds is good for the tick. Of pools with more
//! addresses than there is memory for, so many searches a tick are made, and from then on searches
//! that look at a few ports: they find one wherever there are many. So does the search for an
//! address that has one for a new subscriber, at a few ports of all addresses that it tries
//! together.

use std::net::Ipv4Addr;

use tombolo_tables::subscriber::SubscriberId;
use tombolo_tables::tick::Tick;

use crate::mapping::pool::PortSpace;

/// Places of the memory.
const PLACES: usize = 1024;
/// Searches in vain, in a tick, until searches are short.
const SEARCHES: u32 = 256;
/// Ports, or blocks of ports, that a short search looks at.
const SHORT: usize = 64;

/// A memory of what has no free port, good for the tick.
#[derive(Debug, Clone)]
pub struct Exhausted {
    places: Box<[(u64, Tick)]>,
    /// The tick, and how many searches were in vain in it.
    in_vain: (Tick, u32),
}

impl Default for Exhausted {
    fn default() -> Self {
        Self { places: vec![(0, Tick(0)); PLACES].into(), in_vain: (Tick(0), 0) }
    }
}

impl Exhausted {
    pub(super) fn address(address: Ipv4Addr, space: PortSpace) -> u64 {
        1 << 40 | u64::from(address.to_bits()) << 3 | space as u64
    }

    pub(super) fn subscriber(id: SubscriberId, space: PortSpace) -> u64 {
        2 << 40 | u64::from(id.get()) << 3 | space as u64
    }

    pub(super) fn share(id: SubscriberId, space: PortSpace) -> u64 {
        3 << 40 | u64::from(id.get()) << 3 | space as u64
    }

    fn place(key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % PLACES
    }

    pub(super) fn contains(&self, key: u64, now: Tick) -> bool {
        self.places[Self::place(key)] == (key, now)
    }

    pub(super) fn note(&mut self, key: u64, now: Tick) {
        self.places[Self::place(key)] = (key, now);
        self.note_search(now);
    }

    /// A search was in vain, and may not be the next time, in the same tick.
    pub(super) fn note_search(&mut self, now: Tick) {
        let (tick, count) = self.in_vain;
        self.in_vain = (now, if tick == now { count.saturating_add(1) } else { 1 });
    }

    /// How many ports or blocks the next search may look at.
    pub(super) fn depth(&self, now: Tick) -> usize {
        if self.searches_are_short(now) { SHORT } else { usize::MAX }
    }

    /// The same of each of so many addresses that one packet tries: a short search is as short for all
    /// of them together.
    pub(super) fn depth_of_each(&self, addresses: u32, now: Tick) -> usize {
        let depth = self.depth(now);
        if depth == SHORT { SHORT / addresses.max(1) as usize } else { depth }
    }

    pub(super) fn searches_are_short(&self, now: Tick) -> bool {
        self.in_vain.0 == now && self.in_vain.1 >= SEARCHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_large_pool_are_remembered_for_the_tick() {
        let mut exhausted = Exhausted::default();
        let keys = (0..200).map(|n| Exhausted::address(Ipv4Addr::from_bits(0xc000_0200 + n), PortSpace::Udp));
        let keys: Vec<u64> = keys.collect();
        keys.iter().for_each(|&key| exhausted.note(key, Tick(5)));
        let known = keys.iter().filter(|&&key| exhausted.contains(key, Tick(5))).count();
        assert!(known > 170, "{known} of 200");
        assert!(keys.iter().all(|&key| !exhausted.contains(key, Tick(6))));
    }

    #[test]
    fn after_so_many_searches_in_vain_the_others_of_the_tick_are_short() {
        let mut exhausted = Exhausted::default();
        for key in 1..u64::from(SEARCHES) {
            exhausted.note(key << 20, Tick(5));
            assert_eq!(exhausted.depth(Tick(5)), usize::MAX);
        }
        exhausted.note(1, Tick(5));
        assert_eq!((exhausted.depth(Tick(5)), exhausted.depth(Tick(6))), (SHORT, usize::MAX));
        let of_each = |tick| exhausted.depth_of_each(16, tick);
        assert_eq!((of_each(Tick(5)), of_each(Tick(6))), (SHORT / 16, usize::MAX));
    }
}
