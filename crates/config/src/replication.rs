//! `[cluster.replication]`: how nodes copy their tables to each other, and by what they know each other.

use std::net::IpAddr;

use tombolo_engine::cluster::Node as ClusterNode;

use crate::collectors::read_file;
use crate::document::{Node, Table};
use crate::host::{Identity, Replication};
use crate::problem::{Log, Problem};
use crate::reference::REPLICATION;

/// Where nodes listen for each other, if the file does not say.
const PORT: u16 = 8464;

/// Reads it, from the table `[cluster]`, which has these nodes.
pub(crate) fn read(cluster: &Table<'_>, nodes: &[ClusterNode], log: &mut Log) -> Option<Replication> {
    let node = cluster.find("replication")?;
    let table = node.table(&REPLICATION, log)?;
    if cluster.find("slices").is_none() && cluster.find("etcd").is_none() {
        let why = "only services with bindings have something to copy";
        log.mistake(node.problem(format!("{why}; say with slices, or with etcd, who has which")));
    }
    let addresses = table.require("addresses", log).and_then(|node| addresses(&node, nodes, log));
    let port = table
        .read_or("port", PORT, log, |node| node.number32(1..=65_535).map(|port| u16::try_from(port).unwrap_or(PORT)));
    let ca = table.require("ca", log).and_then(|node| read_file(&node, "CERTIFICATE", log));
    let certificate = table.require("certificate", log).and_then(|node| read_file(&node, "CERTIFICATE", log));
    let key = table.require("key", log).and_then(|node| read_file(&node, "PRIVATE KEY", log));
    let identity = Identity { certificate: certificate?, key: key? };
    Some(Replication { addresses: addresses?, port, ca: ca?, identity })
}

/// One of each node.
fn addresses(node: &Node<'_>, nodes: &[ClusterNode], log: &mut Log) -> Option<Vec<IpAddr>> {
    let entries = log.keep(node.entries())?;
    for (name, entry) in &entries {
        if !nodes.iter().any(|node| node.name == *name) {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            log.mistake(entry.problem(format!("not one of the nodes; use one of {}", names.join(", "))));
        }
    }
    let of = |cluster: &ClusterNode, log: &mut Log| {
        let Some((_, entry)) = entries.iter().find(|(name, _)| *name == cluster.name) else {
            log.mistake(node.problem(format!("node {} has none; give one to each node", cluster.name)));
            return None;
        };
        if !is_in_certificates(&cluster.name) {
            log.mistake(
                entry.problem("certificates are for names of letters, digits, hyphens and dots; rename the node"),
            );
        }
        log.keep(address(entry))
    };
    let found: Vec<Option<IpAddr>> = nodes.iter().map(|node| of(node, log)).collect();
    found.into_iter().collect()
}

fn address(node: &Node<'_>) -> Result<IpAddr, Problem> {
    let wrong = "not an address; write one of that node in the network between the nodes, as \"2001:db8:c::1\"";
    let address: IpAddr = node.text()?.parse().map_err(|_| node.problem(wrong))?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(node.problem("nobody can be reached there; use an address of the node"));
    }
    Ok(address)
}

/// Whether a name can be one of the subject of a certificate (RFC 6125 section 6.4).
fn is_in_certificates(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() < 64
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() < 254 && name.split('.').all(is_label) && name.parse::<IpAddr>().is_err()
}
