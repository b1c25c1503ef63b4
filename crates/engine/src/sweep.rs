//! What the sweep does with a session: keep it, remove it, or let a silent connection pass into
//! TRANS, to be probed. One that was reset from outside is probed too (RFC 7857 section 2.2): if the
//! host inside answers that it is open, the RST was not the other end's.

use tombolo_tables::binding::{Binding, BindingId};
use tombolo_tables::session::{DOUBTED, Session, Sweep};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::sweep::Policy;
use tombolo_tables::tick::Tick;

use crate::mechanism::napt::Times;
use crate::mechanism::napt::session_state::{ASK_AFTER, RESET_OUTSIDE, TRANS, is_reset};
use crate::plan::Plan;

/// The policy of the sweep, with a count of what it did.
#[derive(Debug, Clone, Default)]
pub struct Expiry {
    /// Lifetimes.
    pub times: Times,
    /// Sessions removed.
    pub sessions: u64,
    /// Bindings removed.
    pub bindings: u64,
    /// Subscribers removed.
    pub subscribers: u64,
    /// Connections that have just been found silent for too long and are to be probed, at most
    /// [`MOST_PROBES`]. Whoever sends the probes takes them out.
    pub probes: Vec<Session>,
}

/// Probes that are noted at most until somebody takes them.
pub const MOST_PROBES: usize = 1000;

impl Expiry {
    /// The lifetimes of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { times: plan.times, ..Self::default() }
    }
}

impl Expiry {
    /// Has the host inside asked whether a connection is over that the outside has reset. Its
    /// answer counts as one that both sides go on after: see `docs/tcp-sessions.md`.
    fn ask(&mut self, session: &Session, now: Tick) -> Sweep {
        let is_due = session.flags & DOUBTED != 0 && is_reset(session.state) && now.since(session.seen) >= ASK_AFTER;
        if !is_due || self.probes.len() >= MOST_PROBES {
            return Sweep::Keep;
        }
        self.probes.push(*session);
        Sweep::Change(RESET_OUTSIDE, session.seen)
    }
}

impl Policy for Expiry {
    fn session(&mut self, session: &Session, now: Tick) -> Sweep {
        match self.times.effective(session.state, now.since(session.seen)) {
            Some(state) if state == session.state => self.ask(session, now),
            // The transitory time began when the established time was over.
            Some(_) => {
                if self.probes.len() < MOST_PROBES {
                    self.probes.push(*session);
                }
                Sweep::Change(TRANS, Tick(session.seen.0.saturating_add(self.times.established())))
            }
            None => {
                self.sessions += 1;
                Sweep::Remove
            }
        }
    }

    fn binding_lifetime(&self, binding: &Binding) -> u32 {
        self.times.of_binding(binding.inside.protocol)
    }

    fn binding_removed(&mut self, _: BindingId, _: &Binding) {
        self.bindings += 1;
    }

    fn subscriber_removed(&mut self, _: &Subscriber) {
        self.subscribers += 1;
    }
}
