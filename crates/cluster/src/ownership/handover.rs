//! Handing a slice over while both nodes live: the backup becomes the owner, and the owner the backup. Nothing is lost, and nothing granted
//! twice.
//!
//! ```text
//!   owner                                  etcd                           backup, the successor
//!   ceases to grant
//!   waits until all is acknowledged   <------------------------------     has all that the owner has
//!   asks                              ->   owner = successor,
//!                                          backup = former owner,    ->   adopts its copy, grants, announces
//!                                          epoch + 1
//!   hears, and serves what is known
//!   until the successor is heard      <------------------------------     says that it is the owner
//!   redirects; its tables are a copy
//! ```
//!
//! Until the transaction is asked for, all can be taken back. Afterwards nobody knows whether it is carried out until etcd says so, and nothing
//! is granted meanwhile: what could come of it must be carried out, or be made void by another change of the slice's key.
//!
//! The slice is PROTECTED all the time. The successor grants what it has offered, and the former owner has acknowledged; blocks that the former
//! owner had offered rest, as after a takeover, since a later process of it may not know that it had ceased to grant.

use super::action::{Compare, Role};
use super::agent::Agent;
use super::assignment::{Assignment, Cause, Phase};
use super::change::Claim;
use super::event::CopyState;
use super::node::Node;
use super::number::Revision;
use super::plan::MOVES;
use super::time::Moment;
use super::view::{Handing, Slice};

/// So long nothing is granted, at most, until the backup has all, in milliseconds.
const PATIENCE: u64 = 1000;
/// One that came to nothing is tried again after so long.
const RETRY: u64 = 5000;
/// So long the former owner goes on for what is known, if it does not hear its successor.
const LINGERING: u64 = 200;

impl Agent {
    /// Begins the handovers that are due, and ends those that come to nothing, or are over.
    pub(super) fn see_to_handovers(&mut self, now: Moment) {
        for number in 0..self.count() {
            match self.slice(number).handing {
                None if self.may_begin(number, now) => self.slice_mut(number).handing = Some(Handing::Frozen(now)),
                Some(Handing::Frozen(since)) if !self.may_go_on(number, now) || now.since(since) >= PATIENCE => {
                    let slice = self.slice_mut(number);
                    (slice.handing, slice.rests_until) = (None, now + RETRY);
                }
                Some(Handing::Done { at, .. }) if now.since(at) >= LINGERING => self.slice_mut(number).handing = None,
                _ => {}
            }
        }
    }

    fn may_begin(&self, number: u16, now: Moment) -> bool {
        let slice = self.slice(number);
        let Some(backup) = self.successor(slice) else { return false };
        let is_protected = slice.assigned.is_some_and(|assigned| assigned.phase == Phase::Protected);
        matches!(slice.role, Role::Owner { .. })
            && is_protected
            && slice.protecting.is_none()
            && slice.copying.0 >= CopyState::Whole
            && now >= slice.rests_until
            && self.nodes().serving().any(|node| node == backup)
            && self.due_successor(number, now) == Some(backup)
            && self.may_go_on(number, now)
    }

    fn may_go_on(&self, number: u16, now: Moment) -> bool {
        let slice = self.slice(number);
        let is_there = self.successor(slice).is_some_and(|backup| self.nodes().created(backup).is_some());
        is_there && slice.copying.0 > CopyState::Broken && slice.heard.is_none() && now < self.deadline()
    }

    /// The backup of a slice that is this node's.
    fn successor(&self, slice: &Slice) -> Option<Node> {
        let assigned = slice.assigned?;
        let is_own = assigned.owner == self.own() && self.created() == Some(assigned.owner_revision);
        assigned.backup.filter(|_| is_own)
    }

    /// The next slices to hand over, all to one node, with the own key made at `own`. Else those for which that was asked and is not wanted any
    /// more: what was asked is void once their keys have changed.
    pub(super) fn hand_over(&self, own: Revision) -> Option<Claim> {
        let all = || (0..self.count()).filter(|number| matches!(self.slice(*number).role, Role::Handing { .. }));
        let ready = |number: u16| Some((number, self.handed_over(number)?));
        let mut compares = vec![Compare::NodeIs(self.own(), own)];
        let (_, first) = all().find_map(ready).unzip();
        let puts: Vec<(u16, Assignment)> = match first {
            Some(Assignment { owner, owner_revision, .. }) => {
                compares.push(Compare::NodeIs(owner, owner_revision));
                all().filter_map(ready).filter(|(_, put)| put.owner == owner).take(MOVES).collect()
            }
            None => all().filter_map(|number| Some((number, self.kept_back(number)?))).collect(),
        };
        compares.extend(puts.iter().map(|(number, _)| Compare::SliceIs(*number, self.slice(*number).modified)));
        (!puts.is_empty()).then_some(Claim { compares, puts })
    }

    /// A slice whose backup has all of it becomes that one's.
    fn handed_over(&self, number: u16) -> Option<Assignment> {
        let slice = self.slice(number);
        let is_ready = slice.copying.0 == CopyState::Settled && slice.heard.is_none();
        let assigned = slice.assigned.filter(|_| is_ready)?;
        let owner = self.successor(slice)?;
        let owner_revision = self.nodes().created(owner)?;
        let (epoch, backup, cause) = (assigned.epoch.next(), Some(self.own()), Cause::Handover);
        Some(Assignment { owner, owner_revision, epoch, backup, phase: Phase::Protected, cause })
    }

    /// A slice stays as it is.
    fn kept_back(&self, number: u16) -> Option<Assignment> {
        let slice = self.slice(number);
        let was_asked = slice.handing == Some(Handing::Asked) && self.successor(slice).is_some();
        let assigned = slice.assigned.filter(|_| was_asked)?;
        Some(assigned.with_backup(assigned.backup, assigned.phase))
    }
}
