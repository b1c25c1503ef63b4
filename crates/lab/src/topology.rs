//! What a lab looks like, as plain data: nodes, and links between them.
//!
//! The standard topology, with the addresses that documentation and demos use everywhere:
//!
//! ```text
//!            inside link                       outside link
//!  client ----------------------- gateway ----------------------- server
//!     2001:db8:1::2/64  2001:db8:1::1/64 | 2001:db8:2::1/64  2001:db8:2::2/64
//!     10.0.0.2/24       10.0.0.1/24      | 198.51.100.1/24   198.51.100.2/24
//!     inside0           inside0            outside0          outside0
//! ```
//!
//! Both links carry both protocols, so that plain forwarding of either can be measured beside
//! translation. The client's default routes point at the gateway, so any translation prefix
//! (64:ff9b::/96) goes there; so do the server's, and with them the NAT pool 192.0.2.0/24.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use crate::{LabError, Prefix};

/// The client's IPv4 address in the standard topologies.
pub const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The client's IPv6 address in the standard topologies.
pub const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
/// The server's IPv4 address in the standard topologies.
pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The server's IPv6 address in the standard topologies.
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
/// The server's IPv4 address as IPv6 hosts see it, through 64:ff9b::/96 (RFC 6052 section 2.2).
pub const SERVER_V4_TRANSLATED: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0xc633, 0x6402);

/// A host or router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The name inside the lab: letters, digits and hyphens.
    pub name: String,
    /// Whether the kernel forwards IPv4 and IPv6.
    pub forwarding: bool,
    /// Whether its interfaces are ports of one switch.
    pub switching: bool,
    /// Static routes.
    pub routes: Vec<Route>,
    /// Further settings, as (`net.ipv4.tcp_rmem`, `4096 131072 6291456`).
    pub sysctls: Vec<(String, String)>,
}

/// A static route through a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to: `0.0.0.0/0` and `::/0` are the default routes.
    pub destination: Prefix,
    /// The next hop: an address on one of the node's links.
    pub via: IpAddr,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The node it is in.
    pub node: String,
    /// The interface's name there, at most 15 bytes.
    pub interface: String,
    /// The interface's addresses.
    pub addresses: Vec<Prefix>,
}

/// A virtual Ethernet cable (a veth pair).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Both ends.
    pub ends: [End; 2],
    /// The MTU of both ends in bytes; the kernel's 1500 when absent.
    pub mtu: Option<u32>,
    /// Queues of both ends, each way; the kernel's choice, one in use, when absent. Frames from one
    /// end arrive in the queue of the core that sent them.
    pub queues: Option<u32>,
    /// One-way delay added to every frame, in both directions. Zero is a plain cable. A delayed
    /// link is two veth pairs with a relay of this process between them (see the crate's `relay`
    /// module), so it works only as long as the process lives.
    pub delay: Duration,
}

/// Nodes and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// A name for listings.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The links.
    pub links: Vec<Link>,
}

impl Topology {
    /// client - gateway - server: one box between IPv6-only subscribers and the IPv4 Internet
    /// (NAT64, NAT44, SIIT).
    #[must_use]
    pub fn client_gateway_server() -> Self {
        let mut topology = Self::chain("client-gateway-server", &["client", "gateway", "server"]);
        topology.links = vec![
            Link::new(inside_end("client", 2, "inside0"), inside_end("gateway", 1, "inside0")),
            Link::new(outside_end("gateway", 1, "outside0"), outside_end("server", 2, "outside0")),
        ];
        topology.add_default_routes("client", [10, 0, 0, 1], 1);
        topology.add_default_routes("server", [198, 51, 100, 1], 2);
        topology
    }

