//! The plan, for clusters of all kinds: it is even, it moves little, and it is reached.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tombolo_cluster::ownership::{Assignment, Cause, Epoch, MOVES, Member, Node, Phase, Plan, Revision};

type Slices = Vec<Option<Assignment>>;

fn slice(owner: u8, backup: Option<u8>, phase: Phase) -> Assignment {
    let (owner, backup) = (Node(owner), backup.map(Node));
    Assignment { owner, owner_revision: Revision(1), epoch: Epoch(1), backup, phase, cause: Cause::First }
}

fn members(nodes: &[u8], drained: &[u8]) -> Vec<Member> {
    let member = |node: &u8| Member { node: Node(*node), weight: 1, is_drained: drained.contains(node) };
    nodes.iter().map(member).collect()
}

/// Slices that owners have, by turns, each with the next node as its backup.
fn dealt(count: u8, nodes: u8) -> Slices {
    let dealt = |number: u8| {
        let owner = number % nodes;
        let backup = (owner + 1 + number / nodes % (nodes - 1)) % nodes;
        Some(slice(owner, Some(backup), Phase::Protected))
    };
    (0..count).map(dealt).collect()
}

fn owned(slices: &Slices) -> BTreeMap<Node, usize> {
    let mut owned = BTreeMap::new();
    slices.iter().flatten().for_each(|slice| *owned.entry(slice.owner).or_default() += 1);
    owned
}

/// Carries a plan out for these slices, as owners do. Says how many owners have changed.
fn carry_out(plan: &Plan, numbers: &[u16], slices: &mut Slices) -> usize {
    let mut changed = 0;
    for &number in numbers {
        let target = plan.target(number).unwrap();
        let slice = slices[usize::from(number)].as_mut().unwrap();
        if slice.owner != target.owner && slice.backup == Some(target.owner) {
            (slice.backup, slice.owner) = (Some(slice.owner), target.owner);
            changed += 1;
        } else if slice.owner != target.owner {
            slice.backup = Some(target.owner);
        } else {
            slice.backup = target.backup;
        }
    }
    changed
}

/// Carries plans out until none moves anything. Says how many owners have changed.
fn settle(members: &[Member], slices: &mut Slices, pins: &BTreeMap<u16, Node>) -> usize {
    // Whoever has nobody, or somebody who is gone, is taken, or gets a backup, at once.
    let mut changed = 0;
    for _ in 0..2000 {
        let plan = Plan::of(members, slices, pins);
        for (slice, number) in slices.iter_mut().zip(0..) {
            let Some(target) = plan.target(number) else { continue };
            let is_there = |node: Node| members.iter().any(|member| member.node == node);
            if slice.is_none_or(|slice| !is_there(slice.owner)) {
                *slice = Some(begun(target.owner));
                changed += 1;
            }
            if let Some(slice) = slice
                && slice.backup.is_none_or(|backup| !is_there(backup))
            {
                slice.backup = if slice.owner == target.owner { target.backup } else { Some(target.owner) };
            }
        }
        // What was being copied is.
        slices.iter_mut().flatten().for_each(|slice| slice.phase = Phase::Protected);
        let plan = Plan::of(members, slices, pins);
        assert!(plan.moves().len() <= MOVES, "{:?}", plan.moves());
        if plan.moves().is_empty() {
            return changed;
        }
        changed += carry_out(&plan, plan.moves(), slices);
    }
    panic!("it never ends: {slices:?}");
}

fn begun(owner: Node) -> Assignment {
    slice(owner.0, None, Phase::Single)
}

#[test]
fn what_is_even_stays() {
    for nodes in 2..=6 {
        let slices = dealt(64, nodes);
        let all: Vec<u8> = (0..nodes).collect();
        let plan = Plan::of(&members(&all, &[]), &slices, &BTreeMap::new());
        assert!(plan.moves().is_empty(), "{nodes} nodes: {:?}", plan.moves());
    }
}

#[test]
fn a_node_that_joins_gets_its_share_eight_at_a_time() {
    let mut slices = dealt(64, 3);
    let members = members(&[0, 1, 2, 3], &[]);
    assert_eq!(Plan::of(&members, &slices, &BTreeMap::new()).moves().len(), MOVES);
    assert_eq!(settle(&members, &mut slices, &BTreeMap::new()), 16, "and no other slice moves");
    assert_eq!(owned(&slices), (0..4).map(|node| (Node(node), 16)).collect());
}

