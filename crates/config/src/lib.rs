//! From a TOML file to a validated [`Configuration`].
//!
//! A file is read in this order: `document` parses it and keeps where everything stands; `gateway`,
//! `timeouts`, `service` and `cluster` turn its tables into the plan; [`difference`] compares two readings; [`mod@reference`] lists every key there
//! is, for the check for unknown keys and for the documentation. All mistakes of a file are
//! reported at once, each with file, line, key, value, reason and fix:
//!
//! ```text
//! gateway.toml:7: service[0].pool[1].addresses = "192.0.2.8/29": overlaps pool[0] (192.0.2.0/28); remove one of them
//! ```

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_engine::cluster::Holders;
use tombolo_engine::mapping::slices::Slicing;
use tombolo_engine::mechanism::napt::Sessions;
use tombolo_engine::{Plan, layout};

mod assigned;
mod capacity;
mod cluster;
mod collectors;
pub mod difference;
mod document;
mod etcd;
mod gateway;
mod host;
mod loops;
mod map;
mod nat44;
mod nat64;
mod networks;
mod pcp;
mod pool;
mod problem;
pub mod reference;
mod relay;
mod replication;
mod service;
mod shared;
mod shared_pool;
mod slices;
mod softwire;
mod stateful;
mod stateless;
pub mod tayga;
mod timeouts;
mod translation;
mod value;

pub use capacity::addresses_to_come;
pub use difference::{Change, Wording};
pub use host::{
    Cluster, Collector, CollectorFormat, Etcd, FastPath, Host, Identity, InsideInterfaces, LogDetail, LogFormat,
    LogLevel, MetricsAddress, Provision, Replication, Slices, TableMemory, Tls, Transport, Trust,
};
pub use problem::{ConfigError, Problem};
pub use shared::{Interface, SharedPool};
pub use softwire::check_far_end;

/// Everything that a configuration file decides.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What the host has to provide.
    pub host: Host,
    /// What the engine does.
    pub plan: Plan,
    /// What is legal, but against the advice of an RFC.
    pub warnings: Vec<Problem>,
    /// What the file says, to be compared with another reading.
    pub wording: Wording,
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

impl Configuration {
    /// Divides the pools into slices, of which nobody is known to have any: etcd says how many there are, and who.
    ///
    /// # Errors
    /// [`ConfigError`]: pools that cannot be divided so.
    pub fn divide(&mut self, file: &Path, slicing: Slicing) -> Result<(), ConfigError> {
        let Some(cluster) = &mut self.host.cluster else { return Ok(()) };
        let faults: Vec<String> =
            self.plan.services.iter_mut().flat_map(|service| slices::divide_service(service, slicing)).collect();
        let holders = vec![Holders { owner: Holders::NOBODY, backup: None }; slicing.count().into()];
        cluster.slices = Some(Slices { slicing, holders, epoch: 0 });
        self.plan.cluster = cluster::of_engine(cluster).map(Arc::new);
        ConfigError::of_file(&file.display().to_string(), faults).map_or(Ok(()), Err)
    }
}

/// Validates the text of a file that is called `name` in errors.
///
/// # Errors
/// [`ConfigError`], with everything that is wrong with the text.
pub fn parse(name: &str, text: &str) -> Result<Configuration, ConfigError> {
    let tree = document::parse(name, text)?;
    let mut log = problem::Log::default();
    let file = document::root((name, text), &tree, &reference::FILE, &mut log);
    let (mut host, own) = gateway::read(&file, &mut log);
    let times = timeouts::read(&file, &mut log);
    let service::Services { mut services, host_addresses, lease_files, shared_pools, interfaces } =
        service::read_all(&file, &own, &mut log);
    host.addresses = host_addresses;
    host.lease_files = lease_files;
    host.service_interfaces = interfaces;
    let of_pools = service::of_pools(&services).and(shared_pools.iter().map(SharedPool::slots).sum());
    let (mut capacity, memory) = capacity::read(&file, of_pools, host.memory, &mut log);
    if !shared_pools.is_empty() {
        capacity.outside_slots = layout::with_room(capacity.outside_slots, addresses_to_come());
    }
    host.shared_pools = shared_pools;
    host.memory = memory;
    let pcp = pcp::addresses(&file, &services, &mut log);
    host.cluster = cluster::read(&file, &mut services, &host.shared_pools, &mut log);
    let files = log.take_files();
    host.file_directories = directories(files.keys());
    let warnings = log.finish()?;
    let cluster = host.cluster.as_ref().and_then(cluster::of_engine).map(Arc::new);
    let rows = Plan::rows_of(&services);
    let has_copies = cluster.as_deref().is_some_and(|cluster| cluster.has_copies());
    let times = if has_copies { times.with_copies() } else { times };
    let mut plan = Plan { rows, services, retired: Vec::new(), times, capacity, own, pcp, cluster };
    if host.binding_log.is_some() && host.binding_log_detail == LogDetail::Sessions {
        keep_sessions(&mut plan);
    }
    Ok(Configuration { host, plan, warnings, wording: Wording::of(text, files) })
}

/// What is to be logged has to be there.
fn keep_sessions(plan: &mut Plan) {
    for nat in plan.services.iter_mut().filter_map(|service| service.kind.nat_mut()) {
        nat.policy.sessions = Sessions::Kept;
    }
}

/// The directories of files, each once.
fn directories<'f>(files: impl Iterator<Item = &'f PathBuf>) -> Vec<PathBuf> {
    let directory = |file: &'f PathBuf| file.parent().filter(|path| !path.as_os_str().is_empty());
    let all: BTreeSet<&Path> = files.map(|file| directory(file).unwrap_or(Path::new("."))).collect();
    all.into_iter().map(Path::to_owned).collect()
}
