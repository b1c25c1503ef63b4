//! Lifetimes of sessions and bindings, and the times for which what has ended is kept back.
//!
//! Read first: RFC 6146 section 4, RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 6888 REQ-8.

use tombolo_tables::session::{Lifetimes, State};
use tombolo_tables::tick::{Tick, ticks};
use tombolo_wire::Port;

use super::session_state::{ESTABLISHED, ICMP, OUTSIDE_INIT_HELD, TRANS, Timeouts, UDP};
use super::short_ports::ShortPorts;
use crate::mapping::pool::PortSpace;
use crate::verdict::DropReason;

/// Times that hold for all services, since all share the table of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    lifetimes: Lifetimes,
    reuse_entry_after: Lifetimes,
    /// Ticks for which a closed outside port is kept back (RFC 6888 REQ-8).
    pub reuse_port_after: u32,
    /// Closed ports of an outside address and protocol that are kept back at a time; of more, the
    /// oldest are given to who finds no other (RFC 6888 REQ-8). `None` for no limit.
    pub most_ports_kept_back: Option<u32>,
    /// UDP ports of remotes that have times of their own.
    pub short_ports: ShortPorts,
    /// Since when the gateway is being drained: no binding and no session is made any more.
    pub draining_since: Option<Tick>,
}

impl Times {
    /// From lifetimes and the time that a closed port is kept back, in seconds.
    #[must_use]
    pub fn new(timeouts: &Timeouts, port_reuse_seconds: u32) -> Self {
        Self {
            lifetimes: timeouts.lifetimes(),
            reuse_entry_after: timeouts.reuse_after(),
            reuse_port_after: if port_reuse_seconds == 0 { 0 } else { ticks(port_reuse_seconds) },
            most_ports_kept_back: None,
            short_ports: ShortPorts::default(),
            draining_since: None,
        }
    }

    /// The same, where datagrams to and from these ports of remotes keep state for so many seconds.
    #[must_use]
    pub fn with_short_ports(self, ports: &[(Port, u32)]) -> Self {
        Self { short_ports: ShortPorts::new(ports, self.lifetimes.of(UDP)), ..self }
    }

    /// What `state` counts as after `idle` ticks of silence: itself, TRANS, or nothing.
    #[must_use]
    pub fn effective(&self, state: State, idle: u32) -> Option<State> {
        if idle < self.lifetimes.of(state) {
            Some(state)
        } else if state == ESTABLISHED && idle < self.reuse_entry_after.of(state) {
            Some(TRANS)
        } else {
            None
        }
    }

    /// Ticks that a session in `state` stays after `idle` ticks of silence, if the silence goes on.
    #[must_use]
    pub fn left(&self, state: State, idle: u32) -> u32 {
        self.reuse_entry_after.of(state).saturating_sub(idle)
    }

    /// Ticks that a binding without sessions may be silent. One with connections goes with its last
    /// session, whose state says when.
    #[must_use]
    pub fn of_binding(&self, protocol: u8) -> u32 {
        match PortSpace::of_protocol(protocol).map(PortSpace::like) {
            Some(PortSpace::Udp) => self.lifetimes.of(UDP),
            Some(PortSpace::Icmp) => self.lifetimes.of(ICMP),
            _ => 0,
        }
    }

    /// # Errors
    /// [`DropReason::Draining`] if nothing new may begin.
    #[inline]
    pub fn check_open(&self) -> Result<(), DropReason> {
        if self.draining_since.is_some() { Err(DropReason::Draining) } else { Ok(()) }
    }

    /// Ticks for which a SYN from outside waits for the inside to open.
    #[must_use]
    pub fn incoming_syn(&self) -> u32 {
        self.lifetimes.of(OUTSIDE_INIT_HELD)
    }

    /// How long a session may be silent in each state.
    #[must_use]
    pub fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// When the entry of a session in each state may be given to another.
    #[must_use]
    pub fn reuse_entry_after(&self) -> &Lifetimes {
        &self.reuse_entry_after
    }

    /// Ticks of silence after which an established session is in TRANS.
    #[must_use]
    pub fn established(&self) -> u32 {
        self.lifetimes.of(ESTABLISHED)
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::new(&Timeouts::default(), 120)
    }
}
