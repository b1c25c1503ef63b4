//! Which slices a node claims that have no owner, or whose owner is gone, and as what.
//!
//! | owner | this node | claims it |
//! |---|---|---|
//! | there was none | its place among the nodes says so | when the nodes have appeared |
//! | gone | was it, and has its tables | at once: Return |
//! | gone | is its backup, with a whole copy | at once: Takeover |
//! | gone | was it, without its tables | at once if there is no whole copy either; soon, if the backup is there and does not take over: Vacant |
//! | gone for 40 s, or its backup as well and an operator says so | its place among the nodes says so | Vacant |
//!
//! There is no whole copy if the slice was not PROTECTED, or its backup is in a life that began without copies after the slice's key was
//! changed last: so it is when a whole site has had no power.
//!
//! Nothing is claimed of an owner to whom this node has promised that, for as long as it has (`grace`).
//!
//! Two that claim the same slice are no fault: etcd carries out one transaction, and then the other one's compares do not hold.

use super::action::Compare;
use super::agent::Agent;
use super::assignment::{Assignment, Cause, Epoch, Phase};
use super::change::{AT_ONCE, Claim};
use super::node::Node;
use super::number::Revision;
use super::time::Moment;
use super::view::Slice;

/// A slice is not taken over again so soon after it was, in milliseconds.
const REST: u64 = 5000;
/// So long nodes that start together are waited for, until slices that nobody had are shared out.
const GATHERING: u64 = 3000;
/// So long a backup that is there has time to take over, when the owner is back without tables.
const COURTESY: u64 = 3000;
/// So long whoever has a slice's state has time to come back.
const VACANCY: u64 = 40_000;
/// So much later whoever should claim a slice is not waited for any more.
const IMPATIENCE: u64 = 10_000;

impl Agent {
    /// The next slices to claim with the own key made at `own`, if there are any.
    pub(super) fn claim(&self, own: Revision, now: Moment) -> Option<Claim> {
        let claimed = |number: &u16| Some((*number, self.cause_to_claim(*number, now)?));
        let mut all = (0..self.count()).filter_map(|number| claimed(&number));
        let (first, cause) = all.next()?;
        let owner_of = |slice: &Slice| slice.assigned.map(|assigned| (assigned.owner, assigned.owner_revision));
        let gone = owner_of(self.slice(first));
        let like = all.filter(|(number, _)| owner_of(self.slice(*number)) == gone);
        let mut claim = Claim { compares: vec![Compare::NodeIs(self.own(), own)], puts: Vec::new() };
        if let Some((owner, revision)) = gone
            && owner != self.own()
        {
            claim.compares.push(Compare::NodeIsNot(owner, revision));
        }
        for (number, cause) in std::iter::once((first, cause)).chain(like).take(AT_ONCE) {
            let slice = self.slice(number);
            let epoch = slice.assigned.map_or(Epoch(1), |assigned| assigned.epoch.next());
            let phase = Phase::Single;
            let put = Assignment { owner: self.own(), owner_revision: own, epoch, backup: None, phase, cause };
            claim.compares.push(Compare::SliceIs(number, slice.modified));
            claim.puts.push((number, put));
        }
        Some(claim)
    }

    fn cause_to_claim(&self, number: u16, now: Moment) -> Option<Cause> {
        let slice = self.slice(number);
        let Some(assigned) = slice.assigned else {
            let since = self.nodes().appeared + GATHERING;
            return self.is_turn(number, since, now).then_some(Cause::First);
        };
        let gone = slice.gone.filter(|_| slice.heard.is_none())?;
        if slice.moved.is_some_and(|moved| now.since(moved) < REST) {
            return None;
        }
        let is_own = assigned.owner == self.own();
        if !is_own && self.promises().bind(assigned.owner, now) {
            return None;
        }
        let is_protected = assigned.phase == Phase::Protected;
        let backup = assigned.backup.filter(|_| is_protected);
        match backup {
            _ if is_own && slice.is_held() => Some(Cause::Return),
            None if is_own => Some(Cause::Vacant),
            Some(backup) if backup == self.own() && slice.is_held() => Some(Cause::Takeover),
            Some(backup) if is_own && self.has_lost_its_copy(backup, slice) => Some(Cause::Vacant),
            Some(backup) if is_own && self.has_waited_for(backup, gone, now) => Some(Cause::Vacant),
            _ => {
                let patience = if self.is_given_up(number, backup) { 0 } else { VACANCY };
                self.is_turn(number, gone + patience, now).then_some(Cause::Vacant)
            }
        }
    }

    /// Whether an operator says that nobody comes back who has the state of a slice, and nobody is there who has it.
    fn is_given_up(&self, number: u16, backup: Option<Node>) -> bool {
        let epoch = self.slice(number).assigned.map(|assigned| assigned.epoch);
        let is_there = backup.is_some_and(|backup| self.nodes().created(backup).is_some());
        !is_there && epoch.is_some() && self.wishes().assumed.get(&number).copied() == epoch
    }

    /// Whether a backup is there that had a whole copy in an earlier life only.
    fn has_lost_its_copy(&self, backup: Node, slice: &Slice) -> bool {
        let presence = self.nodes().presence(backup);
        presence.is_some_and(|presence| presence.began_bare && presence.created > slice.modified)
    }

    /// Whether a backup is there, and has had time to take over what this node has lost.
    fn has_waited_for(&self, backup: Node, gone: Moment, now: Moment) -> bool {
        self.nodes().created(backup).is_some() && now.since(gone.max(self.nodes().appeared)) >= COURTESY
    }

    /// Whether it is this node that claims a slice which any node may claim since a moment: nodes take turns by the slices' numbers.
    fn is_turn(&self, number: u16, since: Moment, now: Moment) -> bool {
        let takers = self.takers();
        let Some(place) = takers.iter().position(|node| *node == self.own()) else { return false };
        now >= since && (usize::from(number) % takers.len() == place || now >= since + IMPATIENCE)
    }
}
