//! Scenarios: a topology, and what a gateway has to be configured as on which of its nodes, so that
//! hosts inside reach the IPv4 server. `tombolo lab up NAME` shows them, and the kernel tests run
//! on them.
//!
//! The addresses are those of [`topology`](crate::topology), and for MAP
//!
//! ```text
//!  client   --- cpe  ---+                       rule 2001:db8:4600::/40 = 192.0.2.0/24, 16 EA bits
//!   10.0.0.2            |                       cpe:  2001:db8:4612:3400::/56 = 192.0.2.18, PSID 0x34
//!                       +--- gateway --- server cpe2: 2001:db8:4613:3500::/56 = 192.0.2.19, PSID 0x35
//!  neighbour --- cpe2 --+                       Default Mapping Rule 2001:db8:ffff::/64, relay 2001:db8:ffff::1
//!   10.0.1.2     2001:db8:d::/64
//! ```

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Command, Stdio},
    time::Duration,
};

use crate::{End, Lab, LabError, LabRecord, Link, Node, Prefix, Process, Route, Topology, wait_until};

/// How long a gateway may take to be ready.
const READY: Duration = Duration::from_secs(20);

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
    /// Commands to try, with the node that they are for.
    pub hints: Vec<(&'static str, &'static str)>,
}

impl Scenario {
    /// The names of all scenarios.
    pub const NAMES: [&'static str; 5] = ["map-e", "map-t", "464xlat", "ds-lite", "lw4o6"];

    /// The scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "map-e" => Some(map("map-e", "MAP-E (RFC 7597): IPv4 inside IPv6", "br = \"2001:db8:ffff::1\"")),
            "map-t" => Some(map("map-t", "MAP-T (RFC 7599): IPv4 translated", "dmr = \"2001:db8:ffff::/64\"")),
            "464xlat" => Some(xlat464()),
            "ds-lite" => Some(crate::softwires::ds_lite()),
            "lw4o6" => Some(crate::softwires::lw4o6()),
            _ => None,
        }
    }
}

fn map(name: &'static str, about: &'static str, relay: &str) -> Scenario {
    let kind = format!("[[service]]\nkind = \"{name}\"\n{relay}\n");
    let rule = "ipv6 = \"2001:db8:4600::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16, psid_offset = 6";
    let edge = |inside: &str, end_user: &str, binding: &str| {
        format!(
            "{kind}role = \"ce\"\nend_user_prefix = \"{end_user}\"\ninside = [\"{inside}\"]\n\
             rules = [{{ {rule}, forwarding = true }}]\n{binding}\n"
        )
    };
    Scenario {
        name,
        about,
        topology: two_subscribers(),
        gateways: vec![
            ("gateway", format!("{kind}role = \"br\"\nrules = [{{ {rule} }}]\n")),
            ("cpe", edge("10.0.0.0/24", "2001:db8:4612:3400::/56", "")),
            (
                "cpe2",
                edge(
                    "10.0.1.0/24",
                    "2001:db8:4613:3500::/56",
                    "static = [{ inside = \"10.0.1.2:80\", outside = \"192.0.2.19:1236\", protocol = \"tcp\" }]",
                ),
            ),
        ],
        hints: vec![("client", "ping -c 3 198.51.100.2"), ("neighbour", "ping -c 3 198.51.100.2")],
    }
}

