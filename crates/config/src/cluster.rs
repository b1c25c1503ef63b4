//! Table `[cluster]`: which other gateways serve the same services.

use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv6Net};
use tombolo_engine::cluster::{self, LOCATOR_LENGTH, MOST_NODES, Node as ClusterNode};
use tombolo_engine::plan::{Service, ServiceKind};
use tombolo_engine::side::Side;

use crate::document::{Node, Table};
use crate::host::Cluster;
use crate::problem::{Log, Problem};
use crate::reference::CLUSTER;

/// Where routing daemons find the routes, if the file does not say.
const TABLE: u32 = 8464;

/// Reads `[cluster]`; `services` have to be ones that nodes can share.
pub(crate) fn read(file: &Table<'_>, services: &[Service], log: &mut Log) -> Option<Cluster> {
    let table = file.table("cluster", &CLUSTER, log)?;
    let own = table.require("node", log);
    let nodes = table.require("nodes", log).and_then(|node| locators(&node, services, log));
    let routes = table.read_or("table", TABLE, log, |node| {
        node.number32(1..=u32::MAX - 1).and_then(|number| crate::gateway::routing_table(number, node))
    });
    let needs = table.read_or("needs", Vec::new(), log, prefixes);
    for service in services {
        if let Some(why) = cannot_be_shared(service) {
            log.mistake(table.node().problem(format!("service {} {why}", service.name)));
        }
    }
    let (own, nodes) = (own?, nodes?);
    let name = log.keep(own.text())?;
    let Some(own) = nodes.iter().position(|node| node.name == name) else {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        log.mistake(own.problem(format!("not one of the nodes; use one of {}", names.join(", "))));
        return None;
    };
    Some(Cluster { nodes, own, table: routes, needs })
}

/// What the engine is to know of it.
pub(crate) fn of_engine(Cluster { nodes, own, .. }: &Cluster) -> Option<cluster::Cluster> {
    cluster::Cluster::new(nodes.clone(), *own)
}

fn locators(node: &Node<'_>, services: &[Service], log: &mut Log) -> Option<Vec<ClusterNode>> {
    let mut nodes: Vec<ClusterNode> = Vec::new();
    for (name, node) in log.keep(node.entries())? {
        let locator = log.keep(locator(&node))?;
        if let Some(other) = nodes.iter().find(|other| other.locator == locator) {
            log.mistake(node.problem(format!("the locator of {} as well; give each node its own", other.name)));
        }
        if let Some(service) = services.iter().find(|service| overlaps(service, locator)) {
            log.mistake(node.problem(format!("overlaps a prefix of service {}; use another one", service.name)));
        }
        nodes.push(ClusterNode { name: name.to_owned(), locator });
    }
    if nodes.is_empty() || nodes.len() > MOST_NODES {
        log.mistake(node.problem(format!("a cluster has 1 to {MOST_NODES} nodes; build a second one for more")));
        return None;
    }
    Some(nodes)
}

fn prefixes(node: &Node<'_>) -> Result<Vec<IpNet>, Problem> {
    let prefix = |node: &Node<'_>| match node.text()?.parse::<IpNet>() {
        Ok(prefix) if prefix == prefix.trunc() => Ok(prefix),
        Ok(prefix) => Err(node.problem(format!("bits are set behind the prefix length; write \"{}\"", prefix.trunc()))),
        Err(_) => Err(node.problem("not a prefix; write one as it is announced to this host, as \"0.0.0.0/0\"")),
    };
    node.items()?.iter().map(prefix).collect()
}

fn locator(node: &Node<'_>) -> Result<Ipv6Addr, Problem> {
    let prefix: Ipv6Net = node
        .text()?
        .parse()
        .map_err(|_| node.problem("not an IPv6 prefix; write a /64 of the network, as \"2001:db8:c1:1::/64\""))?;
    let address = prefix.network();
    if prefix.prefix_len() != LOCATOR_LENGTH || prefix.addr() != address {
        return Err(node.problem(format!("a locator is a /{LOCATOR_LENGTH}; write \"{address}/{LOCATOR_LENGTH}\"")));
    }
    if address.is_multicast() || address.is_unspecified() || address.is_unicast_link_local() {
        return Err(node.problem("nobody can be reached there; use a /64 of the network"));
    }
    Ok(address)
}

fn overlaps(service: &Service, locator: Ipv6Addr) -> bool {
    let Ok(locator) = Ipv6Net::new(locator, LOCATOR_LENGTH) else { return false };
    let prefixes = service.kind.routed().ipv6;
    let mut prefixes = prefixes.into_iter().filter_map(|(at, length)| Ipv6Net::new(at, length).ok());
    prefixes.any(|prefix| prefix.contains(&locator) || locator.contains(&prefix))
}

/// Why nodes cannot share a service, if they cannot.
fn cannot_be_shared(service: &Service) -> Option<&'static str> {
    let lends = matches!(&service.kind, ServiceKind::Siit(siit) if siit.dynamic.is_some());
    if service.kind.nat().is_some() {
        return Some("has bindings, which nodes do not share yet; only services without state can be clustered");
    }
    if lends {
        return Some("lends addresses, which nodes do not share; map them explicitly");
    }
    let is_edge = service.kind.shape().ipv4 == Side::Inside;
    is_edge.then_some("is a customer's end, and clusters are for a provider's; leave [cluster] out")
}
