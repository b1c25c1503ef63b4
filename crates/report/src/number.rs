//! Numbers for people: three or four digits that mean something, and a prefix of the SI.

/// A value with the prefix that fits its size, and the unit: `1.235 M frames/s`.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    let short = short(value, unit);
    match unit {
        "bit/s" if short.contains(' ') => format!("{short}{unit}"),
        _ => format!("{short} {unit}").trim_end().to_owned(),
    }
}

/// A value with the prefix that fits its size: `1.235 M`.
pub(crate) fn short(value: f64, unit: &str) -> String {
    let (scaled, prefix) = scaled(value, unit);
    let separator = if prefix.is_empty() { "" } else { " " };
    format!("{}{separator}{prefix}", plain(scaled))
}

/// A count as words and axes have it: `1.5 M`, `40 k`.
pub(crate) fn count(value: f64) -> String {
    let (scaled, prefix) = scaled(value, "");
    let text = plain(scaled);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{}{prefix}", if prefix.is_empty() { "" } else { " " })
}

/// The value in thousands, millions or billions, where its unit has such, and the letter for it.
fn scaled(value: f64, unit: &str) -> (f64, &'static str) {
    if !has_prefixes(unit) {
        return (value, "");
    }
    match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    }
}

/// Rates and counts; times are shown in the unit that they were taken in.
fn has_prefixes(unit: &str) -> bool {
    unit.is_empty() || unit.ends_with("/s") || ["frames", "connections", "bytes"].contains(&unit)
}

/// Four significant digits at most, thousands apart.
pub(crate) fn plain(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        ..0.1 => return significant(value),
        10_000.0.. => return thousands(value),
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Three digits that mean something, however small.
fn significant(value: f64) -> String {
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 12.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a few digits")]
    let digits = digits as usize;
    format!("{value:.digits$}")
}

fn thousands(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_unit() {
        assert_eq!(with_unit(1_234_567.0, "frames/s"), "1.235 M frames/s");
        assert_eq!(with_unit(8.22e9, "bit/s"), "8.220 Gbit/s");
        assert_eq!(with_unit(23_030.9, "ns"), "23,031 ns");
        assert_eq!(with_unit(0.745, "ratio"), "0.745 ratio");
        assert_eq!(with_unit(0.000_412_3, "s"), "0.000412 s");
        assert_eq!(with_unit(-1_234_567.0, "us"), "-1,234,567 us");
        assert_eq!([0.25, 1_500_000.0, 100.0].map(count), ["0.25", "1.5 M", "100"]);
        assert_eq!([1.0, 1_562_500.0, 40_000.0].map(count), ["1", "1.562 M", "40 k"]);
    }
}
