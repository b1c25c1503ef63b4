//! How many ICMP errors may be sent, in a second.
//!
//! ```text
//! error             "packet too big", "fragmentation needed"          any other
//!                        |                                                |
//! its recipient     one of 256 buckets: a quarter of the rate        one of 256 more
//!                        |                                                |
//! all               a bucket of the whole rate                       another one
//! ```
//!
//! Path MTU discovery waits for its errors; nobody needs the others. So whoever has the gateway
//! send thousands of "time exceeded" takes none of the former away, and little of the latter from
//! anybody else. Which bucket is whose follows from a secret.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::hash::HashKey;

use super::refusal::IcmpAnswer;

/// Buckets of recipients. Those who share one share its rate.
const RECIPIENTS: u32 = 256;

/// What is left to a recipient of a rate that is small as it is.
const LEAST_SHARE: u32 = 10;

/// Who would get an error: a host of IPv4, or an IPv6 prefix of 64 bits, within which one host can
/// have any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recipient(u64);

impl From<Ipv4Addr> for Recipient {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_bits().into())
    }
}

impl From<Ipv6Addr> for Recipient {
    fn from(address: Ipv6Addr) -> Self {
        let [a, b, c, d, ..] = address.segments();
        Self([a, b, c, d].into_iter().fold(0, |prefix, segment| prefix << 16 | u64::from(segment)))
    }
}

/// Limits how many errors are sent, by kind and by recipient.
#[derive(Debug)]
pub(crate) struct ErrorLimits {
    key: HashKey,
    too_big: Class,
    others: Class,
}

impl ErrorLimits {
    /// Buckets that are full. `secret` must be random.
    #[must_use]
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        let [a, b] = secret;
        Self { key: HashKey::new([a, b, 1, 2]), too_big: Class::default(), others: Class::default() }
    }

    /// Whether one more error may be sent at the moment `now` (nanoseconds), where each kind has
    /// `rate` a second and `burst` at once.
    pub(crate) fn allow(&mut self, answer: IcmpAnswer, to: Recipient, rate: u32, burst: u32, now: u64) -> bool {
        let [bucket, _] = self.key.hash([to.0, 0, 0]).buckets(RECIPIENTS);
        let class = if matches!(answer, IcmpAnswer::TooBig { .. }) { &mut self.too_big } else { &mut self.others };
        class.recipients[bucket as usize].allow(share(rate), share(burst), now) && class.all.allow(rate, burst, now)
    }
}

/// A quarter, but not of what is little.
fn share(whole: u32) -> u32 {
    (whole / 4).max(whole.min(LEAST_SHARE))
}

/// The buckets of a kind of error.
#[derive(Debug)]
struct Class {
    all: ErrorLimit,
    recipients: Box<[ErrorLimit]>,
}

impl Default for Class {
    fn default() -> Self {
        let empty = ErrorLimit::new(0, 1);
        Self { all: empty.clone(), recipients: vec![empty; RECIPIENTS as usize].into() }
    }
}

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

    const TOO_BIG: IcmpAnswer = IcmpAnswer::TooBig { mtu: 1280 };

    #[test]
    fn a_host_that_provokes_errors_takes_none_of_another_kind_and_few_of_others() {
        let mut limits = ErrorLimits::new([1, 2]);
        let mut sent = |answer, to: Recipient, count: u32, from: u64| {
            let times = (0..count).map(|n| from + u64::from(n) * 1_000_000);
            times.filter(|&now| limits.allow(answer, to, 100, 50, now)).count()
        };
        let (loud, quiet) = (Ipv6Addr::from_bits(1 << 64).into(), Ipv6Addr::from_bits(2 << 64).into());
        // A thousand a second for ten seconds.
        let exceeded = sent(IcmpAnswer::TimeExceeded, loud, 10_000, 100 * SECOND);
        assert!((240..=265).contains(&exceeded), "{exceeded}: 25 a second, and 12 at once");
        assert_eq!(sent(TOO_BIG, quiet, 10, 110 * SECOND), 10);
        assert_eq!(sent(TOO_BIG, loud, 10, 110 * SECOND), 10);
        assert_eq!(sent(IcmpAnswer::TimeExceeded, quiet, 10, 110 * SECOND), 10);
    }

    #[test]
    fn all_recipients_together_have_the_rate() {
        let mut limits = ErrorLimits::new([1, 2]);
        let to = |n: u32| Recipient::from(Ipv4Addr::from_bits(n));
        let sent = (0..1000).filter(|&n| limits.allow(IcmpAnswer::HostUnreachable, to(n), 100, 50, SECOND)).count();
        assert_eq!(sent, 50);
        assert!(limits.allow(TOO_BIG, to(1), 100, 50, SECOND));
    }

    #[test]
    fn hosts_of_one_ipv6_prefix_are_one_recipient() {
        let at = |low: u128| Recipient::from(Ipv6Addr::from_bits(7 << 64 | low));
        assert_eq!(at(1), at(u128::from(u64::MAX)));
        assert_ne!(at(1), Recipient::from(Ipv6Addr::from_bits(8 << 64 | 1)));
    }

    #[test]
    fn small_rates_are_not_divided() {
        assert_eq!([0, 1, 2, 10, 39, 40, 50, 100].map(share), [0, 1, 2, 10, 10, 10, 12, 25]);
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
