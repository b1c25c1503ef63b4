//! Gateways in a network-namespace lab of this machine: client - gateway - server, the tester's
//! ports being the client's and the server's interface.
//!
//! # Whose core
//! Packets of a veth pair are processed on the core that sent them, so a gateway in the kernel
//! would run on the tester's core and slow it down instead of dropping. [`Gateway::place`]
//! therefore switches the gateway's ports to threaded NAPI and pins those threads, and every
//! process in the gateway's namespace, to the cores given.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tombolo_generator::{Ends, Namespace, Port, become_realtime, link_address, pin_to};
use tombolo_lab::{Lab, LabError, Offload, Prefix, Topology, topology::Route, wait_until};

use super::faulty::FaultyForwarder;
use super::{Gateway, GatewayError, Spec};
use crate::dut::{self, Dut, DutError, Options};
use crate::machine;
use crate::setup::{Addresses, Flows, Technology};

/// UDP timeout given to connection tracking, so that no entry expires during a trial (RFC 9693
/// section 4.4).
const CONNTRACK_TIMEOUT_SECONDS: u64 = 10_000;
/// tombolo's own default (RFC 4787 REQ-5 recommends 300 s).
const TOMBOLO_TIMEOUT_SECONDS: u64 = 300;
/// Above the fault injector's, which polls without end.
const NAPI_PRIORITY: i32 = 2;
const CONNTRACK_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const CONNTRACK_BUCKETS: &str = "/sys/module/nf_conntrack/parameters/hashsize";

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
    running: Option<dut::Gateway>,
    faulty: Option<FaultyForwarder>,
    description: BTreeMap<String, String>,
    cores: Vec<usize>,
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
    match (spec, technology) {
        (Spec::Tombolo(_), Technology::Nat64 | Technology::Nat44) => {
            addresses.pool = Some((Ipv4Addr::new(192, 0, 2, 0), Ipv4Addr::new(192, 0, 2, 15)));
        }
        (Spec::Tayga, _) | (Spec::Tombolo(_), Technology::Siit) => {
            addresses.translation_prefix = (Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0), 96);
            addresses.mapped_ipv4 = Ipv4Addr::new(192, 0, 2, 1);
        }
        (Spec::Iptables | Spec::Nftables, Technology::Nat44) => {
            let own = Ipv4Addr::new(198, 51, 100, 1);
            addresses.pool = Some((own, own));
        }
        _ => {}
    }
    addresses
}

/// What a gateway is measured as where the user does not say: its own trade, or what the others in
/// the run do.
pub fn usual_technology(spec: &Spec) -> Technology {
    match spec {
        Spec::Tombolo(_) | Spec::Jool => Technology::Nat64,
        Spec::Iptables | Spec::Nftables => Technology::Nat44,
        Spec::Tayga | Spec::JoolSiit => Technology::Siit,
        Spec::Plain | Spec::Faulty(_) | Spec::External(_) => Technology::Forward4,
    }
}

impl Laboratory {
    /// Builds the lab and starts the gateway in it.
    ///
    /// # Errors
    /// If privileges, a program or a kernel module are missing, or the gateway does not do the
    /// technology.
    pub fn start(
        spec: Spec,
        technology: Technology,
        flows: &Flows,
        tombolo: &Path,
    ) -> Result<Laboratory, GatewayError> {
        suits(&spec, technology)?;
        let name = spec.to_string();
        let mut topology = Topology::client_gateway_server();
        if matches!(spec, Spec::Faulty(_)) {
            topology.node_mut("gateway").into_iter().for_each(|node| node.forwarding = false);
        }
        let lab = Lab::create(&topology).map_err(|source| GatewayError::Lab { gateway: name, source })?;
        let settings = match &spec {
            Spec::Tombolo(Some(mode)) => format!("[gateway]\nfastpath = \"{mode}\"\n"),
            _ => String::new(),
        };
        let mut laboratory = Laboratory {
            spec,
            lab,
            options: Options { tombolo: tombolo.to_owned(), tombolo_settings: settings, tombolo_trade: technology },
            running: None,
            faulty: None,
            description: BTreeMap::new(),
            cores: vec![0],
        };
        laboratory.prepare(flows)?;
        Ok(laboratory)
    }