    /// client - cpe - gateway - server: a customer's box (CLAT, B4, lwB4, CE) before the provider's
    /// (PLAT, AFTR, lwAFTR, BR). Between the two there is IPv6 only, 2001:db8:c::/64 (cpe ::2,
    /// gateway ::1, interfaces `core0`), which is what the IPv4-as-a-Service technologies are for.
    #[must_use]
    pub fn client_cpe_gateway_server() -> Self {
        let mut topology = Self::chain("client-cpe-gateway-server", &["client", "cpe", "gateway", "server"]);
        topology.links = vec![
            Link::new(inside_end("client", 2, "inside0"), inside_end("cpe", 1, "inside0")),
            Link::new(core_end("cpe", 2), core_end("gateway", 1)),
            Link::new(outside_end("gateway", 1, "outside0"), outside_end("server", 2, "outside0")),
        ];
        topology.add_default_routes("client", [10, 0, 0, 1], 1);
        topology.add_default_routes("server", [198, 51, 100, 1], 2);
        topology.route("cpe", Ipv6Addr::UNSPECIFIED.into(), 0, core_address(1).into());
        let inside = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0);
        topology.route("gateway", inside.into(), 64, core_address(2).into());
        topology
    }

    /// The same, and 100.64.0.0/24 on the link between cpe and gateway with routes: three hops of
    /// plain IPv4 forwarding, to compare with what carries IPv4 over IPv6 along the same path.
    #[must_use]
    pub fn client_cpe_gateway_server_with_ipv4() -> Self {
        let mut topology = Self::client_cpe_gateway_server();
        topology.name = "client-cpe-gateway-server-with-ipv4".to_owned();
        let core = |host| IpAddr::from(Ipv4Addr::new(100, 64, 0, host));
        for (end, host) in topology.links[1].ends.iter_mut().zip([2, 1]) {
            end.addresses.push(Prefix { address: core(host), length: 24 });
        }
        topology.route("cpe", Ipv4Addr::UNSPECIFIED.into(), 0, core(1));
        topology.route("gateway", Ipv4Addr::new(10, 0, 0, 0).into(), 24, core(2));
        topology
    }

    /// The named nodes, the first and the last being hosts and all between them routers; without
    /// links.
    #[must_use]
    pub fn chain(name: &str, nodes: &[&str]) -> Self {
        let last = nodes.len().saturating_sub(1);
        let nodes = nodes.iter().enumerate().map(|(position, node)| {
            if position == 0 || position == last { Node::host(node) } else { Node::router(node) }
        });
        Self { name: name.to_owned(), nodes: nodes.collect(), links: Vec::new() }
    }

    /// The node of that name, to change it before the lab is built.
    pub fn node_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.name == name)
    }

    /// Adds a route to a node; a node that does not exist is left for [`Topology::check`] to
    /// report.
    fn route(&mut self, node: &str, destination: IpAddr, length: u8, via: IpAddr) {
        let route = Route { destination: Prefix { address: destination, length }, via };
        if let Some(node) = self.node_mut(node) {
            node.routes.push(route);
        }
    }

    /// Default routes for both protocols, towards 2001:db8:`link`::1 and the IPv4 router named.
    fn add_default_routes(&mut self, node: &str, via_v4: [u8; 4], link: u16) {
        self.route(node, Ipv4Addr::UNSPECIFIED.into(), 0, Ipv4Addr::from(via_v4).into());
        self.route(node, Ipv6Addr::UNSPECIFIED.into(), 0, numbered(link, 1).into());
    }

    /// Finds what would make the kernel refuse the topology halfway.
    ///
    /// # Errors
    /// [`LabError::BadTopology`] names the first inconsistency.
    pub fn check(&self) -> Result<(), LabError> {
        let bad = |reason: String| Err(LabError::BadTopology { reason });
        let mut names = HashSet::new();
        for node in &self.nodes {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if node.name.is_empty() || !node.name.chars().all(plain) {
                return bad(format!("node name `{}` is not letters, digits and hyphens", node.name));
            }
            if !names.insert(node.name.as_str()) {
                return bad(format!("node `{}` is there twice", node.name));
            }
        }
        let mut interfaces = HashSet::new();
        for end in self.links.iter().flat_map(|link| &link.ends) {
            if !names.contains(end.node.as_str()) {
                return bad(format!("a link ends in node `{}`, which is not there", end.node));
            }
            if end.interface.is_empty() || end.interface.len() > 15 {
                return bad(format!("interface name `{}` is not 1 to 15 bytes long", end.interface));
            }
            if !interfaces.insert((&end.node, &end.interface)) {
                return bad(format!("interface `{}` is twice in node `{}`", end.interface, end.node));
            }
        }
        Ok(())
    }
}

impl Node {
    /// A host: it has addresses, and forwards nothing.
    #[must_use]
    pub fn host(name: &str) -> Self {
        let (routes, sysctls) = (Vec::new(), Vec::new());
        Self { name: name.to_owned(), forwarding: false, switching: false, routes, sysctls }
    }

    /// A router.
    #[must_use]
    pub fn router(name: &str) -> Self {
        Self { forwarding: true, ..Self::host(name) }
    }

    /// A switch: who is plugged in sees nothing of what happens to the others' links.
    #[must_use]
    pub fn switch(name: &str) -> Self {
        Self { switching: true, ..Self::host(name) }
    }
}

impl Link {
    /// A cable with the kernel's default MTU and no delay.
    #[must_use]
    pub fn new(left: End, right: End) -> Self {
        Self { ends: [left, right], mtu: None, queues: None, delay: Duration::ZERO }
    }
}

fn inside_end(node: &str, host: u8, interface: &str) -> End {
    end(node, interface, &[(Ipv4Addr::new(10, 0, 0, host).into(), 24), (numbered(1, host).into(), 64)])
}

fn outside_end(node: &str, host: u8, interface: &str) -> End {
    let v4 = Ipv4Addr::new(198, 51, 100, host);
    end(node, interface, &[(v4.into(), 24), (numbered(2, host).into(), 64)])
}

fn core_end(node: &str, host: u8) -> End {
    end(node, "core0", &[(core_address(host).into(), 64)])
}

fn core_address(host: u8) -> Ipv6Addr {
    numbered(0xc, host)
}

/// 2001:db8:`link`::`host`.
fn numbered(link: u16, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, link, 0, 0, 0, 0, u16::from(host))
}

fn end(node: &str, interface: &str, addresses: &[(IpAddr, u8)]) -> End {
    let addresses = addresses.iter().map(|&(address, length)| Prefix { address, length });
    End { node: node.to_owned(), interface: interface.to_owned(), addresses: addresses.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_topologies_are_consistent() {
        Topology::client_gateway_server().check().unwrap();
        Topology::client_cpe_gateway_server().check().unwrap();
        Topology::client_cpe_gateway_server_with_ipv4().check().unwrap();
    }

    #[test]
    fn only_the_middle_of_a_chain_forwards() {
        let topology = Topology::client_cpe_gateway_server();
        let forwarding: Vec<bool> = topology.nodes.iter().map(|node| node.forwarding).collect();
        assert_eq!(forwarding, [false, true, true, false]);
    }

    #[test]
    fn a_link_into_nowhere_is_named() {
        let mut topology = Topology::client_gateway_server();
        topology.links[1].ends[1].node = "moon".to_owned();
        assert!(topology.check().unwrap_err().to_string().contains("`moon`"));
    }

    #[test]
    fn the_translated_server_address_embeds_the_real_one() {
        assert_eq!(SERVER_V4_TRANSLATED.octets()[12..], SERVER_V4.octets());
    }
}
