//! Gateways as the packet procedures see them: two ports, and what can be done to the box between
//! them.
//!
//! [`laboratory`] puts one into a network-namespace lab of this machine; [`external`] is somebody
//! else's box behind two interfaces, driven by hook commands. [`faulty`] is a gateway with planted
//! faults, to test the tester.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;

use tombolo_generator::{Ends, Port};
use tombolo_lab::LabError;

pub mod external;
pub mod faulty;
pub mod laboratory;

use external::Hooks;
use faulty::Faults;

/// Why a gateway cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The lab could not be built or a command in it failed.
    #[error("{gateway}: {source}")]
    Lab {
        /// Which gateway.
        gateway: String,
        /// What went wrong.
        #[source]
        source: LabError,
    },
    /// Something of the operating system.
    #[error("{gateway}: cannot {action}: {source}")]
    System {
        /// Which gateway.
        gateway: String,
        /// What was tried.
        action: String,
        /// Why not.
        source: io::Error,
    },
    /// The gateway cannot do what the procedure needs, or is not available here.
    #[error("{gateway}: {reason}")]
    Unsuitable {
        /// Which gateway.
        gateway: String,
        /// What is missing, and what would help.
        reason: String,
    },
}

/// A gateway between the tester's two ports.
pub trait Gateway {
    /// Its name in tables and result files.
    fn name(&self) -> String;

    /// Version, settings and tunables, for the report.
    fn description(&self) -> BTreeMap<String, String>;

    /// The tester's ports: left and right.
    fn ports(&self) -> (Port, Port);

    /// Link-layer addresses of frames from the left port, and of frames from the right port.
    ///
    /// # Errors
    /// If they cannot be found out.
    fn ends(&self) -> Result<(Ends, Ends), GatewayError>;

    /// Empties the tables of connections. Returns when they are empty.
    ///
    /// # Errors
    /// If the gateway cannot do that.
    fn flush(&mut self) -> Result<(), GatewayError>;

    /// Restarts the gateway the way its operator would. Returns when the restart is under way;
    /// packets may be lost until it is done.
    ///
    /// # Errors
    /// If the gateway cannot be restarted.
    fn reset(&mut self) -> Result<(), GatewayError>;

    /// Connections in its tables, where it can say.
    fn sessions(&mut self) -> Option<u64>;

    /// How long it keeps a UDP connection, in seconds, where that is known.
    fn udp_timeout_seconds(&self) -> Option<u64>;

    /// Puts the gateway's work on these cores and no others, where that is possible; says how.
    ///
    /// # Errors
    /// If the operating system refuses.
    fn place(&mut self, cores: &[usize]) -> Result<String, GatewayError>;
}

/// What the user asked for: `plain`, `iptables`, `tombolo:off`, `faulty:loss=100`, ...
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Kernel forwarding of the same frames.
    Plain,
    /// This project's gateway; the word is its `fastpath` setting, if any.
    Tombolo(Option<String>),
    /// iptables MASQUERADE.
    Iptables,
    /// nftables masquerade.
    Nftables,
    /// Tayga.
    Tayga,
    /// Jool's stateful NAT64 kernel module.
    Jool,
    /// Jool's SIIT kernel module.
    JoolSiit,
    /// A forwarder with planted faults.
    Faulty(Faults),
    /// Another box.
    External(Hooks),
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Spec, String> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, rest) {
            ("plain", None) => Ok(Spec::Plain),
            ("tombolo", mode) => Ok(Spec::Tombolo(mode.map(str::to_owned))),
            ("iptables", None) => Ok(Spec::Iptables),
            ("nftables", None) => Ok(Spec::Nftables),
            ("tayga", None) => Ok(Spec::Tayga),
            ("jool", None) => Ok(Spec::Jool),
            ("jool_siit", None) => Ok(Spec::JoolSiit),
            ("faulty", rest) => rest.unwrap_or("").parse().map(Spec::Faulty),
            ("external", None) => Ok(Spec::External(Hooks::default())),
            _ => Err(format!(
                "no gateway is called `{text}`; there are plain, tombolo, tombolo:off, tombolo:tc, tombolo:xdp, iptables, \
                 nftables, tayga, jool, jool_siit, faulty:FAULT=VALUE,... and external"
            )),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Plain => f.write_str("plain"),
            Spec::Tombolo(None) => f.write_str("tombolo"),
            Spec::Tombolo(Some(mode)) => write!(f, "tombolo:{mode}"),
            Spec::Iptables => f.write_str("iptables"),
            Spec::Nftables => f.write_str("nftables"),
            Spec::Tayga => f.write_str("tayga"),
            Spec::Jool => f.write_str("jool"),
            Spec::JoolSiit => f.write_str("jool_siit"),
            Spec::Faulty(faults) => write!(f, "faulty:{faults}"),
            Spec::External(_) => f.write_str("external"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_as_they_are_written() {
        for text in
            ["plain", "tombolo", "tombolo:off", "iptables", "nftables", "tayga", "jool", "jool_siit", "external"]
        {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!("faulty:loss=100,delay=2000".parse::<Spec>().unwrap().to_string(), "faulty:loss=100,delay=2000");
        assert!("router".parse::<Spec>().unwrap_err().contains("iptables"));
        assert!("faulty:loss=x".parse::<Spec>().unwrap_err().contains("loss"));
    }
}
