//! What nodes have promised each other: to claim nothing of an owner's for a while.

use std::collections::BTreeMap;

use super::node::Node;
use super::time::Moment;

/// So long a promise lasts, by the clock of whoever gives it, in milliseconds.
pub(super) const PROMISE: u64 = 2000;

/// What a node was promised, and what it has promised.
#[derive(Debug, Clone, Default)]
pub(super) struct Promises {
    /// When backups were asked last.
    pub(super) asked: Option<Moment>,
    /// When each node was asked for the newest promise that it has given.
    pub(super) given: BTreeMap<Node, Moment>,
    /// Until when this node claims nothing of others', as it has promised them.
    pub(super) bound: BTreeMap<Node, Moment>,
    /// Until when an earlier process of this node may have promised that.
    inherited: Option<Moment>,
}

impl Promises {
    /// The process runs. When that is said first it has begun.
    pub(super) fn begin(&mut self, now: Moment) {
        self.inherited.get_or_insert(now + PROMISE);
    }

    /// A node has promised what it was asked for then.
    pub(super) fn hear(&mut self, node: Node, asked: Moment, now: Moment) {
        // Nobody was asked later than now.
        if asked <= now {
            let newest = self.given.entry(node).or_insert(asked);
            *newest = asked.max(*newest);
        }
    }

    /// Whether nothing of a node's may be claimed.
    pub(super) fn bind(&self, owner: Node, now: Moment) -> bool {
        self.bound.get(&owner).copied().max(self.inherited).is_some_and(|until| now < until)
    }
}