fn xlat464() -> Scenario {
    let mut topology = Topology::client_cpe_gateway_server();
    topology.name = "464xlat".to_owned();
    let inside = Ipv6Addr::new(0x2001, 0xdb8, 0x464, 0, 0, 0, 0, 0);
    add_route(&mut topology, "gateway", inside.into(), 64, numbered(0xc, 2).into());
    Scenario {
        name: "464xlat",
        about: "464XLAT (RFC 6877): a CLAT before a NAT64",
        topology,
        gateways: vec![
            (
                "gateway",
                "[[service]]\nkind = \"nat64\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
                 pool = [{ addresses = \"192.0.2.0/28\", ports = \"1024-65535\" }]\n"
                    .to_owned(),
            ),
            (
                "cpe",
                "[[service]]\nkind = \"clat\"\nprefix = \"64:ff9b::/96\"\nwell_known_prefix_strict = false\n\
                 eam = [{ ipv4 = \"10.0.0.0/24\", ipv6 = \"2001:db8:464::a00:0/120\" }]\n"
                    .to_owned(),
            ),
        ],
        hints: vec![("client", "ping -c 3 198.51.100.2"), ("client", "ping -c 3 2001:db8:2::2")],
    }
}

/// client - cpe - gateway - server, and a second subscriber: neighbour - cpe2 - gateway.
fn two_subscribers() -> Topology {
    let mut topology = Topology::client_cpe_gateway_server();
    topology.name = "two-subscribers".to_owned();
    for (name, forwarding) in [("neighbour", false), ("cpe2", true)] {
        topology.nodes.push(Node { name: name.to_owned(), forwarding, routes: Vec::new(), sysctls: Vec::new() });
    }
    let v4 = |host| Ipv4Addr::new(10, 0, 1, host).into();
    topology.links.push(Link::new(end("neighbour", "inside0", v4(2), 24), end("cpe2", "inside0", v4(1), 24)));
    let core = |host| IpAddr::from(numbered(0xd, host));
    topology.links.push(Link::new(end("cpe2", "core0", core(2), 64), end("gateway", "core1", core(1), 64)));
    let end_user = |low, prefix| Ipv6Addr::new(0x2001, 0xdb8, low, prefix, 0, 0, 0, 0).into();
    add_route(&mut topology, "neighbour", Ipv4Addr::UNSPECIFIED.into(), 0, v4(1));
    add_route(&mut topology, "cpe2", Ipv6Addr::UNSPECIFIED.into(), 0, core(1));
    add_route(&mut topology, "gateway", end_user(0x4612, 0x3400), 56, numbered(0xc, 2).into());
    add_route(&mut topology, "gateway", end_user(0x4613, 0x3500), 56, core(2));
    topology
}

fn end(node: &str, interface: &str, address: IpAddr, length: u8) -> End {
    End { node: node.to_owned(), interface: interface.to_owned(), addresses: vec![Prefix { address, length }] }
}

fn add_route(topology: &mut Topology, node: &str, destination: IpAddr, length: u8, via: IpAddr) {
    if let Some(node) = topology.node_mut(node) {
        node.routes.push(Route { destination: Prefix { address: destination, length }, via });
    }
}

/// 2001:db8:`link`::`host`.
fn numbered(link: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, link, 0, 0, 0, 0, host)
}

impl Lab {
    /// Starts a gateway, `program` with the configuration `text`, in node `node`, and waits until
    /// it is ready. It ends with the process or this one.
    ///
    /// # Errors
    /// [`LabError`] if it does not become ready; its own words are in it.
    pub fn start_gateway(&self, node: &str, program: &str, text: &str) -> Result<Process, LabError> {
        let file = self.configuration(node, text)?;
        let mut process = self.node(node)?.command(program).args(["run", "-c"]).arg(file).spawn()?;
        process.wait_for_text("ready", READY)?;
        Ok(process)
    }

    /// Builds a named lab of `scenario` with its gateways, `program run`, all of which stay when
    /// this process ends, until [`crate::remove_named`].
    ///
    /// # Errors
    /// As [`Lab::create_named`]; [`LabError`] with the last words of a gateway that does not become
    /// ready.
    pub fn create_scenario(name: &str, scenario: &Scenario, program: &str) -> Result<LabRecord, LabError> {
        Self::create_named_with(name, &scenario.topology, |lab| {
            scenario.gateways.iter().try_for_each(|(node, text)| lab.leave_gateway(node, program, text))
        })
    }

    /// Starts a gateway that outlives this process.
    fn leave_gateway(&self, node: &str, program: &str, text: &str) -> Result<(), LabError> {
        let file = self.configuration(node, text)?;
        let log = self.directory()?.join(format!("{node}.log"));
        let failed = |error| LabError::system(format!("start {program} in {node}"), error);
        let mut process = self
            .node(node)?
            .run(|| {
                // Children are born into the namespace of the thread that makes them.
                let words = fs::File::create(&log)?;
                let mut command = Command::new(program);
                command.args(["run", "-c", &file]).stdin(Stdio::null()).stdout(words.try_clone()?).stderr(words);
                std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()
            })?
            .map_err(failed)?;
        let words = || fs::read_to_string(&log).unwrap_or_default();
        let ready = wait_until(&format!("the gateway in {node}"), READY, || {
            (words().contains("ready") || !matches!(process.try_wait(), Ok(None))).then_some(())
        });
        if words().contains("ready") {
            return Ok(());
        }
        drop(process.kill());
        ready?;
        Err(failed(std::io::Error::other(words().trim().to_owned())))
    }

    /// Writes a configuration into the lab's directory; its path.
    fn configuration(&self, node: &str, text: &str) -> Result<String, LabError> {
        let file = self.directory()?.join(format!("{node}.toml"));
        fs::write(&file, text).map_err(|error| LabError::system(format!("write {}", file.display()), error))?;
        Ok(file.display().to_string())
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
            for node in gateways.chain(scenario.hints.iter().map(|(node, _)| node)) {
                assert!(scenario.topology.nodes.iter().any(|known| known.name == *node), "{node}");
            }
        }
        assert!(Scenario::named("nonsense").is_none());
    }
}
