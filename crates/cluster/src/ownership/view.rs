//! What a node knows: of etcd, as late as that may be, and of the slices besides.

use std::collections::BTreeMap;

use super::action::Role;
use super::assignment::{Assignment, Cause, Epoch, Phase};
use super::event::{CopyState, Reading};
use super::node::{Node, Presence};
use super::number::Revision;
use super::plan::Member;
use super::time::Moment;
use super::wishes::Wishes;

/// The nodes whose keys are there, as far as is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    present: BTreeMap<Node, Presence>,
    /// When one was seen that had not been there, or had taken no slices.
    pub(super) appeared: Moment,
    /// When one was seen to come or go: to appear, to begin or cease to take slices, or to be there no more.
    pub(super) changed: Moment,
}

/// A handover, at its present owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handing {
    /// Since then nothing is granted. etcd does not know of it.
    Frozen(Moment),
    /// A transaction was sent that gives the slice away. It may have been carried out, or may still be: nothing is granted until that is known.
    Asked,
    /// This ownership has ended by it, at this moment. The successor may not have heard of it.
    Done { epoch: Epoch, at: Moment },
}

/// A slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    /// What etcd has, since which revision.
    pub(super) assigned: Option<Assignment>,
    pub(super) modified: Revision,
    /// When its owner was seen to change.
    pub(super) moved: Option<Moment>,
    /// Since when its owner is seen to be gone.
    pub(super) gone: Option<Moment>,
    /// A higher epoch, and its owner, which etcd has not said yet.
    pub(super) heard: Option<(Epoch, Option<Node>)>,
    /// The tables have all of it, as of this epoch.
    pub(super) holds: Option<Epoch>,
    /// The own lease was lost since its owner was heard, or its key was changed: the copy here may be older than it seems.
    pub(super) is_doubted: bool,
    /// How the copy at its backup stands, since when.
    pub(super) copying: (CopyState, Moment),
    /// A transaction that protects it, from this revision, may have been carried out.
    pub(super) protecting: Option<Revision>,
    /// The backup whose copy was broken last, and when.
    pub(super) avoided: Option<(Node, Moment)>,
    /// How far its handover is, if there is one.
    pub(super) handing: Option<Handing>,
    /// One that came to nothing is not tried again before.
    pub(super) rests_until: Moment,
    /// What was said of it last.
    pub(super) role: Role,
    pub(super) metric: Option<u32>,
}

impl Nodes {
    /// What a node's key says.
    pub(super) fn presence(&self, node: Node) -> Option<&Presence> {
        self.present.get(&node)
    }

    /// When a node's key was made.
    pub(super) fn created(&self, node: Node) -> Option<Revision> {
        self.presence(node).map(|presence| presence.created)
    }

    pub(super) fn replace(&mut self, reading: &Reading, now: Moment) {
        let former = std::mem::take(&mut self.present);
        self.present.extend(reading.nodes.iter().copied());
        if self.present.iter().any(|(node, presence)| has_appeared(former.get(node), presence)) {
            (self.appeared, self.changed) = (now, now);
        }
        if former.iter().any(|(node, presence)| has_gone(presence, self.present.get(node))) {
            self.changed = now;
        }
    }

    pub(super) fn see(&mut self, node: Node, presence: Presence, now: Moment) {
        let former = self.present.insert(node, presence);
        if has_appeared(former.as_ref(), &presence) {
            (self.appeared, self.changed) = (now, now);
        }
        if former.is_some_and(|former| has_gone(&former, Some(&presence))) {
            self.changed = now;
        }
    }

    pub(super) fn lose(&mut self, node: Node, now: Moment) {
        if self.present.remove(&node).is_some() {
            self.changed = now;
        }
    }

    /// The nodes among which slices are shared out, if so much is wished for.
    pub(super) fn members(&self, wishes: &Wishes) -> Vec<Member> {
        let member = |(node, presence): (&Node, &Presence)| {
            let is_drained = wishes.drained.contains(node);
            presence.is_serving.then_some(Member { node: *node, weight: presence.weight, is_drained })
        };
        self.present.iter().filter_map(member).collect()
    }

    /// Whether a node is there and takes slices.
    pub(super) fn serves(&self, node: Node) -> bool {
        self.present.get(&node).is_some_and(|presence| presence.is_serving)
    }

    /// Whether a node drains, as it says itself.
    pub(super) fn drains(&self, node: Node) -> bool {
        self.present.get(&node).is_some_and(|presence| presence.is_draining)
    }

    /// The nodes that take slices and copies, in order.
    pub(super) fn serving(&self) -> impl Iterator<Item = Node> {
        self.present.iter().filter(|(_, presence)| presence.is_serving).map(|(node, _)| *node)
    }
}

/// Whether it is another life of a node, or one that begins to take slices.
fn has_appeared(was: Option<&Presence>, is: &Presence) -> bool {
    was.is_none_or(|was| was.created != is.created || is.is_serving && !was.is_serving)
}

