//! Which scenarios there are.

use super::{cluster, description::Scenario, map, single, softwires, xlat464};

impl Scenario {
    /// The names of all scenarios.
    pub const NAMES: [&'static str; 8] = ["nat64", "nat44", "map-e", "map-t", "464xlat", "ds-lite", "lw4o6", "cluster"];

    /// The scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "nat64" => Some(single::nat64()),
            "nat44" => Some(single::nat44()),
            "map-e" => Some(map::map_e()),
            "map-t" => Some(map::map_t()),
            "464xlat" => Some(xlat464::with_clat()),
            "ds-lite" => Some(softwires::ds_lite()),
            "lw4o6" => Some(softwires::lw4o6()),
            "cluster" => Some(cluster::three_nodes()),
            _ => None,
        }
    }
}

impl Scenario {
    /// The scenario `cluster`, whose nodes agree by etcd on who owns what.
    #[must_use]
    pub fn agreed_cluster() -> Self {
        cluster::three_nodes_that_agree()
    }

    /// The same with FRR as the router of the Internet.
    #[must_use]
    pub fn agreed_cluster_and_frr() -> Self {
        cluster::three_nodes_and_frr()
    }

    /// The same, whose subscribers have ports in blocks, and whose gateways log whose they are: `NODE.log` in the lab's directory.
    #[must_use]
    pub fn logged_cluster() -> Self {
        cluster::three_nodes_that_log()
    }

    /// The gateways that agree by etcd, where there are members of it.
    pub fn agreeing(&self) -> impl Iterator<Item = &'static str> {
        cluster::AGREEING.into_iter().filter(|_| !self.members.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_consistent() {
        for name in Scenario::NAMES {
            let scenario = Scenario::named(name).unwrap();
            scenario.topology.check().unwrap();
            assert_eq!(scenario.name, name);
            let gateways = scenario.gateways.iter().map(|(node, _)| node);
            let routers = scenario.routers.iter().map(|(node, _)| node);
            for node in gateways.chain(routers).chain(scenario.hints.iter().map(|(node, _)| node)) {
                assert!(scenario.topology.nodes.iter().any(|known| known.name == *node), "{node}");
            }
        }
        let agreed = Scenario::agreed_cluster();
        agreed.topology.check().unwrap();
        assert!(agreed.gateways.iter().all(|(_, text)| !text.contains("[cluster.slices]")));
        let logged = Scenario::logged_cluster();
        let nodes = logged.gateways.iter().filter(|(node, _)| node.starts_with('n'));
        assert!(nodes.clone().count() == 3, "all nodes");
        for (node, text) in nodes {
            assert!(text.matches("mode = \"blocks\"").count() == 3 && text.contains(&format!("/{node}.log")), "{text}");
        }
        assert!(Scenario::named("nonsense").is_none());
    }
}
