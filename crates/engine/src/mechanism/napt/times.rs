//! Lifetimes of sessions and bindings, and the times for which what has ended is kept back.
//!
//! Read first: RFC 6146 section 4, RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 6888 REQ-8.

use tombolo_tables::session::{Lifetimes, State};
use tombolo_tables::tick::{Tick, ticks};
use tombolo_wire::Port;

use super::session_state::{ESTABLISHED, ICMP, OUTSIDE_INIT_HELD, TRANS, Timeouts, UDP};
use super::short_ports::ShortPorts;
use crate::cluster::COPY_LASTS;
use crate::mapping::pool::PortSpace;
use crate::verdict::DropReason;

/// Among which ports of an address one is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// Those of the subscriber's blocks, or of its share: nobody else gets them.
    Own,
    /// Those that are nobody's before one is drawn, and may be another's after.
    Anybodys,
}

/// Times that hold for all services, since all share the table of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    lifetimes: Lifetimes,
    reuse_entry_after: Lifetimes,
    /// Ticks for which a closed outside port is kept back (RFC 6888 REQ-8).
    pub reuse_port_after: u32,
    /// Ticks for which a node of a cluster may serve by a copy without hearing of what its owner does: for so much longer
    /// nobody else gets what a subscriber has had. 0 where nothing is copied.
    pub copies_last: u32,
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
            copies_last: 0,
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

    /// The same at a node of a cluster that copies its tables.
    #[must_use]
    pub fn with_copies(self) -> Self {
        Self { copies_last: ticks(COPY_LASTS), ..self }
    }

    /// Ticks for which what one subscriber has had rests until it may be another's, be it a block or a port that was drawn by
    /// itself. The clock of a node that serves by a copy may run 2 % slower.
    #[must_use]
    pub fn rest(&self) -> u32 {
        let rest = self.reuse_port_after.saturating_add(self.copies_last);
        if self.copies_last == 0 { rest } else { rest.saturating_add(rest / 50 + 1) }
    }

    /// Ticks for which a closed port is kept back. `is_kept_back`: a newcomer could get what was meant for the old owner
    /// ([`Policy::keeps_back`](super::Policy::keeps_back)). A copy has ports of all protocols.
    #[must_use]
    pub fn port_rest(&self, among: Among, is_kept_back: bool) -> u32 {
        match among {
            Among::Anybodys if self.copies_last != 0 => self.rest(),
            _ if is_kept_back => self.reuse_port_after,
            Among::Anybodys | Among::Own => 0,
        }
    }

    /// [`most_ports_kept_back`](Self::most_ports_kept_back), where the oldest may be given away early.
    #[must_use]
    pub fn most_kept_back(&self, among: Among) -> Option<u32> {
        self.most_ports_kept_back.filter(|_| among == Among::Own || self.copies_last == 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_one_subscriber_s_rests_longer_where_others_have_copies() {
        let alone = Times::new(&Timeouts::default(), 120);
        let copied = alone.with_copies();
        assert_eq!(alone.rest(), alone.reuse_port_after);
        // 180 s by a clock that is 2 % faster than that of the copy's node.
        assert!((ticks(184) - 2..=ticks(188)).contains(&copied.rest()), "{} ticks", copied.rest());
        let rests = |times: &Times| {
            [Among::Own, Among::Anybodys].map(|among| [true, false].map(|kept| times.port_rest(among, kept)))
        };
        let usual = [alone.reuse_port_after, 0];
        assert_eq!(rests(&alone), [usual, usual]);
        assert_eq!(rests(&copied), [usual, [copied.rest(); 2]], "TCP as well");
        let none = Times::new(&Timeouts::default(), 0);
        assert_eq!((none.rest(), none.with_copies().rest() > ticks(60)), (0, true));
    }

    #[test]
    fn no_port_is_given_away_early_that_a_copy_may_serve() {
        let some = |times: Times| Times { most_ports_kept_back: Some(7), ..times };
        let times = Times::new(&Timeouts::default(), 120);
        let most = |times: &Times| [Among::Own, Among::Anybodys].map(|among| times.most_kept_back(among));
        assert_eq!(most(&some(times)), [Some(7); 2]);
        assert_eq!(most(&some(times.with_copies())), [Some(7), None]);
    }
}
