//! Times for people and logs: RFC 3339 in UTC, and the tables' ticks as such times.

use std::time::{SystemTime, UNIX_EPOCH};

use tombolo_engine::Now;
use tombolo_tables::tick::Tick;

/// Seconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc(pub i64);

/// The same moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// On the monotonic one, which the tables know.
    pub(crate) now: Now,
    /// For people.
    pub(crate) utc: Utc,
}

impl Utc {
    /// The moment.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self(i64::try_from(since).unwrap_or(i64::MAX))
    }

    /// When `tick` began, as the system's clock has it now. `now` is the moment on the monotonic
    /// clock.
    #[must_use]
    pub fn of_tick(tick: Tick, now: Now) -> Self {
        let ago = now.0.saturating_sub(u64::from(tick.0) << Tick::SHIFT) / 1_000_000_000;
        Self(Self::now().0.saturating_sub_unsigned(ago))
    }

    /// Reads `2026-11-21T08:00:00Z` or seconds since 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(seconds) = text.parse() {
            return Some(Self(seconds));
        }
        let (date, time) = text.strip_suffix('Z')?.split_once(['T', ' '])?;
        let [year, month, day] = numbers(date, '-')?;
        let [hour, minute, second] = numbers(time, ':')?;
        let in_range = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..=60).contains(&second);
        in_range.then(|| Self(days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second))
    }
}

impl std::fmt::Display for Utc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (day, second) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        let (year, month, day) = date_of(day);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| {
        let is_number = !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| is_number)
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

// Years are counted from March, so that the leap day is the last: eras of 400 years have 146097
// days.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
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
        for wrong in ["", "yesterday", "2026-11-21", "2026-13-01T00:00:00Z", "2026-11-21T08:00Z", "2026-11-21T08:00:00"]
        {
            assert_eq!(Utc::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_tick_is_as_long_ago_as_the_monotonic_clock_says() {
        let now = Now(1_000_u64 << Tick::SHIFT);
        let ago = Utc::now().0 - Utc::of_tick(Tick(900), now).0;
        assert!((107..=108).contains(&ago), "{ago}");
    }
}
