//! Deterministic mapping: which outside address and ports a host has is computed, so that no log
//! has to tell.
//!
//! Read first: RFC 7422 sections 2 and 2.3.
//!
//! ```text
//! ports of an outside address, the reserved ones taken out:
//! | host 0 | host 1 | ... | host C-1 | dynamic pool: D shares and the remainder |
//! ```
//!
//! C hosts share an address (the compression ratio), and each gets `ports / (C + D)`. With D = 0
//! there is no dynamic pool, and the remainder is nobody's.

use std::net::Ipv4Addr;

use super::port_ranges::PortRanges;

/// In which order hosts are spread over several outside addresses. RFC 7422's words for
/// "sequential" fit both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The first address is filled before the second.
    FillAddress,
    /// Host i goes to address i modulo their number.
    RotateAddresses,
}

/// A deterministic mapping of consecutive inside addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeterministicMap {
    first: Ipv4Addr,
    hosts: u32,
    outside: Vec<Ipv4Addr>,
    ports: PortRanges,
    ports_per_host: u32,
    compression: u32,
    has_dynamic: bool,
    order: Order,
}

/// The parameters leave no port for each host, or there is no host or no outside address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NothingToShare;

/// The ports of a host: from `first` to `last`, without the reserved ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortBlock {
    /// Outside address.
    pub address: Ipv4Addr,
    /// Lowest port.
    pub first: u16,
    /// Highest port.
    pub last: u16,
}

/// Whose an outside port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This host's.
    Host(Ipv4Addr),
    /// Given out from the dynamic pool: the log says to whom.
    Dynamic,
    /// Nobody's, by configuration.
    Reserved,
    /// Nobody's: a remainder, or the share of a host that there is not.
    Unassigned,
}

/// Whose an outside port is, by the number of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharer {
    /// The host's with this number, counted from zero.
    Host(u32),
    /// Given out from the dynamic pool.
    Dynamic,
    /// Nobody's, by configuration.
    Reserved,
    /// Nobody's: a remainder, or the share of a host that there is not.
    Unassigned,
}

impl DeterministicMap {
    /// The mapping of `hosts` addresses from `first` on to `outside`, with a dynamic pool of
    /// `dynamic_factor` shares (RFC 7422's D).
    ///
    /// # Errors
    /// [`NothingToShare`].
    pub fn new(
        first: Ipv4Addr,
        hosts: u32,
        outside: Vec<Ipv4Addr>,
        reserved: &PortRanges,
        dynamic_factor: u32,
        order: Order,
    ) -> Result<Self, NothingToShare> {
        let addresses = u32::try_from(outside.len()).map_err(|_| NothingToShare)?;
        if addresses == 0 || hosts == 0 || first.to_bits().checked_add(hosts - 1).is_none() {
            return Err(NothingToShare);
        }
        let ports = reserved.complement();
        let compression = hosts.div_ceil(addresses);
        let ports_per_host = ports.len() / compression.saturating_add(dynamic_factor);
        if ports_per_host == 0 {
            return Err(NothingToShare);
        }
        Ok(Self { first, hosts, outside, ports, ports_per_host, compression, has_dynamic: dynamic_factor > 0, order })
    }

    /// Ports that each host has.
    #[must_use]
    pub const fn ports_per_host(&self) -> u32 {
        self.ports_per_host
    }

    /// Hosts that share an outside address, at most.
    #[must_use]
    pub const fn compression(&self) -> u32 {
        self.compression
    }

    /// The outside addresses, in the order in which hosts are spread over them.
    #[must_use]
    pub fn outside(&self) -> &[Ipv4Addr] {
        &self.outside
    }

    /// In which order hosts are spread over them.
    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The ports of an outside address that are not reserved.
    #[must_use]
    pub const fn ports(&self) -> &PortRanges {
        &self.ports
    }

    /// The ports of `inside`; `None` if it is not one of the hosts.
    #[must_use]
    pub fn forward(&self, inside: Ipv4Addr) -> Option<PortBlock> {
        self.share(inside.to_bits().checked_sub(self.first.to_bits())?)
    }

