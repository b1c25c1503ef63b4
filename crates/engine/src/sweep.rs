//! What the sweep does with a session: keep it, remove it, or let a silent connection pass into
//! TRANS, to be probed. One that was reset from outside is probed too (RFC 7857 section 2.2): if the
//! host inside answers that it is open, the RST was not the other end's.

use std::sync::Arc;

use tombolo_tables::binding::{Binding, BindingId, flags};
use tombolo_tables::session::{DOUBTED, Session, Sweep};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::sweep::Policy;
use tombolo_tables::tick::Tick;

use crate::cluster::Cluster;
use crate::mechanism::napt::Times;
use crate::mechanism::napt::session_state::{ASK_AFTER, RESET_OUTSIDE, TRANS, is_reset};
use crate::plan::Plan;

/// The policy of the sweep, with a count of what it did.
#[derive(Debug, Clone, Default)]
pub struct Expiry {
    /// Lifetimes.
    pub times: Times,
    /// Where there are copies of what other nodes of a cluster have: only its owner lets a binding expire, as long as
    /// there is one.
    cluster: Option<Arc<Plan>>,
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
        let mut expiry = Self::default();
        expiry.follow(&Arc::new(plan.clone()));
        expiry
    }

    /// From now on `plan` is in force.
    pub fn follow(&mut self, plan: &Arc<Plan>) {
        self.times = plan.times;
        let has_copies = plan.cluster.as_deref().is_some_and(Cluster::has_slices);
        self.cluster = has_copies.then(|| Arc::clone(plan));
    }

    /// The cluster, and the slice of an outside address, if another node owns that.
    fn of_another(&self, service: u8, address: [u8; 4]) -> Option<(&Cluster, u16)> {
        let plan = self.cluster.as_ref()?;
        let slice = plan.service(service)?.kind.pool()?.slice_of_address(address.into())?;
        plan.cluster.as_deref().map(|cluster| (cluster, slice)).filter(|(cluster, slice)| !cluster.owns(*slice))
    }

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
        // The connection may be silent, and its session is not there until its inside has sent something.
        if binding.flags & flags::RESUMED != 0 {
            return self.times.established();
        }
        self.times.of_binding(binding.inside.protocol)
    }

    /// A node that serves in the owner's place lets the time of what it has copied begin anew.
    fn counts_as_touched(&self, binding: &Binding, touched: Tick) -> Option<Tick> {
        match self.of_another(binding.inside.service, binding.outside_ipv4) {
            None => Some(touched),
            Some((cluster, slice)) => cluster.acts_since(slice).map(|since| touched.max(since)),
        }
    }

    fn dismisses(&self, subscriber: &Subscriber) -> bool {
        let other = self.of_another(subscriber.key.service, subscriber.outside_ipv4);
        other.is_none_or(|(cluster, slice)| cluster.acts_since(slice).is_some())
    }

    fn binding_removed(&mut self, _: BindingId, _: &Binding) {
        self.bindings += 1;
    }

    fn subscriber_removed(&mut self, _: &Subscriber) {
        self.subscribers += 1;
    }
}
