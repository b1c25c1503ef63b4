//! Which node should have which slice: the target table, and which slices move next. A pure function of what is in etcd, so all agents that
//! have read the same compute the same, and nobody has to be elected. Owners carry it out, each for its own slices.
//!
//! ```text
//!   who takes slices   nodes that serve and are not to be drained, by their weights
//!   owners             a slice that is pinned goes where it is pinned; of the rest each node has its share, rounded down or up
//!   backups            of each owner's slices each other node has its share, rounded down or up
//!   few moves          whoever has a slice keeps it, up to its share; what must move goes to its backup, if that one lacks slices
//! ```
//!
//! ```text
//!   (o, b) -> (b, o)       handover: the backup becomes the owner, and the owner the backup
//!   (o, b) -> (t, o)       t becomes the backup; then handover
//!   (o, b) -> (o, t)       t becomes the backup
//! ```
//!
//! What an operator wants comes first: what is done for the sake of balance may have to wait, and no wish waits for it. Then owners do: while
//! one has to change no backup is changed, since that may turn out to be in vain.

mod shares;

use std::collections::{BTreeMap, BTreeSet};

use self::shares::{Thing, Weights, share};
use super::assignment::{Assignment, Phase};
use super::node::Node;

/// So many slices are on the move at a time, in the whole cluster.
pub const MOVES: usize = 8;

/// A node that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Which one.
    pub node: Node,
    /// Its share of the slices, in proportion to others'. 0: it is to have none.
    pub weight: u32,
    /// It is to give its slices away.
    pub is_drained: bool,
}

/// Who should have a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Who should serve it.
    pub owner: Node,
    /// Who should have the copy; nobody, if there is no other node.
    pub backup: Option<Node>,
}

/// The target table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    targets: Vec<Option<Target>>,
    moves: Vec<u16>,
    /// Those of them that an operator wants.
    wished: BTreeSet<u16>,
}

/// Why a slice moves; what comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// It is pinned, or its owner or its backup takes no slices any more.
    Wish,
    /// Others have less.
    Balance,
}

/// How far a slice is on its way; what is nearly there comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Its backup is to be its owner.
    HandOver,
    /// Somebody else is.
    Move,
    /// Its backup is to be another one.
    BackUp,
}

impl Plan {
    /// For slices that have these assignments, or none yet, and those of them that are pinned to nodes.
    #[must_use]
    pub fn of(members: &[Member], slices: &[Option<Assignment>], pins: &BTreeMap<u16, Node>) -> Self {
        let takers = |except: Option<Node>| -> Weights {
            let takers = members.iter().filter(|it| !it.is_drained && it.weight > 0 && Some(it.node) != except);
            takers.map(|member| (member.node, member.weight)).collect()
        };
        let owners = owners(&takers(None), slices, pins);
        let mut targets: Vec<Option<Target>> =
            owners.iter().map(|owner| owner.map(|owner| Target { owner, backup: None })).collect();
        for owner in owners.iter().flatten().copied().collect::<BTreeSet<Node>>() {
            let mut others = takers(Some(owner));
            if others.is_empty() {
                // A copy at a node that is to be drained is better than none.
                let any = members.iter().filter(|member| member.node != owner);
                others = any.map(|member| (member.node, member.weight.max(1))).collect();
            }
            back_up(owner, &others, slices, &mut targets);
        }
        let is_leaving = |node: Node| !members.iter().any(|member| member.node == node && !member.is_drained);
        let why = |number: u16, slice: &Assignment, target: Target| {
            let is_staying = slice.owner == target.owner;
            let backup = if is_staying { target.backup } else { Some(target.owner) };
            let is_wished = slice.backup.is_some_and(is_leaving) && !backup.is_some_and(is_leaving)
                || !is_staying && (is_leaving(slice.owner) || pins.get(&number) == Some(&target.owner));
            if is_wished { Why::Wish } else { Why::Balance }
        };
        let moves = moves(slices, &targets, why);
        let wished = moves.iter().filter(|(why, _)| *why == Why::Wish).map(|(_, number)| *number).collect();
        Self { targets, moves: moves.into_iter().map(|(_, number)| number).collect(), wished }
    }

