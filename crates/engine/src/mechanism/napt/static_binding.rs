//! A binding that is always there.

use std::net::{IpAddr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Port;

use super::host::Host;
use crate::endpoint::Endpoint;
use crate::mapping::pool::PortSpace;

/// A binding that is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticBinding {
    /// The protocol.
    pub space: PortSpace,
    /// The softwire that the inside host is behind, by its far end; unspecified without one.
    pub softwire: Ipv6Addr,
    /// Inside address, of the family that the service has inside.
    pub inside: IpAddr,
    /// Inside port or identifier.
    pub inside_port: Port,
    /// Outside endpoint; it must have a slot in the pool.
    pub outside: Endpoint,
}

impl StaticBinding {
    /// The host inside.
    #[must_use]
    pub fn host(&self) -> Host {
        match self.inside {
            IpAddr::V6(address) => address.into(),
            IpAddr::V4(address) => Host { ipv6: self.softwire, ipv4: address },
        }
    }

    /// The inside endpoint as service number `service` has it in the tables.
    #[must_use]
    pub fn key(&self, service: u8) -> InsideKey {
        self.host().key(service, self.space, self.inside_port)
    }
}
