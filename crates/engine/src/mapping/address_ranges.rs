//! Sets of IPv4 addresses: who is inside, and which destinations are exempt.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use super::ranges::merged;

/// A set of addresses: ranges in ascending order that neither overlap nor touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressRanges(Vec<RangeInclusive<Ipv4Addr>>);

impl AddressRanges {
    /// The addresses that are in any of `ranges`.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<Ipv4Addr>>) -> Self {
        Self(merged(ranges, |end, start| u64::from(start.to_bits()) <= u64::from(end.to_bits()) + 1))
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

    /// How many addresses there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(width).sum()
    }

    /// How many addresses of the set lie below `address`; `None` if it is not one of them.
    #[must_use]
    pub fn index_of(&self, address: Ipv4Addr) -> Option<u64> {
        let mut below = 0;
        for range in &self.0 {
            if range.contains(&address) {
                return Some(below + u64::from(address.to_bits() - range.start().to_bits()));
            }
            below += width(range);
        }
        None
    }

    /// Address number `index`, counted from the lowest.
    #[must_use]
    pub fn nth(&self, mut index: u64) -> Option<Ipv4Addr> {
        for range in &self.0 {
            if index < width(range) {
                return Some(Ipv4Addr::from_bits(range.start().to_bits() + u32::try_from(index).ok()?));
            }
            index -= width(range);
        }
        None
    }
}

fn width(range: &RangeInclusive<Ipv4Addr>) -> u64 {
    u64::from(range.end().to_bits() - range.start().to_bits()) + 1
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

    #[test]
    fn addresses_are_numbered_over_all_ranges() {
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let ranges = AddressRanges::new([address(1)..=address(3), address(7)..=address(8)]);
        assert_eq!(ranges.count(), 5);
        let all: Vec<_> = (0..6).map_while(|index| ranges.nth(index)).collect();
        assert_eq!(all, [1, 2, 3, 7, 8].map(address));
        assert!((0..5).all(|index| ranges.index_of(ranges.nth(index).unwrap()) == Some(index)));
        assert_eq!(ranges.index_of(address(4)), None);
    }
}