    /// Who should have a slice; nothing, if no node takes any.
    #[must_use]
    pub fn target(&self, slice: u16) -> Option<Target> {
        self.targets.get(usize::from(slice)).copied().flatten()
    }

    /// The slices that move now, [`MOVES`] at most.
    #[must_use]
    pub fn moves(&self) -> &[u16] {
        &self.moves
    }

    /// Whether a slice moves now since an operator wants it, and not for the sake of balance.
    #[must_use]
    pub fn is_wished(&self, slice: u16) -> bool {
        self.wished.contains(&slice)
    }
}

/// Who should own each slice.
fn owners(takers: &Weights, slices: &[Option<Assignment>], pins: &BTreeMap<u16, Node>) -> Vec<Option<Node>> {
    let thing = |(number, slice): (u16, &Option<Assignment>)| Thing {
        pinned: pins.get(&number).copied(),
        present: slice.map(|slice| slice.owner),
        easiest: slice.and_then(|slice| slice.backup),
    };
    share(&(0..).zip(slices).map(thing).collect::<Vec<_>>(), takers)
}

/// Decides who should have the copies of the slices that `owner` should own. A slice's former owner has all of it.
fn back_up(owner: Node, others: &Weights, slices: &[Option<Assignment>], targets: &mut [Option<Target>]) {
    let is_of_owner = |target: &Option<Target>| target.is_some_and(|target| target.owner == owner);
    let places: Vec<usize> = (0..targets.len()).filter(|place| is_of_owner(&targets[*place])).collect();
    let natural = |slice: &Assignment| {
        let former = (slice.owner != owner && others.contains_key(&slice.owner)).then_some(slice.owner);
        former.or(slice.backup)
    };
    let thing = |place: &usize| Thing { present: slices[*place].as_ref().and_then(natural), ..Thing::default() };
    let backups = share(&places.iter().map(thing).collect::<Vec<_>>(), others);
    for (place, backup) in places.into_iter().zip(backups) {
        targets[place] = Some(Target { owner, backup });
    }
}

/// The slices that move now, and why. Copies that are being made count as well.
fn moves(
    slices: &[Option<Assignment>],
    targets: &[Option<Target>],
    why: impl Fn(u16, &Assignment, Target) -> Why,
) -> Vec<(Why, u16)> {
    let mut all: Vec<(bool, Why, Way, u16)> = Vec::new();
    let mut busy = 0;
    for ((number, slice), target) in (0..).zip(slices).zip(targets) {
        let Some((slice, target)) = slice.as_ref().zip(*target) else { continue };
        let is_copied = slice.phase == Phase::Syncing;
        match way(slice, target) {
            // What is under way comes to its end first.
            Some(way) => all.push((!is_copied, why(number, slice, target), way, number)),
            None => busy += usize::from(is_copied),
        }
    }
    all.sort_unstable();
    let first = all.iter().filter(|(.., way, _)| *way != Way::BackUp).map(|(_, why, ..)| *why).min();
    all.retain(|(_, why, way, _)| *way != Way::BackUp || first.is_none_or(|first| *why < first));
    all.into_iter().map(|(_, why, _, number)| (why, number)).take(MOVES.saturating_sub(busy)).collect()
}

fn way(slice: &Assignment, target: Target) -> Option<Way> {
    match () {
        () if slice.owner != target.owner && slice.backup == Some(target.owner) => Some(Way::HandOver),
        () if slice.owner != target.owner => Some(Way::Move),
        // One that has none gets one at once.
        () if slice.backup.is_some() && target.backup.is_some() && slice.backup != target.backup => Some(Way::BackUp),
        () => None,
    }
}
