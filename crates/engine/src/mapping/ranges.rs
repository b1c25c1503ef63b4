//! Sets as ranges: what addresses and ports have in common.

use std::ops::RangeInclusive;

/// The ranges that have what any of `ranges` has: ascending, and none overlaps or touches another.
/// `touches` says whether a range from its second argument on leaves no gap behind one that ends
/// with the first.
pub(super) fn merged<B: Copy + Ord>(
    ranges: impl IntoIterator<Item = RangeInclusive<B>>,
    touches: impl Fn(B, B) -> bool,
) -> Vec<RangeInclusive<B>> {
    let mut sorted: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    sorted.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<B>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if touches(*last.end(), *range.start()) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}
