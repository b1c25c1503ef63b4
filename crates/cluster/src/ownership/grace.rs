//! Granting while etcd does not answer: an owner goes on for a while, as long as its backups promise not to take over.
//!
//! ```text
//!   owner                                      backup, which etcd does not answer either
//!   lease not renewed for 1 s: asks, at t  ->  claims nothing of the owner's for 2 s, by its own clock
//!   grants until t + 2 s - 50 ms           <-  says so
//!   asks again after 0.3 s                 ->  ...
//!   30 s after its lease it asks no more
//! ```
//!
//! The owner counts from before it asked, as it does with its lease, so its end comes first. A backup whose lease is renewed promises
//! nothing: it is there to take over. Nor does one that knows the owner's key to be gone, since it may have asked etcd for the slices already,
//! and that may be carried out yet. A process that has just begun claims nothing for as long as an earlier one may have promised.
//!
//! Other nodes claim nothing before the owner is gone for 40 s, and its grace is over by then. So slices without a backup need nobody's word.

use std::collections::BTreeSet;

use super::action::Action;
use super::agent::Agent;
use super::lease::MARGIN;
use super::node::Node;
use super::promises::PROMISE;
use super::time::Moment;

/// So long without a renewal a node takes etcd for silent, in milliseconds: two have gone without an answer.
const UNHEARD: u64 = 1000;
/// How often backups are asked.
const ASKING: u64 = 300;
/// So long after its lease an owner grants at most. Shorter than others wait for it to come back.
const GRACE: u64 = 30_000;

impl Agent {
    /// For how long this node may go on granting, at most, in milliseconds, if it does so by the word of its backups.
    #[must_use]
    pub fn grace(&self, now: Moment) -> Option<u64> {
        let is_by_grace = self.deadline() <= now && now < self.grants_until();
        is_by_grace.then(|| (self.deadline() + GRACE).since(now))
    }

    /// Until when this node may grant: by its lease, or by the word of its backups.
    pub(super) fn grants_until(&self) -> Moment {
        self.deadline().max(self.promised_until().unwrap_or_default())
    }

    /// Until when no backup of this node's takes over, as all have promised.
    fn promised_until(&self) -> Option<Moment> {
        let asked = self.promises().asked?;
        let lasts_until = |asked: Moment| asked + (PROMISE - MARGIN);
        let deadline = self.confirmed().map(|_| self.deadline())?;
        if lasts_until(asked) <= deadline {
            return None;
        }
        let given = |backup: &Node| self.promises().given.get(backup).copied();
        let oldest = self.own_backups().iter().try_fold(asked, |oldest, backup| Some(oldest.min(given(backup)?)))?;
        Some(lasts_until(oldest).min(deadline + GRACE))
    }

    /// The backups of this node's slices. Whoever has a copy that is not whole counts as well: an earlier process may have asked etcd to
    /// protect the slice by it.
    fn own_backups(&self) -> BTreeSet<Node> {
        let all = (0..self.count()).filter_map(|number| self.slice(number).assigned);
        let is_own = |owner: Node, made| owner == self.own() && self.created() == Some(made);
        all.filter(|assigned| is_own(assigned.owner, assigned.owner_revision))
            .filter_map(|assigned| assigned.backup)
            .collect()
    }

    /// Asks the backups, where it is time to.
    pub(super) fn ask(&mut self, now: Moment, act: &mut impl FnMut(Action)) {
        let is_unheard = self.confirmed().is_some_and(|at| now.since(at) >= UNHEARD);
        let is_due = self.promises().asked.is_none_or(|asked| now.since(asked) >= ASKING);
        if is_unheard && is_due && now < self.deadline() + GRACE {
            self.promises_mut().asked = Some(now);
            self.own_backups().into_iter().for_each(|backup| act(Action::Ask(backup, now.0)));
        }
    }

    /// Promises an owner what it asks for, if etcd does not answer here either, and nothing of its has been claimed.
    pub(super) fn answer(&mut self, owner: Node, number: u64, now: Moment, act: &mut impl FnMut(Action)) {
        let is_unheard = self.confirmed().is_none_or(|at| now.since(at) >= UNHEARD);
        let is_gone = |number: u16| {
            let slice = self.slice(number);
            slice.gone.is_some() && slice.assigned.is_some_and(|assigned| assigned.owner == owner)
        };
        let is_there = self.nodes().created(owner).is_some() && !(0..self.count()).any(is_gone);
        if is_unheard && is_there {
            self.promises_mut().bound.insert(owner, now + PROMISE);
            act(Action::Promise(owner, number));
        }
    }
}
