//! The gateway as Tayga's configuration describes it: the device is the administrator's, and SIGHUP
//! reads the `map-file` again.

use std::sync::Arc;

use tombolo_config::Configuration;
use tombolo_config::tayga::{LogOption, Tayga};
use tombolo_engine::Plan;
use tombolo_engine::plan::ServiceKind;
use tombolo_io::tun::{ExistingDevice, KernelEntry, Persistence, Tun, TunConfig};

use crate::error::DaemonError;
use crate::gateway::serve;
use crate::lease_files::Report;
use crate::reload::{Next, ReloadError};
use crate::running::Source;

/// An MTU to begin with; that of the device takes its place.
const MTU: u32 = 1500;

/// Runs the gateway that `tayga` describes until SIGINT or SIGTERM. `prepared` is called when
/// everything that takes privileges has been done.
///
/// # Errors
/// [`DaemonError`].
pub fn run(tayga: &Tayga, prepared: impl FnOnce() -> Result<(), DaemonError>) -> Result<(), DaemonError> {
    let loaded = tayga.load_map_file()?;
    let configuration = tayga.configuration(&loaded, tayga.make_dynamic_pool(), MTU)?;
    let has = |option| tayga.log.contains(&option);
    let report = Report {
        assignments: has(LogOption::Dynamic),
        drops: has(LogOption::Drop) || has(LogOption::Reject) || has(LogOption::Icmp),
    };
    let again = tayga.clone();
    let read = move |current: &Plan, _| read(&again, current);
    let path = tayga.map_file.clone().unwrap_or_default();
    let source = Source { path, read: Box::new(read), set_log_level: Box::new(|_| ()), mtu: None };
    serve(configuration, source, &report, prepared)
}

fn read(tayga: &Tayga, current: &Plan) -> Result<Next, ReloadError> {
    if tayga.map_file.is_none() {
        return Err(ReloadError::Nothing);
    }
    let dynamic = current.services.iter().find_map(|service| match &service.kind {
        ServiceKind::Siit(siit) => siit.dynamic.as_ref().map(Arc::clone),
        _ => None,
    });
    let Configuration { host: settings, plan, warnings, wording } =
        tayga.configuration(&tayga.load_map_file()?, dynamic, MTU)?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    Ok(Next { plan, settings, wording })
}

/// Makes the device of `tayga` persistent, or ends that: `--mktun` and `--rmtun`.
///
/// # Errors
/// [`DaemonError::Tun`].
pub fn set_persistent(tayga: &Tayga, persistence: Persistence) -> Result<(), DaemonError> {
    let config = TunConfig {
        name: tayga.device.clone(),
        queues: 1,
        existing: ExistingDevice::Adopt,
        entry: KernelEntry::Direct,
    };
    Ok(Tun::create(&config)?.set_persistent(persistence)?)
}
