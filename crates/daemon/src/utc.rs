//! Times for people and logs: RFC 3339 in UTC, and the tables' ticks as such times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use humantime::{format_rfc3339_seconds, parse_rfc3339};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tombolo_engine::Now;
use tombolo_io::clock::monotonic_nanos;
use tombolo_tables::tick::Tick;

/// Seconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc(pub u64);

/// 9999-12-31T23:59:59Z: the last second that can be written.
const LAST: u64 = 253_402_300_799;

/// The same moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// On the monotonic one, which the tables know.
    pub now: Now,
    /// For people.
    pub utc: Utc,
}

impl Moment {
    /// This one.
    #[must_use]
    pub fn current() -> Self {
        Self { now: Now(monotonic_nanos()), utc: Utc::now() }
    }

    /// Whole seconds of the clock that nobody sets.
    #[must_use]
    pub fn uptime(self) -> u64 {
        self.now.0 / 1_000_000_000
    }
}

impl Utc {
    /// The moment.
    #[must_use]
    pub fn now() -> Self {
        Self::of(SystemTime::now())
    }

    /// When `tick` began, as the system's clock has it at `moment`.
    #[must_use]
    pub fn of_tick(tick: Tick, moment: Moment) -> Self {
        let ago = moment.now.0.saturating_sub(u64::from(tick.0) << Tick::SHIFT) / 1_000_000_000;
        Self(moment.utc.0.saturating_sub(ago))
    }

    /// Reads `2026-11-21T08:00:00Z` or seconds since 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(seconds) = text.parse() {
            return Some(Self(seconds));
        }
        parse_rfc3339(&text.replacen(' ', "T", 1)).ok().map(Self::of)
    }

    /// The second of `time`.
    #[must_use]
    pub fn of(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}

impl std::fmt::Display for Utc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.0.min(LAST))).fmt(f)
    }
}

impl Serialize for Utc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Utc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not a time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_back() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_248_000, "2026-11-21T08:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Utc(seconds).to_string(), text);
            assert_eq!(Utc::parse(text), Some(Utc(seconds)));
        }
        for day in (0..60_000).map(|day| day * 86_400 + 12_345) {
            assert_eq!(Utc::parse(&Utc(day).to_string()), Some(Utc(day)));
        }
        assert_eq!(Utc::parse("1795248000"), Some(Utc(1_795_248_000)));
        assert_eq!(Utc::parse("2026-11-21 08:00:00Z"), Some(Utc(1_795_248_000)));
        assert_eq!(Utc::parse(&u64::MAX.to_string()).unwrap().to_string(), "9999-12-31T23:59:59Z");
        for wrong in
            ["", "-1", "yesterday", "2026-11-21", "2026-13-01T00:00:00Z", "2026-11-21T08:00Z", "2026-11-21T08:00:00"]
        {
            assert_eq!(Utc::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_tick_is_as_long_ago_as_the_monotonic_clock_says() {
        let moment = Moment { now: Now(1_000_u64 << Tick::SHIFT), utc: Utc(5000) };
        let ago = 5000 - Utc::of_tick(Tick(900), moment).0;
        assert!((107..=108).contains(&ago), "{ago}");
    }
}
