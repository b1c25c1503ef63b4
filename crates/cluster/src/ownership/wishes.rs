//! What operators want of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::assignment::Epoch;
use super::node::Node;

/// One thing that is wanted, or no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Whether a node is to be drained: it gives its slices away, takes none, and is no entrance.
    Drain(Node, bool),
    /// The node that is to own a slice, whatever its share is, for as long as it takes slices.
    Pin(u16, Option<Node>),
    /// Owner and backup of a slice in this epoch are gone for good: another node takes it at once, without its state.
    Assume(u16, Option<Epoch>),
    /// Whether nothing is to move for the sake of balance. What else is wanted does.
    Hold(bool),
}

/// All that is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Nodes that are to be drained.
    pub drained: BTreeSet<Node>,
    /// Slices, and the nodes that are to own them.
    pub pins: BTreeMap<u16, Node>,
    /// Slices, and the epochs whose owners and backups are gone for good.
    pub assumed: BTreeMap<u16, Epoch>,
    /// Nothing is to move for the sake of balance.
    pub is_held: bool,
}

impl Wishes {
    /// Takes one in.
    pub fn take(&mut self, wish: Wish) {
        match wish {
            Wish::Drain(node, true) => self.drained.extend([node]),
            Wish::Drain(node, false) => self.drained.retain(|drained| *drained != node),
            Wish::Pin(slice, node) => put(&mut self.pins, slice, node),
            Wish::Assume(slice, epoch) => put(&mut self.assumed, slice, epoch),
            Wish::Hold(is_held) => self.is_held = is_held,
        }
    }
}

fn put<T>(to: &mut BTreeMap<u16, T>, slice: u16, value: Option<T>) {
    match value {
        Some(value) => to.extend([(slice, value)]),
        None => to.retain(|kept, _| *kept != slice),
    }
}
