//! From a TOML file to a validated [`Configuration`].
//!
//! A file is read in this order: `document` parses it and keeps where everything stands; `gateway`,
//! `timeouts` and `service` turn its tables into the plan; [`mod@reference`] lists every key there
//! is, for the check for unknown keys and for the documentation. All mistakes of a file are
//! reported at once, each with file, line, key, value, reason and fix:
//!
//! ```text
//! gateway.toml:7: service[0].pool[1].addresses = "192.0.2.8/29": overlaps pool[0] (192.0.2.0/28); remove one of them
//! ```

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use tombolo_engine::Plan;

mod document;
mod gateway;
mod map;
mod nat44;
mod pool;
mod problem;
pub mod reference;
mod service;
mod softwire;
mod stateful;
mod stateless;
pub mod tayga;
mod timeouts;
mod translation;
mod value;

pub use problem::{ConfigError, Problem};

/// Everything that a configuration file decides.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What the host has to provide.
    pub host: Host,
    /// What the engine does.
    pub plan: Plan,
    /// What is legal, but against the advice of an RFC.
    pub warnings: Vec<Problem>,
}

/// The gateway's place in its host: table `[gateway]` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name of the TUN device. Default `tombolo`.
    pub device: String,
    /// Queues of the device, one worker each. Default: one for each processor that the process may
    /// use.
    pub queues: Option<usize>,
    /// Pin each worker to a processor. Default: true.
    pub pin: bool,
    /// MTU of the TUN device in bytes. Default 65535, so that path MTU discovery is the links'
    /// business.
    pub mtu: u32,
    /// Where tables are kept so that a restart loses nothing. Default: none, memory of the process.
    pub run_directory: Option<PathBuf>,
    /// When the tables' memory is taken. Default: as they fill.
    pub memory: TableMemory,
    /// Routing table for packets from IPv4 hosts inside. Default 84.
    pub table: u32,
    /// What the kernel's fast path takes. Default: [`FastPath::Off`].
    pub fastpath: FastPath,
    /// The same for single interfaces, by name: what the rule above does not fit.
    pub interfaces: BTreeMap<String, FastPath>,
    /// Packets that the fast path has translated pass the kernel's stack, netfilter included.
    /// Default: false.
    pub fastpath_netfilter: bool,
    /// Where metrics are served. Default: nowhere.
    pub metrics: Option<MetricsAddress>,
    /// File to which bindings are logged. Default: none.
    pub binding_log: Option<PathBuf>,
    /// Bindings written to that file in a second, at most. Default 10000.
    pub binding_log_rate: u32,
    /// What is logged of services that hand out ports in blocks or by computation. Default: each
    /// binding.
    pub binding_log_detail: LogDetail,
    /// Who sets up the device. Default: the gateway.
    pub provision: Provision,
    /// IPv4 addresses of the host's own on the device: of CLATs that serve the host itself.
    /// Default: none.
    pub addresses: Vec<Ipv4Addr>,
    /// Files that keep what dynamic pools have lent, by place of the service. Default: none.
    pub lease_files: Vec<(usize, PathBuf)>,
}

/// What the log of bindings tells of services that hand out ports in blocks or by computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDetail {
    /// Each binding, and each block.
    Bindings,
    /// Blocks alone.
    Blocks,
}

/// When the tables' memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableMemory {
    /// Page by page, as they fill.
    AsNeeded,
    /// All of it before the first packet.
    AtStart,
}

/// Where the kernel's fast path takes packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastPath {
    /// XDP and TC on cards, TC on virtual interfaces; nowhere, with a warning, where the kernel
    /// cannot.
    Auto,
    /// XDP, with TC behind it.
    Xdp,
    /// TC only.
    Tc,
    /// Nowhere.
    Off,
}

/// Where metrics are served over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Who sets up the device, and routes packets to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Provision {
    /// The gateway makes the device and routes what its services need to it.
    #[default]
    Gateway,
    /// The administrator, as with Tayga: a device of that name is taken over, and only what is
    /// listed is done.
    Administrator {
        /// Set the device up.
        up: bool,
        /// Addresses that the device gets.
        addresses: Vec<IpNet>,
        /// Prefixes that are routed to it.
        routes: Vec<IpNet>,
    },
}

impl Default for Host {
    fn default() -> Self {
        Self {
            device: "tombolo".into(),
            queues: None,
            pin: true,
            mtu: 65_535,
            run_directory: None,
            memory: TableMemory::AsNeeded,
            table: 84,
            fastpath: FastPath::Off,
            interfaces: BTreeMap::new(),
            fastpath_netfilter: false,
            metrics: None,
            binding_log: None,
            binding_log_rate: 10_000,
            binding_log_detail: LogDetail::Bindings,
            provision: Provision::Gateway,
            addresses: Vec::new(),
            lease_files: Vec::new(),
        }
    }
}

/// Reads and validates the file at `path`.
///
/// # Errors
/// [`ConfigError`], with everything that is wrong with the file.
pub fn load(path: &Path) -> Result<Configuration, ConfigError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| ConfigError::unreadable(&name, &error))?;
    match String::from_utf8(bytes) {
        Ok(text) => parse(&name, &text),
        Err(error) => Err(ConfigError::not_utf8(&name, error.as_bytes(), error.utf8_error().valid_up_to())),
    }
}

/// Validates the text of a file that is called `name` in errors.
///
/// # Errors
/// [`ConfigError`], with everything that is wrong with the text.
pub fn parse(name: &str, text: &str) -> Result<Configuration, ConfigError> {
    let tree = document::parse(name, text)?;
    let mut log = problem::Log::default();
    let file = document::root(name, text, &tree, &mut log);
    let (mut host, own) = gateway::read(&file, &mut log);
    let times = timeouts::read(&file, &mut log);
    let service::Services { services, host_addresses, lease_files } = service::read_all(&file, &mut log);
    host.addresses = host_addresses;
    host.lease_files = lease_files;
    let (capacity, memory) = gateway::read_capacity(&file, service::slots(&services), host.memory, &mut log);
    host.memory = memory;
    let warnings = log.finish()?;
    Ok(Configuration { host, plan: Plan { services, times, capacity, own }, warnings })
}
