//! Exactly-once pseudorandom enumeration in O(1) memory.
//!
//! RFC 9693 section 4.3 asks for every possible four tuple exactly once in pseudorandom order. A
//! shuffled list costs four to eight bytes a tuple; a keyed bijection costs nothing. This is a
//! four-round unbalanced Feistel network over the smallest power of two that holds the range,
//! walked until it lands in the range. Each round XORs one half with a function of the other half
//! and so undoes itself: the whole is a bijection, whatever the function is. Walking a bijection of
//! a larger set until it enters a subset is a bijection of the subset.
//!
//! The same arithmetic is in `bpf/permutation.h`; the generator's tests compare the two.

use crate::layout::PermutationRecord;

/// A pseudorandom bijection of `0..size`, chosen by a seed.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    record: PermutationRecord,
}

impl Permutation {
    /// The permutation of `0..size` that belongs to `seed`. A size of 0 counts as 1.
    pub fn new(size: u32, seed: u64) -> Permutation {
        let size = size.max(1);
        let bits = (32 - (size - 1).leading_zeros()).max(2);
        let low_bits = bits / 2;
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            (mix64(state) >> 32) as u32
        });
        Permutation { record: PermutationRecord { size, low_bits, high_bits: bits - low_bits, reserved: 0, keys } }
    }

    /// Number of elements.
    pub fn size(&self) -> u32 {
        self.record.size
    }

    /// The element at `position`; positions beyond the range start over.
    pub fn at(&self, position: u32) -> u32 {
        let mut x = position % self.record.size;
        loop {
            x = self.feistel(x);
            if x < self.record.size {
                return x;
            }
        }
    }

    /// The position at which `element` comes: the inverse of [`Permutation::at`].
    pub fn position_of(&self, element: u32) -> u32 {
        let mut x = element;
        loop {
            x = self.feistel_inverse(x);
            if x < self.record.size {
                return x;
            }
        }
    }

    pub(crate) fn record(&self) -> PermutationRecord {
        self.record
    }

    fn masks(&self) -> (u32, u32) {
        ((1 << self.record.low_bits) - 1, (1 << self.record.high_bits) - 1)
    }

    fn feistel(&self, x: u32) -> u32 {
        let (low_mask, high_mask) = self.masks();
        let [k0, k1, k2, k3] = self.record.keys;
        let (mut low, mut high) = (x & low_mask, x >> self.record.low_bits & high_mask);
        low ^= mix32(high ^ k0) & low_mask;
        high ^= mix32(low ^ k1) & high_mask;
        low ^= mix32(high ^ k2) & low_mask;
        high ^= mix32(low ^ k3) & high_mask;
        high << self.record.low_bits | low
    }

    fn feistel_inverse(&self, x: u32) -> u32 {
        let (low_mask, high_mask) = self.masks();
        let [k0, k1, k2, k3] = self.record.keys;
        let (mut low, mut high) = (x & low_mask, x >> self.record.low_bits & high_mask);
        high ^= mix32(low ^ k3) & high_mask;
        low ^= mix32(high ^ k2) & low_mask;
        high ^= mix32(low ^ k1) & high_mask;
        low ^= mix32(high ^ k0) & low_mask;
        high << self.record.low_bits | low
    }
}

fn mix32(x: u32) -> u32 {
    let x = x.wrapping_mul(0x9e37_79b1);
    let x = (x ^ x >> 15).wrapping_mul(0x85eb_ca77);
    x ^ x >> 13
}

/// The finaliser of splitmix64: a bijection of 64-bit numbers.
pub(crate) fn mix64(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_of_four_million_tuples_comes_exactly_once() {
        let permutation = Permutation::new(4_000_000, 7);
        let mut seen = vec![false; 4_000_000];
        for position in 0..4_000_000 {
            let element = permutation.at(position) as usize;
            assert!(!seen[element], "element {element} came twice, the second time at {position}");
            seen[element] = true;
        }
        assert!(seen.iter().all(|&s| s));
    }

    #[test]
    fn four_hundred_million_tuples_are_in_range_and_lead_back_to_their_position() {
        // A position that the inverse finds again cannot share its element with another position.
        let permutation = Permutation::new(400_000_000, 11);
        for sample in 0..2_000_000u32 {
            let position = sample * 199 + sample % 199;
            let element = permutation.at(position);
            assert!(element < 400_000_000);
            assert_eq!(permutation.position_of(element), position);
        }
    }

    #[test]
    fn small_ranges_are_permuted_whole() {
        for size in 1..300 {
            let permutation = Permutation::new(size, u64::from(size));
            let mut elements: Vec<u32> = (0..size).map(|p| permutation.at(p)).collect();
            elements.sort_unstable();
            assert_eq!(elements, (0..size).collect::<Vec<_>>());
        }
    }

    #[test]
    fn seeds_give_different_orders_and_neighbours_are_scattered() {
        let (one, two) = (Permutation::new(1 << 20, 1), Permutation::new(1 << 20, 2));
        let same = (0..10_000).filter(|&p| one.at(p) == two.at(p)).count();
        assert!(same < 10, "{same} of 10,000 positions agree");
        let near = (0..10_000).filter(|&p| one.at(p).abs_diff(one.at(p + 1)) < 1024).count();
        assert!(near < 60, "{near} of 10,000 successors are near; chance gives 20");
    }
}
