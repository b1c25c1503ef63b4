//! The nodes of the cluster, in rows.

use std::net::Ipv6Addr;

use serde::Serialize;
use tombolo_cluster::link::Copying;
use tombolo_engine::Plan;

use super::rows::{Failure, Rows};
use crate::copies::Copies;
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
    /// How the copy of this node's slices stands that it has: `none`, `broken`, `returning`, `copying` or
    /// `complete`.
    copy_there: &'static str,
    /// Records of which that copy is behind.
    pending: u64,
    /// Microseconds since the oldest batch was sent that it has not acknowledged.
    lag: u64,
    /// How the copy of its slices stands that is here.
    copy_here: &'static str,
    /// Bindings that it has given back, which this node had lost or has not heard of.
    returned: u64,
    /// What is wrong with either.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

/// Every node: whether it serves, as the host's routes say, and what was redirected.
pub(crate) fn peers(running: &Running, plan: &Plan, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let Some(cluster) = plan.cluster.as_deref() else {
        return Err(Failure::Refused("the gateway is no node of a cluster: its file has no [cluster]".to_owned()));
    };
    let [to, by] = running.redirected();
    let standings = running.copies.as_deref().map(Copies::standings).unwrap_or_default();
    for (number, node) in cluster.nodes().iter().enumerate() {
        let (redirected_to, redirected_by) = (to[number], by[number]);
        let presence = running.provided.with(|host| Presence::of(node, host)).unwrap_or(Presence::Gone);
        let state = if number == cluster.own() { "self" } else { presence.name() };
        let (node, locator) = (node.name.as_str(), node.locator);
        let Copying { to, pending, lag, from, returned, faults: [there, here], .. } =
            standings.get(number).cloned().unwrap_or_default();
        rows.row(&PeerRow {
            node,
            locator,
            state,
            redirected_to,
            redirected_by,
            copy_there: to.name(),
            pending,
            lag,
            copy_here: from.name(),
            returned: returned.bindings.saturating_sub(returned.unplaced),
            fault: there.or(here),
        })?;
    }
    Ok(())
}
