//! Address and port translation with state: subscribers, bindings and sessions (RFC 6146 section
//! 3.5, RFC 4787, RFC 5382, RFC 5508).
//!
//! A packet from inside is [`Napt::outbound`], one from outside [`Napt::inbound`]; both say which
//! endpoint the packet gets, having made or refreshed what state it needs. Errors about packets
//! look, but change nothing ([`Napt::outbound_error`], [`Napt::inbound_error`]; RFC 6146 section
//! 3.5.3, RFC 5508 REQ-6).
//!
//! Mapping is endpoint-independent: the binding is found by the inside endpoint alone. Where a
//! session would decide nothing, there is none ([`Policy::keeps_sessions`]). Tiers of a packet:
//! 1. known binding without sessions: two lines read, one written at most once a tick;
//! 2. known session: the first of a TCP binding lies in the binding's line; others take one or two
//!    lines more;
//! 3. known binding, new session: one claim in the session table;
//! 4. new binding: one claim in the outside index, one in the arena, one in the inside index;
//! 5. new subscriber: a grant of an outside address, then as 4.
//!
//! Nothing is locked. A writer that loses a race uses what the winner made.

use rand_core::Rng;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, InsideKey};
use tombolo_tables::session::{SessionKey, SessionRef, State};
use tombolo_tables::shortcut::lead_of;
use tombolo_tables::tables::{Keeper, OpenError, Opener};
use tombolo_tables::tick::Tick;
use tombolo_wire::Port;

use super::admissions::Admissions;
use super::exhausted::Exhausted;
use super::filtering::Filtering;
use super::policy::{InboundTcp, Policy};
use super::session_state::{
    ESTABLISHED, Event, ICMP, INSIDE_INIT, OUTSIDE_INIT, OUTSIDE_INIT_HELD, PERMISSION, PERMISSION_TCP, UDP,
    raises_doubt, step,
};
use super::times::Times;
use crate::cluster::Granting;
use crate::endpoint::Endpoint;
use crate::mapping::pool::{Pool, PortSpace};
use crate::side::Side;
use crate::verdict::DropReason;

/// Address and port translation for one packet of one service.
pub struct Napt<'a, R> {
    /// The state.
    pub tables: &'a Tables,
    /// The service's outside addresses.
    pub pool: &'a Pool,
    /// What its subscribers may do.
    pub policy: &'a Policy,
    /// Lifetimes.
    pub times: &'a Times,
    /// Number of the service in the plan.
    pub service: u8,
    /// When the packet came.
    pub now: Tick,
    /// The moment that it counts as for what it keeps: an earlier one if its remote has a port with a
    /// time of its own.
    pub counts_as: Tick,
    /// The same moment in nanoseconds.
    pub nanos: u64,
    /// Source of ports that cannot be guessed.
    pub random: &'a mut R,
    /// What has no port left, so that a flood does not search it again and again.
    pub exhausted: &'a mut Exhausted,
    /// How many subscribers may still be admitted.
    pub admissions: &'a mut Admissions,
    /// Whether subscribers may be admitted, and blocks and ports be granted: not by a node of a cluster that serves in
    /// another one's place, which may be granting them as well, or that has lost its lease.
    pub granting: Granting,
}

/// How often a step is tried again after losing a race against expiry.
const ATTEMPTS: usize = 4;

