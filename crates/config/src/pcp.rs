//! `service.pcp` and `gateway.pcp_addresses`: what hosts inside may ask for, and where.

use std::net::IpAddr;

use ipnet::Ipv6Net;
use tombolo_engine::mechanism::napt::KnownBy;
use tombolo_engine::plan::{ANYCAST_IPV4, ANYCAST_IPV6, MOST_PCP_ADDRESSES, PcpAddresses, PcpPolicy, Service};

use crate::document::{Node, Table};
use crate::problem::{Log, Problem};
use crate::reference::PCP;

/// What RFC 6887 section 15 recommends for the shortest lifetime and the longest one, in seconds.
const SHORTEST: u32 = 120;
const LONGEST: u32 = 86_400;

/// Reads `service.pcp`: a switch, or a table with limits.
pub(crate) fn read(node: &Node<'_>, log: &mut Log) -> Option<PcpPolicy> {
    let defaults = PcpPolicy::default();
    if !node.is_table() {
        let is_on = log.keep(node.switch())?;
        return is_on.then_some(defaults);
    }
    let table = node.table(&PCP, log)?;
    let seconds = |node: &Node<'_>| node.number32(1..=u32::MAX / 2);
    let policy = PcpPolicy {
        mappings: table.read_or("mappings_per_subscriber", defaults.mappings, log, |node| node.number32(1..=65_535)),
        shortest: table.read_or("shortest_lifetime", defaults.shortest, log, seconds),
        longest: table.read_or("longest_lifetime", defaults.longest, log, seconds),
    };
    if policy.shortest > policy.longest {
        log.mistake(table.node().problem(format!(
            "the shortest lifetime, {} seconds, is longer than the longest, {}; exchange them",
            policy.shortest, policy.longest
        )));
    }
    if policy.shortest < SHORTEST {
        log.warning(table.node().problem(format!(
            "RFC 6887 section 15 recommends at least {SHORTEST} seconds; hosts renew mappings of {} all the time",
            policy.shortest
        )));
    }
    if policy.longest > LONGEST {
        log.warning(table.node().problem(format!(
            "RFC 6887 section 15 recommends at most {LONGEST} seconds; ports of hosts that are gone stay taken for {}",
            policy.longest
        )));
    }
    Some(policy)
}

/// Where requests are taken: at the addresses of the file, by default those that RFC 7723 has for it; nowhere
/// if no service takes any.
pub(crate) fn addresses(file: &Table<'_>, services: &[Service], log: &mut Log) -> PcpAddresses {
    let takes = |service: &Service| service.kind.nat().is_some_and(|nat| nat.policy.pcp.is_some());
    // Whoever reads the table says what is wrong with it.
    let keys = file.find("gateway").and_then(|gateway| gateway.entries().ok()).unwrap_or_default();
    let node = keys.into_iter().find_map(|(key, node)| (key == "pcp_addresses").then_some(node));
    let listed = node.as_ref().map(|node| (node, log.keep(list(node)).unwrap_or_default()));
    if !services.iter().any(takes) {
        if let Some((node, _)) = listed {
            log.warning(node.problem("no service has pcp, so that nobody answers there; give it to one"));
        }
        return PcpAddresses::default();
    }
    // Of the families that hosts inside have.
    let has_hosts = |known_by: &[KnownBy]| {
        services.iter().any(|service| takes(service) && known_by.contains(&service.kind.hosts_known_by()))
    };
    let ipv4 = has_hosts(&[KnownBy::Ipv4, KnownBy::Softwire]).then_some(IpAddr::V4(ANYCAST_IPV4));
    let ipv6 = has_hosts(&[KnownBy::Ipv6]).then_some(IpAddr::V6(ANYCAST_IPV6));
    let defaults: Vec<IpAddr> = ipv4.into_iter().chain(ipv6).collect();
    let mut addresses = PcpAddresses::default();
    let keeper = listed.as_ref().map_or_else(|| file.node().clone(), |(node, _)| (*node).clone());
    for address in listed.map_or(defaults, |(_, listed)| listed) {
        if let Some(service) = services.iter().find(|service| has(service, address)) {
            log.mistake(keeper.problem(format!(
                "{address} is an address of service {}; hosts ask for ports at one that nobody else has",
                service.name
            )));
        }
        match address {
            IpAddr::V4(address) => addresses.ipv4.push(address),
            IpAddr::V6(address) => addresses.ipv6.push(address),
        }
    }
    if addresses.ipv4.len().max(addresses.ipv6.len()) > MOST_PCP_ADDRESSES {
        log.mistake(keeper.problem(format!("more than {MOST_PCP_ADDRESSES} addresses of a family; leave some out")));
    }
    addresses
}

/// Whether packets to the address are the service's, whoever sends them.
fn has(service: &Service, address: IpAddr) -> bool {
    let routed = service.kind.routed();
    match address {
        IpAddr::V4(address) => routed.ipv4.iter().any(|(first, last)| (*first..=*last).contains(&address)),
        IpAddr::V6(address) => {
            let holds = |net: &Ipv6Net| net.contains(&address);
            routed.ipv6.iter().filter_map(|(at, length)| Ipv6Net::new(*at, *length).ok()).any(|net| holds(&net))
        }
    }
}

fn list(node: &Node<'_>) -> Result<Vec<IpAddr>, Problem> {
    node.items()?.iter().map(crate::gateway::address).collect()
}
