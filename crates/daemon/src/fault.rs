//! Faults on request, for tests: a step of the start, the reload or the end that fails, a thread that
//! panics. In builds with debug assertions only; others have none of this.
//!
//! `TOMBOLO_FAULT=STEP=KIND` in the environment says which step fails how:
//!
//! | kind | the step |
//! |---|---|
//! | `error`, `enospc`, `eperm` | fails, with EIO, ENOSPC or EPERM |
//! | `kill` | is where the process is killed |
//! | `panic`, `panic-once` | panics, each time or the first time |
//! | `hang` | never ends |

use crate::error::DaemonError;

/// The steps of the start, in order. Each is named when it has been done.
pub const START: [&str; 15] = [
    "state",
    "device",
    "host",
    "link",
    "bindings",
    "workers",
    "log",
    "maintenance",
    "programs",
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
#[cfg(not(debug_assertions))]
#[expect(clippy::unnecessary_wraps, reason = "it fails in other builds")]
pub(crate) fn point(_step: &'static str) -> Result<(), DaemonError> {
    Ok(())
}

/// Does not return, or panics, if this step is to.
#[cfg(not(debug_assertions))]
pub(crate) fn trip(_step: &'static str) {}

/// Fails if this step is to fail.
///
/// # Errors
/// [`DaemonError::System`].
#[cfg(debug_assertions)]
pub(crate) fn point(step: &'static str) -> Result<(), DaemonError> {
    let number = match wanted::kind(step) {
        Some("error") => 5,
        Some("enospc") => 28,
        Some("eperm") => 1,
        _ => {
            trip(step);
            return Ok(());
        }
    };
    Err(DaemonError::System { action: step, source: std::io::Error::from_raw_os_error(number) })
}

/// Does not return, or panics, if this step is to.
#[cfg(debug_assertions)]
pub(crate) fn trip(step: &'static str) {
    match wanted::kind(step) {
        Some("kill") => std::process::abort(),
        Some("panic") => panic!("a fault was asked for at {step}"),
        Some("panic-once") if wanted::is_first() => panic!("a fault was asked for at {step}"),
        Some("hang") => loop {
            std::thread::park();
        },
        _ => {}
    }
}

#[cfg(debug_assertions)]
mod wanted {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static WANTED: OnceLock<Option<(String, String)>> = OnceLock::new();
    static DONE: AtomicBool = AtomicBool::new(false);

    /// What is to happen at this step.
    pub(super) fn kind(step: &str) -> Option<&'static str> {
        let read = || {
            let text = std::env::var("TOMBOLO_FAULT").ok()?;
            let (step, kind) = text.split_once('=')?;
            Some((step.to_owned(), kind.to_owned()))
        };
        WANTED.get_or_init(read).as_ref().filter(|(wanted, _)| wanted == step).map(|(_, kind)| kind.as_str())
    }

    pub(super) fn is_first() -> bool {
        !DONE.swap(true, Ordering::Relaxed)
    }
}