impl<R: Rng> Napt<'_, R> {
    /// A packet from inside: the outside endpoint that it leaves from.
    ///
    /// # Errors
    /// [`DropReason::TcpNotSyn`], [`DropReason::PoolExhausted`], [`DropReason::SubscriberLimit`],
    /// or the `*TableFull`.
    #[inline]
    pub fn outbound(
        &mut self,
        inside: &InsideKey,
        space: PortSpace,
        remote: Endpoint,
        event: Event,
    ) -> Result<Endpoint, DropReason> {
        for _ in 0..ATTEMPTS {
            let (id, binding) = match self.tables.find_inside(inside) {
                Some(found) => found,
                None if opens(space, event) => self.bind(inside, space)?,
                None => return Err(DropReason::TcpNotSyn),
            };
            if !self.policy.keeps_sessions(space) {
                if self.tables.keep(id, &binding, Keeper::Inside, self.counts_as) {
                    return Ok(outside_of(&binding));
                }
                continue;
            }
            let key = session_key(id, remote, space);
            let initial = initial_state(space, Side::Inside);
            match self.advance(&key, &binding, Side::Inside, event)? {
                Advanced::Session { renews, .. } => {
                    if renews {
                        self.permit(&key, &binding, space);
                    }
                    return Ok(outside_of(&binding));
                }
                // RFC 6146 section 3.5.2.2, CLOSED: translated, without a session.
                Advanced::None if !opens(space, event) => {
                    self.resume(&key, &binding, event);
                    return Ok(outside_of(&binding));
                }
                Advanced::None if self.open(&key, initial, &binding, Side::Inside)? => {
                    self.permit(&key, &binding, space);
                    return Ok(outside_of(&binding));
                }
                // The binding expired just now, or another writer was faster.
                Advanced::None | Advanced::Again => {}
            }
        }
        Err(DropReason::RateLimited)
    }

    /// A packet from outside: the inside endpoint that it is for.
    ///
    /// # Errors
    /// [`DropReason::NoBinding`], [`DropReason::Filtered`], [`DropReason::InboundSyn`] or
    /// [`DropReason::SessionTableFull`].
    #[inline]
    pub fn inbound(
        &mut self,
        outside: Endpoint,
        space: PortSpace,
        remote: Endpoint,
        event: Event,
    ) -> Result<InsideKey, DropReason> {
        for _ in 0..ATTEMPTS {
            let (id, binding) = self.find_outside(outside, space).ok_or(DropReason::NoBinding)?;
            if !self.policy.keeps_sessions(space) {
                if self.tables.keep(id, &binding, self.outsider(space), self.counts_as) {
                    return Ok(binding.inside);
                }
                continue;
            }
            let key = session_key(id, remote, space);
            match self.advance(&key, &binding, Side::Outside, event)? {
                // The SYN is held; what comes after it is not let in either until the inside has
                // opened.
                Advanced::Session { is_held: true, .. } => return Err(DropReason::Filtered),
                Advanced::Session { renews, .. } => {
                    if renews {
                        self.permit(&key, &binding, space);
                    }
                    return Ok(binding.inside);
                }
                Advanced::Again => continue,
                Advanced::None => self.filter(&key, &binding, space, event)?,
            }
            if !opens(space, event) {
                return Ok(binding.inside);
            }
            match self.open(&key, initial_state(space, Side::Outside), &binding, Side::Outside) {
                Ok(true) => {
                    // Who reaches a static binding needs no permission.
                    if binding.flags & tombolo_tables::binding::flags::STATIC == 0 {
                        self.permit(&key, &binding, space);
                    }
                    return Ok(binding.inside);
                }
                Ok(false) => {}
                // A datagram needs no session to come in; if the inside answers, it makes one.
                Err(DropReason::UnansweredLimit | DropReason::SessionTableFull) if !space.has_connections() => {
                    return Ok(binding.inside);
                }
                Err(reason) => return Err(reason),
            }
        }
        Err(DropReason::RateLimited)
    }

    /// An ICMP error from inside about a packet that went to `inside` from `remote`: the outside
    /// endpoint that the remote knows. Only if packets go to and fro between them; nothing is changed.
    #[must_use]
    pub fn outbound_error(&self, inside: &InsideKey, space: PortSpace, remote: Endpoint) -> Option<Endpoint> {
        let (id, binding) = self.tables.find_inside(inside)?;
        self.knows(id, remote, space).then(|| outside_of(&binding))
    }

    /// An ICMP error from outside about a packet that left from `outside` for `remote`: the inside
    /// endpoint that sent it. Only if packets go to and fro between them; nothing is changed.
    #[must_use]
    pub fn inbound_error(&self, outside: Endpoint, space: PortSpace, remote: Endpoint) -> Option<InsideKey> {
        let (id, binding) = self.find_outside(outside, space)?;
        self.knows(id, remote, space).then_some(binding.inside)
    }

    /// Notes that a SYN from outside is held that filtering has stopped ("V4 INIT", RFC 6146
    /// section 3.5.2.2): if the inside opens meanwhile, the session is established.
    pub fn hold(&self, outside: Endpoint, remote: Endpoint) {
        let found = self.find_outside(outside, PortSpace::Tcp);
        if let Some((id, binding)) = found.filter(|(id, _)| self.tables.bindings.touch(*id, self.now)) {
            let key = session_key(id, remote, PortSpace::Tcp);
            let lifetimes = self.times.reuse_entry_after();
            let opener = self.opener(Side::Outside);
            // Without room the inside's own SYN makes the session, in V6 INIT.
            let _ = self.tables.open(&key, &binding, OUTSIDE_INIT_HELD, opener, lifetimes, self.now);
        }
    }

    /// Sees to it that `remote` can open a connection of TCP to `inside`, from port `port` or as far as filtering lets
    /// others in, for as long as opening one may take; at which outside endpoint.
    ///
    /// # Errors
    /// As [`outbound`](Self::outbound).
    pub(super) fn expect(&mut self, inside: &InsideKey, remote: Endpoint) -> Result<Endpoint, DropReason> {
        for _ in 0..ATTEMPTS {
            let (id, binding) = match self.tables.find_inside(inside) {
                Some(found) => found,
                None => self.bind(inside, PortSpace::Tcp)?,
            };
            let key = session_key(id, remote, PortSpace::Tcp);
            if self.live(&key).is_none() && !self.open(&key, OUTSIDE_INIT, &binding, Side::Inside)? {
                continue;
            }
            self.permit(&key, &binding, PortSpace::Tcp);
            return Ok(outside_of(&binding));
        }
        Err(DropReason::RateLimited)
    }

    /// True if the inside has opened a connection from `outside` to `remote`.
    #[must_use]
    pub fn is_open(&self, outside: Endpoint, remote: Endpoint) -> bool {
        self.find_outside(outside, PortSpace::Tcp).is_some_and(|(id, _)| {
            let session = self.live(&session_key(id, remote, PortSpace::Tcp));
            session.is_some_and(|(_, state, _)| state != OUTSIDE_INIT_HELD)
        })
    }

    fn find_outside(&self, outside: Endpoint, space: PortSpace) -> Option<(BindingId, Binding)> {
        let slot = self.pool.slot(outside.address, space, outside.port.0)?;
        let (id, binding) = self.tables.find_outside(slot)?;
        (binding.inside.service == self.service && binding.inside.protocol == space.protocol()).then_some((id, binding))
    }

    /// The session with `key` and what its state counts as now; a dead one is removed.
    fn live(&self, key: &SessionKey) -> Option<(SessionRef<'_>, State, State)> {
        let session = self.tables.find_session(key)?;
        let state = session.state()?;
        let idle = self.now.since(session.seen());
        if let Some(effective) = self.times.effective(state, idle) {
            return Some((session, state, effective));
        }
        self.tables.remove_session(&session);
        None
    }

    /// True if the binding has a session with `remote`; where it needs none, since anybody may send to
    /// it, if its time is not over.
    fn knows(&self, id: BindingId, remote: Endpoint, space: PortSpace) -> bool {
        if self.policy.keeps_sessions(space) {
            return self.has_session(&session_key(id, remote, space));
        }
        let is_in_use = |touched| self.now.since(touched) < self.times.of_binding(space.protocol());
        self.tables.bindings.read(id).is_some_and(|(_, touched)| is_in_use(touched))
    }

    /// The outside, as far as it may keep a binding.
    fn outsider(&self, space: PortSpace) -> Keeper {
        let alone_after = self.times.of_binding(space.protocol());
        // What counts as earlier, as its port has a time of its own, keeps it no longer than that.
        let ahead = if self.counts_as == self.now { lead_of(alone_after) } else { 0 };
        Keeper::Outside { alone_after, ahead, budget: self.policy.unanswered.of_subscriber }
    }

    fn has_session(&self, key: &SessionKey) -> bool {
        self.live(key).is_some()
    }

    /// Moves the session on that a packet belongs to, if there is one.
    #[inline]
    fn advance(&self, key: &SessionKey, binding: &Binding, side: Side, event: Event) -> Result<Advanced, DropReason> {
        let Some((session, state, effective)) = self.live(key) else { return Ok(Advanced::None) };
        let step = step(effective, side, event);
        if answers(side, step.next) && session.is_unanswered() {
            match self.tables.answer(&session, binding, (state, step.next), self.policy.sessions_per_subscriber) {
                Ok(()) => {}
                Err(OpenError::Limit) => return Err(DropReason::SubscriberLimit),
                Err(_) => return Ok(Advanced::Again),
            }
        } else if is_tcp(binding) && raises_doubt(side, event, step.next) && !session.is_doubted() {
            if !session.doubt(state, step.next) {
                return Ok(Advanced::Again);
            }
        } else if step.next != state && !session.transition(state, step.next) {
            return Ok(Advanced::Again);
        }
        if step.next == ESTABLISHED && state != ESTABLISHED {
            self.tables.note_open(key.binding);
        }
        // A permission is due also where the inside answers a held SYN within the tick.
        let renews = step.refresh && (session.seen() != self.counts_as || state == OUTSIDE_INIT_HELD);
        if step.refresh {
            session.refresh(self.counts_as);
        }
        Ok(Advanced::Session { renews, is_held: step.next == OUTSIDE_INIT_HELD })
    }

    /// Who opens a session from `side`.
    fn opener(&self, side: Side) -> Opener {
        let limit = self.policy.sessions_per_subscriber;
        match side {
            Side::Inside => Opener::Inside { limit },
            Side::Outside => Opener::Outside { budget: self.policy.unanswered, counts: limit.is_some() },
        }
    }

    /// Makes a session; false if its binding is gone or another writer made it first.
    fn open(&self, key: &SessionKey, state: State, binding: &Binding, side: Side) -> Result<bool, DropReason> {
        self.times.check_open()?;
        if !self.tables.bindings.touch(key.binding, self.counts_as) {
            return Ok(false);
        }
        let (opener, lifetimes) = (self.opener(side), self.times.reuse_entry_after());
        match self.tables.open(key, binding, state, opener, lifetimes, self.counts_as) {
            Ok(_) => Ok(true),
            Err(OpenError::Raced) => Ok(false),
            Err(OpenError::Limit) => Err(DropReason::SubscriberLimit),
            Err(OpenError::Budget) => Err(DropReason::UnansweredLimit),
            Err(OpenError::TableFull) => Err(DropReason::SessionTableFull),
        }
    }

    /// A segment without a SYN, from inside: where the binding was made at another node of the cluster, with a
    /// connection that was open there, it is that connection's, and goes on as a session. What the outside sends
    /// comes in without one, until the inside has sent.
    fn resume(&self, key: &SessionKey, binding: &Binding, event: Event) {
        if binding.flags & tombolo_tables::binding::flags::RESUMED != 0 && event == Event::Other && is_tcp(binding) {
            // Without room it is translated as any other.
            let _ = self.open(key, ESTABLISHED, binding, Side::Inside);
            self.permit(key, binding, PortSpace::Tcp);
        }
    }

    /// Notes, for address-dependent filtering, that there is a session with the remote address of
    /// `key`. That is what RFC 6146 section 3.5.1 asks for, so the permission is renewed whenever a
    /// session is, whichever side refreshes it, and outlives them all.
    fn permit(&self, key: &SessionKey, binding: &Binding, space: PortSpace) {
        if self.policy.filtering.of(space) == Filtering::AddressDependent {
            let state = if space.has_connections() { PERMISSION_TCP } else { PERMISSION };
            let key = permission_key(key);
            if let Some((permission, ..)) = self.live(&key) {
                if permission.seen() < self.counts_as {
                    permission.refresh(self.counts_as);
                }
                return;
            }
            // Without room for the permission only the filter is stricter; the session is not
            // harmed.
            let opener = Opener::Inside { limit: None };
            let _ = self.tables.open(&key, binding, state, opener, self.times.reuse_entry_after(), self.counts_as);
        }
    }

    /// Whether a packet from outside that belongs to no session may come in.
    fn filter(&self, key: &SessionKey, binding: &Binding, space: PortSpace, event: Event) -> Result<(), DropReason> {
        if binding.flags & tombolo_tables::binding::flags::STATIC != 0 {
            return Ok(());
        }
        let permitted = match self.policy.filtering.of(space) {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => self.has_session(&permission_key(key)),
        };
        match (permitted, space.has_connections(), self.policy.inbound_tcp) {
            (false, ..) => Err(DropReason::Filtered),
            (true, true, InboundTcp::Denied) if event == Event::Syn => Err(DropReason::InboundSyn),
            (true, ..) => Ok(()),
        }
    }
}

