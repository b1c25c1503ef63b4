//! Gateways in a network-namespace lab of this machine: client - gateway - server, the tester's
//! ports being the client's and the server's interface. Both ends of a technology are two gateways,
//! client - cpe - gateway - server, as the lab's scenarios have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tombolo_generator::{Ends, Namespace, Port, link_address};
use tombolo_lab::{Lab, LabError, Offload, Topology};

use super::conntrack;
use super::control::{Gateway, GatewayError, TableCounts};
use super::faulty::FaultyForwarder;
use super::hosts::{self, HOME_HOSTS};
use super::placement::{SLICE, napi_threads, pin_inhabitants, spread, worked_ns};
use crate::gateway::frames::Flows;
use crate::gateway::kind::Kind;
use crate::gateway::spec::Spec;
use crate::gateway::start::{self, Options, Running, StartError, jool};
use crate::gateway::technology::Technology;

/// tombolo's own default (RFC 4787 REQ-5 recommends 300 s), and what it gets with more connections than
/// its tables have room for by default: these take longer to make.
const TOMBOLO_TIMEOUT_SECONDS: u64 = 300;
const TOMBOLO_LONG_TIMEOUT_SECONDS: u64 = 10_000;
const TOMBOLO_SESSIONS: u64 = 4 << 20;
const TOMBOLO_BINDINGS: u64 = 1 << 20;
/// Connections that every gateway has room for, also one with a customer's few ports.
const TOMBOLO_ROOM: u64 = 10_000;
/// Bytes of a session, to three digits, and of a binding (docs/configuration.md).
const TOMBOLO_SESSION_BYTES: u64 = 21;
const TOMBOLO_BINDING_BYTES: u64 = 64;
/// The gateway's two ports.
const ALONE: [Part; 1] = [("gateway", ["inside0", "outside0"])];
/// Those of two gateways in series.
const PAIR: [Part; 2] = [("cpe", ["inside0", "core0"]), ("gateway", ["core0", "outside0"])];

/// A node of the gateway, and its two ports.
type Part = (&'static str, [&'static str; 2]);

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
    /// The nodes that are the gateway, from inside to outside.
    parts: &'static [Part],
    /// Of each port.
    queues: u32,
    /// That its tables are to have room for; 0 where it keeps none.
    connections: u64,
    /// Of inside endpoints.
    bindings: u64,
    napi_threads: BTreeSet<i32>,
}

/// What to build.
pub struct Setup {
    /// Which gateway.
    pub spec: Spec,
    /// What it does.
    pub technology: Technology,
    /// The connections that its tables need room for, and the hosts that it needs routes to.
    pub flows: Flows,
    /// The `tombolo` executable.
    pub tombolo: PathBuf,
    /// Lines of `tombolo`'s configuration before its services.
    pub settings: String,
    /// Queues of each port: a frame is in that of the core that sent it, so more than one serve more
    /// than one sending core.
    pub queues: u32,
    /// MTU of all links, where the usual one does not do.
    pub mtu: Option<u32>,
}

