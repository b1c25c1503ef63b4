//! An IPv4 address with a port.

use std::net::Ipv4Addr;

use tombolo_wire::Port;

/// An IPv4 address and a port, or an ICMP identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: Ipv4Addr,
    /// The port or identifier.
    pub port: Port,
}
