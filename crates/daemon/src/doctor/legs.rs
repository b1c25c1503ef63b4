//! The ways that packets of a plan take through the host.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Subnets, Ipv6Net};
use tombolo_engine::Plan;
use tombolo_engine::plan::{Routed, Service};
use tombolo_engine::side::Side;
use tombolo_io::links::Link;
use tombolo_io::netlink::{Found, INTERNET, Way};

use super::finding::Ends;
use super::ground::Ground;

/// Prefixes and ranges of a service that are walked one by one.
const MOST: usize = 64;

/// Where a leg is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Towards {
    /// At the device.
    Device,
    /// At a host.
    World,
}

/// One way through the host.
#[derive(Debug, Clone)]
pub(super) struct Leg {
    /// The service, and which of its ways.
    pub(super) name: String,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The interface that its packets come in by; none if nobody knows.
    pub(super) entrance: Option<u32>,
    pub(super) towards: Towards,
    /// What is routed to the device: destinations, or sources if the service is known by its hosts.
    pub(super) routed: IpNet,
    /// Its packets reach the device for their sources.
    pub(super) by_source: bool,
    /// Its packets are the first of an exchange, not the answers.
    pub(super) begins: bool,
    /// Both ends are known to be there: a packet may be sent.
    pub(super) is_real: bool,
}

impl Leg {
    pub(super) fn way<'g>(&self, ground: &'g Ground) -> Option<Way<'g>> {
        let interface = ground.link(self.entrance?)?.name.as_str();
        Some(Way { source: self.source, destination: self.destination, interface })
    }
}

/// A host, and what it speaks to.
struct Exchange {
    name: String,
    host: IpAddr,
    is_real: bool,
    /// In the service's prefix or pool, or a remote where the service is known by its hosts.
    other: IpAddr,
    routed: IpNet,
    by_source: bool,
    /// The host begins.
    host_begins: bool,
}

/// The ways of all services.
pub(super) fn of(plan: &Plan, ground: &Ground, device: &Link, ends: &Ends) -> Vec<Leg> {
    let remote = Remote::of(ground, device, ends);
    let exchanges = plan.services.iter().flat_map(|service| exchanges(service, ground, device, ends, remote));
    exchanges.flat_map(|exchange| exchange.legs(ground, device)).collect()
}

impl Exchange {
    /// The host's packets to the device, and those from the device to it, the first of the exchange
    /// first.
    fn legs(self, ground: &Ground, device: &Link) -> Vec<Leg> {
        let back = Way { source: self.other, destination: self.host, interface: &device.name };
        let exit = match ground.lookup.find(back) {
            Found::Route(_, route) => route.hops().first().map(|hop| hop.interface),
            _ => None,
        };
        let Self { name, host, is_real, other, routed, by_source, host_begins } = self;
        let to = Leg {
            name: format!("{name} to the gateway"),
            source: host,
            destination: other,
            entrance: exit.filter(|&exit| exit != device.index),
            towards: Towards::Device,
            routed,
            by_source,
            begins: host_begins,
            is_real,
        };
        let from = Leg {
            name: format!("from the gateway {}", name.replace("from", "to")),
            source: other,
            destination: host,
            entrance: Some(device.index),
            towards: Towards::World,
            begins: !host_begins,
            ..to.clone()
        };
        if host_begins { vec![to, from] } else { vec![from, to] }
    }
}

/// The IPv4 host outside.
#[derive(Clone, Copy)]
struct Remote {
    address: Ipv4Addr,
    is_real: bool,
}

impl Remote {
    /// The one that is named; else the router of the way there, which is nearest.
    fn of(ground: &Ground, device: &Link, ends: &Ends) -> Self {
        let named = ends.remote.map(|address| Self { address, is_real: true });
        named.unwrap_or_else(|| {
            let way = Way { source: INTERNET.0.into(), destination: INTERNET.0.into(), interface: &device.name };
            let router = match ground.lookup.find(way) {
                Found::Route(_, route) => route.hops().first().and_then(|hop| hop.gateway),
                _ => None,
            };
            match router {
                Some(IpAddr::V4(address)) => Self { address, is_real: true },
                _ => Self { address: INTERNET.0, is_real: false },
            }
        })
    }
}

fn exchanges(service: &Service, ground: &Ground, device: &Link, ends: &Ends, remote: Remote) -> Vec<Exchange> {
    let routed = service.routed();
    // What the host has itself comes by rules for ports.
    let ipv4: Vec<_> = routed.unshared_ipv4().collect();
    let Routed { ipv6, sources, .. } = routed;
    let shape = service.kind.shape();
    let prefixes: Vec<Ipv6Net> = ipv6.iter().filter_map(|&(at, length)| Ipv6Net::new(at, length).ok()).collect();
    let shown = |prefix: &Ipv6Net| {
        let embedded = service.kind.pref64().map(|prefix| prefix.embed(remote.address));
        IpAddr::from(embedded.filter(|address| prefix.contains(address)).unwrap_or(prefix.network()))
    };
    let mut found = Vec::new();
    let mut add = |side: &str, host: (IpAddr, bool), other: IpAddr, routed: IpNet, by_source, host_begins| {
        let ((host, is_real), name) = (host, format!("{}: from {side}", service.name));
        found.push(Exchange { name, host, is_real, other, routed, by_source, host_begins });
    };
    for subnet in subnets(&sources).take(MOST) {
        if let Some(host) = host_inside(subnet, ground, device, ends) {
            add("inside", host, remote.address.into(), subnet, true, true);
        }
    }
    for prefix in prefixes.iter().take(MOST) {
        match shape.ipv6 {
            Side::Inside => {
                if let Some(host) = host_inside(IpNet::V6(Ipv6Net::default()), ground, device, ends) {
                    add("inside", host, shown(prefix), (*prefix).into(), false, true);
                }
            }
            // Of the other end of a customer's service nobody knows more than the way there.
            Side::Outside => {
                let other = service.kind.pref64().map_or(INTERNET.1, |prefix| prefix.embed(remote.address));
                add("outside", (other.into(), false), prefix.network().into(), (*prefix).into(), false, false);
            }
        }
    }
    for subnet in subnets(&ipv4).take(MOST) {
        let outside = (remote.address.into(), remote.is_real);
        add("outside", outside, subnet.network(), subnet, false, false);
    }
    found
}

fn subnets(ranges: &[(Ipv4Addr, Ipv4Addr)]) -> impl Iterator<Item = IpNet> {
    ranges.iter().flat_map(|&(first, last)| Ipv4Subnets::new(first, last, 0)).map(IpNet::from)
}

/// A host of this network, and whether it is known to be there.
fn host_inside(net: IpNet, ground: &Ground, device: &Link, ends: &Ends) -> Option<(IpAddr, bool)> {
    if let Some(named) = ends.inside.iter().find(|host| net.contains(*host)) {
        return Some((*named, true));
    }
    if net.addr().is_ipv4() {
        let mut known = ground.neighbours.known.iter().filter(|(link, _)| *link != device.index);
        if let Some((_, neighbour)) = known.find(|(_, address)| net.contains(address)) {
            return Some((*neighbour, true));
        }
        return net.hosts().next().map(|host| (host, false));
    }
    Some((INTERNET.1.into(), false))
}
