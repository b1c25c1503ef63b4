//! Where packets of a service are addressed to, for routes.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::lpm::Prefix;

use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::pool::{Owner, Pool, PoolRange, PortRanges, PortSpace};
use crate::mechanism::napt::Nat;

/// Where packets of a service are addressed to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    /// IPv6 prefixes, with their lengths.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// Ranges of IPv4 addresses, first and last.
    pub ipv4: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Those of them that the host has itself, with the ports that the service may use, by protocol, in the
    /// order of [`PortSpace::WITH_SLOTS`](crate::mapping::pool::PortSpace::WITH_SLOTS).
    pub shared: Vec<(Ipv4Addr, [PortRanges; 3])>,
    /// Ranges of IPv4 sources, first and last: packets from them are the service's wherever they
    /// go, except to each other and to `exempt`.
    pub sources: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Ranges of IPv4 destinations that packets from `sources` reach as they are.
    pub exempt: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Of what packets from `sources` are sent to others, some goes back to the host as it came.
    pub returns: bool,
}

impl Routed {
    /// Those of `ipv4` that the host does not have itself.
    pub fn unshared_ipv4(&self) -> impl Iterator<Item = (Ipv4Addr, Ipv4Addr)> + '_ {
        let is_shared = |first| self.shared.iter().any(|(address, _)| *address == first);
        self.ipv4.iter().copied().filter(move |(first, _)| !is_shared(*first))
    }
}

/// The addresses of a pool.
pub(crate) fn of_pool(pool: &Pool) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    pool.ranges().iter().map(|range| (range.first, range.last)).collect()
}

/// What of a service with this NAT the host has as well.
pub(crate) fn shared_of(nat: &Nat) -> Vec<(Ipv4Addr, [PortRanges; 3])> {
    let shared = nat.pool.ranges().iter().filter(|range| range.owner == Owner::Host);
    let with_fixed = |range: &PoolRange, space: PortSpace| {
        let fixed =
            nat.static_bindings.iter().filter(|fixed| fixed.space == space && fixed.outside.address == range.first);
        let fixed = fixed.map(|fixed| fixed.outside.port.0..=fixed.outside.port.0);
        PortRanges::new(range.ports[space as usize].ranges().iter().cloned().chain(fixed))
    };
    shared.map(|range| (range.first, PortSpace::WITH_SLOTS.map(|space| with_fixed(range, space)))).collect()
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
