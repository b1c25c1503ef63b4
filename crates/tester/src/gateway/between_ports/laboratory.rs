//! Gateways in a network-namespace lab of this machine: client - gateway - server, the tester's
//! ports being the client's and the server's interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use tombolo_generator::{Ends, Namespace, Port, link_address};
use tombolo_lab::{Lab, LabError, Offload, Prefix, Topology, topology::Route};

use super::conntrack;
use super::control::{Gateway, GatewayError, TableCounts};
use super::faulty::FaultyForwarder;
use super::placement::{SLICE, napi_threads, pin_inhabitants, spread};
use crate::gateway::addresses::{Addresses, SIIT_PREFIX};
use crate::gateway::frames::Flows;
use crate::gateway::kind::Kind;
use crate::gateway::spec::Spec;
use crate::gateway::start::{self, JOOL_UDP_TIMEOUT_SECONDS, Options, Running, StartError};
use crate::gateway::technology::Technology;

/// tombolo's own default (RFC 4787 REQ-5 recommends 300 s).
const TOMBOLO_TIMEOUT_SECONDS: u64 = 300;
/// The gateway's two ports.
const PORTS: [&str; 2] = ["inside0", "outside0"];

/// Where further hosts are, beyond the lab's own two: they have routes through them.
const INSIDE_HOSTS_4: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 10);
const INSIDE_HOSTS_6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 1, 0x8000, 0, 0, 0, 0), 49);
const OUTSIDE_HOSTS_4: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
const OUTSIDE_HOSTS_6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 2, 0x8000, 0, 0, 0, 0), 49);

/// A gateway in a lab.
pub struct Laboratory {
    spec: Spec,
    lab: Lab,
    options: Options,
    /// Programs that run; replaced by a restart.
    running: Option<Running>,
    faulty: Option<FaultyForwarder>,
    description: BTreeMap<String, String>,
    cores: Vec<usize>,
    /// Of each port.
    queues: u32,
    napi_threads: BTreeSet<i32>,
}

/// The addresses that the tester uses in the lab for so many flows.
pub fn addresses(technology: Technology, spec: &Spec, flows: &Flows) -> Addresses {
    let mut addresses = Addresses::default();
    if flows.inside_hosts > 1 {
        addresses.inside_ipv4 = Ipv4Addr::from_bits(INSIDE_HOSTS_4.0.to_bits() + 2);
        addresses.inside_ipv6 = Ipv6Addr::from_bits(INSIDE_HOSTS_6.0.to_bits() + 2);
    }
    if flows.outside_hosts > 1 {
        addresses.outside_ipv4 = Ipv4Addr::from_bits(OUTSIDE_HOSTS_4.0.to_bits() + 2);
        addresses.outside_ipv6 = Ipv6Addr::from_bits(OUTSIDE_HOSTS_6.0.to_bits() + 2);
    }
    match (spec.kind(), technology) {
        (Some(Kind::Tombolo), Technology::Nat64 | Technology::Nat44) => {
            addresses.pool = Some((Ipv4Addr::new(192, 0, 2, 0), Ipv4Addr::new(192, 0, 2, 15)));
        }
        (Some(Kind::Tayga), _) | (Some(Kind::Tombolo), Technology::Siit) => {
            addresses.translation_prefix = SIIT_PREFIX;
            addresses.mapped_ipv4 = Ipv4Addr::new(192, 0, 2, 1);
        }
        (Some(Kind::Iptables | Kind::Nftables), Technology::Nat44) => {
            let own = Ipv4Addr::new(198, 51, 100, 1);
            addresses.pool = Some((own, own));
        }
        _ => {}
    }
    addresses
}

impl Laboratory {
    /// Builds the lab and starts the gateway in it. Its ports have so many queues: a frame is in
    /// that of the core that sent it, so more than one serve more than one sending core.
    ///
    /// # Errors
    /// If privileges, a program or a kernel module are missing, or the gateway does not do the
    /// technology.
    pub fn start(
        spec: Spec,
        technology: Technology,
        flows: &Flows,
        tombolo: &Path,
        queues: u32,
    ) -> Result<Laboratory, GatewayError> {
        let name = spec.to_string();
        if !spec.does(technology) {
            let reason =
                format!("the lab cannot set it up as {technology}; measure it as external, or another gateway");
            return Err(GatewayError::Unsuitable { gateway: name, reason });
        }
        let mut topology = Topology::client_gateway_server();
        if matches!(spec, Spec::Faulty(_)) {
            topology.node_mut("gateway").into_iter().for_each(|node| node.forwarding = false);
        }
        if queues > 1 {
            topology.links.iter_mut().for_each(|link| link.queues = Some(queues));
        }
        let lab = Lab::create(&topology).map_err(|source| GatewayError::Lab { gateway: name, source })?;
        let settings = match &spec {
            Spec::Lab(_, Some(mode)) => format!("[gateway]\nfastpath = \"{mode}\"\n"),
            _ => String::new(),
        };
        let mut laboratory = Laboratory {
            spec,
            lab,
            options: Options { tombolo: tombolo.to_owned(), settings, technology },
            running: None,
            faulty: None,
            description: BTreeMap::new(),
            cores: vec![0],
            queues: queues.max(1),
            napi_threads: BTreeSet::new(),
        };
        laboratory.prepare(flows)?;
        Ok(laboratory)
    }

