//! A host inside, as the tables know it.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Port;

use crate::mapping::pool::PortSpace;

/// What the hosts inside a NAT are known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownBy {
    /// Their IPv4 addresses.
    #[default]
    Ipv4,
    /// Their IPv6 addresses.
    Ipv6,
    /// Their IPv4 addresses, and the softwire that they are behind.
    Softwire,
}

impl KnownBy {
    /// True if `host` can be one of them.
    #[must_use]
    pub const fn fits(self, host: Host) -> bool {
        let (has_ipv6, has_ipv4) = (!host.ipv6.is_unspecified(), !host.ipv4.is_unspecified());
        match self {
            Self::Ipv4 => has_ipv4 && !has_ipv6,
            Self::Ipv6 => has_ipv6 && !has_ipv4,
            Self::Softwire => has_ipv6 && has_ipv4,
        }
    }
}

/// A host inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Its IPv6 address; of a host behind a softwire, the address of the softwire's far end.
    pub ipv6: Ipv6Addr,
    /// Its IPv4 address; unspecified if it has IPv6 alone.
    pub ipv4: Ipv4Addr,
}

impl From<Ipv6Addr> for Host {
    fn from(ipv6: Ipv6Addr) -> Self {
        Self { ipv6, ipv4: Ipv4Addr::UNSPECIFIED }
    }
}

impl From<Ipv4Addr> for Host {
    fn from(ipv4: Ipv4Addr) -> Self {
        Self { ipv6: Ipv6Addr::UNSPECIFIED, ipv4 }
    }
}

impl Host {
    /// The key of any endpoint of its, for questions that are about the host.
    #[must_use]
    pub const fn any_key(self, service: u8) -> InsideKey {
        self.key(service, PortSpace::Udp, Port(0))
    }

    /// The key of its endpoint with `port`, in the tables, for service number `service`.
    #[must_use]
    #[inline]
    pub const fn key(self, service: u8, space: PortSpace, port: Port) -> InsideKey {
        InsideKey {
            ipv6: self.ipv6.octets(),
            ipv4: self.ipv4.octets(),
            port: port.0.to_be_bytes(),
            protocol: space.protocol(),
            service,
        }
    }
}
