//! Moments of a node's own clock.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

/// Milliseconds of `CLOCK_BOOTTIME`, which goes on while a host sleeps. Nothing depends on clocks of two nodes that agree, only on
/// rates that differ by 2 % at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment of a clock that counts nanoseconds. It is rounded down: what lasts until a moment so made ends early, not late.
    #[must_use]
    pub const fn of_nanos(nanos: u64) -> Self {
        Self(nanos / 1_000_000)
    }

    /// Milliseconds since an earlier moment; 0 if it is a later one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// When somebody was heard last, for threads that do not hear by themselves.
#[derive(Debug, Default)]
pub struct LastHeard(AtomicU64);

impl LastHeard {
    /// Somebody is heard.
    pub fn note(&self, now: Moment) {
        self.0.fetch_max(now.0, Ordering::Relaxed);
    }

    /// For how long nobody was, in milliseconds.
    #[must_use]
    pub fn silence(&self, now: Moment) -> u64 {
        now.since(Moment(self.0.load(Ordering::Relaxed)))
    }
}

impl Add<u64> for Moment {
    type Output = Self;

    fn add(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

impl Sub<u64> for Moment {
    type Output = Self;

    fn sub(self, millis: u64) -> Self {
        Self(self.0.saturating_sub(millis))
    }
}
