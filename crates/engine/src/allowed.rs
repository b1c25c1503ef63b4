//! What a plan allows of the state that was made under an earlier one: asked of each binding after a
//! restart ([`carry_over`](crate::carry_over)) and after a reload ([`settle`](crate::settle)).

use tombolo_tables::binding::{Binding, InsideKey};
use tombolo_wire::Port;

use crate::endpoint::Endpoint;
use crate::mapping::allocation::{Allocation, Blocks};
use crate::mapping::pool::PortSpace;
use crate::mechanism::napt::{Host, Nat};
use crate::plan::Plan;
use crate::service::Service;

/// Why a binding has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ended {
    /// There is no service of its name and kind.
    Service,
    /// Its host is not inside the service any more.
    Host,
    /// The service does not translate its protocol.
    Protocol,
    /// No pool of the service hands out its outside endpoint.
    Pool,
    /// Its outside endpoint, or its inside endpoint, is another binding's.
    Taken,
    /// Its port is not one that its subscriber may have.
    Allocation,
    /// Its subscriber has as many bindings as it may have.
    Limit,
    /// A table is full.
    Full,
    /// It was in the configuration and is not any more.
    Configuration,
    /// Another node of the cluster owns the slice of its subscriber.
    Slice,
}

impl Ended {
    /// Why, in words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Service => "there is no service of that name and kind",
            Self::Host => "the host is not inside the service",
            Self::Protocol => "the service does not translate its protocol",
            Self::Pool => "the pool does not have the address or the port",
            Self::Taken => "another binding has the endpoint",
            Self::Allocation => "the port is not among those of the subscriber",
            Self::Limit => "the subscriber has as many as it may have",
            Self::Full => "the table is full",
            Self::Configuration => "it is not in the configuration any more",
            Self::Slice => "another node of the cluster owns the subscriber's slice",
        }
    }
}

/// Whether the host of an inside endpoint is one that the service has inside.
pub(crate) fn check_host(service: &Service, inside: &InsideKey) -> Result<(), Ended> {
    let host = Host { ipv6: inside.ipv6.into(), ipv4: inside.ipv4.into() };
    let is_inside = service.kind.hosts_known_by().fits(host) && service.kind.has_inside(inside);
    if is_inside { Ok(()) } else { Err(Ended::Host) }
}

/// Whether the subscriber of an inside endpoint is this node's, in a cluster, or one of whom it has a copy.
pub(crate) fn check_slice(plan: &Plan, nat: &Nat, inside: &InsideKey) -> Result<(), Ended> {
    if plan.keeps(nat, &nat.policy.subscriber.key(inside)) { Ok(()) } else { Err(Ended::Slice) }
}

/// Whether a dynamic binding of `inside` may have an outside endpoint. The blocks that its port has to be
/// in one of, where there are blocks.
pub(crate) fn check_port(
    nat: &Nat,
    inside: &InsideKey,
    space: PortSpace,
    outside: Endpoint,
) -> Result<Option<Blocks>, Ended> {
    let (address, port) = (outside.address, outside.port.0);
    if !nat.policy.protocols.has(space) {
        return Err(Ended::Protocol);
    }
    if !nat.pool.hands_out(address, space, port) {
        return Err(Ended::Pool);
    }
    let subscriber = nat.policy.subscriber.key(inside);
    if !nat.pool.is_for(&subscriber, address) {
        return Err(Ended::Allocation);
    }
    match nat.pool.allocation() {
        _ if !space.has_ports() => Ok(None),
        Allocation::Ports => Ok(None),
        Allocation::Blocks(blocks) => Ok(Some(*blocks)),
        Allocation::Deterministic(shares) => {
            let own = shares.share(&subscriber).filter(|share| share.address == address);
            let own = own.ok_or(Ended::Allocation)?;
            let is_dynamic = shares.dynamic_ports().is_some_and(|(first, last)| (first..=last).contains(&port));
            if !is_dynamic && !(own.first..=own.last).contains(&port) {
                return Err(Ended::Allocation);
            }
            Ok(shares.blocks.filter(|_| is_dynamic))
        }
    }
}

/// The outside endpoint of a binding.
pub(crate) fn outside(binding: &Binding) -> Option<(PortSpace, Endpoint)> {
    let space = PortSpace::of_protocol(binding.inside.protocol)?;
    let port = Port(u16::from_be_bytes(binding.outside_port));
    Some((space, Endpoint { address: binding.outside_ipv4.into(), port }))
}
