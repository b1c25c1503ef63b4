//! The addresses of the laboratory: the tester's hosts, and what a gateway is configured with there.
//! Pairs of gateways have those of the lab's scenarios.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tombolo_lab::{Prefix, topology::Route};

use crate::gateway::addresses::{Addresses, MapRule, SIIT_PREFIX, embed};
use crate::gateway::frames::Flows;
use crate::gateway::kind::Kind;
use crate::gateway::spec::Spec;
use crate::gateway::start::jool;
use crate::gateway::technology::Technology;

/// Where further hosts are, beyond the lab's own two: they have routes through them.
const INSIDE_HOSTS_4: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 10);
const INSIDE_HOSTS_6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 1, 0x8000, 0, 0, 0, 0), 49);
const OUTSIDE_HOSTS_4: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
const OUTSIDE_HOSTS_6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 2, 0x8000, 0, 0, 0, 0), 49);
/// The home of a pair's scenario is 10.0.0.0/24.
const HOME_HOSTS_4: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 0, 0, 128), 25);
/// Where an edge's own addresses are: no interface has them.
const EDGE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x464, 0, 0, 0, 0, 0);
const EDGE_SOFTWIRE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x464, 0, 0, 0, 0, 0xb4);
/// RFC 7599 section 5.1 wants a Default Mapping Rule of 64 bits.
const DEFAULT_MAPPING_RULE: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 0), 64);

/// The first and last address of a pool.
type Pool = (Ipv4Addr, Ipv4Addr);

/// Most hosts behind the edge of a pair.
pub(super) const HOME_HOSTS: u32 = 120;

/// The addresses that the tester uses in the lab for so many flows.
pub fn addresses(technology: Technology, spec: &Spec, flows: &Flows) -> Addresses {
    let (rule, edge) = rule_of(technology);
    let mut addresses = Addresses { rule, edge, pool: pool_of(technology, spec), ..Addresses::default() };
    if flows.inside_hosts > 1 {
        let first = if technology.is_pair() { HOME_HOSTS_4 } else { INSIDE_HOSTS_4 };
        addresses.inside_ipv4 = Ipv4Addr::from_bits(first.0.to_bits() + 2);
        addresses.inside_ipv6 = Ipv6Addr::from_bits(INSIDE_HOSTS_6.0.to_bits() + 2);
    }
    if flows.outside_hosts > 1 {
        addresses.outside_ipv4 = Ipv4Addr::from_bits(OUTSIDE_HOSTS_4.0.to_bits() + 2);
        addresses.outside_ipv6 = Ipv6Addr::from_bits(OUTSIDE_HOSTS_6.0.to_bits() + 2);
    }
    match technology {
        Technology::Clat => {
            addresses.inside_ipv6 = embed((EDGE, 96), addresses.inside_ipv4);
            addresses.translation_prefix = SIIT_PREFIX;
        }
        Technology::B4 | Technology::Lwb4 => addresses.inside_ipv6 = EDGE_SOFTWIRE,
        Technology::MapTCe | Technology::MapTBr => addresses.translation_prefix = DEFAULT_MAPPING_RULE,
        Technology::Nat64 if spec.kind() == Some(Kind::TaygaNat) => addresses.translation_prefix = SIIT_PREFIX,
        _ if matches!(spec.kind(), Some(Kind::Tayga)) || is_ours(spec, technology, Technology::Siit) => {
            addresses.translation_prefix = SIIT_PREFIX;
            addresses.mapped_ipv4 = Ipv4Addr::new(192, 0, 2, 1);
        }
        _ => {}
    }
    addresses
}

fn is_ours(spec: &Spec, technology: Technology, wanted: Technology) -> bool {
    technology == wanted && spec.kind() == Some(Kind::Tombolo)
}

/// The mapping rule, and which of its subscribers a customer's edge is.
pub(crate) fn rule_of(technology: Technology) -> (MapRule, u32) {
    let usual = Addresses::default().rule;
    match technology {
        // Lightweight 4over6 usually has contiguous ports (RFC 7596 section 5.1).
        Technology::Lwb4 | Technology::Lwaftr => (MapRule { psid_offset: 0, ..usual }, 0),
        // 192.0.2.10 and PSID 4 of 64, which are 4096 to 5119.
        Technology::Lw4o6 => (MapRule { ipv6: (EDGE, 40), ea_bits: 14, psid_offset: 0, ..usual }, 9 * 63 + 3),
        // 192.0.2.18 and PSID 0x34 of 256.
        Technology::MapE | Technology::MapT => {
            let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0x4600, 0, 0, 0, 0, 0);
            (MapRule { ipv6: (prefix, 40), ea_bits: 16, psid_offset: 6, ..usual }, 17 * 256 + 0x34)
        }
        _ => (usual, 0),
    }
}

