//! The keys that are looked up, and the loop around every lookup.

use tombolo_tables::lpm::{Key, Prefix, Route};

use crate::random::xorshift;

/// Covered keys in a set: the set must not push the table out of the caches (256 KiB for IPv4).
pub const COVERED: usize = 32_768;

/// A deterministic source of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.draw()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// An index of a slice of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// 128 bits.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.draw()) << 64 | u128::from(self.draw())
    }
}

/// A key that the loops can draw; the kernel's loop (`route_lookup.bpf.c`) draws the same.
pub trait Drawn: Key {
    /// 4 or 6.
    const FAMILY: u8;
    /// A key from 64 pseudorandom bits.
    fn from_draw(draw: u64) -> Self;
    /// The key in 32 bits, for the dry run.
    fn folded(self) -> u32;
}

impl Drawn for u32 {
    const FAMILY: u8 = 4;

    #[inline(always)]
    fn from_draw(draw: u64) -> Self {
        (draw >> 32) as u32
    }

    #[inline(always)]
    fn folded(self) -> u32 {
        self
    }
}

impl Drawn for u128 {
    const FAMILY: u8 = 6;

    #[inline(always)]
    fn from_draw(draw: u64) -> Self {
        u128::from(draw) << 64 | u128::from(draw.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a fold of both halves")]
    fn folded(self) -> u32 {
        (self >> 96) as u32 ^ self as u32
    }
}

/// Where a thread's keys come from.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a, K> {
    /// Pseudorandom over the whole space (xorshift64), from a seed that is not zero.
    Random(u64),
    /// From a list, over and over.
    Covered(&'a [K]),
}

impl<K: Drawn> Keys<'_, K> {
    /// Calls `lookup` for `count` keys and adds up what it returns.
    #[inline(always)]
    pub fn drive(&self, count: usize, mut lookup: impl FnMut(K) -> u32) -> u64 {
        let mut sum = 0u64;
        match *self {
            Keys::Random(seed) => {
                let mut state = seed;
                for _ in 0..count {
                    sum = sum.wrapping_add(u64::from(lookup(K::from_draw(xorshift(&mut state)))));
                }
            }
            Keys::Covered(list) => {
                for key in list.iter().cycle().take(count) {
                    sum = sum.wrapping_add(u64::from(lookup(*key)));
                }
            }
        }
        sum
    }

    /// As [`Self::drive`] for a batched lookup: `lookup` gets keys in groups of `N`.
    #[inline(always)]
    pub fn drive_batches<const N: usize>(&self, count: usize, mut lookup: impl FnMut(&[K; N]) -> u64) -> u64 {
        let mut sum = 0u64;
        match *self {
            Keys::Random(seed) => {
                let mut state = seed;
                for _ in 0..count / N {
                    let keys = std::array::from_fn(|_| K::from_draw(xorshift(&mut state)));
                    sum = sum.wrapping_add(lookup(&keys));
                }
            }
            Keys::Covered(list) => {
                for keys in list.as_chunks().0.iter().cycle().take(count / N) {
                    sum = sum.wrapping_add(lookup(keys));
                }
            }
        }
        sum
    }
}

/// [`COVERED`] keys, each inside a route of the table.
#[must_use]
pub fn covered<K: Drawn>(routes: &[Route<K>], numbers: &mut Numbers) -> Vec<K> {
    let mut inside = |prefix: Prefix<K>| {
        let host = u128::MAX.checked_shr(u32::from(prefix.prefix_len())).unwrap_or(0);
        K::from_left_aligned(prefix.key().left_aligned() | numbers.wide() & host)
    };
    let step = (routes.len() / COVERED).max(1);
    routes.iter().step_by(step).cycle().take(COVERED).map(|route| inside(route.prefix)).collect()
}
