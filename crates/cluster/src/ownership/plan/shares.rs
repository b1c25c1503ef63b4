//! Sharing things out: as even as weights allow, with as few as possible given to somebody else.

use std::collections::BTreeMap;

use super::super::node::Node;

/// Who shares, each with its weight.
pub(super) type Weights = BTreeMap<Node, u32>;
/// How many things each has, or is to have.
pub(super) type Counts = BTreeMap<Node, usize>;

/// A thing that is given to a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Thing {
    /// Who is to have it, whatever the shares are.
    pub(super) pinned: Option<Node>,
    /// Who has it.
    pub(super) present: Option<Node>,
    /// Who could have it most easily, if not that one.
    pub(super) easiest: Option<Node>,
}

/// Gives each thing to one of those who share; to nobody, if there are none. Whoever has a thing keeps it, unless it has more than its
/// share: the fewest possible are given to somebody else.
pub(super) fn share(things: &[Thing], weights: &Weights) -> Vec<Option<Node>> {
    let is_sharing = |node: &Node| weights.contains_key(node);
    let pinned = |thing: &Thing| thing.pinned.filter(is_sharing);
    let present = |thing: &Thing| thing.present.filter(is_sharing);
    let mut given: Vec<Option<Node>> = things.iter().map(pinned).collect();
    let pins = count(given.iter().copied());
    let held = count(things.iter().map(|thing| pinned(thing).or(present(thing))));
    let shares = shares(things.len(), weights, &pins, &held);
    let mut lacking =
        Lacking(shares.iter().map(|(node, share)| (*node, share.saturating_sub(of(&held, *node)))).collect());
    let homeless = |place: &usize| pinned(&things[*place]).is_none() && present(&things[*place]).is_none();
    let mut left: Vec<usize> = (0..things.len()).filter(homeless).collect();
    left.retain(|place| !lacking.give_easily(&things[*place], &mut given[*place]));
    for (node, share) in &shares {
        let is_kept = |place: &usize| pinned(&things[*place]).is_none() && present(&things[*place]) == Some(*node);
        let mut kept: Vec<usize> = (0..things.len()).filter(is_kept).collect();
        let mut surplus = of(&held, *node).saturating_sub(*share);
        kept.retain(|place| {
            let is_given = surplus > 0 && lacking.give_easily(&things[*place], &mut given[*place]);
            surplus -= usize::from(is_given);
            !is_given
        });
        left.extend(kept.split_off(kept.len() - surplus));
        kept.into_iter().for_each(|place| given[place] = Some(*node));
    }
    left.sort_unstable();
    left.into_iter().for_each(|place| given[place] = lacking.give());
    given
}

/// How many each lacks.
struct Lacking(Counts);

impl Lacking {
    /// Gives a thing to whom it is easiest to give, if that one lacks some.
    fn give_easily(&mut self, thing: &Thing, given: &mut Option<Node>) -> bool {
        let lacks = |node: &Node| of(&self.0, *node) > 0;
        let Some(node) = thing.easiest.filter(lacks) else { return false };
        self.take(node);
        *given = Some(node);
        true
    }

    /// Gives one to whoever lacks most.
    fn give(&mut self) -> Option<Node> {
        let most = self.0.iter().max_by_key(|(node, lacks)| (**lacks, std::cmp::Reverse(**node)));
        let node = *most.filter(|(_, lacks)| **lacks > 0)?.0;
        self.take(node);
        Some(node)
    }

    fn take(&mut self, node: Node) {
        self.0.entry(node).and_modify(|lacks| *lacks -= 1);
    }
}

/// How many of `total` each is to have: what its weight says, rounded down or up, or what is pinned to it, if that is more. Rounded up is
/// for those who have more already, so that few change hands.
fn shares(total: usize, weights: &Weights, pins: &Counts, held: &Counts) -> Counts {
    let mut full = Counts::new();
    loop {
        let rest: Weights =
            weights.iter().filter(|(node, _)| !full.contains_key(node)).map(|(n, w)| (*n, *w)).collect();
        let shares = proportional(total - full.values().sum::<usize>(), &rest, held);
        let over: Vec<Node> =
            shares.iter().filter(|(node, share)| of(pins, **node) > **share).map(|(n, _)| *n).collect();
        if over.is_empty() {
            full.extend(shares);
            return full;
        }
        full.extend(over.into_iter().map(|node| (node, of(pins, node))));
    }
}

fn proportional(total: usize, weights: &Weights, held: &Counts) -> Counts {
    let sum: u64 = weights.values().map(|weight| u64::from(*weight)).sum();
    if sum == 0 {
        return weights.keys().map(|node| (*node, 0)).collect();
    }
    let total_of = total as u64;
    let parts = |weight: u32| (total_of * u64::from(weight) / sum, total_of * u64::from(weight) % sum);
    #[expect(clippy::cast_possible_truncation, reason = "at most `total`, which is a usize")]
    let mut shares: Counts = weights.iter().map(|(node, weight)| (*node, parts(*weight).0 as usize)).collect();
    let mut rounded: Vec<Node> = weights.iter().filter(|(_, weight)| parts(**weight).1 > 0).map(|(n, _)| *n).collect();
    rounded.sort_by_key(|node| {
        let has_more = of(held, *node) > of(&shares, *node);
        (std::cmp::Reverse(has_more), std::cmp::Reverse(parts(weights[node]).1), *node)
    });
    let missing = total - shares.values().sum::<usize>();
    for node in rounded.into_iter().take(missing) {
        shares.entry(node).and_modify(|share| *share += 1);
    }
    shares
}

fn count(nodes: impl Iterator<Item = Option<Node>>) -> Counts {
    let mut counts = Counts::new();
    nodes.flatten().for_each(|node| *counts.entry(node).or_default() += 1);
    counts
}

pub(super) fn of(counts: &Counts, node: Node) -> usize {
    counts.get(&node).copied().unwrap_or_default()
}
