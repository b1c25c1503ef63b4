//! What a scenario is.

use crate::Topology;

/// Slices that a cluster in a lab begins with.
pub const SLICES: u16 = 8;

/// A topology and the gateways in it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Hosts and links.
    pub topology: Topology,
    /// Node and configuration file of each gateway.
    pub gateways: Vec<(&'static str, String)>,
    /// Node and configuration file of each routing daemon (BIRD).
    pub routers: Vec<(&'static str, String)>,
    /// Nodes that are members of etcd, by which its gateways agree on who owns what.
    pub members: Vec<&'static str>,
    /// Commands to try, with the node that they are for.
    pub hints: Vec<(&'static str, &'static str)>,
}
