//! 464XLAT.

use std::net::Ipv6Addr;

use super::{
    description::Scenario,
    network::{add_route, numbered},
};
use crate::{Prefix, Topology};

/// A CLAT in the home, a NAT64 in the gateway.
pub(super) fn with_clat() -> Scenario {
    let mut topology = Topology::client_cpe_gateway_server();
    topology.name = "464xlat".to_owned();
    let inside = Ipv6Addr::new(0x2001, 0xdb8, 0x464, 0, 0, 0, 0, 0);
    add_route(&mut topology, "gateway", Prefix { address: inside.into(), length: 64 }, numbered(0xc, 2).into());
    Scenario {
        name: "464xlat",
        about: "464XLAT (RFC 6877): a CLAT before a NAT64",
        topology,
        gateways: vec![
            (
                "gateway",
                "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
                 pool = [{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }]\n"
                    .to_owned(),
            ),
            (
                "cpe",
                "[[service]]\nkind = \"clat\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
                 eam = [{ ipv4 = \"10.0.0.0/24\", ipv6 = \"2001:db8:464::a00:0/120\" }]\n"
                    .to_owned(),
            ),
        ],
        routers: Vec::new(),
        members: Vec::new(),
        hints: vec![("client", "ping -c 3 198.51.100.2"), ("client", "ping -c 3 2001:db8:2::2")],
    }
}