/// What became of the session of a packet.
enum Advanced {
    /// It was moved on.
    Session {
        /// Its lifetime starts anew, for the first time in this tick.
        renews: bool,
        /// It is only there because a SYN is held.
        is_held: bool,
    },
    /// There is none.
    None,
    /// Another writer changed it at the same moment.
    Again,
}

fn session_key(binding: BindingId, remote: Endpoint, space: PortSpace) -> SessionKey {
    // The session of ICMP queries has no remote port (RFC 6146 section 3.1); that of ESP and GRE is
    // zero anyway.
    let port = if space == PortSpace::Icmp { 0 } else { remote.port.0 };
    SessionKey { binding, remote_ipv4: remote.address.octets(), remote_port: port.to_be_bytes() }
}

fn permission_key(key: &SessionKey) -> SessionKey {
    SessionKey { remote_port: [0, 0], ..*key }
}

pub(super) fn outside_of(binding: &Binding) -> Endpoint {
    Endpoint { address: binding.outside_ipv4.into(), port: Port(u16::from_be_bytes(binding.outside_port)) }
}

/// True if a packet from `side` that leaves its session in state `next` is the inside's answer to
/// what the outside has opened. To a SYN only a SYN is: an RST leaves the session as it was.
fn answers(side: Side, next: State) -> bool {
    side == Side::Inside && next != OUTSIDE_INIT && next != OUTSIDE_INIT_HELD
}

/// Only a host of TCP can be asked whether a connection is open.
fn is_tcp(binding: &Binding) -> bool {
    binding.inside.protocol == PortSpace::Tcp.protocol()
}

/// True if the packet may make state: where there are connections, what opens one.
fn opens(space: PortSpace, event: Event) -> bool {
    !space.has_connections() || event == Event::Syn
}

fn initial_state(space: PortSpace, side: Side) -> State {
    match (space.like(), side) {
        (PortSpace::Icmp, _) => ICMP,
        (PortSpace::Tcp, Side::Inside) => INSIDE_INIT,
        (PortSpace::Tcp, Side::Outside) => OUTSIDE_INIT,
        _ => UDP,
    }
}
