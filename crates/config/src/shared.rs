//! Pools of addresses that the host has itself, as the plan's users have them.
//!
//! Which address an interface has is not known before the gateway runs, and may change while it does. So
//! what the file says stands beside the plan, by service, and whoever knows the address completes the plan.
//! Until then an address of 0.0.0.0/8, which no host can have, stands for it.

use std::fmt;
use std::net::Ipv4Addr;

use tombolo_engine::mapping::pool::PortRanges;
use tombolo_engine::plan::StaticBinding;
use tombolo_wire::Port;

use crate::value;

/// Ports of an address of the host that a service hands out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPool {
    /// Name of the service.
    pub service: String,
    /// The interface that has the address.
    pub interface: Interface,
    /// Ports to hand out, by protocol, in the order of [`PortSpace::WITH_SLOTS`](tombolo_engine::mapping::pool::PortSpace::WITH_SLOTS).
    pub ports: [PortRanges; 3],
    /// Bindings that are always there; their outside address is to be filled in.
    pub static_bindings: Vec<StaticBinding>,
}

/// An interface of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// The one that the default route leaves by, of all those the one with the lowest metric.
    OfDefaultRoute,
    /// The one of this name.
    Named(String),
}

/// The word for the interface of the default route.
pub(crate) const OF_DEFAULT_ROUTE: &str = "auto";

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfDefaultRoute => f.write_str(OF_DEFAULT_ROUTE),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl SharedPool {
    /// Slots of the outside index that it takes, at most.
    pub(crate) fn slots(&self) -> u32 {
        let ports = self.ports.iter().map(PortRanges::len).max().unwrap_or(0);
        3 * (ports + u32::try_from(self.static_bindings.len()).unwrap_or(0))
    }
}

/// What stands for the address of a service's pool number `place`.
pub(crate) fn stand_in(place: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::try_from(place + 1).unwrap_or(u32::MAX))
}

/// An endpoint outside at an interface of `pools`: `eth0:80`.
pub(crate) fn outside_endpoint(pools: &[SharedPool], text: &str) -> Option<Result<(Ipv4Addr, Port), String>> {
    let (name, port) = text.rsplit_once(':')?;
    let place = pools.iter().position(|pool| pool.interface.to_string() == name)?;
    Some(value::outside_endpoint(&format!("{}:{port}", stand_in(place))))
}

/// True if something stands for the address until it is known.
pub(crate) fn is_stand_in(address: Ipv4Addr) -> bool {
    address.octets()[0] == 0
}
