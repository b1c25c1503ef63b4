//! The tables' clock: ticks of 2^30 nanoseconds (about 1.07 s) of the monotonic clock.
//!
//! A shift instead of a division, in 32 bits that last 146 years. Lifetimes in seconds are rounded
//! up and one tick is added, so that a timer may be late but never early (RFC 4787 REQ-5, RFC 5382
//! REQ-5).

/// A moment, in ticks since the monotonic clock's origin. Tick 0 means "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u32);

impl Tick {
    /// Binary logarithm of the nanoseconds in a tick.
    pub const SHIFT: u32 = if cfg!(other_layout) { 29 } else { 30 };

    /// The tick of a reading of the monotonic clock.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "146 years of uptime")]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self((nanos >> Self::SHIFT) as u32)
    }

    /// Ticks that have passed since `earlier`; zero if it lies in the future (a clock that jumped).
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The number of ticks that cover `seconds` at least.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "capped below")]
pub const fn ticks(seconds: u32) -> u32 {
    let nanos = seconds as u64 * 1_000_000_000;
    let ticks = (nanos >> Tick::SHIFT) + 2;
    if ticks > u32::MAX as u64 { u32::MAX } else { ticks as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_never_cut_short() {
        for seconds in [0, 1, 6, 60, 120, 300, 7200] {
            let start = 12_345_678_901_234_u64;
            let last_good = start + u64::from(seconds) * 1_000_000_000;
            let age = Tick::from_nanos(last_good).since(Tick::from_nanos(start));
            assert!(age < ticks(seconds), "{seconds} s expired after {age} ticks");
        }
    }

    #[test]
    fn a_clock_that_jumps_back_ages_nothing() {
        assert_eq!(Tick(5).since(Tick(9)), 0);
    }
}
