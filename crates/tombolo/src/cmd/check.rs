//! `tombolo check`: validates a configuration and prints the plan that it becomes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tombolo_config::Configuration;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::map_domain::MapDomain;
use tombolo_engine::mapping::pool::{PoolRange, PortRanges, PortSpace};
use tombolo_engine::mechanism::SoftwireSettings;
use tombolo_engine::mechanism::napt::{Filtering, Filters, Policy};
use tombolo_engine::plan::{ServiceKind, StaticBinding};
use tombolo_engine::service::map::MapEdge;
use tombolo_engine::service::siit::{Role, Siit};

use super::print;

/// Rules that the text names; JSON has all of them.
const RULES_PRINTED: usize = 5;

/// The configuration file.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// For machines
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    device: String,
    run_directory: Option<PathBuf>,
    capacity: Capacity,
    services: Vec<Service>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Capacity {
    subscribers: u32,
    bindings: u32,
    sessions: u64,
    outside_endpoints: u32,
    megabytes_when_full: u64,
}

#[derive(Serialize)]
struct Service {
    name: String,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Kind {
    Nat64(StatefulService),
    Nat44(StatefulService),
    Siit(StatelessService),
    Clat(StatelessService),
    B4(SoftwireService),
    Aftr(SoftwireService),
    Lwb4(SoftwireService),
    Lwaftr(SoftwireService),
    #[serde(rename = "map-t")]
    MapT(MapService),
    #[serde(rename = "map-e")]
    MapE(MapService),
}

/// Either end of MAP.
#[derive(Serialize)]
struct MapService {
    role: &'static str,
    /// Where the IPv4 Internet is: a prefix of MAP-T, an address of MAP-E.
    relay: String,
    /// Of a border relay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<String>,
    /// Of a customer's edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    edge: Option<Edge>,
}

#[derive(Serialize)]
struct Edge {
    end_user_prefix: String,
    map_address: String,
    ipv4: String,
    psid: u16,
    ports: usize,
    port_ranges: usize,
    forwarding_rules: usize,
    napt: bool,
}

#[derive(Serialize)]
struct StatefulService {
    /// Of a NAT64: where the outside is seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// Of a NAT44: who is inside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inside: Vec<String>,
    pool: Vec<Pool>,
    filtering: String,
    bindings_per_subscriber: Option<u32>,
    sessions_per_subscriber: Option<u32>,
    allocation: String,
    static_bindings: Vec<String>,
}

#[derive(Serialize)]
struct StatelessService {
    prefix: Option<String>,
    explicit_mappings: usize,
    icmp_sources: Vec<String>,
}

#[derive(Serialize)]
struct SoftwireService {
    /// This end.
    addresses: Vec<String>,
    /// The other end, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    aftr: Option<String>,
    /// Where other ends may be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    b4s: Vec<String>,
    /// Hosts inside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inside: Vec<String>,
    /// Public addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ipv4: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pool: Vec<Pool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    softwires: Option<usize>,
    /// Bytes of the largest IPv4 packet that crosses in one piece.
    mtu: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    static_bindings: Vec<String>,
}

#[derive(Serialize)]
struct Pool {
    addresses: String,
    tcp: String,
    udp: String,
    icmp: String,
}

/// Validates, and prints the plan.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let report = Report::of(&tombolo_config::load(&arguments.config)?);
    if arguments.json { print::json(&report) } else { print_tables(&report) }
}

