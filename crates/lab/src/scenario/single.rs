//! One gateway between a host and a server.

use std::net::{IpAddr, Ipv4Addr};

use super::{description::Scenario, network::add_route};
use crate::{Prefix, Topology};

/// The well-known prefix is for global addresses alone (RFC 6052 section 3.1), so the server has one.
const GLOBAL: IpAddr = IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1));

/// A NAT64, as the README has it.
pub(super) fn nat64() -> Scenario {
    let mut topology = Topology::client_gateway_server();
    topology.name = "nat64".to_owned();
    let global = Prefix { address: GLOBAL, length: 32 };
    let ends = topology.links.iter_mut().flat_map(|link| &mut link.ends);
    ends.filter(|end| end.node == "server").for_each(|end| end.addresses.push(global));
    add_route(&mut topology, "gateway", global, IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)));
    Scenario {
        name: "nat64",
        about: "NAT64 (RFC 6146): a host with IPv6 only reaches 1.1.1.1",
        topology,
        gateways: vec![(
            "gateway",
            "[[service]]\n\
             kind   = \"nat64\"\n\
             prefix = \"64:ff9b::/96\"\n\
             inside = [\"2001:db8:1::/64\"]\n\
             pool   = [{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }]\n\
             static = [{ inside = \"[2001:db8:1::2]:8080\", outside = \"192.0.2.1:8080\", protocol = \"tcp\" }]\n"
                .to_owned(),
        )],
        routers: Vec::new(),
        members: Vec::new(),
        hints: vec![
            ("client", "ping -c 3 64:ff9b::1.1.1.1"),
            ("client", "traceroute -n 64:ff9b::1.1.1.1"),
            ("gateway", "tombolo show bindings"),
            ("gateway", "tombolo show fastpath"),
        ],
    }
}

/// A NAT44.
pub(super) fn nat44() -> Scenario {
    let mut topology = Topology::client_gateway_server();
    topology.name = "nat44".to_owned();
    Scenario {
        name: "nat44",
        about: "NAT44 for hosts in 10.0.0.0/24, ports in blocks",
        topology,
        gateways: vec![(
            "gateway",
            "[[service]]\n\
             kind       = \"nat44\"\n\
             inside     = [\"10.0.0.0/24\"]\n\
             pool       = [{ addresses = \"192.0.2.0/28\" }]\n\
             allocation = { mode = \"blocks\", block_size = 512 }\n"
                .to_owned(),
        )],
        routers: Vec::new(),
        members: Vec::new(),
        hints: vec![
            ("client", "ping -c 3 198.51.100.2"),
            ("gateway", "tombolo show subscribers"),
            ("gateway", "tombolo show pools"),
        ],
    }
}
