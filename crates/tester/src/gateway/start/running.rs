//! A gateway that runs in a lab, and why one does not.

use std::{
    net::{IpAddr, SocketAddrV4},
    path::PathBuf,
    time::Duration,
};

use tombolo_lab::{Lab, LabError, Process, wait_until};

use crate::gateway::addresses::Addresses;
use crate::gateway::kind::Kind;
use crate::gateway::technology::Technology;

/// How long a gateway may take from its start to the first packet that it passes.
const START_LIMIT: Duration = Duration::from_secs(15);

/// The port of the client that gateways with static mappings make reachable from the server.
pub const STATIC_PORT: u16 = 8080;

/// What starting a gateway needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `tombolo` executable.
    pub tombolo: PathBuf,
    /// Lines added to the configuration of `tombolo` before its service, such as `fastpath =
    /// "off"`.
    pub settings: String,
    /// What the gateway does, of those that can do several things.
    pub technology: Technology,
    /// The addresses of one end of a technology, and of its hosts.
    pub addresses: Addresses,
    /// How many subscribers the provider's end of one has.
    pub subscribers: u32,
    /// MTU of all links, where it is not the usual one.
    pub mtu: Option<u32>,
}

impl Options {
    /// With the laboratory's own addresses, and one subscriber.
    pub fn new(tombolo: PathBuf, settings: String, technology: Technology) -> Self {
        Self { tombolo, settings, technology, addresses: Addresses::default(), subscribers: 1, mtu: None }
    }
}

/// A gateway that runs and has passed a packet. It ends when dropped, or with its lab.
#[derive(Debug)]
pub struct Running {
    /// What it is.
    pub kind: Kind,
    /// Its version, as it reports it itself.
    pub version: String,
    /// Where the client finds the server.
    pub server_seen_by_client: IpAddr,
    /// Where the server finds the client's port [`STATIC_PORT`], if this gateway admits connections
    /// from outside.
    pub client_seen_by_server: Option<SocketAddrV4>,
    /// From its start to the first packet that it passed.
    pub started_in: Duration,
    pub(super) processes: Vec<Process>,
}

/// Why a gateway is not running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The lab could not do its part.
    #[error("{kind} cannot be started")]
    Lab {
        /// Which gateway.
        kind: Kind,
        /// What the lab says.
        #[source]
        source: LabError,
    },
    /// It started but nothing comes through.
    #[error("{kind} runs but passes no packet from the client to {address}; its last words:{log}")]
    Silent {
        /// Which gateway.
        kind: Kind,
        /// Where the client sent.
        address: IpAddr,
        /// The end of its log.
        log: String,
    },
}

impl Running {
    /// The last lines of its log, each indented on a line of its own.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        self.processes.iter().map(|process| process.log_tail(lines)).collect()
    }

    /// Ends it, and returns its last lines, which say what it has counted and dropped. What the
    /// kernel does itself goes on.
    pub fn stop(&mut self, lines: usize) -> String {
        self.processes.drain(..).map(|process| process.stop().tail(lines)).collect()
    }

    /// Whether it is still there. What the kernel does itself always is.
    pub fn is_running(&mut self) -> bool {
        self.processes.iter_mut().all(Process::is_running)
    }

    /// Waits until a ping gets through.
    pub(super) fn probe(&mut self, lab: &Lab) -> Result<(), StartError> {
        let failed = |source| StartError::Lab { kind: self.kind, source };
        let client = lab.node("client").map_err(failed)?;
        let address = self.server_seen_by_client;
        let ping = || {
            let command = client.command("ping").args(["-n", "-c", "1", "-W", "0.3"]).arg(address.to_string());
            match command.run() {
                Ok(output) => output.status.success().then_some(Ok(())),
                Err(error) => Some(Err(error)),
            }
        };
        match wait_until("a ping through the gateway", START_LIMIT, ping) {
            Ok(outcome) => outcome.map_err(failed),
            Err(LabError::TimedOut { .. }) => Err(StartError::Silent { kind: self.kind, address, log: self.stop(20) }),
            Err(other) => Err(failed(other)),
        }
    }
}