    /// The ports of host number `host`, counted from zero; `None` if there is no such host.
    #[must_use]
    pub fn share(&self, host: u32) -> Option<PortBlock> {
        if host >= self.hosts {
            return None;
        }
        let (address, share) = match self.order {
            Order::FillAddress => (host / self.compression, host % self.compression),
            Order::RotateAddresses => (host % self.addresses(), host / self.addresses()),
        };
        let from = share * self.ports_per_host;
        Some(PortBlock {
            address: *self.outside.get(address as usize)?,
            first: self.ports.nth(from)?,
            last: self.ports.nth(from + self.ports_per_host - 1)?,
        })
    }

    /// Whose port `port` of `outside` is; `None` if the address is not one of the mapping's.
    #[must_use]
    pub fn reverse(&self, outside: Ipv4Addr, port: u16) -> Option<Owner> {
        Some(match self.sharer(outside, port)? {
            Sharer::Host(host) => Owner::Host(Ipv4Addr::from_bits(self.first.to_bits() + host)),
            Sharer::Dynamic => Owner::Dynamic,
            Sharer::Reserved => Owner::Reserved,
            Sharer::Unassigned => Owner::Unassigned,
        })
    }

    /// As [`reverse`](Self::reverse), with the number of the host.
    #[must_use]
    pub fn sharer(&self, outside: Ipv4Addr, port: u16) -> Option<Sharer> {
        let address = u32::try_from(self.outside.iter().position(|&other| other == outside)?).ok()?;
        let Some(index) = self.ports.index_of(port) else { return Some(Sharer::Reserved) };
        let share = index / self.ports_per_host;
        if share >= self.compression {
            return Some(if self.has_dynamic { Sharer::Dynamic } else { Sharer::Unassigned });
        }
        let host = match self.order {
            Order::FillAddress => address * self.compression + share,
            Order::RotateAddresses => share * self.addresses() + address,
        };
        Some(if host < self.hosts { Sharer::Host(host) } else { Sharer::Unassigned })
    }

    /// Lowest and highest port of the dynamic pool, which is the same for each outside address;
    /// `None` if there is none.
    #[must_use]
    pub fn dynamic_ports(&self) -> Option<(u16, u16)> {
        let first = self.ports.nth(self.compression * self.ports_per_host)?;
        let last = self.ports.nth(self.ports.len() - 1)?;
        self.has_dynamic.then_some((first, last))
    }

    #[expect(clippy::cast_possible_truncation, reason = "checked when it was made")]
    fn addresses(&self) -> u32 {
        self.outside.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_of_a_host_leads_back_to_it_and_to_no_other() {
        for order in [Order::FillAddress, Order::RotateAddresses] {
            let outside: Vec<_> = (0..3).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect();
            let reserved = PortRanges::new([0..=1023, 5004..=5004, 5060..=5061]);
            let map = DeterministicMap::new([100, 64, 0, 0].into(), 100, outside.clone(), &reserved, 1, order).unwrap();
            let mut counts = std::collections::HashMap::new();
            for address in outside {
                for port in 0..=u16::MAX {
                    let owner = map.reverse(address, port).unwrap();
                    if let Owner::Host(host) = owner {
                        let block = map.forward(host).unwrap();
                        assert!(block.address == address && (block.first..=block.last).contains(&port));
                        *counts.entry(host).or_insert(0) += 1;
                    }
                    assert_eq!(owner == Owner::Reserved, reserved.contains(port));
                }
            }
            assert!(counts.len() == 100 && counts.values().all(|&count| count == map.ports_per_host()));
        }
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let one = vec![Ipv4Addr::new(192, 0, 2, 1)];
        let new = |hosts, outside, reserved: &PortRanges| {
            DeterministicMap::new([10, 0, 0, 0].into(), hosts, outside, reserved, 0, Order::FillAddress)
        };
        let none = PortRanges::default();
        assert_eq!(new(1, Vec::new(), &none), Err(NothingToShare));
        assert_eq!(new(0, one.clone(), &none), Err(NothingToShare));
        assert_eq!(new(70_000, one.clone(), &none), Err(NothingToShare));
        assert_eq!(new(1, one, &PortRanges::new([0..=65535])), Err(NothingToShare));
    }
}
