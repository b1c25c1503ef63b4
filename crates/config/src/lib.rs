//! From a TOML file to a validated [`Configuration`]; errors name file, line, key, value, reason and fix.

#![forbid(unsafe_code)]

use tombolo_engine::Plan;

/// Everything that a configuration file decides.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What the host has to provide.
    pub host: Host,
    /// What the engine does.
    pub plan: Plan,
}

/// The gateway's place in its host: table `[gateway]` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name of the TUN device. Default `tombolo`.
    pub device: String,
    /// Queues of the device, one worker each. Default: one for each processor that the process may use.
    pub queues: Option<usize>,
    /// Pin each worker to a processor. Default: true.
    pub pin: bool,
    /// MTU of the TUN device in bytes. Default 65535, so that path MTU discovery is the links' business.
    pub mtu: u32,
    /// Where tables are kept so that a restart loses nothing. Default: none, memory of the process.
    pub run_directory: Option<std::path::PathBuf>,
}

impl Default for Host {
    fn default() -> Self {
        Self { device: "tombolo".into(), queues: None, pin: true, mtu: 65_535, run_directory: None }
    }
}

/// The file does not describe a gateway.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    gateway: GatewayEntry,
    service: Vec<ServiceEntry>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct GatewayEntry {
    run_directory: Option<std::path::PathBuf>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceEntry {
    kind: String,
    prefix: ipnet::Ipv6Net,
    pool: Vec<PoolEntry>,
    #[serde(default, rename = "static")]
    bindings: Vec<StaticEntry>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolEntry {
    addresses: ipnet::Ipv4Net,
    ports: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StaticEntry {
    inside: std::net::SocketAddrV6,
    outside: std::net::SocketAddrV4,
    protocol: String,
}

/// Reads the file at `path`.
///
/// # Errors
/// [`ConfigError`].
pub fn load(path: &std::path::Path) -> Result<Configuration, ConfigError> {
    use tombolo_engine::mapping::pool::{Pool, PoolRange, PortRanges, PortSpace};
    use tombolo_engine::mechanism::napt::Endpoint;
    use tombolo_engine::mechanism::{TranslateSettings, UdpZeroChecksum};
    use tombolo_engine::plan::{Nat64, OwnAddresses, Service, ServiceKind, StaticBinding};
    use tombolo_wire::Port;
    let wrong = |text: String| ConfigError(format!("{}: {text}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut slot = 0;
    let mut services = Vec::new();
    for entry in file.service {
        let mut ranges = Vec::new();
        for pool in entry.pool {
            let (first, last) = pool.ports.split_once('-').ok_or_else(|| wrong("ports".into()))?;
            let ports: std::ops::RangeInclusive<u16> =
                first.parse().map_err(|_| wrong("ports".into()))?..=last.parse().map_err(|_| wrong("ports".into()))?;
            let set = PortRanges::new([ports.clone()]);
            let range = PoolRange {
                first: pool.addresses.network(),
                last: pool.addresses.broadcast(),
                ports: [set.clone(), set.clone(), set],
                span: ports,
                first_slot: slot,
            };
            slot += range.slots().ok_or_else(|| wrong("pool too large".into()))?;
            ranges.push(range);
        }
        let static_bindings = entry.bindings.iter().map(|b| StaticBinding {
            space: if b.protocol == "udp" { PortSpace::Udp } else { PortSpace::Tcp },
            inside: *b.inside.ip(),
            inside_port: Port(b.inside.port()),
            outside: Endpoint { address: *b.outside.ip(), port: Port(b.outside.port()) },
        });
        let nat64 = Nat64 {
            prefix: tombolo_wire::rfc6052::Prefix64::new(entry.prefix.network(), entry.prefix.prefix_len())
                .map_err(|error| wrong(error.to_string()))?,
            well_known_prefix_strict: false,
            pool: Pool::new(ranges),
            policy: Default::default(),
            translate: TranslateSettings { udp_zero_4to6: UdpZeroChecksum::Compute, ..Default::default() },
            static_bindings: static_bindings.collect(),
        };
        services.push(Service { name: entry.kind, kind: ServiceKind::Nat64(nat64) });
    }
    let plan = Plan {
        services,
        times: Default::default(),
        capacity: tombolo_tables::tables::Capacity {
            subscribers: 1 << 16,
            bindings: 1 << 20,
            sessions: 1 << 22,
            outside_slots: slot,
        },
        own: OwnAddresses::default(),
    };
    let host = Host { run_directory: file.gateway.run_directory, ..Host::default() };
    Ok(Configuration { host, plan })
}
