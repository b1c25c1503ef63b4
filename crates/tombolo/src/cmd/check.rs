//! `tombolo check`: validates a configuration and prints the plan that it becomes.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tombolo_config::Configuration;
use tombolo_engine::mapping::pool::{PoolRange, PortRanges, PortSpace};
use tombolo_engine::mechanism::napt::Filtering;
use tombolo_engine::plan::{Nat64, ServiceKind};

use super::print;

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
    prefix: String,
    pool: Vec<Pool>,
    filtering: &'static str,
    bindings_per_subscriber: Option<u32>,
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
    let mut services = print::table(&["service", "prefix", "outside addresses", "TCP", "UDP", "ICMP", "filtering"]);
    for service in &report.services {
        for pool in &service.pool {
            let filtering = service.filtering;
            services.add_row([
                &service.name,
                &service.prefix,
                &pool.addresses,
                &pool.tcp,
                &pool.udp,
                &pool.icmp,
                filtering,
            ]);
        }
    }
    print::line(&services.to_string())?;
    let bindings = report.services.iter().flat_map(|service| &service.static_bindings);
    for binding in bindings {
        print::line(&format!("static: {binding}"))?;
    }
    let Capacity { subscribers, bindings, sessions, outside_endpoints, megabytes_when_full } = report.capacity;
    print::line(&format!(
        "room for {subscribers} subscribers, {bindings} bindings, {sessions} sessions, {outside_endpoints} outside \
         endpoints: {megabytes_when_full} MB when full"
    ))?;
    let kept = report.run_directory.as_ref().map(|path| path.display().to_string());
    print::line(&format!("device {}, state kept in {}", report.device, kept.as_deref().unwrap_or("the process")))
}

impl Report {
    fn of(configuration: &Configuration) -> Self {
        let capacity = configuration.plan.capacity;
        // One line each, and their indexes at a load of 70 %; sessions as in `tombolo_tables::session`.
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
        let ServiceKind::Nat64(nat64) = &service.kind;
        Self {
            name: service.name.clone(),
            prefix: nat64.prefix.to_string(),
            pool: nat64.pool.ranges().iter().map(Pool::of).collect(),
            filtering: match nat64.policy.filtering {
                Filtering::EndpointIndependent => "endpoint-independent",
                Filtering::AddressDependent => "address-dependent",
            },
            bindings_per_subscriber: nat64.policy.bindings_per_subscriber,
            static_bindings: static_bindings(nat64),
        }
    }
}

impl Pool {
    fn of(range: &PoolRange) -> Self {
        let ports = |space: PortSpace| port_list(&range.ports[space as usize]);
        let addresses =
            if range.first == range.last { range.first.to_string() } else { format!("{}-{}", range.first, range.last) };
        Self { addresses, tcp: ports(PortSpace::Tcp), udp: ports(PortSpace::Udp), icmp: ports(PortSpace::Icmp) }
    }
}

fn port_list(ports: &PortRanges) -> String {
    let ranges: Vec<_> = ports.ranges().iter().map(|range| format!("{}-{}", range.start(), range.end())).collect();
    if ranges.is_empty() { "none".into() } else { ranges.join(",") }
}

fn static_bindings(nat64: &Nat64) -> Vec<String> {
    let lines = nat64.static_bindings.iter().map(|binding| {
        let protocol = match binding.space {
            PortSpace::Tcp => "tcp",
            PortSpace::Udp => "udp",
            PortSpace::Icmp => "icmp",
        };
        let (inside, outside) = (binding.inside, binding.outside);
        format!("{protocol} [{inside}]:{} = {}:{}", binding.inside_port.0, outside.address, outside.port.0)
    });
    lines.collect()
}
