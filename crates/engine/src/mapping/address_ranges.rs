//! Sets of IPv4 addresses: who is inside, and which destinations are exempt.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// A set of addresses: ranges in ascending order that neither overlap nor touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressRanges(Vec<RangeInclusive<Ipv4Addr>>);

impl AddressRanges {
    /// The addresses that are in any of `ranges`.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<Ipv4Addr>>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<Ipv4Addr>> = Vec::new();
        for range in sorted {
            match merged.last_mut() {
                Some(last) if u64::from(range.start().to_bits()) <= u64::from(last.end().to_bits()) + 1 => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[RangeInclusive<Ipv4Addr>] {
        &self.0
    }

    /// True if `address` is one of them.
    #[must_use]
    #[inline]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let after = self.0.partition_point(|range| *range.start() <= address);
        self.0[..after].last().is_some_and(|range| *range.end() >= address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_contain_what_they_should() {
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let ranges = AddressRanges::new([
            address(8)..=address(15),
            address(1)..=address(3),
            address(4)..=address(5),
            Ipv4Addr::new(255, 255, 255, 255)..=Ipv4Addr::BROADCAST,
            address(9)..=address(10),
        ]);
        let end = Ipv4Addr::BROADCAST..=Ipv4Addr::BROADCAST;
        assert_eq!(ranges.ranges(), [address(1)..=address(5), address(8)..=address(15), end]);
        for (last, inside) in
            [(0, false), (1, true), (5, true), (6, false), (7, false), (8, true), (15, true), (16, false)]
        {
            assert_eq!(ranges.contains(address(last)), inside, "{last}");
        }
        assert!(!AddressRanges::default().contains(address(1)));
    }
}
