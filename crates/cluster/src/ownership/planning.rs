//! What a node does of the plan: which of its slices are to go where, and when.
//!
//! A node that was away for a moment is not given slices that it had a moment ago, and others do not share out what it is about to have
//! again: for the sake of balance nothing moves until all is calm, nor while an operator has all held. What an operator wants is done at once; and a node that cannot serve any more gives its slices to those who have their copies.

use super::agent::Agent;
use super::node::Node;
use super::plan::Target;
use super::time::Moment;

/// So long no node has come or gone, and no owner is gone, until slices move for the sake of balance, in milliseconds.
const SETTLING: u64 = 10_000;
/// So long after its copy was broken a node is not given another one by plan.
const DISTRUST: u64 = 15_000;

impl Agent {
    /// Whether the node is to be drained, and others are not: it is no entrance then.
    pub(super) fn is_left_out(&self) -> bool {
        self.wishes().drained.contains(&self.own()) && self.takers() != [self.own()]
    }

    /// The nodes that take slices: those that serve and are not to be drained, or, where all are, those that serve.
    pub(super) fn takers(&self) -> Vec<Node> {
        let serving: Vec<Node> = self.nodes().serving().collect();
        let takers: Vec<Node> = serving.iter().copied().filter(|node| !self.wishes().drained.contains(node)).collect();
        if takers.is_empty() { serving } else { takers }
    }

    /// Whether this node does not serve any more what it has, and is not drained: it has no way to the routers, or it ends. One that has just begun
    /// may have one in a moment.
    fn has_lost_its_way(&self) -> bool {
        self.has_served() && self.is_away()
    }

    fn is_away(&self) -> bool {
        let (own, nodes) = (self.own(), self.nodes());
        !nodes.serves(own) && !nodes.drains(own)
    }

    /// The node to which a slice of this one's is to go now, as its owner. Where this one has lost its way that is whoever has the copy already:
    /// another one would have none if this process ends before it has.
    pub(super) fn due_successor(&self, number: u16, now: Moment) -> Option<Node> {
        if self.has_lost_its_way() {
            let backup = self.slice(number).assigned.and_then(|assigned| assigned.backup);
            return backup.filter(|backup| self.nodes().serves(*backup));
        }
        self.due(number, now).map(|target| target.owner).filter(|owner| *owner != self.own())
    }

    /// The node that should have the copy of a slice of this one's: its owner-to-be, or its backup-to-be.
    pub(super) fn successor_or_backup(&self, number: u16) -> Option<Node> {
        let target = self.plan().target(number)?;
        if target.owner == self.own() { target.backup } else { Some(target.owner) }
    }

    /// The node that is to have it from now on instead of the present backup.
    pub(super) fn planned_backup(&self, number: u16, now: Moment) -> Option<Node> {
        self.due(number, now)?;
        let slice = self.slice(number);
        let is_distrusted =
            |node: Node| slice.avoided.is_some_and(|(avoided, at)| avoided == node && now.since(at) < DISTRUST);
        let backup = slice.assigned.and_then(|assigned| assigned.backup);
        let planned = self.successor_or_backup(number).filter(|node| Some(*node) != backup && *node != self.own());
        planned.filter(|node| self.nodes().serving().any(|serving| serving == *node) && !is_distrusted(*node))
    }

    /// Who should have a slice of this node's, if it is to move now.
    fn due(&self, number: u16, now: Moment) -> Option<Target> {
        let is_to_be_drained = self.wishes().drained.contains(&self.own());
        if self.has_lost_its_way() || self.is_away() && !is_to_be_drained {
            return None;
        }
        let target = self.plan().target(number).filter(|_| self.plan().moves().contains(&number))?;
        let is_due = self.plan().is_wished(number) || !self.wishes().is_held && self.is_calm(now);
        is_due.then_some(target)
    }

    fn is_calm(&self, now: Moment) -> bool {
        let is_gone = |number: u16| self.slice(number).gone.is_some();
        now.since(self.nodes().changed) >= SETTLING && !(0..self.count()).any(is_gone)
    }
}
