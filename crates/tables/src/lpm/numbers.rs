//! Numbers that repeat, and how long the tests on them run.

use super::Key;

/// A deterministic source of numbers (splitmix64), so that a failure repeats.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(super) fn key<K: Key>(&mut self) -> K {
        K::from_left_aligned(u128::from(self.next()) << 64 | u128::from(self.next()))
    }
}

/// Seconds that each test of many changes runs.
pub(super) fn seconds() -> f64 {
    std::env::var("TOMBOLO_TORTURE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1.5)
}