fn print_tables(report: &Report) -> anyhow::Result<()> {
    for warning in &report.warnings {
        print::line(&format!("warning: {warning}"))?;
    }
    let mut services =
        print::table(&["service", "prefix or hosts", "outside addresses", "TCP", "UDP", "ICMP", "filtering"]);
    let mut statics = Vec::new();
    let mut allocations = Vec::new();
    let mut stateless = Vec::new();
    let mut softwires = Vec::new();
    let mut map = Vec::new();
    for Service { name, kind } in &report.services {
        match kind {
            Kind::Nat64(service) | Kind::Nat44(service) => {
                let hosts = service.prefix.clone().unwrap_or_else(|| service.inside.join(", "));
                for Pool { addresses, tcp, udp, icmp } in &service.pool {
                    services.add_row([name, &hosts, addresses, tcp, udp, icmp, &service.filtering]);
                }
                allocations.push(format!("{name}: {}", service.allocation));
                statics.extend(&service.static_bindings);
            }
            Kind::Siit(service) | Kind::Clat(service) => stateless.push((name, service)),
            Kind::B4(service) | Kind::Aftr(service) | Kind::Lwb4(service) | Kind::Lwaftr(service) => {
                softwires.push((name, service));
            }
            Kind::MapT(service) | Kind::MapE(service) => map.push((name, service)),
        }
    }
    if stateless.len() + softwires.len() + map.len() < report.services.len() {
        print::line(&services.to_string())?;
    }
    for allocation in allocations {
        print::line(&allocation)?;
    }
    for binding in statics {
        print::line(&format!("static: {binding}"))?;
    }
    for (name, StatelessService { prefix, explicit_mappings, icmp_sources }) in stateless {
        let prefix = prefix.as_deref().unwrap_or("none");
        let sources = if icmp_sources.is_empty() { "the gateway".into() } else { icmp_sources.join(", ") };
        print::line(&format!(
            "{name}: {explicit_mappings} explicit mappings, prefix {prefix}; errors of routers without IPv4 address from \
             {sources}"
        ))?;
    }
    for (name, service) in softwires {
        print_softwires(name, service)?;
    }
    for (name, service) in map {
        print::line(&format!("{name}: {}", service.words()))?;
    }
    let Capacity { subscribers, bindings, sessions, outside_endpoints, megabytes_when_full } = report.capacity;
    print::line(&format!(
        "room for {subscribers} subscribers, {bindings} bindings, {sessions} sessions, {outside_endpoints} outside \
         endpoints: {megabytes_when_full} MB when full"
    ))?;
    let kept = report.run_directory.as_ref().map(|path| path.display().to_string());
    print::line(&format!("device {}, state kept in {}", report.device, kept.as_deref().unwrap_or("the process")))
}

fn print_softwires(name: &str, service: &SoftwireService) -> anyhow::Result<()> {
    let SoftwireService { addresses, aftr, b4s, inside, ipv4, pool, softwires, mtu, static_bindings } = service;
    let to = aftr.clone().unwrap_or_else(|| match softwires {
        Some(count) => format!("{count} softwires"),
        None => b4s.join(", "),
    });
    print::line(&format!("{name}: from {} to {to}; IPv4 packets of up to {mtu} bytes whole", addresses.join(", ")))?;
    let lists = [("hosts", inside), ("public addresses", ipv4), ("static", static_bindings)];
    for (what, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        print::line(&format!("  {what}: {}", list.join(", ")))?;
    }
    for Pool { addresses, tcp, .. } in pool {
        print::line(&format!("  pool: {addresses}, TCP ports {tcp}"))?;
    }
    Ok(())
}

