//! SYNs from outside that wait for the inside to open too.
//!
//! Read first: RFC 5382 REQ-4, RFC 6146 section 3.5.2.2 ("V4 INIT").
//!
//! When two hosts open a connection to each other at once, the first SYN of the outside one may
//! come before the inside one has opened the way. Refused at once, it would end the attempt; so it
//! is held. If the inside opens within six seconds nothing is sent: the outside host sends its SYN
//! again. Else it gets an ICMP error: port unreachable.
//!
//! A worker holds the SYNs that it received, in order of their times, at most `MOST`: a flood costs
//! memory that was there before, and a search through it. Which sessions there are by the end of
//! the time the tables say, so it does not matter which worker saw the inside open.

use std::collections::VecDeque;
use std::ops::Range;

use crate::endpoint::Endpoint;
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::now::Now;
use crate::packet::{Packet, Segmentation};
use crate::verdict::DropReason;

/// SYNs that a worker holds at most.
const MOST: usize = 512;

/// Longest SYN that is held, in bytes: two headers with all options, and some data (RFC 7413).
pub(crate) const LONGEST: usize = 256;

/// The ends of the connection that a SYN asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SynEnds {
    /// The outside endpoint that it is for.
    pub(crate) outside: Endpoint,
    /// The remote endpoint that it is from.
    pub(crate) remote: Endpoint,
}

/// A SYN that is held.
#[derive(Debug, Clone)]
pub(crate) struct HeldSyn {
    /// Why it was not let in.
    pub(crate) reason: DropReason,
    /// Number of the service that it is for.
    pub(crate) service: u8,
    /// Its ends.
    pub(crate) ends: SynEnds,
    since: Now,
    due: Now,
    length: usize,
    bytes: [u8; LONGEST],
}

impl HeldSyn {
    /// The packet as the service had it: IPv4, or IPv6 where the outside is.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The SYNs that a worker holds.
#[derive(Debug)]
pub(crate) struct HeldSyns(VecDeque<HeldSyn>);

impl Default for HeldSyns {
    fn default() -> Self {
        Self(VecDeque::with_capacity(MOST))
    }
}

impl HeldSyns {
    /// Holds a SYN of service number `service` that was not let in for `reason`, from the start to
    /// the end of `time`.
    ///
    /// # Errors
    /// If it is held already, it is dropped; if there is no room, an ICMP error is sent at once.
    pub(crate) fn hold(
        &mut self,
        packet: &Packet<'_>,
        service: u8,
        ends: SynEnds,
        reason: DropReason,
        time: Range<Now>,
    ) -> Result<(), Refusal> {
        let syn = packet.bytes();
        let is_held = self.0.iter().any(|held| (held.service, held.ends) == (service, ends));
        if is_held || syn.len() > LONGEST || packet.offload.segmentation != Segmentation::None {
            return Err(reason.into());
        }
        if self.0.len() >= MOST {
            return Err(Refusal::with(reason, IcmpAnswer::PortUnreachable));
        }
        let mut bytes = [0; LONGEST];
        bytes[..syn.len()].copy_from_slice(syn);
        let Range { start: since, end: due } = time;
        self.0.push_back(HeldSyn { reason, service, ends, since, due, length: syn.len(), bytes });
        Ok(())
    }

    /// The next SYN whose time is over at `now`, or that came after `now`: the clock has gone back.
    pub(crate) fn take_due(&mut self, now: Now) -> Option<HeldSyn> {
        self.0.pop_front_if(|held| held.due <= now || now < held.since)
    }
}
