//! Table `[cluster]`: which other gateways serve the same services.

use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv6Net};
use tombolo_engine::cluster::{self, LOCATOR_LENGTH, MOST_NODES, Node as ClusterNode};
use tombolo_engine::plan::{Service, ServiceKind};
use tombolo_engine::side::Side;

use crate::document::{Node, Table};
use crate::etcd;
use crate::gateway::inside_interfaces;
use crate::host::{Cluster, InsideInterfaces};
use crate::problem::{Log, Problem};
use crate::reference::CLUSTER;
use crate::replication;
use crate::shared::SharedPool;
use crate::slices;

/// Where routing daemons find the routes, if the file does not say.
const TABLE: u32 = 8464;
/// A packet of Ethernet's size with two headers in front.
const CORE_MTU: u16 = 1580;

/// Reads `[cluster]`; `services` have to be ones that nodes can share, and their pools are divided among them.
pub(crate) fn read(
    file: &Table<'_>,
    services: &mut [Service],
    shared: &[SharedPool],
    log: &mut Log,
) -> Option<Cluster> {
    let table = file.table("cluster", &CLUSTER, log)?;
    let own = table.require("node", log);
    let nodes = table.require("nodes", log).and_then(|node| locators(&node, services, log));
    let routes = table.read_or("table", TABLE, log, |node| {
        node.number32(1..=u32::MAX - 1).and_then(|number| crate::gateway::routing_table(number, node))
    });
    let needs = table.read_or("needs", Vec::new(), log, prefixes);
    let core_mtu = table.read_or("core_mtu", CORE_MTU, log, |node| {
        node.number32(1320..=65_535).map(|size| u16::try_from(size).unwrap_or(u16::MAX))
    });
    let core = table.read_or("core", InsideInterfaces::ByRoute, log, inside_interfaces);
    let slices = nodes.as_deref().and_then(|nodes| slices::read(&table, nodes, log));
    let replication = nodes.as_deref().and_then(|nodes| replication::read(&table, nodes, log));
    let etcd = etcd::read(&table, replication.as_ref(), log);
    let is_divided = table.find("slices").is_some() || table.find("etcd").is_some();
    for service in services {
        match cannot_be_shared(service, shared, is_divided) {
            Some(why) => log.mistake(table.node().problem(format!("service {} {why}", service.name))),
            None => slices.iter().for_each(|slices| slices::divide(service, slices, &table, log)),
        }
    }
    let (own, nodes) = (own?, nodes?);
    let name = log.keep(own.text())?;
    let Some(own) = nodes.iter().position(|node| node.name == name) else {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        log.mistake(own.problem(format!("not one of the nodes; use one of {}", names.join(", "))));
        return None;
    };
    Some(Cluster { nodes, own, table: routes, needs, core_mtu, core, slices, replication, etcd })
}

/// What the engine is to know of it.
pub(crate) fn of_engine(
    Cluster { nodes, own, core, slices, replication, etcd, .. }: &Cluster,
) -> Option<cluster::Cluster> {
    let holders = slices.as_ref().map(|slices| slices.holders.clone()).unwrap_or_default();
    let epoch = slices.as_ref().map_or(1, |slices| slices.epoch);
    // The route of a B4 does not lead to the node that has redirected its packet.
    let are_guarded = *core != InsideInterfaces::ByRoute;
    let cluster = cluster::Cluster::new(nodes.clone(), *own)?.with_slices(holders).with_guarded_locators(are_guarded);
    let cluster = cluster.with_epoch(epoch).with_copies(replication.is_some());
    Some(if etcd.is_some() { cluster.with_agreement() } else { cluster })
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

/// Why nodes cannot share a service, if they cannot. `is_divided`: there are slices, or will be.
fn cannot_be_shared(service: &Service, shared: &[SharedPool], is_divided: bool) -> Option<&'static str> {
    let lends = matches!(&service.kind, ServiceKind::Siit(siit) if siit.dynamic.is_some());
    if service.kind.shape().ipv4 == Side::Inside {
        return Some("is a customer's end, and clusters are for a provider's; leave [cluster] out");
    }
    if service.kind.nat().is_some() && !is_divided {
        return Some(
            "has bindings, each of which one node has to have: say with slices which has whose, or with etcd where nodes agree on it",
        );
    }
    if shared.iter().any(|pool| pool.service == service.name) {
        return Some("hands out ports of the host's own address, which others do not have; use addresses of a pool");
    }
    lends.then_some("lends addresses, which nodes do not share; map them explicitly")
}