/// The addresses that hosts inside have outside, where the gateway gives them any.
fn pool_of(technology: Technology, spec: &Spec) -> Option<Pool> {
    let own = Ipv4Addr::new(198, 51, 100, 1);
    let (rule, edge) = rule_of(technology);
    match (spec.kind()?, technology) {
        (Kind::Iptables | Kind::Nftables, Technology::Nat44 | Technology::Aftr)
        | (Kind::TaygaNat, Technology::Nat64) => Some((own, own)),
        (Kind::Jool, Technology::Nat64) => Some((jool::POOL, jool::POOL)),
        (Kind::Tombolo, Technology::Lw4o6 | Technology::MapE | Technology::MapT) => {
            let (shared, _) = rule.share(edge);
            Some((shared, shared))
        }
        (
            Kind::Tombolo,
            Technology::Nat64 | Technology::Nat44 | Technology::Aftr | Technology::Xlat464 | Technology::DsLite,
        ) => Some((Ipv4Addr::new(192, 0, 2, 0), Ipv4Addr::new(192, 0, 2, 15))),
        _ => None,
    }
}

/// The routes that a gateway needs beyond those of the topology, with the node that they are for.
pub(super) fn routes(technology: Technology, addresses: &Addresses, flows: &Flows) -> Vec<(&'static str, Route)> {
    let (client4, server4) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([198, 51, 100, 2]));
    let usual = Addresses::default();
    let (client6, server6) = (IpAddr::from(usual.inside_ipv6), IpAddr::from(usual.outside_ipv6));
    let route = |(address, length): (IpAddr, u8), via| Route { destination: Prefix { address, length }, via };
    let v4 = |(address, length): (Ipv4Addr, u8)| (IpAddr::from(address), length);
    let v6 = |(address, length): (Ipv6Addr, u8)| (IpAddr::from(address), length);
    let mut routes = Vec::new();
    if flows.inside_hosts > 1 || flows.outside_hosts > 1 {
        routes.push(("gateway", route(v4(OUTSIDE_HOSTS_4), server4)));
        match technology.is_pair() {
            true => routes.push(("cpe", route(v4(HOME_HOSTS_4), client4))),
            false => routes.extend([
                ("gateway", route(v4(INSIDE_HOSTS_4), client4)),
                ("gateway", route(v6(INSIDE_HOSTS_6), client6)),
                ("gateway", route(v6(OUTSIDE_HOSTS_6), server6)),
            ]),
        }
    }
    match technology {
        Technology::B4 | Technology::Lwb4 | Technology::MapECe => {
            routes.push(("gateway", route(v6((addresses.softwire_concentrator, 128)), server6)));
        }
        Technology::Clat | Technology::MapTCe => {
            routes.push(("gateway", route(v6(addresses.translation_prefix), server6)));
        }
        Technology::MapEBr | Technology::MapTBr => {
            routes.push(("gateway", route(v6(addresses.rule.ipv6), client6)));
        }
        _ => {}
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_the_pairs_are_those_of_the_scenarios() {
        let share = |technology| {
            let (rule, edge) = rule_of(technology);
            (rule.share(edge), rule.end_user_prefix(edge).0)
        };
        let (map, prefix) = share(Technology::MapE);
        assert_eq!(map, (Ipv4Addr::new(192, 0, 2, 18), 0x34));
        assert_eq!(prefix, "2001:db8:4612:3400::".parse::<Ipv6Addr>().unwrap());
        assert_eq!(share(Technology::Lw4o6).0, (Ipv4Addr::new(192, 0, 2, 10), 4));
        let spec: Spec = "tombolo".parse().unwrap();
        let pool = |technology| addresses(technology, &spec, &Flows::RFC_4814).pool;
        assert_eq!(pool(Technology::MapT), Some((Ipv4Addr::new(192, 0, 2, 18), Ipv4Addr::new(192, 0, 2, 18))));
        assert_eq!(pool(Technology::MapTBr), None);
    }
}
