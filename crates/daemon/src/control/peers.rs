//! The nodes of the cluster, in rows.

use std::net::Ipv6Addr;

use serde::Serialize;
use tombolo_engine::Plan;

use super::rows::{Failure, Rows};
use crate::peers::Presence;
use crate::running::Running;

/// A node.
#[derive(Debug, Serialize)]
struct PeerRow<'p> {
    node: &'p str,
    locator: Ipv6Addr,
    /// `self`, `serving`, `up` or `gone`.
    state: &'static str,
    /// Packets that were sent to it to be served there.
    redirected_to: u64,
    /// Packets that it has sent here.
    redirected_by: u64,
}

/// Every node: whether it serves, as the host's routes say, and what was redirected.
pub(crate) fn peers(running: &Running, plan: &Plan, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let Some(cluster) = plan.cluster.as_deref() else {
        return Err(Failure::Refused("the gateway is no node of a cluster: its file has no [cluster]".to_owned()));
    };
    let [to, by] = running.redirected();
    for (number, node) in cluster.nodes().iter().enumerate() {
        let (redirected_to, redirected_by) = (to[number], by[number]);
        let presence = running.provided.with(|host| Presence::of(node, host)).unwrap_or(Presence::Gone);
        let state = if number == cluster.own() { "self" } else { presence.name() };
        let (node, locator) = (node.name.as_str(), node.locator);
        rows.row(&PeerRow { node, locator, state, redirected_to, redirected_by })?;
    }
    Ok(())
}
