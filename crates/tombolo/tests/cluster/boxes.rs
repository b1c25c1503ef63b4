//! The boxes of the lab, and what nodes and routers know of each other.

use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt as _;

use tombolo_lab::cluster::{ClusterLab, PATIENCE, SWITCHES};
use tombolo_lab::{Scenario, wait_until};

use crate::running::{TOMBOLO, rows};

pub(super) const SERVER: &str = "198.51.100.2:7";
/// All switches: a node without them has lost its power.
pub(super) const ALL: [&str; 3] = SWITCHES;

/// The lab, whose errors end a test.
pub(super) struct Cluster(ClusterLab);

impl Deref for Cluster {
    type Target = ClusterLab;

    fn deref(&self) -> &ClusterLab {
        &self.0
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut ClusterLab {
        &mut self.0
    }
}

impl Cluster {
    pub(super) fn up() -> Self {
        Self::of(Scenario::named("cluster").unwrap())
    }

    /// The same, where backups have copies of the bindings.
    pub(super) fn with_copies() -> Self {
        let mut scenario = Scenario::named("cluster").unwrap();
        let certificates = format!("{}/../cluster/tests/certificates", env!("CARGO_MANIFEST_DIR"));
        for (node, text) in scenario.gateways.iter_mut().filter(|(node, _)| node.starts_with('n')) {
            text.push_str(&format!(
                "[cluster.replication]\naddresses = {{ n1 = \"2001:db8:c::1\", n2 = \"2001:db8:c::2\", n3 = \"2001:db8:c::3\" }}\n\
                 ca = \"{certificates}/ca.pem\"\ncertificate = \"{certificates}/{node}.pem\"\nkey = \"{certificates}/{node}.key\"\n"
            ));
        }
        Self::of(scenario)
    }

    pub(super) fn of(scenario: Scenario) -> Self {
        let cluster = Self(ClusterLab::start(scenario, TOMBOLO).unwrap_or_else(|error| panic!("{error:?}")));
        cluster.wait_for_all();
        cluster
    }

    pub(super) fn start(&mut self, node: &'static str) {
        self.start_gateway(node).unwrap_or_else(|error| panic!("{node}: {error:?}"));
    }

    /// Starts a gateway of which something goes wrong, as `tombolo_io::fault` has it.
    pub(super) fn start_with(&mut self, node: &'static str, fault: &str) {
        let wrapper = self.lab.directory().unwrap().join(format!("{node}-with-a-fault"));
        std::fs::write(&wrapper, format!("#!/bin/sh\nTOMBOLO_FAULT={fault} exec {TOMBOLO} \"$@\"\n")).unwrap();
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (_, text) = self.scenario.gateways.iter().find(|(name, _)| *name == node).unwrap().clone();
        let started = self.lab.start_gateways(&wrapper.display().to_string(), &[(node, text)]);
        self.gateways.extend(started.unwrap_or_else(|error| panic!("{node}: {error:?}")));
    }

    pub(super) fn command(&self, node: &str, line: &str) -> String {
        self.shell(node, line).unwrap()
    }

    pub(super) fn wait_for_all(&self) {
        self.wait_for_nodes(3).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until the outside router brings a node nothing of what any node serves.
    pub(super) fn wait_for_routes_without(&self, node: &str) {
        let address = format!("198.18.0.{}", &node[1..]);
        let routes = "for to in 192.0.2.0/24 203.0.113.0/28 203.0.113.130; do ip route show $to; done";
        let gone = || (!self.command("r2", routes).contains(&address)).then_some(());
        wait_until("routers to hear of it", PATIENCE, gone).unwrap();
    }

    /// Switches the ports of a node on or off: no router sees its link go.
    pub(super) fn plug(&self, node: &str, switches: &[&str], on: bool) {
        self.0.plug(node, switches, on).unwrap();
    }

    /// A node loses power: all its ports, and all that its host keeps in memory.
    pub(super) fn kill_host(&mut self, node: &'static str) {
        self.0.kill_host(node).unwrap();
    }

    /// Datagrams that a node has received by its interfaces to both sides.
    pub(super) fn received(&self, node: &str) -> u64 {
        let text = self.command(node, "cat /proc/net/dev");
        let packets = |interface: &str| -> u64 {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':')).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        packets("inside0") + packets("outside0")
    }

    /// A counter of `show fastpath`.
    pub(super) fn counted_in_kernel(&self, node: &str, name: &str) -> u64 {
        let shown = rows(&self.command(node, &format!("{TOMBOLO} show fastpath --json")));
        let row = shown.iter().find(|row| row["name"] == name);
        row.map_or(0, |row| row["value"].as_str().unwrap().parse().unwrap())
    }

    /// Which slices a node serves, by ranges of slices in the file.
    pub(super) fn states(&self, node: &str) -> Vec<String> {
        let slices = rows(&self.command(node, &format!("{TOMBOLO} show slices --json")));
        slices.iter().map(|row| row["state"].as_str().unwrap().to_owned()).collect()
    }
}
