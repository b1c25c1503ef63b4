//! `[cluster.etcd]`: where nodes agree on who has which slice, instead of being told by a file.

use crate::collectors::read_file;
use crate::document::{Node, Table};
use crate::host::{Etcd, Identity, Replication};
use crate::problem::{Log, Problem};
use crate::reference::ETCD;

/// What the cluster is called there, if the file does not say.
const NAME: &str = "gateways";
/// Endpoints that begin so are spoken to by TLS.
const TLS: &str = "https://";

/// Reads it, from the table `[cluster]`, which has this `replication`.
pub(crate) fn read(cluster: &Table<'_>, replication: Option<&Replication>, log: &mut Log) -> Option<Etcd> {
    let node = cluster.find("etcd")?;
    let table = node.table(&ETCD, log)?;
    if cluster.find("slices").is_some() {
        log.mistake(node.problem("owners come from there, and from slices as well; leave one of the two out"));
    }
    if cluster.find("replication").is_none() {
        let why = "whoever takes slices over needs a copy of what is in them";
        log.mistake(node.problem(format!("{why}; add the table [cluster.replication]")));
    }
    let name = table.read_or("name", NAME.to_owned(), log, name);
    let endpoints = table.require("endpoints", log).and_then(|node| endpoints(&node, log));
    let mut file = |key: &'static str, kind, default: fn(&Replication) -> &Vec<u8>| match table.find(key) {
        Some(node) => read_file(&node, kind, log),
        None => Some(replication.map(|replication| default(replication).clone()).unwrap_or_default()),
    };
    let ca = file("ca", "CERTIFICATE", |replication| &replication.ca);
    let certificate = file("certificate", "CERTIFICATE", |replication| &replication.identity.certificate);
    let key = file("key", "PRIVATE KEY", |replication| &replication.identity.key);
    if table.find("certificate").is_some() != table.find("key").is_some() {
        log.mistake(node.problem("a certificate and its key go together; name both, or neither"));
    }
    let identity = Identity { certificate: certificate?, key: key? };
    Some(Etcd { endpoints: endpoints?, name, ca: ca?, identity })
}

fn endpoints(node: &Node<'_>, log: &mut Log) -> Option<Vec<String>> {
    let items = log.keep(node.items())?;
    if items.is_empty() {
        log.mistake(node.problem("nobody is named; name each member, as \"https://[2001:db8:c::e1]:2379\""));
        return None;
    }
    let found: Vec<String> = items.iter().filter_map(|item| log.keep(endpoint(item))).collect();
    (found.len() == items.len()).then_some(found)
}

fn endpoint(node: &Node<'_>) -> Result<String, Problem> {
    let text = node.text()?;
    let rest = text.strip_prefix(TLS).or_else(|| text.strip_prefix("http://"));
    let is_it = rest.and_then(|rest| rest.rsplit_once(':')).is_some_and(|(host, port)| {
        let is_host =
            !host.is_empty() && !host.contains(['/', '@', ' ']) && host.contains(':') == host.starts_with('[');
        is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !is_it {
        return Err(node.problem("not an address of etcd; write a member's as \"https://[2001:db8:c::e1]:2379\""));
    }
    Ok(text.to_owned())
}

fn name(node: &Node<'_>) -> Result<String, Problem> {
    let text = node.text()?;
    let is_it = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if text.is_empty() || text.len() > 64 || !is_it(text) {
        return Err(node.problem("keys of etcd begin with it; use letters, digits, hyphens and dots, 64 at most"));
    }
    Ok(text.to_owned())
}
