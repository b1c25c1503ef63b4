//! Where hosts inside ask for ports with PCP (RFC 6887): addresses that the gateway answers at.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The anycast addresses of RFC 7723, which need no configuration of hosts.
pub const ANYCAST_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 9);
/// As above.
pub const ANYCAST_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 1);

/// Addresses of each family that there may be.
pub const MOST_PCP_ADDRESSES: usize = 4;

/// Addresses that requests are sent to. Empty where no service takes any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PcpAddresses {
    /// Of IPv4.
    pub ipv4: Vec<Ipv4Addr>,
    /// Of IPv6.
    pub ipv6: Vec<Ipv6Addr>,
}
