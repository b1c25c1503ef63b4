//! The boxes of the lab, and what nodes and routers know of each other.

use std::collections::BTreeMap;

use tombolo_lab::{Lab, Peer, Process, Scenario, wait_until};

use crate::running::{PATIENCE, TOMBOLO, rows};

pub(super) const SERVER: &str = "198.51.100.2:7";
/// All switches: a node without them has lost its power.
pub(super) const ALL: [&str; 3] = ["inside", "core", "outside"];

pub(super) struct Cluster {
    // Dropped first.
    pub(super) gateways: BTreeMap<&'static str, Process>,
    /// Of etcd, by the names of their nodes.
    pub(super) members: BTreeMap<&'static str, Process>,
    pub(super) _routers: Vec<Process>,
    pub(super) echo: Peer,
    pub(super) lab: Lab,
    pub(super) scenario: Scenario,
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
        let lab = Lab::create(&scenario.topology).unwrap();
        let members = if scenario.members.is_empty() {
            BTreeMap::new()
        } else {
            lab.certify(&scenario).unwrap();
            let members = lab.start_members(&scenario.members).unwrap();
            lab.begin_cluster(&scenario, TOMBOLO).unwrap();
            members.into_iter().collect()
        };
        let routers = scenario.routers.iter().map(|(node, text)| lab.start_router(node, text).unwrap()).collect();
        let echo = Peer::udp_echo(lab.node("server").unwrap(), SERVER.parse().unwrap()).unwrap();
        let mut cluster = Self { gateways: BTreeMap::new(), members, _routers: routers, echo, lab, scenario };
        for node in ["cpe", "cpe2", "b4", "n1", "n2", "n3"] {
            cluster.start(node);
        }
        cluster.wait_for_all();
        cluster
    }

    pub(super) fn start(&mut self, node: &'static str) {
        let (_, text) = self.scenario.gateways.iter().find(|(name, _)| *name == node).unwrap();
        let gateway = self.lab.start_gateway(node, TOMBOLO, text).unwrap_or_else(|error| panic!("{node}: {error:?}"));
        self.gateways.insert(node, gateway);
    }

    pub(super) fn command(&self, node: &str, line: &str) -> String {
        let command = self.lab.node(node).unwrap().command("sh").args(["-c", line]);
        command.run().unwrap().success().unwrap().stdout
    }

    /// Waits until both routers spread packets over this many nodes, and the nodes know of each other.
    pub(super) fn wait_for(&self, nodes: usize) {
        let spread = |router: &str, prefix: &str| {
            self.command(router, &format!("ip route show {prefix}")).matches("dev ").count() == nodes
        };
        let know = |node: &str| {
            let shown = self.lab.node(node).unwrap().command(TOMBOLO).args(["show", "peers", "--json"]).run().unwrap();
            shown.status.success()
                && rows(&shown.stdout).iter().filter(|row| row["state"] == "serving").count() + 1 == nodes
        };
        let all = || {
            let are_spread = ["192.0.2.0/24", "203.0.113.0/28", "203.0.113.130"].iter().all(|at| spread("r2", at))
                && ["2001:db8:ffff::/64", "2001:db8:fffe::1", "2001:db8:64::/96"]
                    .iter()
                    .all(|at| self.command("r1", &format!("ip -6 route show {at}")).matches("dev ").count() == nodes);
            let has_both_sides = |node: &str| {
                self.command(node, "ip route show default").contains("outside0")
                    && self.command(node, "ip -6 route show 2001:db8:4612:3400::/56").contains("inside0")
            };
            let serving = ["n1", "n2", "n3"].iter().filter(|node| know(node) && has_both_sides(node)).count();
            (are_spread && serving >= nodes).then_some(())
        };
        let found = wait_until(&format!("{nodes} nodes"), PATIENCE, all);
        found.unwrap_or_else(|error| {
            panic!("{error}\n{}{}", self.command("r2", "ip route"), self.command("r1", "ip -6 route"))
        });
    }

    pub(super) fn wait_for_all(&self) {
        self.wait_for(3);
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
        for switch in switches {
            let switch = self.lab.node(switch).unwrap();
            if on { switch.set_up(node).unwrap() } else { switch.set_down(node).unwrap() }
        }
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
}

impl Cluster {
    /// A node loses power: all its ports, and all that its host keeps in memory.
    pub(super) fn kill_host(&mut self, node: &'static str) {
        self.plug(node, &ALL, false);
        drop(self.gateways.remove(node));
        // What its programs in the kernel have.
        self.command(node, "rm -r /sys/fs/bpf/tombolo/tombolo@$(stat -Lc %i /proc/self/ns/net)");
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