    fn prepare(&mut self, flows: &Flows) -> Result<(), GatewayError> {
        for interface in PORTS {
            // A veth takes redirected frames only while its own end polls, which receive offload
            // makes it do.
            self.node()?.set_offload(interface, Offload::Gro, true).map_err(|e| self.lab_error(e))?;
        }
        if flows.inside_hosts > 1 || flows.outside_hosts > 1 {
            self.add_routes()?;
        }
        if self.uses_conntrack() {
            let sizes = conntrack::make_room(&self.lab, flows.count()).map_err(|e| self.lab_error(e))?;
            self.description.extend(sizes);
        }
        self.start_gateway()
    }

    fn add_routes(&self) -> Result<(), GatewayError> {
        let routes = [
            (INSIDE_HOSTS_4.0.into(), INSIDE_HOSTS_4.1, Ipv4Addr::new(10, 0, 0, 2).into()),
            (INSIDE_HOSTS_6.0.into(), INSIDE_HOSTS_6.1, Addresses::default().inside_ipv6.into()),
            (OUTSIDE_HOSTS_4.0.into(), OUTSIDE_HOSTS_4.1, Ipv4Addr::new(198, 51, 100, 2).into()),
            (OUTSIDE_HOSTS_6.0.into(), OUTSIDE_HOSTS_6.1, Addresses::default().outside_ipv6.into()),
        ];
        for (address, length, via) in routes {
            let route = Route { destination: Prefix { address, length }, via };
            self.node()?.add_route(route).map_err(|e| self.lab_error(e))?;
        }
        Ok(())
    }

    /// Whether its connections are in the kernel's connection tracking.
    fn uses_conntrack(&self) -> bool {
        matches!(self.spec.kind(), Some(Kind::Iptables | Kind::Nftables))
    }

    fn start_gateway(&mut self) -> Result<(), GatewayError> {
        match &self.spec {
            Spec::Lab(kind, _) => self.start_kind(*kind)?,
            Spec::Faulty(faults) => {
                self.faulty = None;
                let faults = *faults;
                let (inside, outside) =
                    (self.gateway_ends("inside0", "client")?, self.gateway_ends("outside0", "server")?);
                let core = self.cores[0];
                let started = FaultyForwarder::start(faults, (&inside.0, inside.1), (&outside.0, outside.1), core);
                self.faulty = Some(started.map_err(|e| self.system_error("start the forwarder".to_owned(), e))?);
            }
            Spec::External(_) => return Err(self.unsuitable("an external gateway has no lab")),
        }
        if self.uses_conntrack() {
            let timeouts = conntrack::set_timeouts(self.node()?).map_err(|e| self.lab_error(e))?;
            self.description.extend(timeouts);
        }
        Ok(())
    }

    fn start_kind(&mut self, kind: Kind) -> Result<(), GatewayError> {
        self.running = None;
        let started = start::start(kind, &self.lab, &self.options).map_err(|error| match error {
            StartError::Lab { source, .. } => self.lab_error(source),
            silent => self.unsuitable(&silent.to_string()),
        })?;
        self.describe("version", started.version.clone());
        if !self.options.settings.is_empty() {
            self.describe("settings", self.options.settings.replace('\n', " "));
        }
        self.running = Some(started);
        Ok(())
    }

    fn describe(&mut self, key: &str, value: impl Into<String>) {
        self.description.insert(key.to_owned(), value.into());
    }

    fn in_gateway(&self, program: &str, arguments: &[&str]) -> Result<String, GatewayError> {
        let command = self.node()?.command(program).args(arguments.iter().copied());
        let output = command.run().and_then(tombolo_lab::Output::success).map_err(|e| self.lab_error(e))?;
        Ok(output.stdout)
    }

