//! What may change while packets flow: timeouts, filtering, limits, translation settings, static bindings. What the
//! layout of the tables or the host's routes depend on takes a restart.

use std::path::Path;

use tombolo_config::{ConfigError, Configuration, Host};
use tombolo_engine::Plan;
use tombolo_engine::plan::Routed;

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
}

/// The plan of the file at `path`, if it can take the place of `current`.
///
/// # Errors
/// [`ReloadError`].
pub fn plan(path: &Path, host: &Host, current: &Plan) -> Result<Plan, ReloadError> {
    let Configuration { host: new_host, mut plan, warnings } = tombolo_config::load(path)?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    crate::discovery::complete(&mut plan, tombolo_io::resolver::ipv6_addresses)?;
    let fixed = [
        (new_host != *host, "[gateway]"),
        (plan.capacity != current.capacity, "[capacity], or the size of the pools,"),
        (!plan.ranges().eq(current.ranges()), "a pool"),
        (!routed(&plan).eq(routed(current)), "a prefix, or the list of services,"),
    ];
    if let Some((_, what)) = fixed.into_iter().find(|(changed, _)| *changed) {
        return Err(ReloadError::NeedsRestart(what));
    }
    plan.own.ipv4 = plan.own.ipv4.or(current.own.ipv4);
    plan.own.ipv6 = plan.own.ipv6.or(current.own.ipv6);
    Ok(plan)
}

/// What is routed to the device, service by service.
fn routed(plan: &Plan) -> impl Iterator<Item = Routed> + '_ {
    plan.services.iter().map(|service| service.kind.routed())
}
