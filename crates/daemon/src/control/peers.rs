//! The nodes of the cluster, in rows.

use std::net::Ipv6Addr;

use serde::Serialize;
use tombolo_cluster::link::Copying;
use tombolo_engine::Plan;
use tombolo_engine::cluster::{Assigned, Cluster, Holders};

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
    /// Slices that it owns, as far as is known here,
    owns: usize,
    /// those whose copy it has, or gets,
    backs_up: usize,
    /// and the highest epoch of those that it owns.
    epoch: u32,
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

/// What a node has of the slices.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    owns: usize,
    backs_up: usize,
    epoch: u32,
}

impl Held {
    fn by(cluster: &Cluster, node: usize) -> Self {
        let mut held = Self::default();
        for slice in cluster.slices() {
            let Assigned { holders: Holders { owner, backup }, epoch, .. } = cluster.assigned(slice);
            held.backs_up += usize::from(backup.is_some_and(|backup| usize::from(backup) == node));
            if usize::from(owner) == node {
                held.owns += 1;
                held.epoch = held.epoch.max(epoch);
            }
        }
        held
    }
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
        let Held { owns, backs_up, epoch } = Held::by(cluster, number);
        rows.row(&PeerRow {
            node,
            locator,
            state,
            owns,
            backs_up,
            epoch,
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

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_engine::cluster::Node;

    #[test]
    fn what_nodes_have_of_the_slices_is_counted() {
        let node = |name: &str| Node { name: name.to_owned(), locator: Ipv6Addr::LOCALHOST };
        let holders = [(0, Some(1)), (1, Some(0)), (0, None)].map(|(owner, backup)| Holders { owner, backup });
        let cluster = Cluster::new(vec![node("n1"), node("n2"), node("n3")], 0).unwrap().with_slices(holders.to_vec());
        cluster.assign(2, Assigned { epoch: 7, ..cluster.assigned(2) });
        let held = [0, 1, 2].map(|node| Held::by(&cluster, node));
        let expected = [(2, 1, 7), (1, 1, 1), (0, 0, 0)].map(|(owns, backs_up, epoch)| Held { owns, backs_up, epoch });
        assert_eq!(held, expected);
    }
}
