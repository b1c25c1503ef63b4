//! SYNs from outside that wait for the inside to open too.
//!
//! Read first: RFC 5382 REQ-4, RFC 6146 section 3.5.2.2 ("V4 INIT").
//!
//! When two hosts open a connection to each other at once, the first SYN of the outside one may
//! come before the inside one has opened the way. Refused at once, it would end the attempt; so it
//! is held. If the inside opens within six seconds nobody is told anything: the outside host sends
//! its SYN again. Else its sender is told that nobody has the port.
//!
//! A worker holds the SYNs that it received, in order of their times, at most `MOST`: a flood costs
//! memory that was there before, and a search through it. Which sessions there are by the end of
//! the time the tables say, so it does not matter which worker saw the inside open.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use rand_core::Rng;
use tombolo_tables::tick::Tick;

use super::napt::{Endpoint, Napt};
use super::{IcmpAnswer, Refusal};
use crate::engine::Now;
use crate::packet::{Packet, Segmentation};
use crate::parse::Parsed;
use crate::verdict::{DropReason, Verdict};

/// SYNs that a worker holds at most.
const MOST: usize = 512;

/// Longest SYN that is held, in bytes: two headers with all options, and some data (RFC 7413).
pub(crate) const LONGEST: usize = 256;

/// A SYN that is held.
#[derive(Debug, Clone)]
pub struct Held {
    /// Why it was not let in.
    pub reason: DropReason,
    ends: (Endpoint, Endpoint),
    since: Now,
    due: Now,
    length: usize,
    bytes: [u8; LONGEST],
}

impl Held {
    /// The packet as it was received.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The SYNs that a worker holds.
#[derive(Debug)]
pub struct HeldSyns(VecDeque<Held>);

impl Default for HeldSyns {
    fn default() -> Self {
        Self(VecDeque::with_capacity(MOST))
    }
}

impl HeldSyns {
    /// The next SYN whose time is over at `now`, or that came after `now`: the clock has gone back.
    pub fn take_due(&mut self, now: Now) -> Option<Held> {
        self.0.pop_front_if(|held| held.due <= now || now < held.since)
    }

    fn has(&self, ends: (Endpoint, Endpoint)) -> bool {
        self.0.iter().any(|held| held.ends == ends)
    }
}

/// The outside endpoint that a packet from outside is for, and the remote one that it is from.
pub(crate) fn ends(parsed: &Parsed<Ipv4Addr>) -> (Endpoint, Endpoint) {
    let outside = Endpoint { address: parsed.destination, port: parsed.destination_port };
    (outside, Endpoint { address: parsed.source, port: parsed.source_port })
}

/// Holds a SYN that was not let in for `reason`.
///
/// # Errors
/// If it is held already, it is dropped; if there is no room, its sender is told at once.
pub(crate) fn hold<R: Rng>(
    packet: &Packet<'_>,
    outside: Endpoint,
    remote: Endpoint,
    reason: DropReason,
    napt: &mut Napt<'_, R>,
) -> Result<Verdict, Refusal> {
    let (ends, syn) = ((outside, remote), packet.bytes());
    if napt.held.has(ends) || syn.len() > LONGEST || packet.offload.segmentation != Segmentation::None {
        return Err(reason.into());
    }
    if napt.held.0.len() >= MOST {
        return Err(Refusal::with(reason, IcmpAnswer::PortUnreachable));
    }
    if reason == DropReason::Filtered {
        napt.hold(outside, remote);
    }
    let due = Now(napt.nanos + (u64::from(napt.times.incoming_syn()) << Tick::SHIFT));
    let mut bytes = [0; LONGEST];
    bytes[..syn.len()].copy_from_slice(syn);
    napt.held.0.push_back(Held { reason, ends, since: Now(napt.nanos), due, length: syn.len(), bytes });
    Ok(Verdict::Hold)
}
