//! Agents of ownership in a world in which everything goes wrong: many schedules of faults, each from a seed.
//!
//! ```text
//! TOMBOLO_SCHEDULES=100000 cargo test --release -p tombolo-cluster --test simulation no_schedule -- --nocapture
//! TOMBOLO_SCHEDULES=1 TOMBOLO_SEED=4711 ...        one of them; what violates an invariant prints its last lines
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `world` | true time, what happens next, networks |
//! | `process`, `host`, `clock` | a node: its agent, which is the real one, and who obeys it |
//! | `requests`, `etcd` | etcd as it is found by nodes: late answers, lost ones, elections |
//! | `tables`, `replication`, `packets` | what a gateway does with blocks, copies and packets |
//! | `faults`, `cases` | what goes wrong: drawn, or as it once went |
//! | `judge` | what must hold |
//! | `flaw` | errors that are planted, to see whether they are found |

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::cast_possible_truncation, reason = "there are few nodes and slices")]

mod cases;
mod clock;
mod etcd;
mod faults;
mod flaw;
mod host;
mod judge;
mod packets;
mod process;
mod random;
mod replication;
mod requests;
mod tables;
mod trace;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use faults::{KINDS, Kind};
use flaw::Flaw;
use judge::{Invariant, Seen, Violation};
use world::{Schedule, World};

/// Schedules that `make test` runs.
const SCHEDULES: u64 = 1000;
/// A planted error is found within so many.
const MANY: u64 = 10_000;
/// After so many that have violated an invariant no more are run.
const ENOUGH: usize = 20;
/// So long after the last fault each slice is owned and protected, in microseconds,
const RECOVERY: u64 = 10_000_000;
/// and so long after it, it is where it should be.
const BALANCE: u64 = 30_000_000;

/// Runs a schedule to its end, or until it violates an invariant.
fn run(schedule: &Schedule) -> World {
    let mut world = World::new(schedule);
    match schedule.script {
        Some(script) => world.follow(script),
        None => world.plan(),
    }
    run_calmly(&mut world, RECOVERY);
    world.judge_recovery();
    run_calmly(&mut world, BALANCE);
    world.judge_balance();
    world
}

/// Goes on until there was no fault for so long, in microseconds. While slices are moved others may begin.
fn run_calmly(world: &mut World, calm: u64) {
    while world.judge.violation.is_none() && world.now < world.last + calm {
        world.run(world.last + calm);
    }
}

/// What was found in many schedules.
#[derive(Default)]
struct Found {
    /// By their seeds.
    violations: BTreeMap<u64, Violation>,
    seen: Seen,
    faults: BTreeSet<Kind>,
}

/// Runs a schedule with each of these seeds, on all processors, until so many have violated an invariant.
fn search(seeds: Range<u64>, schedule: Schedule, enough: usize) -> Found {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::<Found>::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || found.lock().unwrap().violations.len() >= enough {
                break;
            }
            let judge = run(&Schedule { seed, ..schedule }).judge;
            let mut found = found.lock().unwrap();
            found.seen.add(&judge.seen);
            found.faults.extend(&judge.faults);
            found.violations.extend(judge.violation.map(|violation| (seed, violation)));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    found.into_inner().unwrap()
}

/// Prints what led to the first violation, and fails, if there is one.
fn report(name: &str, schedule: Schedule, violations: &BTreeMap<u64, Violation>) {
    let Some((&seed, violation)) = violations.first_key_value() else { return };
    let world = run(&Schedule { seed, is_traced: true, ..schedule });
    world.trace.about(Some(violation.slice)).iter().for_each(|line| println!("{line}"));
    violations.iter().for_each(|(seed, violation)| println!("seed {seed}: {violation}"));
    panic!("{name}, seed {seed}: {violation}; again with TOMBOLO_SEED={seed} TOMBOLO_SCHEDULES=1");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

#[test]
fn no_schedule_violates_an_invariant() {
    let (first, count) = (number("TOMBOLO_SEED", 1), number("TOMBOLO_SCHEDULES", SCHEDULES));
    let began = Instant::now();
    let Found { violations, seen, faults } = search(first..first + count, Schedule::of(0), ENOUGH);
    report("drawn", Schedule::of(0), &violations);
    println!("{count} schedules from seed {first} in {:.1} s: {seen:?}", began.elapsed().as_secs_f64());
    if count >= SCHEDULES {
        assert!(seen.has_all(), "what never happens is not tested: {seen:?}");
        assert_eq!(faults.len(), KINDS.len(), "{faults:?}");
    }
}

/// The seed of the first schedule in which a planted error violates an invariant, or that one.
fn found(flaw: Flaw, only: Option<Invariant>) -> u64 {
    let began = Instant::now();
    let violations = search(1..MANY + 1, Schedule { flaw: Some(flaw), only, ..Schedule::of(0) }, 1).violations;
    let Some((seed, violation)) = violations.first_key_value() else {
        panic!("{flaw:?} was not found in {MANY} schedules ({only:?})")
    };
    println!("{flaw:?}: found in schedule {seed}, after {:.2} s: {violation}", began.elapsed().as_secs_f64());
    *seed
}

#[test]
fn granting_after_the_deadline_is_found() {
    assert!(found(Flaw::DeadlineIgnored, None) <= MANY);
}

#[test]
fn taking_copies_of_a_former_owner_is_found() {
    assert!(found(Flaw::EpochIgnored, None) <= MANY);
}

#[test]
fn granting_blocks_that_were_not_offered_is_found() {
    assert!(found(Flaw::NoOffers, None) <= MANY);
}

#[test]
fn handing_over_before_all_is_acknowledged_is_found() {
    assert!(found(Flaw::NotAwaited, None) <= MANY);
}

#[test]
fn granting_while_handing_over_is_found() {
    assert!(found(Flaw::NotFrozen, None) <= MANY);
}

#[test]
fn taking_over_in_spite_of_a_promise_is_found() {
    assert!(found(Flaw::PromiseForgotten, None) <= MANY);
}

#[test]
fn each_invariant_can_be_violated() {
    for (invariant, flaw) in [
        (Invariant::Reuse, Flaw::NoRest),
        (Invariant::Delivery, Flaw::NoRest),
        (Invariant::Accountable, Flaw::EpochIgnored),
        (Invariant::Deadline, Flaw::CountedFromAnswer),
        (Invariant::Granting, Flaw::DeadlineIgnored),
        (Invariant::Succession, Flaw::SliceNotCompared),
        (Invariant::Handover, Flaw::NotAwaited),
        (Invariant::Recovery, Flaw::CopyNotTold),
        (Invariant::Balance, Flaw::SettledNotTold),
    ] {
        found(flaw, Some(invariant));
    }
}

#[test]
fn a_schedule_is_the_same_each_time() {
    for seed in 1..=5 {
        let schedule = Schedule::of(seed);
        let (one, other) = (run(&schedule), run(&Schedule { is_traced: true, ..schedule }));
        assert_eq!((one.judge.seen, one.judge.violation), (other.judge.seen, other.judge.violation), "seed {seed}");
    }
}
