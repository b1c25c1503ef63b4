//! What the tester can ask of a gateway between its two ports, wherever that gateway is.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use tombolo_generator::{Ends, Port};
use tombolo_lab::LabError;

use crate::gateway::technology::Technology;

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

/// What a gateway has in its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableCounts {
    /// Sessions: four tuples, each with a state of its own. Absent where it keeps or counts none.
    pub sessions: Option<u64>,
    /// Bindings of inside endpoints to outside ones. Absent likewise.
    pub bindings: Option<u64>,
}

impl TableCounts {
    /// Which of the two a gateway with these keeps for its connections.
    #[must_use]
    pub fn kept(counts: Option<Self>) -> &'static str {
        match counts {
            Some(Self { sessions: Some(1..), .. }) => "sessions",
            Some(Self { bindings: Some(1..), .. }) => "bindings",
            _ => "not counted",
        }
    }

    /// Says so, where answers to so many connections came through but there are fewer sessions.
    #[must_use]
    pub fn missing(counts: Option<Self>, connections: u32) -> Option<String> {
        match counts?.sessions? {
            sessions @ 1.. if sessions < u64::from(connections) => {
                Some(format!("the answers came through, but the table has {sessions} of {connections} sessions"))
            }
            _ => None,
        }
    }
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

    /// Restarts the gateway as its operator would. Returns when the restart is under way;
    /// packets may be lost until it is done.
    ///
    /// # Errors
    /// If the gateway cannot be restarted.
    fn reset(&mut self) -> Result<(), GatewayError>;

    /// How much is in its tables, where it can say.
    fn counts(&mut self) -> Option<TableCounts>;

    /// How long it keeps a UDP connection, in seconds, where that is known.
    fn udp_timeout_seconds(&self) -> Option<u64>;

    /// What its tables will take of this machine's memory when they are full, where that is known.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    /// Routers on the way from port to port: each takes one off the hop limit.
    fn routers(&self, technology: Technology) -> u8 {
        if technology.is_pair() { 2 } else { 1 }
    }

    /// Time that processors have spent on its work so far, nanoseconds, where that can be told from others'.
    fn worked_ns(&self) -> Option<u64> {
        None
    }

    /// Sizes its tables for so many connections, where it has tables that can be sized and that
    /// matter for its speed; returns the number of buckets. The same number of connections for each
    /// bucket, whatever their number.
    ///
    /// # Errors
    /// If the operating system refuses.
    fn size_tables(&mut self, _connections: u64) -> Result<Option<u64>, GatewayError> {
        Ok(None)
    }

    /// Puts the gateway's work on these cores and no others, where that is possible; says how.
    ///
    /// # Errors
    /// If the operating system refuses.
    fn place(&mut self, cores: &[usize]) -> Result<String, GatewayError>;
}
