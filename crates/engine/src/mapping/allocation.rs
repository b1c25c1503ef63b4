//! In which portions a pool hands out its ports: one by one, in blocks, or by computation.
//!
//! Read first: RFC 6888 REQ-14, RFC 7422 section 2, RFC 6431 section 2.
//!
//! * Port by port: fewest ports needed, one log entry a binding.
//! * Blocks: a subscriber gets a block when it needs its first port and further ones when they are
//!   full; one log entry a block. Blocks are the same for all protocols and begin at multiples of
//!   their size.
//! * Deterministic: a subscriber's share is computed, and needs no log. What goes beyond it comes
//!   from the dynamic pool, in blocks if there are blocks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_tables::subscriber::{MOST_BLOCKS, SubscriberKey};

use super::address_ranges::AddressRanges;
use super::deterministic::{DeterministicMap, PortBlock, Sharer};

/// In which portions a pool hands out its ports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Allocation {
    /// One by one, any port of the subscriber's address.
    #[default]
    Ports,
    /// Blocks of ports.
    Blocks(Blocks),
    /// Shares that are computed.
    Deterministic(Arc<Deterministic>),
}

impl Allocation {
    /// Ports in a block, where there are blocks.
    #[must_use]
    pub fn block_size(&self) -> Option<u32> {
        match self {
            Self::Ports => None,
            Self::Blocks(blocks) => Some(blocks.size),
            Self::Deterministic(shares) => shares.blocks.map(|blocks| blocks.size),
        }
    }
}

/// Blocks of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Ports in a block, 64 to 32768.
    pub size: u32,
    /// Blocks that a subscriber may have, 1 to [`MOST_BLOCKS`].
    pub most: u8,
}

impl Blocks {
    /// Blocks that a subscriber may have.
    #[must_use]
    pub fn most(self) -> usize {
        usize::from(self.most).min(MOST_BLOCKS)
    }
}

/// Shares that are computed (RFC 7422).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deterministic {
    hosts: Subscribers,
    map: DeterministicMap,
    /// Blocks of the dynamic pool; without them its ports are handed out one by one.
    pub blocks: Option<Blocks>,
}

/// Subscribers in a row, so that each has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subscribers {
    /// IPv4 hosts.
    Ipv4(AddressRanges),
    /// IPv6 prefixes of `length` bits (or addresses, with 128) inside a prefix that begins at
    /// `first`.
    Ipv6 {
        /// First address of the prefix.
        first: Ipv6Addr,
        /// Bits of a subscriber's prefix.
        length: u8,
        /// How many subscribers there are.
        count: u32,
    },
}

impl Subscribers {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Ipv4(ranges) => ranges.count(),
            Self::Ipv6 { count, .. } => u64::from(*count),
        }
    }

    /// The number of a subscriber; `None` if it is none of them.
    #[must_use]
    pub fn index_of(&self, key: &SubscriberKey) -> Option<u32> {
        match self {
            Self::Ipv4(ranges) => u32::try_from(ranges.index_of(key.ipv4.into())?).ok(),
            Self::Ipv6 { first, length, count } => {
                let offset = u128::from_be_bytes(key.ipv6).checked_sub(first.to_bits())?;
                let index = offset.checked_shr(128 - u32::from(*length)).unwrap_or(0);
                u32::try_from(index).ok().filter(|index| index < count)
            }
        }
    }

    /// Subscriber number `index`: its address, or the first one of its prefix.
    #[must_use]
    pub fn nth(&self, index: u32) -> Option<IpAddr> {
        match self {
            Self::Ipv4(ranges) => ranges.nth(index.into()).map(IpAddr::V4),
            Self::Ipv6 { first, length, count } => {
                let offset = u128::from(index).checked_shl(128 - u32::from(*length)).unwrap_or(0);
                (index < *count).then(|| Ipv6Addr::from_bits(first.to_bits() + offset).into())
            }
        }
    }
}

/// Whose an outside port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortHolder {
    /// This subscriber's: its address, or the first one of its prefix.
    Subscriber(IpAddr),
    /// Given out from the dynamic pool: the log says to whom.
    Dynamic,
    /// Nobody's, by configuration.
    Reserved,
    /// Nobody's: a remainder, or the share of a subscriber that there is not.
    Unassigned,
}

