//! What the host has to provide: table `[gateway]` of the file.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use tombolo_engine::cluster::{Holders, Node};
use tombolo_engine::mapping::slices::Slicing;

use crate::shared::SharedPool;

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
    /// What the kernel's fast path takes. Default: [`FastPath::Auto`].
    pub fastpath: FastPath,
    /// The same for single interfaces, by name: what the rule above does not fit.
    pub interfaces: BTreeMap<String, FastPath>,
    /// Which interfaces packets from inside may come in through. Default:
    /// [`InsideInterfaces::ByRoute`].
    pub inside_interfaces: InsideInterfaces,
    /// The same of single services, by name. Default: none.
    pub service_interfaces: BTreeMap<String, InsideInterfaces>,
    /// Neighbours are answered for what lies behind the gateway. Default: true.
    pub proxy_neighbours: bool,
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
    /// Who gets the log of bindings as well. Default: nobody.
    pub binding_log_collectors: Vec<Collector>,
    /// Who sets up the device. Default: the gateway.
    pub provision: Provision,
    /// IPv4 addresses of the host's own on the device: of CLATs that serve the host itself.
    /// Default: none.
    pub addresses: Vec<Ipv4Addr>,
    /// Files that keep what dynamic pools have lent, by place of the service. Default: none.
    pub lease_files: Vec<(usize, PathBuf)>,
    /// User to become once the start is complete. Default: none, it stays what it is.
    pub user: Option<String>,
    /// Only the system calls and the files that a running gateway needs are left to it. Default: true.
    pub sandbox: bool,
    /// What is logged. Default: [`LogLevel::Info`].
    pub log_level: LogLevel,
    /// In what form. Default: [`LogFormat::Auto`].
    pub log_format: LogFormat,
    /// Ports of the host's own addresses that services hand out. Default: none.
    pub shared_pools: Vec<SharedPool>,
    /// Directories of the files that the configuration names and that are read with it. Default: none.
    pub file_directories: Vec<PathBuf>,
    /// The cluster that it is a node of. Default: none.
    pub cluster: Option<Cluster>,
}

/// The cluster that a gateway is a node of: table `[cluster]` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Which of them it is.
    pub own: usize,
    /// Routing table for the routes that a routing daemon announces. Default 8464.
    pub table: u32,
    /// Prefixes that the host must have routes for. Default: none.
    pub needs: Vec<IpNet>,
    /// Bytes of the largest packet that the network between the nodes has to carry. Default 1580.
    pub core_mtu: u16,
    /// Which interfaces redirected packets may come in through. Default: [`InsideInterfaces::ByRoute`].
    pub core: InsideInterfaces,
    /// Who has the state of whom. Default: nobody, services are without state.
    pub slices: Option<Slices>,
    /// How backups get copies of it. Default: they get none.
    pub replication: Option<Replication>,
    /// Where nodes agree on who has the state of whom. Default: `slices` says it.
    pub etcd: Option<Etcd>,
}

/// Where etcd is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    /// Its members, as `https://HOST:PORT`; at least one.
    pub endpoints: Vec<String>,
    /// What the cluster of gateways is called there.
    pub name: String,
    /// Certificates of those who may certify its members, in PEM.
    pub ca: Vec<u8>,
    /// How the node shows who it is.
    pub identity: Identity,
}

/// How nodes copy their tables to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// Where each node listens, by its place among the nodes.
    pub addresses: Vec<IpAddr>,
    /// On which TCP port.
    pub port: u16,
    /// Certificates of those who may certify nodes, in PEM.
    pub ca: Vec<u8>,
    /// The node's own.
    pub identity: Identity,
}

/// The slices of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slices {
    /// How many there are, and how subscribers are spread over them.
    pub slicing: Slicing,
    /// Who has each of them.
    pub holders: Vec<Holders>,
    /// How many owners each has had.
    pub epoch: u32,
}

/// How grave something has to be to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// What ends the gateway, or a part of it.
    Error,
    /// What somebody should look into.
    Warn,
    /// What it does.
    Info,
    /// Why.
    Debug,
    /// Each step.
    Trace,
}

impl LogLevel {
    /// Its name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The form of the log, which goes to the standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// [`Journal`](Self::Journal) where that is what reads it, else [`Text`](Self::Text).
    Auto,
    /// A line of words, with the time.
    Text,
    /// A JSON object a line, with the time.
    Json,
    /// Lines that begin with their priority, as sd-daemon(3) has it; without the time, which the journal knows.
    Journal,
}

/// What the log of bindings tells of services that hand out ports in blocks or by computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDetail {
    /// Each binding, and each block.
    Bindings,
    /// Blocks alone.
    Blocks,
    /// Each session, binding and block.
    Sessions,
}

/// Who gets the log of bindings over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// In what form.
    pub format: CollectorFormat,
    /// Over what.
    pub transport: Transport,
    /// Where it is.
    pub address: SocketAddr,
    /// Over TLS: by what each side knows the other.
    pub tls: Option<Tls>,
}

/// By what a collector is known, and what it knows the gateway by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The name, or address, that its certificate is for.
    pub name: String,
    /// What makes the certificate credible.
    pub trust: Trust,
    /// What the gateway shows of itself, if anything.
    pub identity: Option<Identity>,
}

/// What makes a certificate credible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// It is signed by one of these, in PEM, and for the name that was asked for.
    Roots(Vec<u8>),
    /// It is the one with this SHA-256 (RFC 5425 section 4.2.2); its name and times do not count.
    Fingerprint([u8; 32]),
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those that have signed it.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate.len()).finish_non_exhaustive()
    }
}

impl Collector {
    /// True if both are at the same place.
    #[must_use]
    pub fn is_at(&self, other: &Self) -> bool {
        (self.format, self.transport, self.address) == (other.format, other.transport, other.address)
    }
}

impl std::fmt::Display for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let format = match self.format {
            CollectorFormat::Syslog => "syslog",
            CollectorFormat::Ipfix => "ipfix",
        };
        let transport = match self.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
        };
        write!(f, "{format}+{transport}://{}", self.address)
    }
}

/// The form in which a collector gets the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorFormat {
    /// RFC 5424.
    Syslog,
    /// RFC 7011, with the events of RFC 8158.
    Ipfix,
}

/// What a collector listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
    /// A stream in TLS (RFC 5425).
    Tls,
}

/// Which interfaces packets from inside may come in through (RFC 3704).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsideInterfaces {
    /// The one that their source is routed to.
    ByRoute,
    /// All.
    Any,
    /// These.
    Listed(Vec<String>),
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
    /// cannot, and nowhere as long as others' rules of netfilter would not see its packets.
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
            fastpath: FastPath::Auto,
            interfaces: BTreeMap::new(),
            inside_interfaces: InsideInterfaces::ByRoute,
            service_interfaces: BTreeMap::new(),
            proxy_neighbours: true,
            fastpath_netfilter: false,
            metrics: None,
            binding_log: None,
            binding_log_rate: 10_000,
            binding_log_detail: LogDetail::Bindings,
            binding_log_collectors: Vec::new(),
            provision: Provision::Gateway,
            addresses: Vec::new(),
            lease_files: Vec::new(),
            user: None,
            sandbox: true,
            log_level: LogLevel::Info,
            log_format: LogFormat::Auto,
            shared_pools: Vec::new(),
            file_directories: Vec::new(),
            cluster: None,
        }
    }
}