    fn node(&self) -> Result<&tombolo_lab::Namespace, GatewayError> {
        self.lab.node("gateway").map_err(|e| self.lab_error(e))
    }

    fn port(&self, node: &str, interface: &str) -> Result<Port, GatewayError> {
        let namespace = self.lab.node(node).map_err(|e| self.lab_error(e))?;
        Ok(Port { name: interface.to_owned(), namespace: Some(Namespace::at(namespace.path())) })
    }

    /// A port of the gateway, and the addresses of the frames that it sends to its peer.
    fn gateway_ends(&self, interface: &str, peer: &str) -> Result<(Port, Ends), GatewayError> {
        let (own, other) = (self.port("gateway", interface)?, self.port(peer, interface)?);
        Ok((own.clone(), Ends { source: self.address_of(&own)?, destination: self.address_of(&other)? }))
    }

    fn address_of(&self, port: &Port) -> Result<[u8; 6], GatewayError> {
        link_address(port).map_err(|e| self.system_error(format!("find the link-layer address of {}", port.name), e))
    }

    fn lab_error(&self, source: LabError) -> GatewayError {
        GatewayError::Lab { gateway: self.spec.to_string(), source }
    }

    fn system_error(&self, action: String, source: io::Error) -> GatewayError {
        GatewayError::System { gateway: self.spec.to_string(), action, source }
    }

    fn unsuitable(&self, reason: &str) -> GatewayError {
        GatewayError::Unsuitable { gateway: self.spec.to_string(), reason: reason.to_owned() }
    }
}

impl Gateway for Laboratory {
    fn name(&self) -> String {
        self.spec.to_string()
    }

    fn description(&self) -> BTreeMap<String, String> {
        self.description.clone()
    }

    fn ports(&self) -> (Port, Port) {
        // The lab has these nodes by construction; a port that is missing is reported when it is
        // opened.
        let missing = |name: &str| Port { name: name.to_owned(), namespace: None };
        (
            self.port("client", "inside0").unwrap_or_else(|_| missing("inside0")),
            self.port("server", "outside0").unwrap_or_else(|_| missing("outside0")),
        )
    }

    fn ends(&self) -> Result<(Ends, Ends), GatewayError> {
        let swap = |(_, ends): (Port, Ends)| Ends { source: ends.destination, destination: ends.source };
        Ok((swap(self.gateway_ends("inside0", "client")?), swap(self.gateway_ends("outside0", "server")?)))
    }

    fn flush(&mut self) -> Result<(), GatewayError> {
        if let Some(forwarder) = &self.faulty {
            forwarder.flush();
        }
        match self.spec.kind() {
            Some(Kind::Iptables | Kind::Nftables) => self.in_gateway("conntrack", &["-F"]).map(drop),
            Some(Kind::Tombolo) => self.tombolo(&["flush"]).map(drop),
            Some(Kind::Jool) => self.in_gateway("jool", &["instance", "flush"]).map(drop),
            _ => Ok(()),
        }
    }

    fn reset(&mut self) -> Result<(), GatewayError> {
        match self.spec.clone() {
            Spec::Faulty(faults) => {
                self.faulty.iter().for_each(|forwarder| forwarder.reset(&faults));
                Ok(())
            }
            Spec::Lab(kind, _) => self.reset_kind(kind),
            Spec::External(_) => Err(self.unsuitable("there is nothing to restart")),
        }
    }

    fn counts(&mut self) -> Option<TableCounts> {
        let of_sessions = |sessions| TableCounts { sessions: Some(sessions), bindings: None };
        match (&self.faulty, self.spec.kind()) {
            (Some(forwarder), _) => Some(of_sessions(forwarder.tuples())),
            (None, Some(Kind::Tombolo)) => tombolo_counts(&self.tombolo(&["show", "services", "--json"]).ok()?),
            (None, _) if self.uses_conntrack() => conntrack::count(self.node().ok()?).map(of_sessions),
            (None, _) => None,
        }
    }

    fn udp_timeout_seconds(&self) -> Option<u64> {
        if let Spec::Faulty(faults) = &self.spec {
            return (faults.timeout != 0).then_some(faults.timeout / 1000);
        }
        match self.spec.kind()? {
            Kind::Iptables | Kind::Nftables => Some(conntrack::TIMEOUT_SECONDS),
            Kind::Jool => Some(JOOL_UDP_TIMEOUT_SECONDS),
            Kind::Tombolo => Some(TOMBOLO_TIMEOUT_SECONDS),
            _ => None,
        }
    }

