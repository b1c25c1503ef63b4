//! Expiry by linear sweep: memory is read in order, at gigabytes a second, instead of a timer a
//! session.
//!
//! A pass goes over the sessions line by line and marks the binding of each that stays, in a
//! bitmap; then over the bindings: one that no session marked, and that nothing touched for its
//! lifetime before the pass began, goes. Then over the subscribers likewise. Nothing is counted in the packet path, so
//! no count can be wrong after a crash.
//!
//! The work is cut into parts ([`Sweeper::advance`]) so that it can be spread over time.

use crate::binding::{Binding, BindingId, flags};
use crate::session::{Session, Sweep, UNANSWERED};
use crate::subscriber::Subscriber;
use crate::tables::Tables;
use crate::tick::Tick;

/// Ticks that something stays at least after it was last touched: longer than any packet is on its
/// way through the gateway between finding a binding and making a session on it.
pub(crate) const GRACE: u32 = 4;

/// Decides what goes, and hears what went.
pub trait Policy {
    /// What to do with a session.
    fn session(&mut self, session: &Session, now: Tick) -> Sweep;
    /// Ticks that a binding without sessions stays after it was last touched.
    fn binding_lifetime(&self, binding: &Binding) -> u32;
    /// When a binding counts as touched that was at `touched`; nothing if it stays in any case, as a copy of what another
    /// node has.
    fn counts_as_touched(&self, binding: &Binding, touched: Tick) -> Option<Tick> {
        let _ = binding;
        Some(touched)
    }
    /// Whether a subscriber goes that has no bindings.
    fn dismisses(&self, subscriber: &Subscriber) -> bool {
        let _ = subscriber;
        true
    }
    /// A binding was removed.
    fn binding_removed(&mut self, id: BindingId, binding: &Binding);
    /// A subscriber was removed.
    fn subscriber_removed(&mut self, subscriber: &Subscriber);
}

/// Goes over the tables again and again.
#[derive(Debug)]
pub struct Sweeper {
    marks: Vec<u64>,
    /// Sessions of each binding, and of each subscriber, that only the outside has sent in.
    unanswered: Vec<u16>,
    unanswered_of_subscriber: Vec<u32>,
    next: usize,
    began: Tick,
    passes: u64,
}

impl Sweeper {
    /// A sweeper for `tables`, at the beginning of its first pass.
    #[must_use]
    pub fn new(tables: &Tables, now: Tick) -> Self {
        Self {
            marks: vec![0; tables.bindings.parts()],
            unanswered: vec![0; tables.bindings.capacity() as usize + 1],
            unanswered_of_subscriber: vec![0; tables.subscribers.capacity() as usize + 1],
            next: 0,
            began: now,
            passes: 0,
        }
    }

    /// Parts of a whole pass: lines of sessions, then 64 bindings each, then 64 subscribers each.
    #[must_use]
    pub fn parts(tables: &Tables) -> usize {
        tables.sessions.lines() + tables.bindings.parts() + tables.subscribers.parts()
    }

    /// Whole passes that were made.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Does the next `parts` parts, at most to the end of the pass; true if the pass is complete.
    pub fn advance(&mut self, tables: &Tables, parts: usize, now: Tick, policy: &mut impl Policy) -> bool {
        let sessions = tables.sessions.lines();
        let bindings = sessions + tables.bindings.parts();
        let subscribers = bindings + tables.subscribers.parts();
        let end = self.next.saturating_add(parts).min(subscribers);
        if self.next < sessions {
            let upto = end.min(sessions);
            self.sessions(tables, self.next, upto - self.next, now, policy);
            self.next = upto;
        }
        while self.next < end.min(bindings) {
            self.bindings(tables, self.next - sessions, now, policy);
            self.next += 1;
        }
        while self.next < end {
            self.subscribers(tables, self.next - bindings, now, policy);
            self.next += 1;
        }
        let complete = self.next == subscribers;
        if complete {
            self.marks.fill(0);
            self.next = 0;
            self.began = now;
            self.passes += 1;
        }
        complete
    }

    /// Notes the number of a binding's sessions that only the outside has sent in, as this pass has
    /// found it.
    fn count_of_binding(&mut self, tables: &Tables, id: BindingId) {
        let Some(found) = self.unanswered.get_mut(id.get() as usize).map(std::mem::take) else { return };
        tables.bindings.change_unanswered(id, |_| found.into());
        if found > 0
            && let Some((binding, _)) = tables.bindings.read(id)
        {
            self.count_for_subscriber(&binding, found.into());
        }
    }

    fn count_for_subscriber(&mut self, binding: &Binding, more: u32) {
        if let Some(count) = self.unanswered_of_subscriber.get_mut(binding.subscriber as usize) {
            *count = count.saturating_add(more);
        }
    }

    fn sessions(&mut self, tables: &Tables, first: usize, lines: usize, now: Tick, policy: &mut impl Policy) {
        let decide = |session: &Session| {
            let verdict = policy.session(session, now);
            if verdict != Sweep::Remove {
                self.note(session);
            }
            verdict
        };
        tables.sweep_sessions(first, lines, decide);
    }

    /// A session stays, and its binding with it.
    fn note(&mut self, session: &Session) {
        let id = session.key.binding.get() as usize;
        if let Some(mark) = self.marks.get_mut(id / 64) {
            *mark |= 1 << (id % 64);
        }
        if session.flags & UNANSWERED != 0
            && let Some(count) = self.unanswered.get_mut(id)
        {
            *count = count.saturating_add(1);
        }
    }

    fn bindings(&mut self, tables: &Tables, part: usize, now: Tick, policy: &mut impl Policy) {
        for id in tables.bindings.used(part) {
            let first = tables.bindings.sweep_first(id, |session| policy.session(session, now));
            if let Some(session) = first {
                self.note(&session);
            }
            self.count_of_binding(tables, id);
            if self.marks[part] & 1 << (id.get() % 64) != 0 {
                continue;
            }
            let Some((binding, touched)) =
                tables.bindings.read(id).filter(|(b, _)| b.flags & (flags::STATIC | flags::LEASED) == 0)
            else {
                continue;
            };
            let Some(counts_as) = policy.counts_as_touched(&binding, touched) else { continue };
            let lifetime = policy.binding_lifetime(&binding);
            if self.began.since(counts_as) < lifetime.max(GRACE) {
                // Kept by the outside alone.
                if lifetime != 0 && now.since(tables.bindings.seen(id)) >= lifetime {
                    self.count_for_subscriber(&binding, 1);
                }
            } else if tables.unbind(id, &binding, touched, now) {
                policy.binding_removed(id, &binding);
            }
        }
    }

    fn subscribers(&mut self, tables: &Tables, part: usize, now: Tick, policy: &mut impl Policy) {
        for id in tables.subscribers.used(part) {
            let found = self.unanswered_of_subscriber.get_mut(id.get() as usize).map(std::mem::take);
            tables.subscribers.change_unanswered(id, |count| found.unwrap_or(count));
            let Some((subscriber, seen)) = tables.subscribers.read(id) else {
                continue;
            };
            let goes = self.began.since(seen) >= GRACE && policy.dismisses(&subscriber);
            if goes && tables.dismiss(id, &subscriber, seen, now) {
                policy.subscriber_removed(&subscriber);
            }
        }
    }
}