#[test]
fn a_drained_node_gives_its_slices_to_their_backups_and_keeps_no_copy() {
    let mut slices = dealt(64, 3);
    let members = members(&[0, 1, 2], &[1]);
    let plan = Plan::of(&members, &slices, &BTreeMap::new());
    for number in plan.moves() {
        let slice = slices[usize::from(*number)].unwrap();
        assert_eq!((slice.owner, plan.target(*number).map(|target| target.owner)), (Node(1), slice.backup));
    }
    settle(&members, &mut slices, &BTreeMap::new());
    assert_eq!(owned(&slices), BTreeMap::from([(Node(0), 32), (Node(2), 32)]));
    assert!(slices.iter().flatten().all(|slice| slice.backup != Some(Node(1))));
}

#[test]
fn of_two_nodes_the_drained_one_keeps_copies() {
    let mut slices = dealt(8, 2);
    settle(&members(&[0, 1], &[1]), &mut slices, &BTreeMap::new());
    assert!(slices.iter().flatten().all(|slice| (slice.owner, slice.backup) == (Node(0), Some(Node(1)))), "{slices:?}");
}

#[test]
fn a_pinned_slice_goes_where_it_is_pinned_and_others_make_room() {
    let mut slices = dealt(12, 3);
    let pins = BTreeMap::from([(0, Node(2)), (1, Node(2))]);
    assert_eq!(settle(&members(&[0, 1, 2], &[]), &mut slices, &pins), 4);
    assert_eq!([0, 1].map(|number| slices[number].unwrap().owner), [Node(2); 2]);
    assert_eq!(owned(&slices), (0..3).map(|node| (Node(node), 4)).collect());
}

#[test]
fn what_is_wished_comes_before_what_is_uneven() {
    let (members, slices) = (members(&[0, 1, 2, 3], &[]), dealt(64, 3));
    let plan = Plan::of(&members, &slices, &BTreeMap::from([(63, Node(1))]));
    assert_eq!((plan.moves().len(), plan.moves()[0]), (MOVES, 63));
    assert!(plan.moves().iter().all(|number| plan.is_wished(*number) == (*number == 63)), "{:?}", plan.moves());
}

#[test]
fn a_drained_node_gives_all_away_where_nothing_else_moves() {
    // A fourth node has come, and slices are held.
    let (members, mut slices) = (members(&[0, 1, 2, 3], &[1]), dealt(64, 3));
    let before = slices.clone();
    for _ in 0..100 {
        let plan = Plan::of(&members, &slices, &BTreeMap::new());
        let wished: Vec<u16> = plan.moves().iter().copied().filter(|number| plan.is_wished(*number)).collect();
        carry_out(&plan, &wished, &mut slices);
    }
    let has_some = |slice: &Assignment| slice.owner == Node(1) || slice.backup == Some(Node(1));
    for (before, after) in before.iter().flatten().zip(slices.iter().flatten()) {
        assert!(!has_some(after), "{after:?}");
        assert!(before.owner == Node(1) || before.owner == after.owner, "{before:?} {after:?}");
        assert!(has_some(before) || before == after, "{before:?} {after:?}");
    }
}

#[test]
fn copies_that_are_being_made_count_as_moves() {
    let mut slices = dealt(64, 3);
    for slice in slices.iter_mut().flatten().take(5) {
        slice.phase = Phase::Syncing;
    }
    let plan = Plan::of(&members(&[0, 1, 2, 3], &[]), &slices, &BTreeMap::new());
    let busy = (0..5).filter(|number| !plan.moves().contains(number)).count();
    assert!(busy > 0 && plan.moves().len() + busy <= MOVES, "{busy} {:?}", plan.moves());
}

fn any_slice() -> impl Strategy<Value = Option<Assignment>> {
    let phases = prop_oneof![Just(Phase::Single), Just(Phase::Syncing), Just(Phase::Protected)];
    let any = (0..8u8, 1..8u8, any::<bool>(), phases).prop_map(|(owner, step, has_backup, phase)| {
        let backup = has_backup.then_some((owner + step) % 8);
        slice(owner, backup, if has_backup { phase } else { Phase::Single })
    });
    proptest::option::weighted(0.9, any)
}

