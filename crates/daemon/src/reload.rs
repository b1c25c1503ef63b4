//! What may change while packets flow: timeouts, filtering, limits, translation settings, static
//! bindings. What the layout of the tables or the host's routes depend on takes a restart.

use std::path::Path;
use std::sync::Arc;

use tombolo_config::{ConfigError, Configuration, Host, LogLevel};
use tombolo_engine::Plan;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::Pool;
use tombolo_engine::plan::{Routed, ServiceKind};

/// Why a plan cannot take the place of another.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What the file leaves to the network.
    #[error(transparent)]
    Discovery(#[from] crate::discovery::DiscoveryError),
    /// A part that cannot change at run time.
    #[error("{0} changed, which takes a restart of the gateway")]
    NeedsRestart(&'static str),
    /// A step.
    #[error("the file was read, and nothing was changed")]
    Step(#[source] std::io::Error),
    /// There is nothing that could be read again.
    #[error("there is no map-file to be read again")]
    Nothing,
}

/// The plan of the file at `path`, if it can take the place of `current`, and what is logged from then on.
///
/// # Errors
/// [`ReloadError`].
pub fn plan(path: &Path, host: &Host, current: &Plan) -> Result<(Plan, LogLevel), ReloadError> {
    let Configuration { host: mut new_host, mut plan, warnings } = tombolo_config::load(path)?;
    let log_level = std::mem::replace(&mut new_host.log_level, host.log_level);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    crate::discovery::complete(&mut plan, crate::discovery::advertised, tombolo_io::resolver::ipv6_addresses)?;
    let fixed = [
        (new_host.file_directories != host.file_directories, "the directory of a file that it names"),
        (new_host != *host, "[gateway]"),
        (plan.capacity != current.capacity, "[capacity], or the size of the pools,"),
        (!plan.ranges().eq(current.ranges()), "a pool"),
        (!allocations(&plan).eq(allocations(current)), "the allocation of ports"),
        (!routed(&plan).eq(routed(current)), "a prefix, or the list of services,"),
        (!names(&plan).eq(names(current)), "the name of a service"),
    ];
    if let Some((_, what)) = fixed.into_iter().find(|(changed, _)| *changed) {
        return Err(ReloadError::NeedsRestart(what));
    }
    keep_lent(&mut plan, current);
    plan.own.ipv4 = plan.own.ipv4.or(current.own.ipv4);
    plan.own.ipv6 = plan.own.ipv6.or(current.own.ipv6);
    Ok((plan, log_level))
}

/// The new plan goes on lending from the pools of the old one, which know what is lent.
fn keep_lent(plan: &mut Plan, current: &Plan) {
    for (new, old) in plan.services.iter_mut().zip(&current.services) {
        if let (ServiceKind::Siit(new), ServiceKind::Siit(old)) = (&mut new.kind, &old.kind)
            && let (Some(pool), Some(lending)) = (&new.dynamic, &old.dynamic)
            && pool.addresses() == lending.addresses()
        {
            new.dynamic = Some(Arc::clone(lending));
        }
    }
}

/// In which portions ports are handed out: blocks and shares that subscribers have mean nothing in
/// other portions.
fn allocations(plan: &Plan) -> impl Iterator<Item = &Allocation> {
    plan.services.iter().filter_map(|service| service.kind.pool()).map(Pool::allocation)
}

/// What is routed to the device, service by service.
fn routed(plan: &Plan) -> impl Iterator<Item = Routed> + '_ {
    plan.services.iter().map(|service| service.kind.routed())
}

/// By which the next process knows whose the state is.
fn names(plan: &Plan) -> impl Iterator<Item = &str> {
    plan.services.iter().map(|service| service.name.as_str())
}
