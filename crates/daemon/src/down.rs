//! What a gateway leaves on its host when it has ended, and its removal: `tombolo down`.
//!
//! Routing rules and a prohibiting route stay, so that private sources do not leave untranslated
//! while no gateway runs. A gateway that was killed leaves the programs of the fast path as well, which
//! forward known sessions on, and its tables.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use tombolo_config::Host;
use tombolo_fastpath::PinnedMemory;
use tombolo_io::host::{HostError, Leftovers, has_device, take_down};

use crate::directories;

/// What was left could not be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// A gateway runs.
    #[error("a gateway runs with the device {0}: end it first")]
    Running(String),
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The fast path's programs and tables.
    #[error("{path} cannot be removed")]
    Pins {
        /// Their directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Rules and routes.
    pub leftovers: Leftovers,
    /// Where the programs and tables in the kernel were.
    pub pins: Option<PathBuf>,
}

/// Removes what a gateway with these settings has left in this network namespace. Files stay: its run
/// directory and its log.
///
/// # Errors
/// [`DownError`].
pub fn down(settings: &Host) -> Result<Removed, DownError> {
    if has_device(&settings.device) {
        return Err(DownError::Running(settings.device.clone()));
    }
    let path = directories::of_pins(settings);
    let failed = |source| DownError::Pins { path: path.clone(), source };
    let mut pins = None;
    if path.exists() {
        let lock = File::open(&path).map_err(failed)?;
        if lock.try_lock().is_err() {
            return Err(DownError::Running(settings.device.clone()));
        }
        // The programs first: they know no rules.
        PinnedMemory::remove(&path).map_err(failed)?;
        pins = Some(path);
    }
    let leftovers = take_down(&settings.device, settings.table)?;
    directories::remove_dead();
    Ok(Removed { leftovers, pins })
}
