//! Steps at which faults can be asked for ([`tombolo_io::fault`] says how).

use crate::error::DaemonError;

/// The steps of the start, in order. Each is named when it has been done.
pub const START: [&str; 17] = [
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
    "sandbox",
];

/// The steps of a start that finds tables which fit, in order.
pub const ADOPTION: [&str; 2] = ["adopt", "repair"];

/// The steps of a start that finds tables which do not fit, in order: those before the first packet,
/// which may fail, and those after, at which the gateway runs on.
pub const MIGRATION: [&str; 9] = [
    "set-aside",
    "set-aside-tables",
    "set-aside-all",
    "carry-over",
    "old-programs",
    "carry-over-last",
    "seal",
    "sealed",
    "complete",
];

/// The step of a start that finds tables in files and wants them in the kernel, or the reverse.
pub const ELSEWHERE: &str = "elsewhere";

/// The steps of a reload, in order.
pub const RELOAD: [&str; 9] = [
    "reload-read",
    "reload-host",
    "reload-bindings",
    "reload-programs",
    "reload-prepared",
    "reload-stored",
    "reload-link",
    "reload-exchanged",
    "reload-settled",
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