impl Report {
    fn of(configuration: &Configuration) -> Self {
        let capacity = configuration.plan.capacity;
        // One line each, and their indexes at a load of 70 %; sessions as in
        // `tombolo_tables::session`.
        let bytes = (u64::from(capacity.subscribers) + u64::from(capacity.bindings)) * (64 + 12)
            + capacity.sessions * 21
            + u64::from(capacity.outside_slots) * 4;
        Self {
            device: configuration.host.device.clone(),
            run_directory: configuration.host.run_directory.clone(),
            capacity: Capacity {
                subscribers: capacity.subscribers,
                bindings: capacity.bindings,
                sessions: capacity.sessions,
                outside_endpoints: capacity.outside_slots,
                megabytes_when_full: bytes.div_ceil(1_000_000),
            },
            services: configuration.plan.services.iter().map(Service::of).collect(),
            warnings: configuration.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Service {
    fn of(service: &tombolo_engine::plan::Service) -> Self {
        let kind = match &service.kind {
            ServiceKind::Nat64(nat64) => Kind::Nat64(StatefulService {
                prefix: Some(nat64.prefix.to_string()),
                ..StatefulService::of(&nat64.pool, &nat64.policy, &nat64.static_bindings)
            }),
            ServiceKind::Nat44(nat44) => Kind::Nat44(StatefulService {
                inside: nat44.inside.ranges().iter().map(|range| addresses(*range.start(), *range.end())).collect(),
                ..StatefulService::of(&nat44.pool, &nat44.policy, &nat44.static_bindings)
            }),
            ServiceKind::Siit(siit) if siit.role == Role::Clat => Kind::Clat(StatelessService::of(siit)),
            ServiceKind::Siit(siit) => Kind::Siit(StatelessService::of(siit)),
            ServiceKind::B4(b4) => Kind::B4(SoftwireService {
                aftr: Some(b4.ends.remote.to_string()),
                inside: ranges(&b4.inside),
                ..SoftwireService::of(&[b4.ends.local], &b4.softwire)
            }),
            ServiceKind::Aftr(aftr) => Kind::Aftr(SoftwireService {
                b4s: aftr.b4s.iter().map(ToString::to_string).collect(),
                inside: ranges(&aftr.inside),
                pool: aftr.pool.ranges().iter().map(Pool::of).collect(),
                ..SoftwireService::of(&[aftr.address], &aftr.softwire)
            }),
            ServiceKind::Lwb4(lwb4) => Kind::Lwb4(SoftwireService {
                aftr: Some(lwb4.ends.remote.to_string()),
                inside: ranges(&lwb4.inside),
                pool: lwb4.pool.ranges().iter().map(Pool::of).collect(),
                static_bindings: static_bindings(&lwb4.static_bindings),
                ..SoftwireService::of(&[lwb4.ends.local], &lwb4.softwire)
            }),
            ServiceKind::Lwaftr(lwaftr) => Kind::Lwaftr(SoftwireService {
                ipv4: ranges(&lwaftr.ipv4),
                softwires: Some(lwaftr.table.len()),
                ..SoftwireService::of(&lwaftr.addresses, &lwaftr.softwire)
            }),
            ServiceKind::MapTBr(br) => Kind::MapT(MapService::relay(&br.domain, br.dmr.to_string())),
            ServiceKind::MapTCe(ce) => Kind::MapT(MapService::edge(&ce.edge, ce.dmr.to_string())),
            ServiceKind::MapEBr(br) => Kind::MapE(MapService::relay(&br.domain, br.address.to_string())),
            ServiceKind::MapECe(ce) => Kind::MapE(MapService::edge(&ce.edge, ce.relay.to_string())),
        };
        Self { name: service.name.clone(), kind }
    }
}

impl StatefulService {
    fn of(pool: &tombolo_engine::mapping::pool::Pool, policy: &Policy, bindings: &[StaticBinding]) -> Self {
        Self {
            prefix: None,
            inside: Vec::new(),
            pool: pool.ranges().iter().map(Pool::of).collect(),
            filtering: filtering(policy.filtering),
            bindings_per_subscriber: policy.bindings_per_subscriber,
            sessions_per_subscriber: policy.sessions_per_subscriber,
            allocation: allocation(pool.allocation()),
            static_bindings: static_bindings(bindings),
        }
    }
}

/// In one word, or protocol by protocol where they differ.
fn filtering(filters: Filters) -> String {
    let word = |filtering| match filtering {
        Filtering::EndpointIndependent => "endpoint-independent",
        Filtering::AddressDependent => "address-dependent",
    };
    match filters.common() {
        Some(filtering) => word(filtering).to_owned(),
        None => {
            let of = |(name, space)| format!("{name}: {}", word(filters.of(space)));
            [("tcp", PortSpace::Tcp), ("udp", PortSpace::Udp), ("icmp", PortSpace::Icmp)].map(of).join(", ")
        }
    }
}

fn allocation(allocation: &Allocation) -> String {
    match allocation {
        Allocation::Ports => "port by port".into(),
        Allocation::Blocks(blocks) => format!("blocks of {} ports, up to {} each", blocks.size, blocks.most),
        Allocation::Deterministic(shares) => {
            let dynamic = match shares.dynamic_ports() {
                Some((first, last)) => format!("ports {first}-{last}"),
                None => "none".into(),
            };
            format!("deterministic, {} ports each; dynamic pool: {dynamic}", shares.ports_per_host())
        }
    }
}

impl SoftwireService {
    fn of(addresses: &[Ipv6Addr], softwire: &SoftwireSettings) -> Self {
        Self {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            aftr: None,
            b4s: Vec::new(),
            inside: Vec::new(),
            ipv4: Vec::new(),
            pool: Vec::new(),
            softwires: None,
            mtu: softwire.mtu(),
            static_bindings: Vec::new(),
        }
    }
}

fn ranges(ranges: &AddressRanges) -> Vec<String> {
    ranges.ranges().iter().map(|range| addresses(*range.start(), *range.end())).collect()
}

impl MapService {
    fn relay(domain: &MapDomain, relay: String) -> Self {
        let rules = domain.rules().iter().map(ToString::to_string).collect();
        Self { role: "br", relay, rules, edge: None }
    }

    fn edge(edge: &MapEdge, relay: String) -> Self {
        let ce = &edge.ce;
        let edge = Edge {
            end_user_prefix: ce.end_user_prefix().to_string(),
            map_address: ce.address().to_string(),
            ipv4: ce.ipv4().to_string(),
            psid: ce.share().psid,
            ports: ce.ports().map(|range| range.len()).sum(),
            port_ranges: ce.ports().count(),
            forwarding_rules: edge.mesh.rules().len(),
            napt: edge.napt.is_some(),
        };
        Self { role: "ce", relay, rules: Vec::new(), edge: Some(edge) }
    }

    fn words(&self) -> String {
        let Some(edge) = &self.edge else {
            let rules: Vec<_> = self.rules.iter().take(RULES_PRINTED).map(String::as_str).collect();
            let more = if self.rules.len() > RULES_PRINTED { "; ..." } else { "" };
            let count = self.rules.len();
            return format!("border relay at {}, {count} rules: {}{more}", self.relay, rules.join("; "));
        };
        let napt = if edge.napt { "NAPT" } else { "no NAPT" };
        format!(
            "edge {} with {}, PSID {:#x}, {} ports in {} ranges, {napt}; relay at {}, {} forwarding rules",
            edge.map_address, edge.ipv4, edge.psid, edge.ports, edge.port_ranges, self.relay, edge.forwarding_rules
        )
    }
}

impl StatelessService {
    fn of(siit: &Siit) -> Self {
        Self {
            prefix: match siit.mapping.prefix {
                None if siit.awaits_prefix() => Some("auto".into()),
                prefix => prefix.map(|prefix| prefix.to_string()),
            },
            explicit_mappings: siit.mapping.explicit.rows().len(),
            icmp_sources: siit.error_sources.ranges().iter().map(|(first, last)| addresses(*first, *last)).collect(),
        }
    }
}

fn addresses(first: Ipv4Addr, last: Ipv4Addr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

impl Pool {
    fn of(range: &PoolRange) -> Self {
        let ports = |space: PortSpace| port_list(&range.ports[space as usize]);
        let addresses = addresses(range.first, range.last);
        Self { addresses, tcp: ports(PortSpace::Tcp), udp: ports(PortSpace::Udp), icmp: ports(PortSpace::Icmp) }
    }
}

fn port_list(ports: &PortRanges) -> String {
    let ranges: Vec<_> = ports.ranges().iter().map(|range| format!("{}-{}", range.start(), range.end())).collect();
    if ranges.is_empty() { "none".into() } else { ranges.join(",") }
}

fn static_bindings(bindings: &[StaticBinding]) -> Vec<String> {
    let lines = bindings.iter().map(|binding| {
        let protocol = match binding.space {
            PortSpace::Tcp => "tcp",
            PortSpace::Udp => "udp",
            PortSpace::Icmp => "icmp",
        };
        let (inside, outside) = (SocketAddr::new(binding.inside, binding.inside_port.0), binding.outside);
        format!("{protocol} {inside} = {}:{}", outside.address, outside.port.0)
    });
    lines.collect()
}