    fn prepare(&mut self, flows: &Flows) -> Result<(), GatewayError> {
        for interface in ["inside0", "outside0"] {
            // A veth takes redirected frames only while its own end polls, which receive offload
            // makes it do.
            self.node()?.set_offload(interface, Offload::Gro, true).map_err(|e| self.lab_error(e))?;
        }
        if flows.inside_hosts > 1 || flows.outside_hosts > 1 {
            self.add_routes()?;
        }
        if matches!(self.spec, Spec::Iptables | Spec::Nftables) {
            self.prepare_conntrack(flows)?;
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

    /// Long timeouts, and room for all connections. The size of the table is a setting of the whole
    /// machine; it is put back when the lab ends.
    fn prepare_conntrack(&mut self, flows: &Flows) -> Result<(), GatewayError> {
        let wanted = (flows.count() * 3 / 2).max(262_144).next_power_of_two();
        for (path, wanted) in [(CONNTRACK_MAX, wanted), (CONNTRACK_BUCKETS, wanted)] {
            let before = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
            if before.parse::<u64>().is_ok_and(|before| before < wanted) {
                let changed = self.lab.change_setting(Path::new(path), &wanted.to_string());
                changed.map_err(|e| self.lab_error(e))?;
            }
            let now = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
            self.description.insert(path.rsplit('/').next().unwrap_or(path).to_owned(), now);
        }
        Ok(())
    }

    fn start_gateway(&mut self) -> Result<(), GatewayError> {
        match &self.spec {
            Spec::Plain => self.describe("version", machine::kernel()),
            Spec::Tombolo(_) => self.start_program(Dut::Tombolo)?,
            Spec::Tayga => self.start_program(Dut::Tayga)?,
            Spec::Iptables => self.start_program(Dut::Iptables)?,
            Spec::Nftables => self.start_nftables()?,
            Spec::Jool | Spec::JoolSiit => self.start_jool()?,
            Spec::Faulty(faults) => {
                self.faulty = None;
                let faults = *faults;
                let ends = |name, peer: &str| self.gateway_ends(name, peer);
                let (inside, outside) = (ends("inside0", "client")?, ends("outside0", "server")?);
                let core = self.cores[0];
                let started = FaultyForwarder::start(faults, (&inside.0, inside.1), (&outside.0, outside.1), core);
                self.faulty = Some(started.map_err(|e| self.system_error("start the forwarder".to_owned(), e))?);
            }
            Spec::External(_) => return Err(self.unsuitable("an external gateway has no lab")),
        }
        if matches!(self.spec, Spec::Iptables | Spec::Nftables) {
            self.set_conntrack_timeouts()?;
        }
        Ok(())
    }

    fn start_program(&mut self, dut: Dut) -> Result<(), GatewayError> {
        self.running = None;
        let started = dut.start(&self.lab, &self.options).map_err(|error| match error {
            DutError::Lab { source, .. } => self.lab_error(source),
            silent => self.unsuitable(&silent.to_string()),
        })?;
        self.describe("version", started.version.clone());
        if !self.options.tombolo_settings.is_empty() {
            self.describe("settings", self.options.tombolo_settings.replace('\n', " "));
        }
        self.running = Some(started);
        Ok(())
    }

    fn start_nftables(&mut self) -> Result<(), GatewayError> {
        self.in_gateway("nft", &["add", "table", "ip", "nat"])?;
        let chain = "{ type nat hook postrouting priority srcnat; }";
        self.in_gateway("nft", &["add", "chain", "ip", "nat", "postrouting", chain])?;
        self.in_gateway("nft", &["add", "rule", "ip", "nat", "postrouting", "oifname", "outside0", "masquerade"])?;
        self.describe("version", machine::version_of("nft", &["--version"]));
        Ok(())
    }

    fn start_jool(&mut self) -> Result<(), GatewayError> {
        let siit = self.spec == Spec::JoolSiit;
        let (module, tool) = if siit { ("jool_siit", "jool_siit") } else { ("jool", "jool") };
        let loaded = Path::new("/sys/module").join(module).exists()
            || Command::new("modprobe").arg(module).output().is_ok_and(|o| o.status.success());
        if !loaded {
            return Err(self.unsuitable(&format!(
                "the kernel module {module} cannot be loaded here; install jool-dkms on a kernel that loads modules"
            )));
        }
        self.in_gateway(tool, &["instance", "add", "--netfilter", "--pool6", "64:ff9b::/96"])?;
        if siit {
            self.in_gateway(tool, &["eamt", "add", "2001:db8:1::2/128", "192.0.2.2/32"])?;
        } else {
            self.in_gateway(tool, &["pool4", "add", "198.51.100.1", "1024-65535", "--udp"])?;
            let timeout = format!("{CONNTRACK_TIMEOUT_SECONDS}:00");
            self.in_gateway(tool, &["global", "update", "udp-timeout", &timeout])?;
        }
        self.describe("version", machine::version_of(tool, &["--version"]));
        Ok(())
    }

    fn set_conntrack_timeouts(&mut self) -> Result<(), GatewayError> {
        for key in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
            let (key, value) = (format!("net.netfilter.{key}"), CONNTRACK_TIMEOUT_SECONDS.to_string());
            self.node()?.set_sysctl(&key, &value).map_err(|e| self.lab_error(e))?;
            self.describe(&key, value);
        }
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

    /// Switches both ports to threaded NAPI; returns the new threads.
    fn napi_threads(&self) -> Result<BTreeSet<i32>, GatewayError> {
        let before = threads_named("napi/");
        let namespace = self.node()?.name().to_owned();
        for interface in ["inside0", "outside0"] {
            let line = format!("echo 1 > /sys/class/net/{interface}/threaded");
            // `ip netns exec` mounts the namespace's own /sys.
            let output = Command::new("ip").args(["netns", "exec", &namespace, "sh", "-c", &line]).output();
            let output = output.map_err(|e| self.system_error("run ip".to_owned(), e))?;
            if !output.status.success() {
                let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(self.system_error(format!("switch {interface} to threaded NAPI"), io::Error::other(words)));
            }
        }
        let started = || {
            let new: BTreeSet<i32> = threads_named("napi/").difference(&before).copied().collect();
            (new.len() >= 2).then_some(new)
        };
        wait_until("the NAPI threads", std::time::Duration::from_secs(2), started).or(Ok(BTreeSet::new()))
    }

    /// All threads of all processes in the gateway's namespace.
    fn inhabitants(&self) -> Vec<i32> {
        let Ok(node) = self.node() else { return Vec::new() };
        let here = fs::metadata(node.path()).map(|file| (file.dev(), file.ino())).ok();
        let own = std::process::id().to_string();
        numbers_in(Path::new("/proc"))
            .filter(|path| !path.ends_with(&own))
            .filter(|path| fs::metadata(path.join("ns/net")).map(|file| (file.dev(), file.ino())).ok() == here)
            .flat_map(|path| numbers_in(&path.join("task")).collect::<Vec<_>>())
            .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
            .collect()
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
        match &self.spec {
            Spec::Iptables | Spec::Nftables => self.in_gateway("conntrack", &["-F"]).map(drop),
            Spec::Tombolo(_) => {
                self.start_program(Dut::Tombolo)?;
                let cores = self.cores.clone();
                self.pin_processes(&cores)
            }
            Spec::Jool => self.in_gateway("jool", &["instance", "flush"]).map(drop),
            Spec::Faulty(_) => {
                self.faulty.iter().for_each(FaultyForwarder::flush);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reset(&mut self) -> Result<(), GatewayError> {
        match self.spec.clone() {
            Spec::Plain => {
                for switch in ["0", "1"] {
                    let (node, key) = (self.node()?, "all.forwarding");
                    node.set_sysctl(&format!("net.ipv4.conf.{key}"), switch).map_err(|e| self.lab_error(e))?;
                    node.set_sysctl(&format!("net.ipv6.conf.{key}"), switch).map_err(|e| self.lab_error(e))?;
                }
                Ok(())
            }
            Spec::Iptables => {
                self.in_gateway("iptables", &["-t", "nat", "-F"])?;
                self.in_gateway("conntrack", &["-F"])?;
                self.start_gateway()
            }
            Spec::Nftables => {
                self.in_gateway("nft", &["flush", "ruleset"])?;
                self.in_gateway("conntrack", &["-F"])?;
                self.start_gateway()
            }
            Spec::Tayga => {
                self.running = None;
                let file = self.lab.directory().map_err(|e| self.lab_error(e))?.join("tayga.conf");
                self.in_gateway("tayga", &["-c", &file.display().to_string(), "--rmtun"])?;
                self.start_gateway()
            }
            Spec::Faulty(faults) => {
                self.faulty.iter().for_each(|forwarder| forwarder.reset(&faults));
                Ok(())
            }
            Spec::Tombolo(_) => self.flush(),
            Spec::Jool => self.flush(),
            _ => Err(self.unsuitable("there is nothing to restart")),
        }
    }

    fn sessions(&mut self) -> Option<u64> {
        match &self.spec {
            Spec::Iptables | Spec::Nftables => {
                self.node().ok()?.sysctl("net.netfilter.nf_conntrack_count").ok()?.trim().parse().ok()
            }
            Spec::Faulty(_) => self.faulty.as_ref().map(FaultyForwarder::tuples),
            _ => None,
        }
    }

    fn udp_timeout_seconds(&self) -> Option<u64> {
        match self.spec {
            Spec::Iptables | Spec::Nftables | Spec::Jool => Some(CONNTRACK_TIMEOUT_SECONDS),
            Spec::Tombolo(_) => Some(TOMBOLO_TIMEOUT_SECONDS),
            _ => None,
        }
    }

    fn place(&mut self, cores: &[usize]) -> Result<String, GatewayError> {
        self.cores = cores.to_vec();
        let threads = self.napi_threads()?;
        // A gateway in user space would never get its turn beside a real-time NAPI thread.
        let in_kernel = !matches!(self.spec, Spec::Tombolo(_) | Spec::Tayga);
        for thread in &threads {
            pin_to(*thread, cores).map_err(|e| self.system_error(format!("pin NAPI thread {thread}"), e))?;
            if in_kernel {
                // Otherwise another session's work takes half of the gateway's core (autogroup
                // scheduling).
                let _ = become_realtime(*thread, NAPI_PRIORITY);
            }
        }
        if self.faulty.is_some() {
            self.start_gateway()?;
        }
        self.pin_processes(cores)?;
        let priority = if in_kernel { "real-time" } else { "ordinary" };
        Ok(format!("threaded NAPI and the gateway's processes on {cores:?}, {priority} priority"))
    }
}

impl Laboratory {
    fn pin_processes(&self, cores: &[usize]) -> Result<(), GatewayError> {
        for thread in self.inhabitants() {
            match pin_to(thread, cores) {
                // The thread ended meanwhile.
                Err(e) if e.raw_os_error() == Some(3) => {}
                other => other.map_err(|e| self.system_error(format!("pin thread {thread}"), e))?,
            }
        }
        Ok(())
    }
}

/// Whether the gateway does the technology.
fn suits(spec: &Spec, technology: Technology) -> Result<(), GatewayError> {
    use Technology::{Forward4, Forward6, Nat44, Nat64, Siit};
    let fits = match spec {
        // Asked about connections, forwarding is the yardstick: it loses none, for it has none.
        Spec::Plain | Spec::Faulty(_) => matches!(technology, Forward4 | Forward6 | Nat44),
        Spec::Iptables | Spec::Nftables => technology == Nat44,
        Spec::Tombolo(_) => matches!(technology, Nat64 | Nat44 | Siit),
        Spec::Jool => technology == Nat64,
        Spec::Tayga | Spec::JoolSiit => technology == Siit,
        Spec::External(_) => true,
    };
    if fits {
        return Ok(());
    }
    let reason = format!("the lab cannot set it up as {technology}; measure it as external, or another gateway");
    Err(GatewayError::Unsuitable { gateway: spec.to_string(), reason })
}

/// Entries of a directory of /proc whose names are numbers.
fn numbers_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())))
}

fn threads_named(prefix: &str) -> BTreeSet<i32> {
    numbers_in(Path::new("/proc"))
        .filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(prefix)))
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect()
}