impl Laboratory {
    /// Builds the lab and starts the gateway in it.
    ///
    /// # Errors
    /// If privileges, a program or a kernel module are missing, or the gateway does not do the
    /// technology.
    pub fn start(setup: Setup) -> Result<Laboratory, GatewayError> {
        let Setup { spec, technology, flows, tombolo, settings, queues, mtu } = setup;
        let name = spec.to_string();
        if !spec.does(technology) {
            let reason =
                format!("the lab cannot set it up as {technology}; measure it as external, or another gateway");
            return Err(GatewayError::Unsuitable { gateway: name, reason });
        }
        if technology.is_pair() && flows.inside_hosts > HOME_HOSTS {
            let reason = format!("the lab's home has room for {HOME_HOSTS} hosts");
            return Err(GatewayError::Unsuitable { gateway: name, reason });
        }
        let pair = Kind::of_pair(technology).or(spec.kind().filter(|kind| *kind == Kind::PlainPair));
        let mut topology = pair.map_or_else(Topology::client_gateway_server, Kind::topology);
        if matches!(spec, Spec::Faulty(_)) {
            topology.node_mut("gateway").into_iter().for_each(|node| node.forwarding = false);
        }
        if queues > 1 {
            topology.links.iter_mut().for_each(|link| link.queues = Some(queues));
        }
        topology.links.iter_mut().for_each(|link| link.mtu = mtu.or(link.mtu));
        let addresses = hosts::addresses(technology, &spec, &flows);
        for (node, route) in hosts::routes(technology, &addresses, &flows) {
            topology.node_mut(node).into_iter().for_each(|node| node.routes.push(route));
        }
        let lab = Lab::create(&topology).map_err(|source| GatewayError::Lab { gateway: name, source })?;
        let mode = match &spec {
            Spec::Lab(Kind::Tombolo, Some(mode)) => format!("gateway.fastpath = \"{mode}\"\n"),
            _ => String::new(),
        };
        let connections = if technology.is_stateful() { flows.count() } else { 0 };
        let reuse = reuse_of_ports(technology, &settings);
        let settings = format!("{mode}{}{reuse}{settings}", room_for(connections, &settings));
        let subscribers = flows.inside_hosts;
        let mut laboratory = Laboratory {
            spec,
            lab,
            options: Options { addresses, subscribers, mtu, ..Options::new(tombolo, settings, technology) },
            running: None,
            faulty: None,
            description: BTreeMap::new(),
            cores: vec![0],
            parts: if pair.is_some() { &PAIR } else { &ALONE },
            queues: queues.max(1),
            connections,
            bindings: u64::from(flows.inside_hosts) * u64::from(flows.inside_ports),
            napi_threads: BTreeSet::new(),
        };
        laboratory.prepare(&flows)?;
        Ok(laboratory)
    }

