//! What befalls the boxes of the cluster. No router sees a link go: what goes down is the switches' end of it.

use nix::sys::signal::Signal;

use super::boxes::ClusterLab;
use crate::{LabError, Process};

/// All switches: a node without them has lost its power, or might as well have.
pub const SWITCHES: [&str; 3] = ["inside", "core", "outside"];

impl ClusterLab {
    /// Switches the ports of a node on or off, at these switches.
    ///
    /// # Errors
    /// [`LabError`] if there is no such port.
    pub fn plug(&self, node: &str, switches: &[&str], on: bool) -> Result<(), LabError> {
        switches.iter().try_for_each(|switch| {
            let switch = self.lab.node(switch)?;
            if on { switch.set_up(node) } else { switch.set_down(node) }
        })
    }

    /// A node loses power: all its ports, and all that its host keeps in memory for its gateway.
    ///
    /// # Errors
    /// [`LabError`] if it has none to lose.
    pub fn kill_host(&mut self, node: &'static str) -> Result<(), LabError> {
        self.plug(node, &SWITCHES, false)?;
        drop(self.gateways.remove(node));
        // What its programs in the kernel have.
        self.shell(node, "rm -rf /sys/fs/bpf/tombolo/tombolo@$(stat -Lc %i /proc/self/ns/net)").map(drop)
    }

    /// It has power again, and its gateway is started.
    ///
    /// # Errors
    /// [`LabError`] if the gateway does not start.
    pub fn revive_host(&mut self, node: &'static str) -> Result<(), LabError> {
        self.revive_hosts(&[node])
    }

    /// Several have power again, at the same moment.
    ///
    /// # Errors
    /// As [`revive_host`](Self::revive_host).
    pub fn revive_hosts(&mut self, nodes: &[&'static str]) -> Result<(), LabError> {
        // They ask etcd before anything else.
        nodes.iter().try_for_each(|node| self.plug(node, &SWITCHES, true))?;
        self.start_gateways(nodes)
    }

    /// Two nodes cannot reach each other in the network between the nodes, or can again; all others reach both.
    ///
    /// # Errors
    /// [`LabError`] if a node is in such a pair already: a switch keeps all that are from each other.
    pub fn part(&self, nodes: [&str; 2], are_apart: bool) -> Result<(), LabError> {
        let word = if are_apart { "on" } else { "off" };
        nodes.iter().try_for_each(|node| {
            self.shell("core", &format!("ip link set dev {node} type bridge_slave isolated {word}")).map(drop)
        })
    }

    /// A node hears nothing of etcd any more, and does hear of everybody else; or hears of it again.
    ///
    /// # Errors
    /// [`LabError`] if that is so already.
    pub fn cut_from_etcd(&self, node: &str, is_cut: bool) -> Result<(), LabError> {
        let verb = if is_cut { "add" } else { "del" };
        self.scenario.member_addresses().iter().try_for_each(|address| {
            self.shell(node, &format!("ip -6 route {verb} blackhole {address}/128 metric 1")).map(drop)
        })
    }

    /// A routing daemon is killed.
    pub fn kill_router(&mut self, node: &str) {
        drop(self.routers.remove(node));
    }

    /// A routing daemon is started again.
    ///
    /// # Errors
    /// [`LabError`] if it does not start.
    pub fn start_router(&mut self, node: &'static str) -> Result<(), LabError> {
        let found = self.scenario.routers.iter().find(|(name, _)| *name == node);
        let text = found.map(|(_, text)| text.clone()).unwrap_or_default();
        let router = self.lab.start_router(node, &text)?;
        self.routers.insert(node, router);
        Ok(())
    }

    /// A process of a box stands still, or goes on.
    ///
    /// # Errors
    /// [`LabError::System`] if it has ended.
    pub fn freeze(process: Option<&mut Process>, is_frozen: bool) -> Result<(), LabError> {
        let signal = if is_frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        process.map_or(Ok(()), |process| process.signal(signal))
    }

    /// A member of etcd is killed.
    pub fn kill_member(&mut self, member: &str) {
        drop(self.members.remove(member));
    }

    /// Members of etcd are started again, with what they had. They serve when most of all are there.
    ///
    /// # Errors
    /// [`LabError`] if they do not serve.
    pub fn start_members(&mut self, members: &[&'static str]) -> Result<(), LabError> {
        self.members.extend(self.lab.restart_members(members, &self.scenario.members)?);
        Ok(())
    }
}
