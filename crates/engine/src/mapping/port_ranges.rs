//! Sets of ports.

use std::ops::{Range, RangeInclusive};

use super::ranges::merged;

/// A set of ports: ranges in ascending order that neither overlap nor touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortRanges(Vec<RangeInclusive<u16>>);

impl PortRanges {
    /// The ports that are in any of `ranges`.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u16>>) -> Self {
        Self(merged(ranges, |end, start| u32::from(start) <= u32::from(end) + 1))
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[RangeInclusive<u16>] {
        &self.0
    }

    /// How many ports there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(width).sum()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `port` is one of them.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }

    /// How many ports of the set lie below `port`; `None` if it is not one of them.
    #[must_use]
    pub fn index_of(&self, port: u16) -> Option<u32> {
        let mut below = 0;
        for range in &self.0 {
            if range.contains(&port) {
                return Some(below + u32::from(port - range.start()));
            }
            below += width(range);
        }
        None
    }

    /// Those ports of the set that are in `window`, as the places that they have in the set.
    #[must_use]
    pub fn places_in(&self, window: &RangeInclusive<u16>) -> Range<u32> {
        let below = |port: u32| {
            let before = |range: &RangeInclusive<u16>| {
                let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
                port.clamp(first, last + 1) - first
            };
            self.0.iter().map(before).sum::<u32>()
        };
        below(u32::from(*window.start()))..below(u32::from(*window.end()) + 1)
    }

    /// All ports that are not in the set.
    #[must_use]
    pub fn complement(&self) -> Self {
        let edges = |range: &RangeInclusive<u16>| (range.start().checked_sub(1), range.end().checked_add(1));
        let mut first = Some(0);
        let mut ranges = Vec::new();
        for (before, behind) in self.0.iter().map(edges) {
            ranges.extend(first.zip(before).map(|(first, last)| first..=last));
            first = behind;
        }
        ranges.extend(first.map(|first| first..=u16::MAX));
        Self::new(ranges)
    }

    /// Port number `index`, counted from the lowest.
    #[must_use]
    pub fn nth(&self, mut index: u32) -> Option<u16> {
        for range in &self.0 {
            if index < width(range) {
                return u16::try_from(u32::from(*range.start()) + index).ok();
            }
            index -= width(range);
        }
        None
    }
}

/// How many ports a range has.
pub(crate) fn width(range: &RangeInclusive<u16>) -> u32 {
    u32::from(*range.end()) - u32::from(*range.start()) + 1
}
