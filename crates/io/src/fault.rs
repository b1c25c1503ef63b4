//! Faults on request, for tests: a step that fails, a process that dies at it. In builds with debug
//! assertions only; others have none of this.
//!
//! `TOMBOLO_FAULT=STEP=KIND` in the environment says which step fails how:
//!
//! | kind | the step |
//! |---|---|
//! | `error`, `enospc`, `eperm` | fails, with EIO, ENOSPC or EPERM |
//! | `kill` | is where the process is killed |
//! | `panic`, `panic-once` | panics, each time or the first time |
//! | `hang` | never ends |
//! | `late` | takes half a second, each time |
//! | `forbidden` | tries what a gateway may not do, once it has given up its privileges, and says what came of it |

use std::io;

#[cfg(debug_assertions)]
use crate::privileges::{forbidden, is_restricted};

/// Fails if this step is to fail.
///
/// # Errors
/// The one that was asked for.
#[cfg(not(debug_assertions))]
#[expect(clippy::unnecessary_wraps, reason = "it fails in other builds")]
#[inline]
pub fn check(_step: &str) -> io::Result<()> {
    Ok(())
}

/// Does not return, or panics, if this step is to.
#[cfg(not(debug_assertions))]
#[inline]
pub fn trip(_step: &str) {}

/// Fails if this step is to fail.
///
/// # Errors
/// The one that was asked for.
#[cfg(debug_assertions)]
pub fn check(step: &str) -> io::Result<()> {
    match wanted::kind(step) {
        Some("error") => Err(io::Error::from_raw_os_error(libc::EIO)),
        Some("enospc") => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        Some("eperm") => Err(io::Error::from_raw_os_error(libc::EPERM)),
        _ => {
            trip(step);
            Ok(())
        }
    }
}

/// Does not return, or panics, if this step is to.
#[cfg(debug_assertions)]
pub fn trip(step: &str) {
    match wanted::kind(step) {
        Some("kill") => std::process::abort(),
        Some("panic") => panic!("a fault was asked for at {step}"),
        Some("panic-once") if wanted::is_first() => panic!("a fault was asked for at {step}"),
        Some("hang") => loop {
            std::thread::park();
        },
        Some("late") => std::thread::sleep(std::time::Duration::from_millis(500)),
        Some("forbidden") if is_restricted() && wanted::is_first() => forbidden::try_and_say(),
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
