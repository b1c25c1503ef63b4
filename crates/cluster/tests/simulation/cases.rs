//! Faults that once violated an invariant, each with some seeds: what is drawn besides is not the same as it was then.

use crate::faults::{Kind, Script};
use crate::flaw::Flaw;
use crate::judge::Invariant;
use crate::world::Schedule;
use crate::{MANY, report, search};

/// Seeds with which each is tried.
const SEEDS: u64 = 40;

fn hold(name: &str, script: &'static Script) {
    let schedule = Schedule { script: Some(script), ..Schedule::of(0) };
    let found = search(1..SEEDS + 1, schedule, 1);
    report(name, schedule, &found.violations);
}

/// The owner's machine sleeps while its backup loses power and comes back: the owner goes on with a connection that ended with the backup's
/// process, and what it sends is not all there is. The backup took that for a whole copy, and took over by it.
#[test]
fn a_backup_comes_back_empty_while_its_owner_sleeps() {
    const SCRIPT: Script = Script {
        nodes: 4,
        faults: &[
            (Kind::Paused, 1, 3, 18_843, 23_755),
            (Kind::Power, 2, 0, 19_090, 20_003),
            (Kind::Power, 0, 0, 9_000, 9_500),
        ],
    };
    hold("empty backup", &SCRIPT);
}

/// An owner sleeps and is deposed; its successor dies; it wakes, registers, and its watch says nothing of what has happened. It served for
/// as long as it renewed its new lease, which says nothing about slices of the life before.
#[test]
fn an_owner_wakes_with_a_silent_watch_when_its_successor_is_dead() {
    const SCRIPT: Script = Script {
        nodes: 2,
        faults: &[
            (Kind::SlowWatch, 0, 1, 15_000, 50_000),
            (Kind::Frozen, 0, 1, 16_000, 27_450),
            (Kind::Process, 1, 0, 21_856, 41_645),
            (Kind::SlowWatch, 1, 0, 41_646, 41_700),
        ],
    };
    hold("silent watch", &SCRIPT);
}

/// A backup that is gone for a second is taken from the slice, and is back before anybody has looked: the copy begins anew, and its state
/// was not told anew.
#[test]
fn the_same_backup_twice_in_a_row() {
    const SCRIPT: Script = Script {
        nodes: 2,
        faults: &[
            (Kind::Core, 1, 0, 8_810, 10_505),
            (Kind::Stalled, 1, 0, 12_000, 14_300),
            (Kind::Process, 1, 0, 18_000, 20_000),
        ],
    };
    hold("same backup", &SCRIPT);
}

/// A backup is cut off from its owner and from etcd, and all subscribers come to it: it acts. The owner released the blocks, of which it saw
/// no use any more, and gave them to others too soon after the backup had used them last.
#[test]
fn an_owner_releases_what_its_backup_still_uses() {
    const SCRIPT: Script =
        Script { nodes: 2, faults: &[(Kind::Core, 1, 0, 10_000, 45_000), (Kind::Inside, 0, 0, 10_000, 18_000)] };
    hold("released too early", &SCRIPT);
}

/// An owner's agent hangs, and its successor's host freezes: nobody else is reached, and the deposed owner served again, for as long as
/// that lasted.
#[test]
fn an_agent_hangs_and_its_successor_freezes() {
    const SCRIPT: Script =
        Script { nodes: 2, faults: &[(Kind::Stalled, 0, 1, 11_850, 35_000), (Kind::Frozen, 1, 0, 16_000, 30_500)] };
    hold("hung agent", &SCRIPT);
}

/// An owner is cut off from all but the router, and its successors' links to that are down: they took over, and the owner did not hear of it.
#[test]
fn successors_that_reach_no_router() {
    const SCRIPT: Script = Script {
        nodes: 3,
        faults: &[
            (Kind::Core, 0, 1, 16_500, 49_700),
            (Kind::Outside, 1, 0, 17_000, 36_500),
            (Kind::Outside, 2, 0, 17_000, 36_500),
        ],
    };
    hold("no router", &SCRIPT);
}

/// An owner that goes on by its backup's word does not hear that etcd is back, and the backup does: it takes over when its word is over.
const GRACE: Script =
    Script { nodes: 2, faults: &[(Kind::Etcd, 0, 1, 10_000, 16_000), (Kind::NoEtcd, 0, 1, 10_000, 30_000)] };

#[test]
fn an_owner_goes_on_by_its_backups_word_when_etcd_is_back() {
    hold("grace", &GRACE);
}

#[test]
fn counting_on_a_promise_from_when_it_came_is_found() {
    let flaw = Some(Flaw::PromiseCountedFromAnswer);
    let found = search(1..MANY + 1, Schedule { script: Some(&GRACE), flaw, ..Schedule::of(0) }, 1);
    let (seed, violation) = found.violations.first_key_value().unwrap();
    println!("{flaw:?}: found in schedule {seed}: {violation}");
    assert_eq!(violation.of, Invariant::Deadline);
}

/// A backup that has promised is started anew, and hears etcd again at once: it does not know what it has promised.
#[test]
fn a_backup_is_started_anew_when_it_has_promised() {
    const SCRIPT: Script = Script {
        nodes: 2,
        faults: &[
            (Kind::Etcd, 0, 1, 10_000, 16_000),
            (Kind::NoEtcd, 0, 1, 10_000, 30_000),
            (Kind::NoEtcd, 1, 0, 10_000, 17_400),
            (Kind::Process, 1, 0, 17_300, 17_350),
        ],
    };
    hold("forgotten word", &SCRIPT);
}
