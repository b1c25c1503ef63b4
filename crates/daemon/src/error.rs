//! Why the gateway did not start, or stopped.

use std::path::PathBuf;

use tombolo_config::ConfigError;
use tombolo_fastpath::FastPathError;
use tombolo_io::host::HostError;
use tombolo_io::tun::TunError;
use tombolo_io::worker::WorkerError;

use crate::privileges::SandboxError;
use crate::state::StateError;

/// Why the gateway did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The tables.
    #[error(transparent)]
    State(#[from] StateError),
    /// A worker.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The fast path.
    #[error(transparent)]
    FastPath(#[from] FastPathError),
    /// Its privileges.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A part of it could not go on.
    #[error("the gateway ended itself: {0}")]
    Failed(String),
    /// The log of bindings.
    #[error(
        "the log of bindings {path} cannot be opened: its directory must be there and may be written, and no other gateway may log there"
    )]
    Log {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The metrics.
    #[error("metrics cannot be served at {address}: is it in use, or not an address of this host?")]
    Metrics {
        /// Address and port, or path.
        address: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The system.
    #[error("{action} failed")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// The error of a system call that served to do `action`.
pub(crate) fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> DaemonError {
    move |source| DaemonError::System { action, source }
}
