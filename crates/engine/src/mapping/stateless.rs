//! The address mapping of a stateless translator: explicit mappings first, then IPv4-embedded
//! addresses.
//!
//! Read first: RFC 7757 section 3.3, RFC 6052 sections 2.3 and 3.1.
//!
//! Each address of a packet is mapped on its own, those of a packet inside an ICMP error included.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::lpm::{Frozen, LpmError, NextHop, Prefix, Route};
use tombolo_wire::Prefix64;

use super::eam::EamTable;
use super::embedding::check_embedding;
use crate::verdict::DropReason;

/// What maps addresses. The default maps none.
#[derive(Debug, Clone, Default)]
pub struct StatelessMap {
    /// Explicit mappings; they win.
    pub explicit: EamTable,
    /// For all other addresses: the prefix that embeds them (RFC 6052).
    pub prefix: Option<Prefix64>,
    /// Drop packets that combine the well-known prefix with an IPv4 address that is not global (RFC
    /// 6052 section 3.1).
    pub well_known_prefix_strict: bool,
    /// IPv4 addresses that are not embedded in the prefix, such as those of the network that the
    /// gateway itself is in.
    pub denied: DenyList,
}

/// An address and what it was found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped<A> {
    /// The address in the other protocol.
    pub address: A,
    /// What said so.
    pub by: By,
}

/// What mapped an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The explicit mapping of this number, from 0.
    Row(u32),
    /// The prefix.
    Prefix,
    /// The dynamic pool.
    Pool,
}

/// What is known already of the explicit mapping of a packet's destination: whoever asked whose
/// packet it is had to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claim {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// There is none.
    None,
    /// It is the row of this number, from 0.
    Row(u32),
}

impl From<Option<u32>> for Claim {
    fn from(row: Option<u32>) -> Self {
        row.map_or(Self::None, Self::Row)
    }
}

impl StatelessMap {
    /// The IPv6 address for an IPv4 address.
    ///
    /// # Errors
    /// [`DropReason::Untranslatable`], [`DropReason::Denied`],
    /// [`DropReason::PrivateInWellKnownPrefix`].
    #[inline]
    pub fn to_ipv6(&self, address: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, DropReason> {
        match self.explicit.to_ipv6(address) {
            Some((address, row)) => Ok(Mapped { address, by: By::Row(row) }),
            None => self.embed(address),
        }
    }

    /// The IPv6 address for an IPv4 address by the prefix alone, as hairpinning wants it (RFC 7757
    /// section 4.2.1).
    ///
    /// # Errors
    /// As [`to_ipv6`](Self::to_ipv6).
    #[inline]
    pub fn embed(&self, address: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, DropReason> {
        let prefix = self.prefix.ok_or(DropReason::Untranslatable)?;
        self.check(prefix, address)?;
        Ok(Mapped { address: prefix.embed(address), by: By::Prefix })
    }

    /// The IPv4 address for an IPv6 address.
    ///
    /// # Errors
    /// As [`to_ipv6`](Self::to_ipv6).
    #[inline]
    pub fn to_ipv4(&self, address: Ipv6Addr) -> Result<Mapped<Ipv4Addr>, DropReason> {
        if let Some((address, row)) = self.explicit.to_ipv4(address) {
            return Ok(Mapped { address, by: By::Row(row) });
        }
        let prefix = self.prefix.ok_or(DropReason::Untranslatable)?;
        let address = prefix.extract(address).ok_or(DropReason::Untranslatable)?;
        self.check(prefix, address)?;
        Ok(Mapped { address, by: By::Prefix })
    }

    #[inline]
    fn check(&self, prefix: Prefix64, address: Ipv4Addr) -> Result<(), DropReason> {
        if address.is_link_local() {
            return Err(DropReason::LinkLocal);
        }
        check_embedding(prefix, self.well_known_prefix_strict, address)?;
        if self.denied.contains(address) {
            return Err(DropReason::Denied);
        }
        Ok(())
    }
}

/// A set of IPv4 prefixes. Immutable, and cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct DenyList(Option<Frozen<u32>>);

impl DenyList {
    /// The addresses of all `prefixes`.
    ///
    /// # Errors
    /// [`LpmError::Memory`].
    pub fn new(prefixes: &[Prefix<u32>]) -> Result<Self, LpmError> {
        let next_hop = NextHop::new(0)?;
        let routes: Vec<_> = prefixes.iter().map(|&prefix| Route { prefix, next_hop }).collect();
        Ok(Self(if routes.is_empty() { None } else { Some(Frozen::build("denied", &routes)?) }))
    }

    /// True if no address is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// True if `address` is in it.
    #[must_use]
    #[inline]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.0.as_ref().is_some_and(|table| table.lookup(address.to_bits()).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::eam::{Eam, parse_prefix};

    fn map() -> StatelessMap {
        StatelessMap {
            explicit: EamTable::new(vec![Eam::parse("192.0.2.1", "2001:db8::1").unwrap()]).unwrap(),
            prefix: Some(Prefix64::WELL_KNOWN),
            well_known_prefix_strict: false,
            denied: DenyList::new(&[parse_prefix("192.0.2.0/24").unwrap()]).unwrap(),
        }
    }

    #[test]
    fn denied_addresses_are_not_embedded_but_explicit_ones_stay() {
        let map = map();
        assert_eq!(map.to_ipv6([192, 0, 2, 1].into()).unwrap().by, By::Row(0));
        assert_eq!(map.to_ipv6([192, 0, 2, 2].into()), Err(DropReason::Denied));
        assert_eq!(map.to_ipv4("64:ff9b::192.0.2.2".parse().unwrap()), Err(DropReason::Denied));
        assert_eq!(map.to_ipv6([192, 0, 3, 2].into()).unwrap().by, By::Prefix);
    }

    #[test]
    fn the_strict_rule_of_the_well_known_prefix_spares_explicit_mappings() {
        let map = StatelessMap { well_known_prefix_strict: true, denied: DenyList::default(), ..map() };
        assert_eq!(map.to_ipv6([192, 0, 2, 1].into()).unwrap().by, By::Row(0));
        assert_eq!(map.to_ipv6([10, 0, 0, 1].into()), Err(DropReason::PrivateInWellKnownPrefix));
        assert_eq!(map.to_ipv6([8, 8, 8, 8].into()).unwrap().by, By::Prefix);
    }

    #[test]
    fn link_local_addresses_have_explicit_mappings_only() {
        let row = Eam::parse("169.254.0.1", "2001:db8::1").unwrap();
        let map = StatelessMap { explicit: EamTable::new(vec![row]).unwrap(), ..map() };
        assert_eq!(map.to_ipv6([169, 254, 0, 1].into()).unwrap().by, By::Row(0));
        assert_eq!(map.to_ipv6([169, 254, 0, 2].into()), Err(DropReason::LinkLocal));
        assert_eq!(map.to_ipv4("64:ff9b::169.254.0.2".parse().unwrap()), Err(DropReason::LinkLocal));
    }

    #[test]
    fn without_a_prefix_only_explicit_mappings_count() {
        let map = StatelessMap { prefix: None, ..map() };
        assert_eq!(map.to_ipv6([8, 8, 8, 8].into()), Err(DropReason::Untranslatable));
        assert_eq!(map.to_ipv4("64:ff9b::808:808".parse().unwrap()), Err(DropReason::Untranslatable));
    }
}
