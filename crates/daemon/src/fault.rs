//! Steps at which faults can be asked for ([`tombolo_io::fault`] says how).

use crate::error::DaemonError;

/// The steps of the start, in order. Each is named when it has been done.
pub const START: [&str; 16] = [
    "state",
    "device",
    "host",
    "link",
    "bindings",
    "workers",
    "log",
    "maintenance",
    "programs",
    "guard",
    "routes",
    "watch",
    "listeners",
    "leases",
    "leftovers",
    "attach",
];

/// The steps of the end, in order.
pub const END: [&str; 4] = ["end-listeners", "end-programs", "end-host", "end-threads"];

/// Fails if this step is to fail.
///
/// # Errors
/// [`DaemonError::System`].
pub(crate) fn point(step: &'static str) -> Result<(), DaemonError> {
    tombolo_io::fault::check(step).map_err(|source| DaemonError::System { action: step, source })
}
