//! Values as cells, with their marks.

use crate::document::{Cell, Mark};
use crate::number;
use crate::results::{Bound, Row};

/// The median with its marks.
pub(super) fn median(row: &Row, written: impl Fn(f64) -> String) -> Cell {
    let star = if row.doubts.is_empty() { "" } else { " *" };
    match &row.summary {
        None => Cell::marked("\u{2013} *", Some(Mark::Missing)),
        Some(summary) => {
            let sign = row.bound.map_or("", Bound::sign);
            let mark = (!row.doubts.is_empty() || row.bound.is_some()).then_some(Mark::Doubtful);
            Cell::marked(format!("{sign}{}{star}", written(summary.median)), mark)
        }
    }
}

/// The ratio to the first gateway, and its range.
pub(super) fn ratio(row: &Row, first: &str) -> Cell {
    match &row.ratio {
        None if row.gateway == first => "1".into(),
        None => Cell::missing(),
        Some(ratio) => {
            let sign = row.ratio_bound.map_or("", Bound::sign);
            let [median, min, max] = [ratio.median, ratio.min, ratio.max].map(number::plain);
            let mark = row.ratio_bound.map(|_| Mark::Doubtful);
            Cell::marked(format!("{sign}{median} ({min} to {max})"), mark)
        }
    }
}

/// Repetitions that have a value.
pub(super) fn count(row: &Row) -> Cell {
    let count = row.summary.map_or(0, |summary| summary.count);
    match row.missing {
        0 => count.to_string().into(),
        missing => Cell::marked(format!("{count} of {}", count + missing), Some(Mark::Doubtful)),
    }
}

/// Which way is up.
pub(super) fn better(higher: bool) -> &'static str {
    if higher { "more is better" } else { "less is better" }
}
