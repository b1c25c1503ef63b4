//! What befalls the cluster, and how it is mended.

use tombolo_lab::LabError;
use tombolo_lab::cluster::{ClusterLab, SWITCHES};

/// The nodes.
pub(super) const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A fault of one box, or of one path. No two boxes that have the same state are gone at once: that loses it, as is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A node loses its power, and comes back with empty tables.
    Power,
    /// Its gateway is killed, and is started again later.
    Process,
    /// Its gateway is killed, and started again at once.
    Restart,
    /// Its routing daemon is killed.
    RoutingDaemon,
    /// Its routing daemon stands still.
    RoutingDaemonFrozen,
    /// A link of its is gone: to this switch.
    Link(&'static str),
    /// It does not reach the next node in the network between the nodes.
    Apart,
    /// etcd does not hear it.
    NoEtcd,
    /// The whole host stands still, and goes on later.
    Asleep,
    /// The leader of etcd is killed.
    Leader,
    /// Another member of etcd is.
    Member,
    /// A node is drained, and gets its share back. No fault at all.
    Drain,
}

/// All of them.
pub(super) const ALL: [Fault; 14] = [
    Fault::Power,
    Fault::Process,
    Fault::Restart,
    Fault::RoutingDaemon,
    Fault::RoutingDaemonFrozen,
    Fault::Link("inside"),
    Fault::Link("outside"),
    Fault::Link("core"),
    Fault::Apart,
    Fault::NoEtcd,
    Fault::Asleep,
    Fault::Leader,
    Fault::Member,
    Fault::Drain,
];

/// A fault that is there, and what was hit besides its node.
#[derive(Debug)]
pub(super) struct Standing {
    fault: Fault,
    node: &'static str,
    member: Option<&'static str>,
}

impl Fault {
    /// It in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Power => "power of a node",
            Self::Process => "gateway killed",
            Self::Restart => "gateway killed and started again",
            Self::RoutingDaemon => "BIRD killed",
            Self::RoutingDaemonFrozen => "BIRD stands still",
            Self::Link("inside") => "inside link",
            Self::Link("outside") => "outside link",
            Self::Link(_) => "core link",
            Self::Apart => "path between two nodes",
            Self::NoEtcd => "a node cut off from etcd",
            Self::Asleep => "a host asleep",
            Self::Leader => "leader of etcd",
            Self::Member => "another member of etcd",
            Self::Drain => "a node drained",
        }
    }

    /// It happens to a node.
    pub(super) fn happen(self, cluster: &mut ClusterLab, node: usize) -> Result<Standing, LabError> {
        let (node, other) = (NODES[node % NODES.len()], NODES[(node + 1) % NODES.len()]);
        let mut member = None;
        match self {
            Self::Power => cluster.kill_host(node)?,
            Self::Process => drop(cluster.gateways.remove(node)),
            Self::Restart => {
                drop(cluster.gateways.remove(node));
                cluster.start_gateway(node)?;
            }
            Self::RoutingDaemon => cluster.kill_router(node),
            Self::RoutingDaemonFrozen => ClusterLab::freeze(cluster.routers.get_mut(node), true)?,
            Self::Link(switch) => cluster.plug(node, &[switch], false)?,
            Self::Apart => cluster.part([node, other], true)?,
            Self::NoEtcd => cluster.cut_from_etcd(node, true)?,
            Self::Asleep => {
                cluster.plug(node, &SWITCHES, false)?;
                freeze_host(cluster, node, true)?;
            }
            Self::Leader | Self::Member => {
                let leader = cluster.leader()?;
                let mut all = cluster.scenario.members.iter().copied();
                let hit = all.find(|one| (*one == leader) == (self == Self::Leader)).unwrap_or(leader);
                cluster.kill_member(hit);
                member = Some(hit);
            }
            Self::Drain => cluster.wish(node, &["drain", node, "--wait", "20"])?,
        }
        Ok(Standing { fault: self, node, member })
    }
}

impl Standing {
    /// All is as it was before.
    pub(super) fn mend(self, cluster: &mut ClusterLab) -> Result<(), LabError> {
        let node = self.node;
        match self.fault {
            Fault::Power => cluster.revive_host(node),
            Fault::Process => cluster.start_gateway(node),
            Fault::Restart => Ok(()),
            Fault::RoutingDaemon => cluster.start_router(node),
            Fault::RoutingDaemonFrozen => ClusterLab::freeze(cluster.routers.get_mut(node), false),
            Fault::Link(switch) => cluster.plug(node, &[switch], true),
            Fault::Apart => {
                let place = NODES.iter().position(|one| *one == node).unwrap_or_default();
                cluster.part([node, NODES[(place + 1) % NODES.len()]], false)
            }
            Fault::NoEtcd => cluster.cut_from_etcd(node, false),
            Fault::Asleep => {
                cluster.plug(node, &SWITCHES, true)?;
                freeze_host(cluster, node, false)
            }
            Fault::Drain => cluster.wish(node, &["undrain", node, "--wait", "0"]),
            Fault::Leader | Fault::Member => self.member.map_or(Ok(()), |member| cluster.start_members(&[member])),
        }
    }
}

/// All processes of a host that matter.
fn freeze_host(cluster: &mut ClusterLab, node: &str, is_frozen: bool) -> Result<(), LabError> {
    ClusterLab::freeze(cluster.gateways.get_mut(node), is_frozen)?;
    ClusterLab::freeze(cluster.routers.get_mut(node), is_frozen)
}
