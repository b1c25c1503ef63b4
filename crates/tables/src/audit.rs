//! Every invariant that ties the tables together, checked one by one; and the repair of what a
//! crash left.
//!
//! The checks hold at rest, with no writer under way.

use std::collections::BTreeMap;

use crate::binding::{BindingId, flags};
use crate::blocks::Holder;
use crate::index::Index;
use crate::outside::Slot;
use crate::session::COUNTED;
use crate::subscriber::SubscriberId;
use crate::tables::Tables;
use crate::tick::Tick;

/// What was found to be wrong, in words, at most [`MOST`] of each kind.
pub type Findings = Vec<String>;

/// Findings that are listed of each kind.
pub const MOST: usize = 10;

/// Checks every invariant. Empty means that all hold.
#[must_use]
pub fn check(tables: &Tables) -> Findings {
    let mut findings = Vec::new();
    bindings(tables, &mut findings);
    inside_index(tables, &mut findings);
    outside_index(tables, &mut findings);
    sessions(tables, &mut findings);
    subscribers(tables, &mut findings);
    blocks(tables, &mut findings);
    findings
}

/// Clears what writers that died left half-done, so that [`check`] finds nothing. For the time
/// before other writers start. Returns how many records and entries were given back.
pub fn repair(tables: &Tables, now: Tick) -> usize {
    repair_beside(tables, now, &mut || ())
}

/// As [`repair`], while writers that never rest for long work on the tables: programs in the
/// kernel, which take microseconds. What is half-done both before and after `pause` is theirs no
/// more.
pub fn repair_beside(tables: &Tables, now: Tick, pause: &mut dyn FnMut()) -> usize {
    let mut repaired = 0;
    tables.sessions.repair(pause);
    clear_entries(&tables.inside_index, &mut repaired, pause, |entry| {
        let binding = BindingId::new(entry.id).and_then(|id| tables.bindings.read(id));
        binding.is_some_and(|(b, _)| tables.inside_index.is_home(tables.key.hash(b.inside.words()), entry))
    });
    clear_entries(&tables.subscriber_index, &mut repaired, pause, |entry| {
        let subscriber = SubscriberId::new(entry.id).and_then(|id| tables.subscribers.read(id));
        subscriber.is_some_and(|(s, _)| tables.subscriber_index.is_home(tables.key.hash(s.key.words()), entry))
    });
    // While the records of the dead are claimed, their numbers are nobody else's: so their slots
    // go first.
    let stray = stray_slots(tables);
    pause();
    for (slot, owner) in stray {
        if stray_owner(tables, slot) == Some(owner) {
            tables.outside.close(slot, owner.0, now);
            repaired += 1;
        }
    }
    let (linked, unlinked): (Vec<_>, Vec<_>) = tables.bindings.iter().partition(|&id| is_linked(tables, id));
    linked.into_iter().for_each(|id| tables.bindings.settle(id));
    let unlinked: Vec<_> = unlinked.into_iter().map(|id| (id, tables.bindings.generation(id))).collect();
    pause();
    let is_dead = |&(id, generation): &_| tables.bindings.generation(id) == generation && !is_linked(tables, id);
    for (id, _) in unlinked.into_iter().filter(is_dead) {
        if let Some((binding, _)) = tables.bindings.read(id) {
            tables.inside_index.remove(tables.key.hash(binding.inside.words()), id.get());
            tables.outside.close(binding.outside_slot, id, now);
        }
        tables.bindings.free(id);
        repaired += 1;
    }
    for id in tables.subscribers.iter().collect::<Vec<_>>() {
        let linked = tables
            .subscribers
            .read(id)
            .is_some_and(|(s, _)| tables.find_subscriber(&s.key).is_some_and(|(found, _)| found == id));
        if linked {
            tables.subscribers.settle(id);
        } else {
            tables.subscribers.free(id);
            repaired += 1;
        }
    }
    sweep_orphans(tables, &mut repaired);
    count_again(tables, pause);
    blocks_of_the_dead(tables, now, &mut repaired);
    repaired
}

/// True if a binding is found from both sides.
fn is_linked(tables: &Tables, id: BindingId) -> bool {
    tables.bindings.read(id).is_some_and(|(binding, _)| {
        tables.find_inside(&binding.inside).is_some_and(|(found, _)| found == id)
            && tables.outside.read(binding.outside_slot) == Slot::Taken(id)
    })
}

/// The binding that a slot names, if that one does not have the slot; and the generation of its
/// record, since another may be made under the same number.
fn stray_owner(tables: &Tables, slot: u32) -> Option<(BindingId, u64)> {
    match tables.outside.read(slot) {
        Slot::Taken(id) if tables.bindings.read(id).is_none_or(|(binding, _)| binding.outside_slot != slot) => {
            Some((id, tables.bindings.generation(id)))
        }
        _ => None,
    }
}

fn stray_slots(tables: &Tables) -> Vec<(u32, (BindingId, u64))> {
    let slots = 0..u32::try_from(tables.outside.len()).unwrap_or(u32::MAX);
    slots.filter_map(|slot| stray_owner(tables, slot).map(|owner| (slot, owner))).collect()
}