/// Whether it is there no more, or has ceased to take slices: it may be back soon.
fn has_gone(was: &Presence, is: Option<&Presence>) -> bool {
    is.is_none_or(|is| was.is_serving && !is.is_serving)
}

impl Slice {
    pub(super) const fn new() -> Self {
        Self {
            assigned: None,
            modified: Revision(0),
            moved: None,
            gone: None,
            heard: None,
            holds: None,
            is_doubted: false,
            copying: (CopyState::Broken, Moment(0)),
            protecting: None,
            avoided: None,
            handing: None,
            rests_until: Moment(0),
            role: Role::Nobody,
            metric: None,
        }
    }

    /// Its key has this value since this revision. What is older than what is known is left out.
    pub(super) fn assign(&mut self, assigned: Assignment, modified: Revision, now: Moment, is_first: bool) {
        if modified <= self.modified {
            return;
        }
        let former = self.assigned.replace(assigned);
        (self.modified, self.is_doubted) = (modified, false);
        let was_asked = self.handing.take() == Some(Handing::Asked);
        if let Some(epoch) = former.map(|former| former.epoch)
            && was_asked
            && assigned.cause == Cause::Handover
            && assigned.epoch == epoch.next()
        {
            self.handing = Some(Handing::Done { epoch, at: now });
        }
        if former.map(|former| former.epoch) != Some(assigned.epoch) {
            // Whoever has it first has taken it from nobody, and whoever was given it neither.
            let is_taken = !is_first && former.is_some() && assigned.cause != Cause::Handover;
            self.moved = is_taken.then_some(now).or(self.moved);
            self.gone = None;
        }
        if former.map(|former| (former.epoch, former.backup)) != Some((assigned.epoch, assigned.backup)) {
            self.copying = (CopyState::Broken, now);
        }
        if self.heard.is_some_and(|(epoch, _)| epoch <= assigned.epoch) {
            self.heard = None;
        }
        if self.protecting.is_some_and(|base| base < modified) {
            self.protecting = None;
        }
    }

    /// How its copy stands. A copy is whole only after the node has begun to grant by offers, and settled after it has ceased to grant.
    pub(super) fn copy(&mut self, backup: Node, state: CopyState, now: Moment) {
        if self.assigned.and_then(|assigned| assigned.backup) != Some(backup) {
            return;
        }
        let most = match self.role {
            Role::Handing { .. } => CopyState::Settled,
            Role::Owner { by_offers: true, .. } => CopyState::Whole,
            _ => CopyState::Near,
        };
        let state = state.min(most);
        let (was, since) = self.copying;
        if was != state {
            let is_broken_still = was.max(state) <= CopyState::Broken;
            self.copying = (state, if is_broken_still { since } else { now });
        }
        if state <= CopyState::Broken {
            self.avoided = Some((backup, now));
        }
    }

    /// Somebody owns it with this epoch.
    pub(super) fn hear(&mut self, epoch: Epoch, owner: Option<Node>) {
        let known = self.assigned.map_or(Epoch(0), |assigned| assigned.epoch);
        let is_news = match self.heard {
            Some((heard, by)) => epoch > heard || epoch == heard && by.is_none(),
            None => epoch > known,
        };
        if is_news {
            self.heard = Some((epoch, owner));
        }
        if matches!(self.handing, Some(Handing::Done { epoch: ended, .. }) if epoch > ended) {
            self.handing = None;
        }
    }

    /// The epoch as of which the tables here are a whole copy, since this node has handed the slice over with all that they have: etcd says so,
    /// or the successor does, and nothing was granted since it was asked for.
    pub(super) fn kept(&self, own: Node) -> Option<Epoch> {
        let assigned = self.assigned?;
        match (self.handing, self.heard) {
            (Some(Handing::Asked), Some((epoch, by))) => {
                (by.is_some() && by == assigned.backup && epoch == assigned.epoch.next()).then_some(epoch)
            }
            (None, None) => {
                let is_backup = assigned.backup == Some(own) && assigned.phase == Phase::Protected;
                (assigned.cause == Cause::Handover && is_backup).then_some(assigned.epoch)
            }
            _ => None,
        }
    }

    /// Whether all of it is here, as of its present owner.
    pub(super) fn is_held(&self) -> bool {
        self.assigned.is_some_and(|assigned| self.holds == Some(assigned.epoch))
    }

    /// Whether only offered blocks may be granted: a backup may take over and go by what it knows, or will be able to before this node
    /// hears of it.
    pub(super) fn is_by_offers(&self) -> bool {
        match self.assigned.map(|assigned| assigned.phase) {
            Some(Phase::Protected) => true,
            Some(Phase::Syncing) => self.protecting.is_some() || self.copying.0 >= CopyState::Near,
            Some(Phase::Single) | None => false,
        }
    }
}
