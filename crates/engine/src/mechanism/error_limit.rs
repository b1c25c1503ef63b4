//! How many ICMP errors may be sent, in a second.

/// Limits how many errors are sent (RFC 4443 section 2.4 (f)): a bucket that holds `burst` errors
/// and gains `rate` a second.
#[derive(Debug, Clone)]
pub(crate) struct ErrorLimit {
    /// Nanoseconds that one error costs.
    cost: u64,
    /// Nanoseconds that the bucket holds.
    depth: u64,
    /// When the bucket would have been empty: it holds the time since then, up to `depth`.
    empty_since: u64,
    /// Rate and burst that the above were made from.
    made_for: (u32, u32),
}

impl ErrorLimit {
    /// `rate` errors a second, of which `burst` may come at once. A rate of zero sends none.
    #[must_use]
    pub(crate) fn new(rate: u32, burst: u32) -> Self {
        let cost = 1_000_000_000_u64.checked_div(u64::from(rate)).unwrap_or(u64::MAX);
        let depth = cost.saturating_mul(u64::from(burst.max(1)));
        Self { cost, depth, empty_since: 0, made_for: (rate, burst) }
    }

    /// Takes one error out of the bucket at the moment `now` (nanoseconds); false if it is empty. A
    /// bucket for another rate or burst is changed first.
    pub(crate) fn allow(&mut self, rate: u32, burst: u32, now: u64) -> bool {
        if self.made_for != (rate, burst) {
            *self = Self { empty_since: self.empty_since, ..Self::new(rate, burst) };
        }
        if self.cost == u64::MAX {
            return false;
        }
        // Should the clock have gone back, the bucket fills from now on, not from when the clock is
        // there again.
        let since = self.empty_since.min(now).max(now.saturating_sub(self.depth));
        let allowed = now.saturating_sub(since) >= self.cost;
        self.empty_since = if allowed { since + self.cost } else { since };
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn another_policy_counts_from_the_next_error_on() {
        let mut limit = ErrorLimit::new(1, 1);
        assert!(limit.allow(1, 1, 10 * SECOND) && !limit.allow(1, 1, 10 * SECOND));
        assert_eq!((0..9).filter(|_| limit.allow(1000, 4, 10 * SECOND + SECOND / 2)).count(), 4);
        assert!(!limit.allow(0, 4, 20 * SECOND));
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let mut limit = ErrorLimit::new(10, 5);
        let mut limit = |now| limit.allow(10, 5, now);
        let now = 100 * SECOND;
        assert_eq!((0..20).filter(|_| limit(now)).count(), 5);
        assert!(!limit(now + SECOND / 10 - 1));
        assert!(limit(now + SECOND / 10));
        assert_eq!((0..20).filter(|_| limit(now + 100 * SECOND)).count(), 5);
    }

    #[test]
    fn a_rate_of_zero_allows_nothing() {
        assert!(!ErrorLimit::new(0, 10).allow(0, 10, SECOND));
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let mut limit = ErrorLimit::new(1, 1);
        assert!(limit.allow(1, 1, 10 * SECOND));
        assert!(!limit.allow(1, 1, 5 * SECOND));
        assert!(limit.allow(1, 1, 11 * SECOND));
        assert!(!limit.allow(1, 1, 2 * SECOND));
        assert!(limit.allow(1, 1, 3 * SECOND), "it does not wait until the old time is reached");
    }
}
