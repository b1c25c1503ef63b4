//! Where packets of a service are addressed to, for routes.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::lpm::Prefix;

use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::pool::Pool;

/// Where packets of a service are addressed to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    /// IPv6 prefixes, with their lengths.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// Ranges of IPv4 addresses, first and last.
    pub ipv4: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Ranges of IPv4 sources, first and last: packets from them are the service's wherever they
    /// go, except to each other and to `exempt`.
    pub sources: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Ranges of IPv4 destinations that packets from `sources` reach as they are.
    pub exempt: Vec<(Ipv4Addr, Ipv4Addr)>,
}

/// The addresses of a pool.
pub(crate) fn of_pool(pool: &Pool) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    pool.ranges().iter().map(|range| (range.first, range.last)).collect()
}

/// The addresses of ranges.
pub(crate) fn of_ranges(ranges: &AddressRanges) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    ranges.ranges().iter().map(|range| (*range.start(), *range.end())).collect()
}

/// The first and the last address of a prefix.
pub(crate) fn of_prefix(prefix: Prefix<u32>) -> (Ipv4Addr, Ipv4Addr) {
    let host_bits = u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
    (Ipv4Addr::from_bits(prefix.key()), Ipv4Addr::from_bits(prefix.key() | host_bits))
}
