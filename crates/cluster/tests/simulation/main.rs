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
mod world;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use faults::{KINDS, Kind};
use judge::Seen;
use world::{Flaw, World};

/// Schedules that `make test` runs.
const SCHEDULES: u64 = 1000;
/// A planted error is found within so many.
const ENOUGH: u64 = 10_000;
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

/// Runs schedules on all processors until one violates an invariant, and says which: its seed, and what it is.
fn search(first: u64, count: u64, flaw: Option<Flaw>, seen: &Mutex<(Seen, BTreeSet<Kind>)>) -> Option<(u64, String)> {
    let (next, found) = (AtomicU64::new(first), Mutex::new(None::<(u64, String)>));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || found.lock().unwrap().is_some() {
                break;
            }
            let world = run(seed, flaw, false);
            let mut seen = seen.lock().unwrap();
            seen.0.add(&world.judge.seen);
            seen.1.extend(&world.judge.faults);
            if let Some(violation) = world.judge.violation {
                let mut found = found.lock().unwrap();
                if found.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                    *found = Some((seed, violation));
                }
            }
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
    let (began, seen) = (Instant::now(), Mutex::default());
    if let Some((seed, violation)) = search(first, count, None, &seen) {
        let world = run(seed, None, true);
        world.trace().iter().for_each(|line| println!("{line}"));
        panic!("seed {seed}: {violation}; again with TOMBOLO_SEED={seed} TOMBOLO_SCHEDULES=1");
    }
    let (seen, faults) = seen.into_inner().unwrap();
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
        let found = search(1, ENOUGH, Some(flaw), &Mutex::default());
        let (seed, violation) = found.unwrap_or_else(|| panic!("{flaw:?} was not found in {ENOUGH} schedules"));
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
