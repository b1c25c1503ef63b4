//! Gateways under test: each is started in the `gateway` node of a lab with the standard client -
//! gateway - server topology, and stands between the client at 2001:db8:1::2 and 10.0.0.2 and the
//! server at 2001:db8:2::2 and 198.51.100.2. Pairs of gateways have a `cpe` node before that, and
//! with it a topology of their own ([`Dut::topology`]).
//!
//! One file a gateway. What differs between them is only how they start and under which addresses
//! the two sides see each other.

use std::{
    fmt,
    net::{IpAddr, SocketAddrV4},
    path::PathBuf,
    str::FromStr,
    time::{Duration, Instant},
};

use tombolo_lab::{Lab, LabError, Process, Scenario, Topology, wait_until};

use crate::setup::Technology;

mod iptables;
mod pair;
mod plain;
mod tayga;
mod tombolo;

/// How long a gateway may take from its start to the first packet that it passes.
const START_LIMIT: Duration = Duration::from_secs(15);

/// The port of the client that gateways with static mappings make reachable from the server.
pub const STATIC_PORT: u16 = 8080;

/// A kind of gateway that can be put under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dut {
    /// The kernel's IPv6 forwarding, no gateway at all: the yardstick.
    Plain,
    /// The kernel's IPv4 forwarding.
    Plain4,
    /// This project's gateway, as stateful NAT64.
    Tombolo,
    /// Debian's Tayga, a stateless NAT64 in user space.
    Tayga,
    /// The kernel's stateful NAT44 (MASQUERADE).
    Iptables,
    /// The kernel's IPv4 forwarding over three hops, by way of a `cpe`: the yardstick for pairs.
    PlainPair,
    /// This project's gateway at both ends of 464XLAT.
    Xlat464,
    /// Of DS-Lite.
    DsLite,
    /// Of Lightweight 4over6.
    Lw4o6,
    /// Of MAP-E.
    MapE,
    /// Of MAP-T.
    MapT,
}

/// What starting a gateway needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `tombolo` executable.
    pub tombolo: PathBuf,
    /// Lines added to the configuration of `tombolo` before its service, such as `fastpath =
    /// "off"`.
    pub tombolo_settings: String,
    /// What `tombolo` does: [`Technology::Nat64`], [`Technology::Nat44`] or [`Technology::Siit`].
    pub tombolo_trade: Technology,
}

/// A gateway that runs and has passed a packet. It ends when dropped, or with its lab.
#[derive(Debug)]
pub struct Gateway {
    /// What it is.
    pub dut: Dut,
    /// Its version, as it reports it itself.
    pub version: String,
    /// Where the client finds the server.
    pub server_seen_by_client: IpAddr,
    /// Where the server finds the client's port [`STATIC_PORT`], if this gateway admits connections
    /// from outside.
    pub client_seen_by_server: Option<SocketAddrV4>,
    /// From its start to the first packet that it passed.
    pub started_in: Duration,
    processes: Vec<Process>,
}

/// Why a gateway is not running.
#[derive(Debug, thiserror::Error)]
pub enum DutError {
    /// The lab could not do its part.
    #[error("{dut} cannot be started")]
    Lab {
        /// Which gateway.
        dut: Dut,
        /// What the lab says.
        #[source]
        source: LabError,
    },
    /// It started but nothing comes through.
    #[error("{dut} runs but passes no packet from the client to {address}; its last words:{log}")]
    Silent {
        /// Which gateway.
        dut: Dut,
        /// Where the client sent.
        address: IpAddr,
        /// The end of its log.
        log: String,
    },
}

impl Dut {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Self; 11] = [
        Self::Plain,
        Self::Plain4,
        Self::Tombolo,
        Self::Tayga,
        Self::Iptables,
        Self::PlainPair,
        Self::Xlat464,
        Self::DsLite,
        Self::Lw4o6,
        Self::MapE,
        Self::MapT,
    ];
    /// The five technologies, with this project's gateway at both ends.
    pub const PAIRS: [Self; 5] = [Self::Xlat464, Self::DsLite, Self::Lw4o6, Self::MapE, Self::MapT];

    /// The name on command lines and in result files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Plain4 => "plain4",
            Self::Tombolo => "tombolo",
            Self::Tayga => "tayga",
            Self::Iptables => "iptables",
            Self::PlainPair => "plain-pair",
            Self::Xlat464 => "464xlat",
            Self::DsLite => "ds-lite",
            Self::Lw4o6 => "lw4o6",
            Self::MapE => "map-e",
            Self::MapT => "map-t",
        }
    }

    /// The scenario of a pair, which has its name.
    fn scenario(self) -> Option<Scenario> {
        Scenario::named(self.name())
    }

    /// The lab that it needs.
    #[must_use]
    pub fn topology(self) -> Topology {
        match self.scenario() {
            Some(scenario) => scenario.topology,
            None if self == Self::PlainPair => Topology::client_cpe_gateway_server_with_ipv4(),
            None => Topology::client_gateway_server(),
        }
    }

    /// Plain forwarding over as many hops.
    #[must_use]
    pub fn yardstick(self) -> Self {
        if self == Self::PlainPair || Self::PAIRS.contains(&self) { Self::PlainPair } else { Self::Plain }
    }

    /// Starts the gateway in a lab and waits until it passes packets.
    ///
    /// # Errors
    /// [`DutError`], with the gateway's own words where it has said any.
    pub fn start(self, lab: &Lab, options: &Options) -> Result<Gateway, DutError> {
        let begun = Instant::now();
        let started = match self {
            Self::Plain => Ok(plain::ipv6()),
            Self::Plain4 | Self::PlainPair => Ok(plain::ipv4(self)),
            Self::Tombolo => tombolo::start(lab, options),
            Self::Tayga => tayga::start(lab),
            Self::Iptables => iptables::start(lab),
            Self::Xlat464 | Self::DsLite | Self::Lw4o6 | Self::MapE | Self::MapT => match self.scenario() {
                Some(scenario) => pair::start(self, &scenario, lab, options),
                None => Err(LabError::BadTopology { reason: format!("there is no scenario {self}") }),
            },
        };
        let mut gateway = started.map_err(|source| DutError::Lab { dut: self, source })?;
        gateway.probe(lab)?;
        gateway.started_in = begun.elapsed();
        Ok(gateway)
    }
}

impl Gateway {
    /// The last lines of its log, each indented on a line of its own.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        self.processes.iter().map(|process| process.log_tail(lines)).collect()
    }

    /// Ends it, and returns its last lines, which tell what it has counted and dropped. What the
    /// kernel does itself goes on.
    pub fn stop(&mut self, lines: usize) -> String {
        self.processes.drain(..).map(|process| process.stop().tail(lines)).collect()
    }

    /// Whether it is still there. What the kernel does itself always is.
    pub fn is_running(&mut self) -> bool {
        self.processes.iter_mut().all(Process::is_running)
    }

    /// Waits until a ping gets through.
    fn probe(&mut self, lab: &Lab) -> Result<(), DutError> {
        let failed = |source| DutError::Lab { dut: self.dut, source };
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
            Err(LabError::TimedOut { .. }) => Err(DutError::Silent { dut: self.dut, address, log: self.stop(20) }),
            Err(other) => Err(failed(other)),
        }
    }
}

impl fmt::Display for Dut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|dut| dut.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("no gateway is called `{text}`; there are {known}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gateway_is_found_by_its_name() {
        for dut in Dut::ALL {
            assert_eq!(dut.name().parse(), Ok(dut));
        }
        assert!("jool".parse::<Dut>().unwrap_err().contains("plain, plain4, tombolo"));
    }
}
