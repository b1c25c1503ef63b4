//! Where in a cluster something was that is logged, so that lines of several nodes can be joined: of two claims for one
//! moment the one with the higher epoch holds.

use serde::Serialize;
use tombolo_engine::Plan;
use tombolo_engine::cluster::Cluster;

/// A node, and the slice as of which it had something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct InCluster<'p> {
    /// Name of this node.
    pub(crate) node: &'p str,
    /// The slice of the outside address.
    pub(crate) slice: u16,
    /// How many owners it has had.
    pub(crate) epoch: u32,
}

impl<'p> InCluster<'p> {
    /// Where something is of a service, at an outside address; nothing where there is no cluster with slices.
    pub(super) fn of(plan: &'p Plan, service: u8, outside_ipv4: [u8; 4]) -> Option<Self> {
        let cluster: &Cluster = plan.cluster.as_deref().filter(|cluster| cluster.has_slices())?;
        let slice = plan.service_ever(service)?.kind.pool()?.slice_of_address(outside_ipv4.into())?;
        let node = cluster.nodes().get(cluster.own())?.name.as_str();
        Some(Self { node, slice, epoch: cluster.epoch_of(slice) })
    }
}