impl Deterministic {
    /// The shares of `hosts` in `map`, which must have been made for as many hosts.
    #[must_use]
    pub const fn new(hosts: Subscribers, map: DeterministicMap, blocks: Option<Blocks>) -> Self {
        Self { hosts, map, blocks }
    }

    /// Who has shares.
    #[must_use]
    pub const fn hosts(&self) -> &Subscribers {
        &self.hosts
    }

    /// How shares are computed, by the numbers of the subscribers.
    #[must_use]
    pub const fn map(&self) -> &DeterministicMap {
        &self.map
    }

    /// The share of a subscriber; `None` if it is none of those that have one.
    #[must_use]
    pub fn share(&self, key: &SubscriberKey) -> Option<PortBlock> {
        self.map.share(self.hosts.index_of(key)?)
    }

    /// Lowest and highest port of the dynamic pool, if there is one.
    #[must_use]
    pub fn dynamic_ports(&self) -> Option<(u16, u16)> {
        self.map.dynamic_ports()
    }

    /// Ports that each subscriber has.
    #[must_use]
    pub const fn ports_per_host(&self) -> u32 {
        self.map.ports_per_host()
    }

    /// Whose port `port` of `outside` is; `None` if the address is not one of the mapping's.
    #[must_use]
    pub fn owner(&self, outside: Ipv4Addr, port: u16) -> Option<PortHolder> {
        Some(match self.map.sharer(outside, port)? {
            Sharer::Host(host) => PortHolder::Subscriber(self.hosts.nth(host)?),
            Sharer::Dynamic => PortHolder::Dynamic,
            Sharer::Reserved => PortHolder::Reserved,
            Sharer::Unassigned => PortHolder::Unassigned,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::deterministic::Order;
    use crate::mapping::pool::PortRanges;

    #[test]
    fn ipv6_subscribers_are_numbered_by_their_prefixes() {
        let first: Ipv6Addr = "2001:db8:ab00::".parse().unwrap();
        let hosts = Subscribers::Ipv6 { first, length: 56, count: 256 };
        let key = |text: &str| SubscriberKey { ipv6: text.parse::<Ipv6Addr>().unwrap().octets(), ..Default::default() };
        assert_eq!(hosts.index_of(&key("2001:db8:ab00:1fff::1")), Some(0x1f));
        assert_eq!(hosts.nth(0x1f), Some("2001:db8:ab00:1f00::".parse().unwrap()));
        assert_eq!(hosts.index_of(&key("2001:db8:ab01::")), None);
        assert_eq!(hosts.index_of(&key("2001:db8:aaff:ffff::")), None);
        assert_eq!((hosts.nth(256), hosts.count()), (None, 256));
        let whole = Subscribers::Ipv6 { first, length: 128, count: 9 };
        assert_eq!(
            (whole.index_of(&key("2001:db8:ab00::8")), whole.index_of(&key("2001:db8:ab00::9"))),
            (Some(8), None)
        );
    }

    #[test]
    fn the_owner_of_each_port_of_a_share_is_its_subscriber() {
        let hosts = Subscribers::Ipv4(AddressRanges::new([
            Ipv4Addr::new(10, 0, 0, 250)..=Ipv4Addr::new(10, 0, 0, 255),
            Ipv4Addr::new(10, 9, 0, 0)..=Ipv4Addr::new(10, 9, 0, 9),
        ]));
        let outside = vec![Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 9)];
        let reserved = PortRanges::new([0..=1023]);
        let map = DeterministicMap::new([0; 4].into(), 16, outside, &reserved, 2, Order::RotateAddresses).unwrap();
        let all = Deterministic::new(hosts.clone(), map, None);
        for index in 0..16 {
            let host = hosts.nth(index).unwrap();
            let IpAddr::V4(ipv4) = host else { panic!() };
            let share = all.share(&SubscriberKey { ipv4: ipv4.octets(), ..Default::default() }).unwrap();
            for port in [share.first, share.last] {
                assert_eq!(all.owner(share.address, port), Some(PortHolder::Subscriber(host)));
            }
        }
        let (first, last) = all.dynamic_ports().unwrap();
        assert_eq!((all.owner([192, 0, 2, 1].into(), first), last), (Some(PortHolder::Dynamic), 65_535));
    }
}
