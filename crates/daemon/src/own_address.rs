//! The host's own addresses, which services share with it: what a plan leaves open until the host is asked.
//!
//! Asked at the start, with each plan, and whenever something changes ([`crate::found`]). An interface
//! without an address is waited for: its service has what else its pool has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use tombolo_config::{Interface, SharedPool};
use tombolo_engine::Plan;
use tombolo_engine::mapping::pool::{Owner, PoolRange, PortRanges};
use tombolo_engine::mechanism::napt::Endpoint;
use tombolo_engine::plan::StaticBinding;
use tombolo_io::host::{Host, HostError};

/// The part of the gateway, in its health.
pub(crate) const PART: &str = "own address";

/// More pieces than this are not cut out of a range of ports: each is a rule of the kernel.
const PIECES: usize = 32;

/// Ports that sockets of the host have: of TCP, and of UDP.
pub(crate) type InUse = [BTreeSet<u16>; 2];

/// What the host is found to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnAddresses {
    /// By interface, as the configuration names it: its name, and its address.
    addresses: BTreeMap<Interface, (String, Option<Ipv4Addr>)>,
    in_use: InUse,
}

impl OwnAddresses {
    /// Looks for what `pools` ask for. Of `in_use` only ports of theirs count.
    pub(crate) fn look(host: &mut Host, pools: &[SharedPool], in_use: &InUse) -> Result<Self, HostError> {
        let mut found = Self::default();
        for SharedPool { interface, ports, .. } in pools {
            let name = match interface {
                Interface::Named(name) => Some(name.clone()),
                Interface::OfDefaultRoute => host.default_interface()?,
            };
            let address = name.as_deref().map(|name| host.own_address(name)).transpose()?.flatten();
            found.addresses.insert(interface.clone(), (name.unwrap_or_default(), address));
            for ((found, in_use), ports) in found.in_use.iter_mut().zip(in_use).zip(ports) {
                found.extend(in_use.iter().copied().filter(|port| ports.contains(*port)));
            }
        }
        Ok(found)
    }

    /// True if it was looked for the interfaces of all `pools`.
    pub(crate) fn knows(&self, pools: &[SharedPool]) -> bool {
        pools.iter().all(|pool| self.addresses.contains_key(&pool.interface))
    }

    /// True if nothing but sockets tells the two apart.
    pub(crate) fn has_addresses_of(&self, other: &Self) -> bool {
        self.addresses == other.addresses
    }

    /// Completes a plan. What is left open, and why.
    pub(crate) fn complete(&self, plan: &mut Plan, pools: &[SharedPool]) -> Vec<String> {
        let before = shared_addresses(plan);
        let mut faults = Vec::new();
        for place in 0..plan.services.len() {
            strip(plan, place);
            let service = plan.services[place].name.clone();
            for pool in pools.iter().filter(|pool| pool.service == service) {
                match self.address(plan, pool) {
                    Ok(address) => self.add(plan, place, pool, address),
                    Err(fault) => faults.push(fault),
                }
            }
        }
        // What is sent from an address that is gone finds no way back.
        let now = shared_addresses(plan);
        if plan.own.ipv4.is_none_or(|own| before.contains(&own) && !now.contains(&own)) {
            plan.own.ipv4 = now.first().copied().or(plan.own.ipv4);
        }
        faults
    }

    /// The address for a pool, if it has one that nobody else has.
    fn address(&self, plan: &Plan, pool: &SharedPool) -> Result<Ipv4Addr, String> {
        let SharedPool { service, interface, .. } = pool;
        let (name, address) =
            self.addresses.get(interface).ok_or_else(|| format!("service {service}: {interface} is unknown"))?;
        let Some(address) = *address else {
            return Err(match name.as_str() {
                "" => format!(
                    "service {service}: there is no default route, and so no address to share; it is waited for"
                ),
                name => format!("service {service}: {name} has no IPv4 address to share; it is waited for"),
            });
        };
        let lies_in = |(first, last): &(Ipv4Addr, Ipv4Addr)| (*first..=*last).contains(&address);
        let other = plan.services.iter().find(|other| {
            let routed = other.kind.routed();
            routed.ipv4.iter().chain(&routed.sources).any(lies_in)
        });
        match other {
            Some(other) => {
                Err(format!("service {service}: {address} of {name} belongs to service {} already", other.name))
            }
            None => Ok(address),
        }
    }

    /// Adds an address to the pool of service number `place`.
    fn add(&self, plan: &mut Plan, place: usize, pool: &SharedPool, address: Ipv4Addr) {
        let Some(nat) = plan.services[place].kind.nat_mut() else { return };
        let fixed = pool.static_bindings.iter().map(|fixed| {
            let outside = Endpoint { address, ..fixed.outside };
            StaticBinding { outside, ..*fixed }
        });
        nat.static_bindings.extend(fixed);
        let [tcp, udp, icmp] = &pool.ports;
        let range = PoolRange {
            first: address,
            last: address,
            ports: [without(tcp, &self.in_use[0]), without(udp, &self.in_use[1]), icmp.clone()],
            span: span(pool),
            first_slot: 0,
            owner: Owner::Host,
        };
        let ranges = nat.pool.ranges().iter().cloned().chain([range]).collect();
        nat.pool = nat.pool.with_ranges(ranges);
    }
}

