//! Agents of ownership in a world in which everything goes wrong: many schedules of faults, each from a seed.
//!
//! ```text
//! TOMBOLO_SCHEDULES=100000 TOMBOLO_SEED=1 cargo test --release -p tombolo-cluster --test simulation schedules -- --nocapture
//! TOMBOLO_SCHEDULES=1 TOMBOLO_SEED=4711 ...        one of them; what violates an invariant prints its last lines
//! ```

#![expect(clippy::cast_possible_truncation, reason = "there are few nodes and slices")]

mod clock;
mod etcd;
mod faults;
mod host;
mod judge;
mod packets;
mod random;
mod replication;
mod tables;
mod trace;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use faults::{KINDS, Kind};
use judge::{Seen, Violation};
use world::{Flaw, World};

/// Schedules that `make test` runs.
const SCHEDULES: u64 = 1000;
/// A planted error is found within so many.
const MANY: u64 = 10_000;
/// After so many that have violated an invariant no more are run.
const ENOUGH: usize = 20;
/// So long after the last fault each slice is owned and protected, in microseconds.
const RECOVERY: u64 = 10_000_000;

/// What was seen in a schedule, or what violates an invariant.
fn run(seed: u64, flaw: Option<Flaw>, is_traced: bool) -> World {
    let mut world = World::new(seed, flaw, is_traced);
    let last = world.plan();
    world.run(last + RECOVERY);
    world.judge_end();
    world
}

/// What was found in many schedules.
#[derive(Default)]
struct Found {
    /// By their seeds.
    violations: BTreeMap<u64, Violation>,
    seen: Seen,
    faults: BTreeSet<Kind>,
}

/// Runs schedules on all processors until so many have violated an invariant.
fn search(seeds: Range<u64>, flaw: Option<Flaw>, enough: usize) -> Found {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::<Found>::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || found.lock().unwrap().violations.len() >= enough {
                break;
            }
            let judge = run(seed, flaw, false).judge;
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

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

#[test]
fn no_schedule_violates_an_invariant() {
    let (first, count) = (number("TOMBOLO_SEED", 1), number("TOMBOLO_SCHEDULES", SCHEDULES));
    let began = Instant::now();
    let Found { violations, seen, faults } = search(first..first + count, None, ENOUGH);
    if let Some((seed, violation)) = violations.first_key_value() {
        let world = run(*seed, None, true);
        world.trace.about(Some(violation.slice)).iter().for_each(|line| println!("{line}"));
        violations.iter().for_each(|(seed, violation)| println!("seed {seed}: {violation}"));
        panic!("seed {seed}: {violation}; again with TOMBOLO_SEED={seed} TOMBOLO_SCHEDULES=1");
    }
    println!("{count} schedules from seed {first} in {:.1} s: {seen:?}", began.elapsed().as_secs_f64());
    if count >= SCHEDULES {
        assert!(seen.has_all(), "what never happens is not tested: {seen:?}");
        assert_eq!(faults.len(), KINDS.len(), "{faults:?}");
    }
}

#[test]
fn planted_errors_are_found() {
    for flaw in [Flaw::DeadlineIgnored, Flaw::EpochIgnored, Flaw::NoOffers] {
        let began = Instant::now();
        let found = search(1..MANY + 1, Some(flaw), 1);
        let first = found.violations.first_key_value();
        let (seed, violation) = first.unwrap_or_else(|| panic!("{flaw:?} was not found in {MANY} schedules"));
        println!("{flaw:?}: found in schedule {seed}, after {:.1} s: {violation}", began.elapsed().as_secs_f64());
    }
}

#[test]
fn a_schedule_is_the_same_each_time() {
    for seed in 1..=5 {
        let (one, other) = (run(seed, None, false), run(seed, None, true));
        assert_eq!((one.judge.seen, one.judge.violation), (other.judge.seen, other.judge.violation), "seed {seed}");
    }
}
