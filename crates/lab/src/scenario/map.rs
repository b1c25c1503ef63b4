//! MAP-E and MAP-T: two subscribers of one rule.
//!
//! ```text
//!  client   --- cpe  ---+                       rule 2001:db8:4600::/40 = 192.0.2.0/24, 16 EA bits
//!   10.0.0.2            |                       cpe:  2001:db8:4612:3400::/56 = 192.0.2.18, PSID 0x34
//!                       +--- gateway --- server cpe2: 2001:db8:4613:3500::/56 = 192.0.2.19, PSID 0x35
//!  neighbour --- cpe2 --+                       Default Mapping Rule 2001:db8:ffff::/64, relay 2001:db8:ffff::1
//!   10.0.1.2     2001:db8:d::/64
//! ```

use std::net::Ipv6Addr;

use super::{description::Scenario, network::two_homes};
use crate::Topology;

/// MAP-E (RFC 7597): the relay has an address of its own.
pub(super) fn map_e() -> Scenario {
    map("map-e", "MAP-E (RFC 7597): IPv4 inside IPv6", "br = \"2001:db8:ffff::1\"")
}

/// MAP-T (RFC 7599): the relay has a Default Mapping Rule.
pub(super) fn map_t() -> Scenario {
    map("map-t", "MAP-T (RFC 7599): IPv4 translated", "dmr = \"2001:db8:ffff::/64\"")
}

fn map(name: &'static str, about: &'static str, relay: &str) -> Scenario {
    let kind = format!("[[service]]\nkind = \"{name}\"\n{relay}\n");
    let rule = "ipv6 = \"2001:db8:4600::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16, psid_offset = 6";
    let edge = |inside: &str, end_user: &str, binding: &str| {
        format!(
            "{kind}role = \"ce\"\nend_user_prefix = \"{end_user}\"\ninside = [\"{inside}\"]\n\
             rules = [{{ {rule}, forwarding = true }}]\n{binding}\n"
        )
    };
    Scenario {
        name,
        about,
        topology: two_subscribers(),
        gateways: vec![
            ("gateway", format!("{kind}role = \"br\"\nrules = [{{ {rule} }}]\n")),
            ("cpe", edge("10.0.0.0/24", "2001:db8:4612:3400::/56", "")),
            (
                "cpe2",
                edge(
                    "10.0.1.0/24",
                    "2001:db8:4613:3500::/56",
                    "static = [{ inside = \"10.0.1.2:80\", outside = \"192.0.2.19:1236\", protocol = \"tcp\" }]",
                ),
            ),
        ],
        routers: Vec::new(),
        members: Vec::new(),
        hints: vec![("client", "ping -c 3 198.51.100.2"), ("neighbour", "ping -c 3 198.51.100.2")],
    }
}

/// Homes with addresses of their own: 10.0.0.0/24 and 10.0.1.0/24.
fn two_subscribers() -> Topology {
    let end_user = |low, prefix| Ipv6Addr::new(0x2001, 0xdb8, low, prefix, 0, 0, 0, 0);
    two_homes("two-subscribers", 1, [end_user(0x4612, 0x3400), end_user(0x4613, 0x3500)])
}