    fn size_tables(&mut self, connections: u64) -> Result<Option<u64>, GatewayError> {
        if !self.uses_conntrack() {
            return Ok(None);
        }
        conntrack::size(&self.lab, connections).map(Some).map_err(|e| self.lab_error(e))
    }

    fn place(&mut self, cores: &[usize]) -> Result<String, GatewayError> {
        self.cores = cores.to_vec();
        self.shorten_slices()?;
        if self.napi_threads.is_empty() {
            self.napi_threads = napi_threads(self.node()?, &PORTS, self.queues)
                .map_err(|e| self.system_error("switch the ports to threaded NAPI".to_owned(), e))?;
        }
        spread(&self.napi_threads, cores).map_err(|e| self.system_error("pin the NAPI threads".to_owned(), e))?;
        if self.faulty.is_some() {
            self.start_gateway()?;
        }
        self.pin_processes()?;
        let queues = if self.queues > 1 { format!(" of {} queues a port", self.queues) } else { String::new() };
        Ok(format!(
            "threaded NAPI{queues} and the gateway's processes on {cores:?}, all real-time round robin of one priority"
        ))
    }
}

/// Reads the lines of `tombolo show services --json`, which counts the tables as they are now; the
/// status has what the last sweep saw.
fn tombolo_counts(services: &str) -> Option<TableCounts> {
    let rows: Result<Vec<serde_json::Value>, _> = services.lines().map(serde_json::from_str).collect();
    let rows = rows.ok().filter(|rows| !rows.is_empty())?;
    let sum = |key: &str| rows.iter().filter_map(|row| row[key].as_u64()).reduce(|one, other| one + other);
    Some(TableCounts { sessions: sum("sessions"), bindings: sum("bindings") })
}

impl Laboratory {
    /// Speaks with the gateway through its control socket.
    fn tombolo(&self, arguments: &[&str]) -> Result<String, GatewayError> {
        self.in_gateway(&self.options.tombolo.display().to_string(), arguments)
    }

    /// A setting of the whole machine, put back when the lab ends.
    fn shorten_slices(&self) -> Result<(), GatewayError> {
        let (file, shortest) = SLICE;
        // The kernel rounds up to its tick.
        let is_long = fs::read_to_string(file).is_ok_and(|ms| ms.trim().parse::<u32>().is_ok_and(|ms| ms > 10));
        match is_long {
            true => self.lab.change_setting(Path::new(file), shortest).map_err(|e| self.lab_error(e)),
            false => Ok(()),
        }
    }

    fn pin_processes(&self) -> Result<(), GatewayError> {
        let pinned = pin_inhabitants(self.node()?, &self.cores);
        pinned.map_err(|e| self.system_error("pin the gateway's processes".to_owned(), e))
    }

    /// Restarts what the lab started, as its operator would.
    fn reset_kind(&mut self, kind: Kind) -> Result<(), GatewayError> {
        match kind {
            Kind::Plain => {
                for switch in ["0", "1"] {
                    for key in ["net.ipv4.conf.all.forwarding", "net.ipv6.conf.all.forwarding"] {
                        self.node()?.set_sysctl(key, switch).map_err(|e| self.lab_error(e))?;
                    }
                }
                Ok(())
            }
            Kind::Iptables => {
                self.in_gateway("iptables", &["-t", "nat", "-F"])?;
                self.in_gateway("conntrack", &["-F"])?;
                self.start_gateway()
            }
            Kind::Nftables => {
                self.in_gateway("nft", &["flush", "ruleset"])?;
                self.in_gateway("conntrack", &["-F"])?;
                self.start_gateway()
            }
            Kind::Tayga => {
                self.running = None;
                let file = self.lab.directory().map_err(|e| self.lab_error(e))?.join("tayga.conf");
                self.in_gateway("tayga", &["-c", &file.display().to_string(), "--rmtun"])?;
                self.start_gateway()
            }
            Kind::Tombolo => {
                self.start_kind(Kind::Tombolo)?;
                self.pin_processes()
            }
            Kind::Jool => self.flush(),
            _ => Err(self.unsuitable("there is nothing to restart")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_of_this_projects_gateway_have_both_counts() {
        let one = "{\"service\":\"a\",\"bindings\":40,\"sessions\":4000}\n";
        let expected = |n: u64| TableCounts { sessions: Some(4000 * n), bindings: Some(40 * n) };
        assert_eq!(tombolo_counts(one), Some(expected(1)));
        assert_eq!(tombolo_counts(&format!("{one}{one}")), Some(expected(2)));
        assert_eq!((tombolo_counts(""), tombolo_counts("no gateway runs")), (None, None));
    }
}