/// The interfaces and their addresses, for the log.
impl fmt::Display for OwnAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, address)) in self.addresses.values().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            match address {
                Some(address) => write!(f, "{comma}{address} of {name}")?,
                None => write!(f, "{comma}none of {name}")?,
            }
        }
        let [tcp, udp] = &self.in_use;
        if !(tcp.is_empty() && udp.is_empty()) {
            write!(f, "; ports of the host's sockets left out: {} of TCP, {} of UDP", tcp.len(), udp.len())?;
        }
        Ok(())
    }
}

/// Addresses of the host in the pools of a plan.
fn shared_addresses(plan: &Plan) -> Vec<Ipv4Addr> {
    plan.ranges().filter(|range| range.owner == Owner::Host).map(|range| range.first).collect()
}

/// Takes the host's addresses out of the pool of service number `place`.
fn strip(plan: &mut Plan, place: usize) {
    let Some(nat) = plan.services[place].kind.nat_mut() else { return };
    let (own, others): (Vec<_>, Vec<_>) =
        nat.pool.ranges().iter().cloned().partition(|range| range.owner == Owner::Host);
    if !own.is_empty() {
        nat.static_bindings.retain(|fixed| own.iter().all(|range| range.first != fixed.outside.address));
        nat.pool = nat.pool.with_ranges(others);
    }
}

/// The ports that no socket has.
fn without(ports: &PortRanges, in_use: &BTreeSet<u16>) -> PortRanges {
    let taken = in_use.iter().map(|port| *port..=*port);
    let rest = PortRanges::new(ports.complement().ranges().iter().cloned().chain(taken)).complement();
    if rest.ranges().len() <= ports.ranges().len() + PIECES {
        return rest;
    }
    // The longest pieces.
    let mut pieces = rest.ranges().to_vec();
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
    PortRanges::new(pieces.into_iter().take(PIECES))
}

/// From the lowest port that has a slot to the highest.
fn span(pool: &SharedPool) -> RangeInclusive<u16> {
    let dynamic = pool.ports.iter().flat_map(PortRanges::ranges).flat_map(|range| [*range.start(), *range.end()]);
    let ports: Vec<u16> = dynamic.chain(pool.static_bindings.iter().map(|fixed| fixed.outside.port.0)).collect();
    ports.iter().min().copied().unwrap_or(1)..=ports.iter().max().copied().unwrap_or(1)
}

/// Ports that the host is to use for no connection of its own.
pub(crate) fn reserved(pools: &[SharedPool]) -> Vec<RangeInclusive<u16>> {
    let fixed = pools.iter().flat_map(|pool| &pool.static_bindings).map(|fixed| fixed.outside.port.0);
    let ports = pools.iter().flat_map(|pool| &pool.ports[..2]).flat_map(|ports| ports.ranges().iter().cloned());
    ports.chain(fixed.map(|port| port..=port)).collect()
}

/// Ports that sockets of the host have now. None, and a word in the log, if the kernel does not say.
pub(crate) fn in_use() -> InUse {
    match tombolo_io::local_ports::in_use() {
        Ok(ports) => ports.map(BTreeSet::from_iter),
        Err(error) => {
            tracing::warn!(
                "the ports of the host's sockets cannot be read, so that they may be handed out as well: {error}"
            );
            InUse::default()
        }
    }
}

/// The same, where it matters to pools.
pub(crate) fn in_use_beside(pools: &[SharedPool]) -> InUse {
    if pools.is_empty() { InUse::default() } else { in_use() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4787 REQ-7: what is inside is never outside as well, whatever the host is given.
    #[test]
    fn an_address_that_is_inside_is_not_shared() {
        let text = "[[service]]\nkind = \"nat44\"\ninside = [\"192.168.0.0/16\"]\nmasquerade = \"wan0\"\n";
        let configuration = tombolo_config::parse("test.toml", text).unwrap();
        let with = |address: [u8; 4]| {
            let found = ("wan0".to_owned(), Some(Ipv4Addr::from(address)));
            let addresses = BTreeMap::from([(Interface::Named("wan0".to_owned()), found)]);
            let mut plan = configuration.plan.clone();
            let own = OwnAddresses { addresses, in_use: InUse::default() };
            let faults = own.complete(&mut plan, &configuration.host.shared_pools);
            (shared_addresses(&plan), faults)
        };
        assert_eq!(with([198, 51, 100, 1]), (vec![Ipv4Addr::new(198, 51, 100, 1)], Vec::<String>::new()));
        let (shared, faults) = with([192, 168, 1, 9]);
        assert_eq!(shared, Vec::<Ipv4Addr>::new());
        assert_eq!(faults, ["service nat44: 192.168.1.9 of wan0 belongs to service nat44 already"]);
    }
}
