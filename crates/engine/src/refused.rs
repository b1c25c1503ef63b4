//! Packets that policy refuses, as they are logged.
//!
//! Read first: RFC 7915 sections 4.4 and 5.4. An operator who tells senders that their packets are
//! prohibited wants to know whose they are. A flood of them must not fill the log: of each second
//! the first few are kept, and of the others their number.

use std::net::IpAddr;

use crate::parse::Parsed;
use crate::verdict::DropReason;

/// Refusals that are kept until they are taken.
const KEPT: usize = 10;

/// A packet that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: DropReason,
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Number of its transport protocol.
    pub protocol: u8,
    /// Source and destination port, or the identifier of an echo twice; `None` if it has neither.
    pub ports: Option<(u16, u16)>,
}

/// The refusals of a worker since they were taken last.
#[derive(Debug)]
pub(crate) struct RefusedLog {
    kept: Vec<Refused>,
    more: u64,
}

impl Default for RefusedLog {
    fn default() -> Self {
        Self { kept: Vec::with_capacity(KEPT), more: 0 }
    }
}

impl RefusedLog {
    /// Notes a packet; nothing is allocated.
    pub(crate) fn note<A: Copy + Into<IpAddr>>(&mut self, reason: DropReason, parsed: &Parsed<A>) {
        if self.kept.len() >= KEPT {
            self.more += 1;
            return;
        }
        self.kept.push(Refused {
            reason,
            source: parsed.source.into(),
            destination: parsed.destination.into(),
            protocol: parsed.protocol.0,
            ports: parsed.payload.has_ports().then_some((parsed.source_port.0, parsed.destination_port.0)),
        });
    }

    /// Hands out what was kept, and then how many there were besides.
    pub(crate) fn take(&mut self, mut each: impl FnMut(&Refused)) -> u64 {
        for refused in self.kept.drain(..) {
            each(&refused);
        }
        std::mem::take(&mut self.more)
    }
}