/// Counts again what each subscriber has, and adds what is missing. A program that is at a binding
/// counts it before it is found, so that too little seems to be missing meanwhile: the greater of
/// two differences is right unless one is under way both before and after `pause`.
fn count_again(tables: &Tables, pause: &mut dyn FnMut()) {
    let before = missing(tables);
    pause();
    for (id, missing) in missing(tables) {
        let before = before.get(&id).copied().unwrap_or(missing);
        tables.subscribers.add_counts(id, missing.0.max(before.0), missing.1.max(before.1));
    }
}

/// Bindings and sessions that each subscriber has beyond those that its record says.
fn missing(tables: &Tables) -> BTreeMap<SubscriberId, (i64, i64)> {
    let less = |found: u64, counted: u64| found.wrapping_sub(counted).cast_signed();
    let found = counts_by_subscriber(tables).into_iter();
    let difference = |(id, counts): (SubscriberId, Counts)| {
        let (bindings, sessions) = (tables.subscribers.bindings(id), tables.subscribers.sessions(id));
        (id, (less(counts.bindings, bindings), less(counts.sessions, sessions)))
    };
    found.map(difference).collect()
}

/// Gives back blocks whose holder is gone or does not know of them, and takes from subscribers what
/// is not theirs.
fn blocks_of_the_dead(tables: &Tables, now: Tick, repaired: &mut usize) {
    for block in 0..tables.blocks.len() {
        if let Holder::Subscriber(id) = tables.blocks.read(block)
            && !has_block(tables, id, block)
        {
            tables.blocks.close(block, id, now);
            *repaired += 1;
        }
    }
    for id in tables.subscribers.iter() {
        let places: Vec<u16> = tables.subscribers.blocks(id).collect();
        let words = tables.subscribers.block_words(id);
        let is_its = |word: &u32| tables.blocks.read(*word) == Holder::Subscriber(id);
        let kept: Vec<u16> =
            places.iter().zip(words).filter(|(_, word)| is_its(word)).map(|(place, _)| *place).collect();
        *repaired += places.len() - kept.len();
        tables.subscribers.set_blocks(id, &kept);
    }
}

fn has_block(tables: &Tables, id: SubscriberId, block: u32) -> bool {
    tables.subscribers.read(id).is_some() && tables.subscribers.block_words(id).any(|word| word == block)
}

fn clear_entries(
    index: &Index,
    repaired: &mut usize,
    pause: &mut dyn FnMut(),
    mut is_good: impl FnMut(&crate::index::Entry) -> bool,
) {
    let mut bad_entries = || {
        let mut bad = Vec::new();
        index.for_each(|entry| {
            if entry.pending || !is_good(&entry) {
                bad.push(entry);
            }
        });
        bad
    };
    let before = bad_entries();
    pause();
    let bad: Vec<_> = bad_entries().into_iter().filter(|entry| before.contains(entry)).collect();
    *repaired += bad.len();
    for entry in &bad {
        index.clear(entry);
    }
}

fn sweep_orphans(tables: &Tables, repaired: &mut usize) {
    tables.sessions.sweep(0, tables.sessions.lines(), |session| {
        if tables.bindings.read(session.key.binding).is_some() {
            return crate::session::Sweep::Keep;
        }
        *repaired += 1;
        crate::session::Sweep::Remove
    });
}

/// What a subscriber's record should say.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    bindings: u64,
    sessions: u64,
}

fn counts_by_subscriber(tables: &Tables) -> BTreeMap<SubscriberId, Counts> {
    let mut counts: BTreeMap<_, _> = tables.subscribers.iter().map(|id| (id, Counts::default())).collect();
    let owner = |binding| tables.bindings.read(binding).and_then(|(binding, _)| SubscriberId::new(binding.subscriber));
    for id in tables.bindings.iter() {
        if let Some(counts) = owner(id).and_then(|id| counts.get_mut(&id)) {
            counts.bindings += 1;
        }
    }
    for line in 0..tables.sessions.lines() {
        for (session, _) in tables.sessions.read_line(line).filter(|(session, _)| session.flags & COUNTED != 0) {
            if let Some(counts) = owner(session.key.binding).and_then(|id| counts.get_mut(&id)) {
                counts.sessions += 1;
            }
        }
    }
    counts
}

fn note(findings: &mut Findings, kind: &str, text: impl FnOnce() -> String) {
    if findings.iter().filter(|finding| finding.starts_with(kind)).count() < MOST {
        findings.push(format!("{kind}: {}", text()));
    }
}

/// Protocols with ports, of which 0 is none: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