fn any_member() -> impl Strategy<Value = (u8, (u32, bool))> {
    (0..8u8, (1..4u32, proptest::bool::weighted(0.2)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_cluster_becomes_even_with_the_fewest_moves(
        chosen in proptest::collection::btree_map(0..8u8, any_member().prop_map(|(_, rest)| rest), 1..8),
        slices in proptest::collection::vec(any_slice(), 1..70),
        pins in proptest::collection::btree_map(0..70u16, (0..8u8).prop_map(Node), 0..4),
        has_pins: bool,
    ) {
        let members: Vec<Member> =
            chosen.iter().map(|(node, (weight, is_drained))| Member { node: Node(*node), weight: *weight, is_drained: *is_drained }).collect();
        let pins = if has_pins { pins } else { BTreeMap::new() };
        let plan = Plan::of(&members, &slices, &pins);
        let mut reversed = members.clone();
        reversed.reverse();
        prop_assert_eq!(&plan, &Plan::of(&reversed, &slices, &pins), "the order of the members does not matter");

        let takers: Vec<&Member> = members.iter().filter(|member| !member.is_drained).collect();
        let is_taker = |node: Node| takers.iter().any(|taker| taker.node == node);
        if takers.is_empty() {
            prop_assert!((0..slices.len()).all(|number| plan.target(number.try_into().unwrap()).is_none()));
            return Ok(());
        }
        for number in 0..slices.len() {
            let target = plan.target(number.try_into().unwrap()).unwrap();
            prop_assert!(is_taker(target.owner));
            prop_assert_eq!(target.backup.is_some(), members.len() > 1);
            prop_assert_ne!(target.backup, Some(target.owner));
            prop_assert!(takers.len() < 2 || target.backup.is_none_or(is_taker));
        }

        let weights: u64 = takers.iter().map(|taker| u64::from(taker.weight)).sum();
        let part = |taker: &Member| slices.len() as u64 * u64::from(taker.weight);
        let held = owned(&slices);
        let mut settled = slices.clone();
        let changed = settle(&members, &mut settled, &pins);
        let has = owned(&settled);
        if pins.is_empty() {
            let (mut fewest, mut rest, mut lucky) = (slices.len(), slices.len() as u64, 0);
            for taker in &takers {
                let (low, high) = (part(taker) / weights, part(taker).div_ceil(weights));
                let has = has.get(&taker.node).copied().unwrap_or(0) as u64;
                prop_assert!((low..=high).contains(&has), "{taker:?} has {has}, not {low} to {high}");
                // It keeps what it has, up to the lower share, and one more, if there are more than the lower shares.
                let had = held.get(&taker.node).copied().unwrap_or(0) as u64;
                fewest -= usize::try_from(had.min(low)).unwrap();
                rest -= low;
                lucky += u64::from(high > low && had > low);
            }
            prop_assert_eq!(changed, fewest - usize::try_from(rest.min(lucky)).unwrap());
        }
        for (number, pin) in pins.iter().filter(|(number, pin)| usize::from(**number) < slices.len() && is_taker(**pin)) {
            prop_assert_eq!(settled[usize::from(*number)].unwrap().owner, *pin);
        }
        let owners: BTreeSet<Node> = has.keys().copied().collect();
        for owner in owners.into_iter().filter(|_| takers.len() > 2 && takers.iter().all(|taker| taker.weight == takers[0].weight)) {
            let copies = settled.iter().flatten().filter(|slice| slice.owner == owner).filter_map(|slice| slice.backup);
            let mut loads: BTreeMap<Node, usize> =
                takers.iter().map(|taker| (taker.node, 0)).filter(|(node, _)| *node != owner).collect();
            copies.for_each(|node| *loads.entry(node).or_default() += 1);
            let (most, least) = (loads.values().max().unwrap(), loads.values().min().unwrap());
            prop_assert!(most - least <= 1, "copies of {owner:?}: {loads:?}");
        }
    }
}
