//! The scenarios of softwires: DS-Lite and Lightweight 4over6.
//!
//! Both homes use the same private addresses, as homes do, and the provider's end distinguishes
//! them by their softwires:
//!
//! ```text
//!  client    --- cpe  ---+                        cpe:  2001:db8:1000:100::/56
//!   10.0.0.2             |
//!                        +--- gateway --- server  gateway: 2001:db8:ffff::1, 192.0.2.0/28
//!  neighbour --- cpe2 ---+
//!   10.0.0.2      2001:db8:d::/64                 cpe2: 2001:db8:1000:200::/56
//! ```

use std::net::Ipv6Addr;

use super::{description::Scenario, network::two_homes};
use crate::Topology;

/// DS-Lite (RFC 6333): B4s in the homes, an AFTR in the gateway.
pub(super) fn ds_lite() -> Scenario {
    let b4 = |prefix: &str| {
        format!(
            "[[service]]\nkind = \"b4\"\ninside = [\"10.0.0.0/24\"]\naddress = \"{prefix}::b4\"\n\
             aftr = \"2001:db8:ffff::1\"\n"
        )
    };
    Scenario {
        name: "ds-lite",
        about: "DS-Lite (RFC 6333): IPv4 inside IPv6 to a carrier's NAT44",
        topology: two_private_homes("ds-lite"),
        gateways: vec![
            (
                "gateway",
                "[[service]]\nkind = \"aftr\"\naddress = \"2001:db8:ffff::1\"\nb4s = [\"2001:db8:1000::/36\"]\n\
                 pool = [{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }]\n"
                    .to_owned(),
            ),
            ("cpe", b4("2001:db8:1000:100")),
            ("cpe2", b4("2001:db8:1000:200")),
        ],
        routers: Vec::new(),
        members: Vec::new(),
        hints: vec![("client", "ping -c 3 198.51.100.2"), ("neighbour", "ping -c 3 198.51.100.2")],
    }
}

/// Lightweight 4over6 (RFC 7596): both homes share 192.0.2.10, the first has its ports 4096 to
/// 5119, the second those from 5120 to 6143.
pub(super) fn lw4o6() -> Scenario {
    let lwb4 = |prefix: &str, psid: u16| {
        format!(
            "[[service]]\nkind = \"lwb4\"\ninside = [\"10.0.0.0/24\"]\nipv4 = \"192.0.2.10\"\npsid_length = 6\n\
             psid = {psid}\nbind_prefix = \"{prefix}::/56\"\naftr = \"2001:db8:ffff::1\"\n\
             static = [{{ inside = \"10.0.0.2:80\", outside = \"192.0.2.10:{}\", protocol = \"tcp\" }}]\n",
            psid * 1024 + 80
        )
    };
    Scenario {
        name: "lw4o6",
        about: "Lightweight 4over6 (RFC 7596): each home translates within its own ports of a shared address",
        topology: two_private_homes("lw4o6"),
        gateways: vec![
            (
                "gateway",
                "[[service]]\nkind = \"lwaftr\"\naddresses = [\"2001:db8:ffff::1\"]\nipv4 = [\"192.0.2.0/28\"]\n\
                 softwires = [\n\
                 { b4 = \"2001:db8:1000:100:0:c000:20a:4\", ipv4 = \"192.0.2.10\", psid_length = 6, psid = 4 },\n\
                 { b4 = \"2001:db8:1000:200:0:c000:20a:5\", ipv4 = \"192.0.2.10\", psid_length = 6, psid = 5 },\n\
                 ]\n"
                .to_owned(),
            ),
            ("cpe", lwb4("2001:db8:1000:100", 4)),
            ("cpe2", lwb4("2001:db8:1000:200", 5)),
        ],
        routers: Vec::new(),
        members: Vec::new(),
        hints: vec![("client", "ping -c 3 198.51.100.2"), ("neighbour", "ping -c 3 198.51.100.2")],
    }
}

/// Homes with the same private addresses.
fn two_private_homes(name: &str) -> Topology {
    let home = |number| Ipv6Addr::new(0x2001, 0xdb8, 0x1000, number, 0, 0, 0, 0);
    two_homes(name, 0, [home(0x100), home(0x200)])
}