fn bindings(tables: &Tables, findings: &mut Findings) {
    for id in tables.bindings.iter() {
        let Some((binding, _)) = tables.bindings.read(id) else {
            note(findings, "binding not live", || format!("record {} is in use", id.get()));
            continue;
        };
        if tables.find_inside(&binding.inside).map(|(found, _)| found) != Some(id) {
            note(findings, "binding not found from inside", || format!("{} {:?}", id.get(), binding.inside));
        }
        if tables.outside.read(binding.outside_slot) != Slot::Taken(id) {
            note(findings, "binding without its outside slot", || {
                format!("{} slot {}", id.get(), binding.outside_slot)
            });
        }
        if binding.outside_port == [0, 0] && WITH_PORTS.contains(&binding.inside.protocol) {
            note(findings, "binding of port 0", || format!("{}", id.get()));
        }
        let subscriber = SubscriberId::new(binding.subscriber).and_then(|id| tables.subscribers.read(id));
        if subscriber.is_none() && binding.flags & flags::STATIC == 0 {
            note(findings, "binding without subscriber", || format!("{} of {}", id.get(), binding.subscriber));
        }
    }
}

fn inside_index(tables: &Tables, findings: &mut Findings) {
    let mut entries = 0;
    tables.inside_index.for_each(|entry| {
        entries += 1;
        let binding = BindingId::new(entry.id).and_then(|id| tables.bindings.read(id));
        if entry.pending
            || binding.is_none_or(|(b, _)| !tables.inside_index.is_home(tables.key.hash(b.inside.words()), &entry))
        {
            note(findings, "stray entry of the inside index", || format!("{entry:?}"));
        }
    });
    if entries != tables.bindings.count() {
        note(findings, "inside index", || format!("{entries} entries for {} bindings", tables.bindings.count()));
    }
}

fn outside_index(tables: &Tables, findings: &mut Findings) {
    let mut taken = 0;
    for slot in 0..u32::try_from(tables.outside.len()).unwrap_or(u32::MAX) {
        if let Slot::Taken(id) = tables.outside.read(slot) {
            taken += 1;
            if tables.bindings.read(id).is_none_or(|(binding, _)| binding.outside_slot != slot) {
                note(findings, "outside slot of a binding that has another", || {
                    format!("slot {slot}, binding {}", id.get())
                });
            }
        }
    }
    if taken != tables.bindings.count() {
        note(findings, "outside index", || format!("{taken} slots taken for {} bindings", tables.bindings.count()));
    }
}

fn sessions(tables: &Tables, findings: &mut Findings) {
    let mut seen = std::collections::HashSet::new();
    let mut overflowed = 0;
    for line in 0..tables.sessions.lines() {
        for (session, pending) in tables.sessions.read_line(line) {
            overflowed += u64::from(line >= tables.sessions.main_lines());
            if pending {
                note(findings, "session half-made", || format!("{session:?}"));
            }
            if !tables.sessions.is_home(&session.key, line) {
                note(findings, "session in a strange line", || format!("{session:?}"));
            }
            if !seen.insert(session.key) {
                note(findings, "session twice", || format!("{session:?}"));
            }
            if tables.bindings.read(session.key.binding).is_none() {
                note(findings, "session without binding", || format!("{session:?}"));
            }
        }
    }
    for id in tables.bindings.iter() {
        let Some(session) = tables.bindings.first_session(id) else { continue };
        if !seen.insert(session.key) {
            note(findings, "session twice", || format!("{session:?}, in its binding"));
        }
        if session.flags & COUNTED != 0 {
            note(findings, "first session that is counted", || format!("{session:?}"));
        }
        if tables.bindings.read(id).is_some_and(|(binding, _)| binding.inside.protocol != 6) {
            note(findings, "first session of a binding that has none", || format!("{session:?}"));
        }
    }
    if overflowed != tables.sessions.overflowed() {
        note(findings, "overflow", || format!("{overflowed} sessions, counted {}", tables.sessions.overflowed()));
    }
}

fn subscribers(tables: &Tables, findings: &mut Findings) {
    for (id, counts) in counts_by_subscriber(tables) {
        let Some((subscriber, _)) = tables.subscribers.read(id) else {
            note(findings, "subscriber not live", || format!("record {} is in use", id.get()));
            continue;
        };
        if tables.find_subscriber(&subscriber.key).map(|(found, _)| found) != Some(id) {
            note(findings, "subscriber not found", || format!("{} {:?}", id.get(), subscriber.key));
        }
        let found = (tables.subscribers.bindings(id), tables.subscribers.sessions(id));
        if found != (counts.bindings, counts.sessions) {
            note(findings, "subscriber miscounted", || format!("{}: {counts:?}, counted {found:?}", id.get()));
        }
    }
}

fn blocks(tables: &Tables, findings: &mut Findings) {
    for block in 0..tables.blocks.len() {
        if let Holder::Subscriber(id) = tables.blocks.read(block)
            && !has_block(tables, id, block)
        {
            note(findings, "block of a subscriber that does not have it", || format!("{block} of {}", id.get()));
        }
    }
    for id in tables.subscribers.iter() {
        for block in tables.subscribers.block_words(id) {
            if tables.blocks.read(block) != Holder::Subscriber(id) {
                note(findings, "block that is not its subscriber's", || format!("{block} of {}", id.get()));
            }
        }
    }
}
