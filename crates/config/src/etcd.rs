//! `cluster.etcd`: where nodes agree on who has which slice, instead of being told by a file.

use crate::document::{Node, Table};
use crate::host::Etcd;
use crate::problem::{Log, Problem};

/// What the cluster is called there, if the file does not say.
const NAME: &str = "gateways";

/// Reads it, from the table `[cluster]`.
pub(crate) fn read(cluster: &Table<'_>, log: &mut Log) -> Option<Etcd> {
    let Some(node) = cluster.find("etcd") else {
        if let Some(name) = cluster.find("name") {
            log.mistake(name.problem("what the cluster is called in etcd; say with etcd where that is"));
        }
        return None;
    };
    if cluster.find("slices").is_some() {
        log.mistake(node.problem("owners come from there, and from slices as well; leave one of the keys out"));
    }
    if cluster.find("replication").is_none() {
        let why = "whoever takes slices over needs a copy of them, and etcd is shown the same certificates";
        log.mistake(node.problem(format!("{why}; add the table [cluster.replication]")));
    }
    let name = cluster.read_or("name", NAME.to_owned(), log, name);
    let endpoints = log.keep(node.items()).map(|items| {
        let found: Vec<String> = items.iter().filter_map(|item| log.keep(endpoint(item))).collect();
        (found.len() == items.len(), found)
    });
    match endpoints {
        Some((true, endpoints)) if endpoints.is_empty() => {
            log.mistake(node.problem("nobody is named; name each member, as \"https://[2001:db8:c::e1]:2379\""));
            None
        }
        Some((true, endpoints)) => Some(Etcd { endpoints, name }),
        _ => None,
    }
}

fn endpoint(node: &Node<'_>) -> Result<String, Problem> {
    let text = node.text()?;
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_it = rest.and_then(|rest| rest.rsplit_once(':')).is_some_and(|(host, port)| {
        let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']) && host.contains(':') == host.starts_with('[');
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