    /// What runs in it, with the addresses under which the two sides see each other.
    pub(crate) fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// Its namespaces.
    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }

    fn prepare(&mut self, flows: &Flows) -> Result<(), GatewayError> {
        for (node, ports) in self.parts {
            for port in ports {
                // A veth takes redirected frames only while its own end polls, which receive offload
                // makes it do.
                self.node(node)?.set_offload(port, Offload::Gro, true).map_err(|e| self.lab_error(e))?;
            }
        }
        if self.uses_conntrack() {
            let sizes = conntrack::make_room(&self.lab, flows.count()).map_err(|e| self.lab_error(e))?;
            self.description.extend(sizes);
        }
        self.start_gateway()
    }

    /// Whether its connections are in the kernel's connection tracking.
    fn uses_conntrack(&self) -> bool {
        self.spec.kind().is_some_and(Kind::uses_conntrack)
    }

    fn start_gateway(&mut self) -> Result<(), GatewayError> {
        match &self.spec {
            Spec::Lab(kind, _) => self.start_kind(Kind::of_pair(self.options.technology).unwrap_or(*kind))?,
            Spec::Faulty(faults) => {
                self.faulty = None;
                let faults = *faults;
                let (inside, outside) = (self.inner_ends()?, self.outer_ends()?);
                let core = self.cores[0];
                let started = FaultyForwarder::start(faults, (&inside.0, inside.1), (&outside.0, outside.1), core);
                self.faulty = Some(started.map_err(|e| self.system_error("start the forwarder".to_owned(), e))?);
            }
            Spec::External(_) => return Err(self.unsuitable("an external gateway has no lab")),
        }
        if self.uses_conntrack() {
            let timeouts = conntrack::set_timeouts(self.node("gateway")?).map_err(|e| self.lab_error(e))?;
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
        let is_ours = self.spec.kind() == Some(Kind::Tombolo);
        if is_ours && !self.options.settings.is_empty() {
            self.describe("settings", self.options.settings.replace('\n', " "));
        }
        self.running = Some(started);
        Ok(())
    }

    fn describe(&mut self, key: &str, value: impl Into<String>) {
        self.description.insert(key.to_owned(), value.into());
    }

    fn in_gateway(&self, program: &str, arguments: &[&str]) -> Result<String, GatewayError> {
        self.in_node("gateway", program, arguments)
    }

    fn in_node(&self, node: &str, program: &str, arguments: &[&str]) -> Result<String, GatewayError> {
        let command = self.node(node)?.command(program).args(arguments.iter().copied());
        let output = command.run().and_then(tombolo_lab::Output::success).map_err(|e| self.lab_error(e))?;
        Ok(output.stdout)
    }

    fn node(&self, name: &str) -> Result<&tombolo_lab::Namespace, GatewayError> {
        self.lab.node(name).map_err(|e| self.lab_error(e))
    }

    fn port(&self, node: &str, interface: &str) -> Result<Port, GatewayError> {
        let namespace = self.lab.node(node).map_err(|e| self.lab_error(e))?;
        Ok(Port { name: interface.to_owned(), namespace: Some(Namespace::at(namespace.path())) })
    }

    /// The gateway's inside port, and the addresses of the frames that it sends to the client.
    fn inner_ends(&self) -> Result<(Port, Ends), GatewayError> {
        self.ends_of(self.parts[0].0, "inside0", "client")
    }

    /// Likewise of its outside port.
    fn outer_ends(&self) -> Result<(Port, Ends), GatewayError> {
        self.ends_of("gateway", "outside0", "server")
    }

    fn ends_of(&self, node: &str, interface: &str, peer: &str) -> Result<(Port, Ends), GatewayError> {
        let (own, other) = (self.port(node, interface)?, self.port(peer, interface)?);
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
        Ok((swap(self.inner_ends()?), swap(self.outer_ends()?)))
    }

    fn flush(&mut self) -> Result<(), GatewayError> {
        if let Some(forwarder) = &self.faulty {
            forwarder.flush();
        }
        match self.spec.kind() {
            Some(kind) if kind.uses_conntrack() => self.in_gateway("conntrack", &["-F"]).map(drop),
            Some(Kind::Tombolo) => self.tombolo(&["flush"]).map(drop),
            Some(Kind::Jool) => jool::flush(Kind::Jool, &self.lab).map_err(|e| self.lab_error(e)),
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
            (None, Some(Kind::Jool)) => jool::sessions(self.node("gateway").ok()?).map(of_sessions),
            (None, _) if self.uses_conntrack() => conntrack::count(self.node("gateway").ok()?).map(of_sessions),
            (None, _) => None,
        }
    }

    fn memory_bytes(&self) -> Option<u64> {
        match self.spec.kind()? {
            Kind::Tombolo => Some(self.connections * TOMBOLO_SESSION_BYTES + self.bindings * TOMBOLO_BINDING_BYTES),
            kind if kind.uses_conntrack() => Some(conntrack::memory_bytes(self.connections)),
            _ => None,
        }
    }

    fn worked_ns(&self) -> Option<u64> {
        // Without threads of its own the kernel's part is the sending core's.
        let nodes = || self.parts.iter().filter_map(|(node, _)| self.lab.node(node).ok());
        (!self.napi_threads.is_empty()).then(|| worked_ns(&self.napi_threads, nodes()))
    }

    fn routers(&self, _: Technology) -> u8 {
        if self.parts.len() == 1 { 1 } else { 2 }
    }

    fn udp_timeout_seconds(&self) -> Option<u64> {
        if let Spec::Faulty(faults) = &self.spec {
            return (faults.timeout != 0).then_some(faults.timeout / 1000);
        }
        match self.spec.kind()? {
            kind if kind.uses_conntrack() => Some(conntrack::TIMEOUT_SECONDS),
            Kind::Jool => Some(jool::UDP_TIMEOUT_SECONDS),
            Kind::Tombolo if self.connections > TOMBOLO_SESSIONS => Some(TOMBOLO_LONG_TIMEOUT_SECONDS),
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
            for (node, ports) in self.parts {
                let threads = napi_threads(self.node(node)?, ports, self.queues)
                    .map_err(|e| self.system_error("switch the ports to threaded NAPI".to_owned(), e))?;
                self.napi_threads.extend(threads);
            }
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

/// A trial begins with an empty table, and with ports that another has just had: the few of a customer, and
/// those of one address, would be kept back for two minutes (RFC 6888 REQ-8), until none is left.
fn reuse_of_ports(technology: Technology, settings: &str) -> &'static str {
    let is_told = settings.contains("port_reuse") || settings.contains("[timeouts]");
    if technology.is_stateful() && !is_told { "timeouts.port_reuse = 0\n" } else { "" }
}

/// What `tombolo` has to be told of many connections: how much room they take, and of very many how long
/// they are to live; nothing where the user says how much room there is.
fn room_for(connections: u64, settings: &str) -> String {
    if connections <= TOMBOLO_ROOM || settings.contains("capacity") {
        return String::new();
    }
    let with_spare = |n: u64| n + n / 8;
    // The static binding, and what the lab's own packets make, are beside those of the connections.
    let (sessions, bindings) = (with_spare(connections), with_spare(connections.min(TOMBOLO_BINDINGS)));
    let timeout = match connections > TOMBOLO_SESSIONS {
        true => format!("timeouts.udp = {TOMBOLO_LONG_TIMEOUT_SECONDS}\n"),
        false => String::new(),
    };
    format!("capacity.sessions = {sessions}\ncapacity.bindings = {bindings}\n{timeout}")
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
    /// Speaks with the gateway, or both of a pair, through their control sockets.
    fn tombolo(&self, arguments: &[&str]) -> Result<String, GatewayError> {
        let program = self.options.tombolo.display().to_string();
        self.parts.iter().map(|(node, _)| self.in_node(node, &program, arguments)).collect()
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
        for (node, _) in self.parts {
            pin_inhabitants(self.node(node)?, &self.cores)
                .map_err(|e| self.system_error("pin the gateway's processes".to_owned(), e))?;
        }
        Ok(())
    }

    /// Restarts what the lab started, as its operator would.
    fn reset_kind(&mut self, kind: Kind) -> Result<(), GatewayError> {
        match kind {
            Kind::Plain | Kind::PlainPair => {
                for switch in ["0", "1"] {
                    for key in ["net.ipv4.conf.all.forwarding", "net.ipv6.conf.all.forwarding"] {
                        self.node("gateway")?.set_sysctl(key, switch).map_err(|e| self.lab_error(e))?;
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
            Kind::Tayga | Kind::TaygaNat => {
                if kind.uses_conntrack() {
                    self.in_gateway("nft", &["flush", "ruleset"])?;
                    self.in_gateway("conntrack", &["-F"])?;
                }
                self.running = None;
                let file = self.lab.directory().map_err(|e| self.lab_error(e))?.join("tayga.conf");
                self.in_gateway("tayga", &["-c", &file.display().to_string(), "--rmtun"])?;
                self.start_gateway()
            }
            Kind::Tombolo => {
                self.start_gateway()?;
                self.pin_processes()
            }
            Kind::Jool | Kind::JoolSiit => jool::flush(kind, &self.lab).map_err(|e| self.lab_error(e)),
            _ => Err(self.unsuitable("there is nothing to restart")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_than_usual_get_room_and_time() {
        assert_eq!(room_for(10_000, ""), "");
        assert_eq!(room_for(80_000, ""), "capacity.sessions = 90000\ncapacity.bindings = 90000\n");
        assert!(room_for(100_000_000, "").contains("capacity.sessions = 112500000"));
        assert_eq!(room_for(100_000_000, "capacity.sessions = 1000"), "", "the user knows better");
        assert_ne!(room_for(100_000_000, "service.sessions = \"kept\""), "", "that says nothing of room");
    }

    #[test]
    fn the_services_of_this_projects_gateway_have_both_counts() {
        let one = "{\"service\":\"a\",\"bindings\":40,\"sessions\":4000}\n";
        let expected = |n: u64| TableCounts { sessions: Some(4000 * n), bindings: Some(40 * n) };
        assert_eq!(tombolo_counts(one), Some(expected(1)));
        assert_eq!(tombolo_counts(&format!("{one}{one}")), Some(expected(2)));
        assert_eq!((tombolo_counts(""), tombolo_counts("no gateway runs")), (None, None));
    }
}
