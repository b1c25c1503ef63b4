//! Pieces of the scenarios' topologies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{End, Link, Node, Prefix, Route, Topology};

/// client - cpe - gateway - server, and a second home: neighbour - cpe2 - gateway. The neighbour
/// is in 10.0.`second`.0/24, the first home in 10.0.0.0/24; each home has its /56.
pub(super) fn two_homes(name: &str, second: u8, homes: [Ipv6Addr; 2]) -> Topology {
    let mut topology = Topology::client_cpe_gateway_server();
    topology.name = name.to_owned();
    topology.nodes.extend([Node::host("neighbour"), Node::router("cpe2")]);
    let v4 = |host| IpAddr::from(Ipv4Addr::new(10, 0, second, host));
    topology.links.push(Link::new(end("neighbour", "inside0", v4(2), 24), end("cpe2", "inside0", v4(1), 24)));
    let core = |host| IpAddr::from(numbered(0xd, host));
    topology.links.push(Link::new(end("cpe2", "core0", core(2), 64), end("gateway", "core1", core(1), 64)));
    add_route(&mut topology, "neighbour", Prefix { address: Ipv4Addr::UNSPECIFIED.into(), length: 0 }, v4(1));
    add_route(&mut topology, "cpe2", Prefix { address: Ipv6Addr::UNSPECIFIED.into(), length: 0 }, core(1));
    for (home, via) in homes.into_iter().zip([numbered(0xc, 2).into(), core(2)]) {
        add_route(&mut topology, "gateway", Prefix { address: home.into(), length: 56 }, via);
    }
    topology
}

fn end(node: &str, interface: &str, address: IpAddr, length: u8) -> End {
    End { node: node.to_owned(), interface: interface.to_owned(), addresses: vec![Prefix { address, length }] }
}

/// Adds a route to a node; a node that does not exist is left for [`Topology::check`] to report.
pub(super) fn add_route(topology: &mut Topology, node: &str, destination: Prefix, via: IpAddr) {
    if let Some(node) = topology.node_mut(node) {
        node.routes.push(Route { destination, via });
    }
}

/// 2001:db8:`link`::`host`.
pub(super) fn numbered(link: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, link, 0, 0, 0, 0, host)
}
