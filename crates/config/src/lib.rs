//! From a TOML file to a validated [`Configuration`]; errors name file, line, key, value, reason and fix.

#![forbid(unsafe_code)]

use tombolo_engine::Plan;

/// Everything that a configuration file decides.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What the host has to provide.
    pub host: Host,
    /// What the engine does.
    pub plan: Plan,
}

/// The gateway's place in its host: table `[gateway]` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name of the TUN device. Default `tombolo`.
    pub device: String,
    /// Queues of the device, one worker each. Default: one for each processor that the process may use.
    pub queues: Option<usize>,
    /// Pin each worker to a processor. Default: true.
    pub pin: bool,
    /// MTU of the TUN device in bytes. Default 65535, so that path MTU discovery is the links' business.
    pub mtu: u32,
    /// Where tables are kept so that a restart loses nothing. Default: none, memory of the process.
    pub run_directory: Option<std::path::PathBuf>,
}

impl Default for Host {
    fn default() -> Self {
        Self { device: "tombolo".into(), queues: None, pin: true, mtu: 65_535, run_directory: None }
    }
}
