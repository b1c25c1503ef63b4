//! The boxes of the cluster, and what nodes and routers know of each other.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde_json::Value;

use crate::{Lab, LabError, Peer, Process, Scenario, wait_until};

/// How long is waited for what has to come.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Where the server sends datagrams back.
const ECHO: ([u8; 4], u16) = ([198, 51, 100, 2], 7);
/// What all nodes serve without state, outside and inside.
const OUTSIDE: [&str; 3] = ["192.0.2.0/24", "203.0.113.0/28", "203.0.113.130"];
const INSIDE: [&str; 3] = ["2001:db8:ffff::/64", "2001:db8:fffe::1", "2001:db8:64::/96"];

/// A cluster that runs.
#[derive(Debug)]
pub struct ClusterLab {
    // Dropped first.
    /// Gateways, by the names of their nodes.
    pub gateways: BTreeMap<&'static str, Process>,
    /// Members of etcd, likewise.
    pub members: BTreeMap<&'static str, Process>,
    /// Routing daemons, likewise.
    pub routers: BTreeMap<&'static str, Process>,
    /// The server, which sends back what it gets.
    pub echo: Peer,
    /// Its boxes.
    pub lab: Lab,
    /// What they are.
    pub scenario: Scenario,
    program: String,
}

impl ClusterLab {
    /// Builds it and starts everything, with `program` as the gateways; whether all of it is there yet, the waits below say.
    ///
    /// # Errors
    /// [`LabError`] with the words of whoever does not start.
    pub fn start(scenario: Scenario, program: &str) -> Result<Self, LabError> {
        let lab = Lab::create(&scenario.topology)?;
        let mut members = BTreeMap::new();
        if !scenario.members.is_empty() {
            lab.certify(&scenario)?;
            members.extend(lab.start_members(&scenario.members)?);
            lab.begin_cluster(&scenario, program)?;
        }
        let start = |(node, text): &(&'static str, String)| Ok((*node, lab.start_router(node, text)?));
        let routers = scenario.routers.iter().map(start).collect::<Result<_, LabError>>()?;
        let echo = Peer::udp_echo(lab.node("server")?, SocketAddr::from(ECHO))?;
        let gateways = BTreeMap::new();
        let mut cluster = Self { gateways, members, routers, echo, lab, scenario, program: program.to_owned() };
        // At once: whoever comes later gets its share of the slices only when all was calm for a while.
        let nodes: Vec<_> = cluster.scenario.gateways.iter().map(|(node, _)| *node).collect();
        cluster.start_gateways(&nodes)?;
        Ok(cluster)
    }

    /// Starts a gateway, again if it has run before.
    ///
    /// # Errors
    /// [`LabError`] if it does not become ready; its own words are in it.
    pub fn start_gateway(&mut self, node: &'static str) -> Result<(), LabError> {
        self.start_gateways(&[node])
    }

    /// Starts several at once.
    ///
    /// # Errors
    /// As [`start_gateway`](Self::start_gateway).
    pub fn start_gateways(&mut self, nodes: &[&'static str]) -> Result<(), LabError> {
        let text = |node: &str| {
            let found = self.scenario.gateways.iter().find(|(name, _)| *name == node);
            found.map(|(_, text)| text.clone()).unwrap_or_default()
        };
        let gateways: Vec<_> = nodes.iter().map(|node| (*node, text(node))).collect();
        self.gateways.extend(self.lab.start_gateways(&self.program, &gateways)?);
        Ok(())
    }

    /// What a command of the shell says in a box.
    ///
    /// # Errors
    /// [`LabError`] if it fails.
    pub fn shell(&self, node: &str, line: &str) -> Result<String, LabError> {
        Ok(self.lab.node(node)?.command("sh").args(["-c", line]).run()?.success()?.stdout)
    }

    /// The rows that a command of the gateway's program says with `--json`.
    ///
    /// # Errors
    /// [`LabError`] if it fails.
    pub fn rows(&self, node: &str, words: &[&str]) -> Result<Vec<Value>, LabError> {
        let command = self.lab.node(node)?.command(&self.program).args(words.iter().copied()).arg("--json");
        let said = command.run()?.success()?.stdout;
        let rows = serde_json::Deserializer::from_str(&said).into_iter::<Value>();
        rows.collect::<Result<_, _>>().map_err(|error| LabError::system(format!("read `{}`", words.join(" ")), error))
    }

    /// Waits until both routers spread packets over so many nodes, and these know of each other.
    ///
    /// # Errors
    /// [`LabError::TimedOut`], with the routes of both.
    pub fn wait_for_nodes(&self, nodes: usize) -> Result<(), LabError> {
        let all = || (self.are_spread(nodes) && self.serving() >= nodes).then_some(());
        self.wait(&format!("{nodes} nodes"), all)
    }

    /// Waits until the outside router knows the owner of each slice of the three pools, and the inside one so many entrances.
    ///
    /// # Errors
    /// As [`wait_for_nodes`](Self::wait_for_nodes).
    pub fn wait_for_slices(&self, entrances: usize) -> Result<(), LabError> {
        let all = || {
            let slices = self.shell("r2", "ip route show").ok()?.matches("/31 ").count();
            let found = self.shell("r1", "ip route show default").ok()?.matches("dev ").count();
            (slices == 24 && found == entrances).then_some(())
        };
        self.wait("slices", all)
    }

    /// Waits until something is so; if it does not come, routers and nodes say what they know.
    pub(super) fn wait<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> Result<T, LabError> {
        self.wait_for(what, PATIENCE, condition)
    }

    /// The same, for what takes longer.
    pub(super) fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<T, LabError> {
        wait_until(what, limit, condition).map_err(|error| match error {
            LabError::TimedOut { what, limit, .. } => LabError::TimedOut { what, limit, output: self.what_is_known() },
            other => other,
        })
    }

    fn are_spread(&self, nodes: usize) -> bool {
        let spread = |router: &str, ip: &str, prefix: &str| {
            let shown = self.shell(router, &format!("{ip} route show {prefix}"));
            shown.is_ok_and(|shown| shown.matches("dev ").count() == nodes)
        };
        OUTSIDE.iter().all(|prefix| spread("r2", "ip", prefix))
            && INSIDE.iter().all(|prefix| spread("r1", "ip -6", prefix))
    }

    /// Nodes that see all nodes that serve, and have a way to both sides.
    fn serving(&self) -> usize {
        let running = self.gateways.keys().filter(|node| node.starts_with('n'));
        let count = running.clone().count();
        let sees_all = |node: &str| {
            let shown = self.rows(node, &["show", "peers"]).unwrap_or_default();
            shown.iter().filter(|row| row["state"] == "serving").count() + 1 == count
        };
        let has = |node: &str, line: &str, words: &str| self.shell(node, line).is_ok_and(|said| said.contains(words));
        let has_both_sides = |node: &str| {
            has(node, "ip route show default", "outside0")
                && has(node, "ip -6 route show 2001:db8:4612:3400::/56", "inside0")
        };
        running.filter(|node| sees_all(node) && has_both_sides(node)).count()
    }

    /// For errors: what routers and nodes know.
    fn what_is_known(&self) -> String {
        let mut known = String::new();
        for (router, line) in [("r2", "ip route"), ("r1", "ip -6 route"), ("r1", "ip route show default")] {
            let said = self.shell(router, line).unwrap_or_else(|error| error.to_string());
            known.push_str(&format!("\n{router}# {line}\n{said}"));
        }
        for node in self.gateways.keys().filter(|node| node.starts_with('n')) {
            for what in ["peers", "slices"] {
                let rows = self.rows(node, &["show", what]).unwrap_or_default();
                let rows: String = rows.iter().map(|row| format!("{row}\n")).collect();
                known.push_str(&format!("\n{node}# tombolo show {what}\n{rows}"));
            }
        }
        known
    }
}
