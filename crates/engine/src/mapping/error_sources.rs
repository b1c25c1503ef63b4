//! IPv4 addresses that ICMP errors of nodes without one are sent from.
//!
//! Read first: RFC 6791 section 3.

use std::net::Ipv4Addr;

use rand_core::Rng;

/// IPv4 addresses that ICMP errors of nodes without one are sent from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorSources(Vec<(Ipv4Addr, Ipv4Addr)>);

impl ErrorSources {
    /// The addresses of all `ranges`, each from first to last. Ranges that end before they begin
    /// have none.
    #[must_use]
    pub fn new(mut ranges: Vec<(Ipv4Addr, Ipv4Addr)>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        Self(ranges)
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[(Ipv4Addr, Ipv4Addr)] {
        &self.0
    }

    /// One of them at random, so that traceroute does not take two routers for one and see a loop
    /// (RFC 6791 section 3).
    pub(crate) fn pick(&self, random: &mut impl Rng) -> Option<Ipv4Addr> {
        let width = |&(first, last): &(Ipv4Addr, Ipv4Addr)| u64::from(last.to_bits() - first.to_bits()) + 1;
        let count: u64 = self.0.iter().map(width).sum();
        let mut index = random.next_u64().checked_rem(count)?;
        for range in &self.0 {
            match u32::try_from(index) {
                Ok(offset) if index < width(range) => return Some(Ipv4Addr::from_bits(range.0.to_bits() + offset)),
                _ => index -= width(range),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;
    use std::collections::HashSet;

    #[test]
    fn every_error_source_is_picked_and_no_other_address() {
        let address = |last| Ipv4Addr::new(198, 51, 100, last);
        let sources =
            ErrorSources::new(vec![(address(1), address(2)), (address(9), address(8)), (address(200), address(200))]);
        let mut random = ChaCha8Rng::from_seed([1; 32]);
        let picked: HashSet<_> = (0..100).filter_map(|_| sources.pick(&mut random)).collect();
        assert_eq!(picked, HashSet::from([address(1), address(2), address(200)]));
        assert_eq!(ErrorSources::default().pick(&mut random), None);
    }
}
