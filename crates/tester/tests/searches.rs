//! What the searches of procedures rest on: bursts without holes, connections that are still there,
//! points with marks of their own, directions that are served alike.

#![expect(clippy::unwrap_used, reason = "a test: a panic is a failure")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{FLOWS, Silent, bench, bench_as};
use tombolo_generator::{become_realtime, pin_to};
use tombolo_tester::bench::{BenchError, Observer, Status};
use tombolo_tester::effort::Effort;
use tombolo_tester::gateway::{Flows, Technology};
use tombolo_tester::procedure::{Bound, Known, packet::Procedure};
use tombolo_tester::trial::{Directions, TrialRecord};

/// Takes the sending core away for 0.4 ms of every 1.5, too short to be a pause, until it is told
/// to stop.
fn tear_holes(stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        pin_to(0, &[0]).unwrap();
        become_realtime(0, 60).unwrap();
        while !stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(1100));
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(400) {
                std::hint::spin_loop();
            }
        }
    })
}

#[test]
fn a_burst_with_a_hole_is_no_burst() {
    let Some(mut bench) = bench("faulty:", Technology::Forward4, FLOWS) else { return };
    bench.effort = Effort { burst_seconds: 0.05, burst_repetitions: 1, repeat_invalid: 1, ..bench.effort };
    bench.tester_limit = 1_000_000;
    let mut known = Known { throughput: Some(10_000), ..Known::default() };
    let stop = Arc::new(AtomicBool::new(false));
    let thief = tear_holes(&stop);
    let measured = Procedure::BackToBack.measure(&mut bench, &mut known, &mut Silent).unwrap();
    stop.store(true, Ordering::Release);
    thief.join().unwrap();
    let details = &measured[0].details;
    assert!(details["bursts_with_a_hole"].as_u64().unwrap() > 0, "{measured:?}");
    assert!(details["longest_hole_us"].as_f64().unwrap() >= 300.0, "{measured:?}");
    // Steps are parts of what was found, not of the longest burst.
    let (found, step) = (measured[0].value.unwrap(), details["resolution_frames"].as_f64().unwrap());
    assert!(found == 0.0 || step <= (found * bench.effort.resolution).max(1.0) + 1.0, "{measured:?}");
}

/// Keeps rate and frames of the trials of a search.
#[derive(Default)]
struct Kept(Vec<(u64, u64)>);

impl Observer for Kept {
    fn trial(&mut self, record: &TrialRecord) -> std::io::Result<()> {
        let sent = serde_json::to_value(record)?["forward"]["sent"].as_u64().unwrap_or(0);
        println!("{} {} {sent} {:?}", record.purpose, record.rate, record.verdict);
        self.0.push((record.rate, sent));
        Ok(())
    }

    fn tick(&mut self, _: &Status) -> bool {
        true
    }
}

#[test]
fn short_trials_find_the_region_and_long_ones_decide() {
    let Some(mut bench) = bench("faulty:rate=20000", Technology::Forward4, FLOWS) else { return };
    bench.directions = Directions::Forward;
    bench.tester_limit = 200_000;
    bench.effort = Effort { trial_seconds: 0.5, exploring_seconds: 0.1, resolution: 0.01, ..bench.effort };
    let (mut known, mut kept) = (Known::default(), Kept::default());
    let measured = Procedure::Throughput.measure(&mut bench, &mut known, &mut kept).unwrap().remove(0);
    let is_long = |&&(rate, sent): &&(u64, u64)| sent as f64 > 0.3 * rate as f64;
    let (long, short): (Vec<_>, Vec<_>) = kept.0.iter().partition(is_long);
    println!("{measured:?}");
    assert!(kept.0.iter().skip_while(|trial| !is_long(trial)).all(|trial| is_long(&trial)), "short ones come first");
    assert!(short.len() > long.len() && !long.is_empty(), "{short:?}, {long:?}");
    // The value is one that a long trial has passed, and the next one has not.
    let value = measured.value.unwrap();
    assert!(long.iter().any(|(rate, _)| *rate as f64 == value), "{value}: {long:?}");
    assert!((18_000.0..21_000.0).contains(&value) && measured.bound.is_none(), "{measured:?}");
    // What a repetition has found is where the next one begins, with long trials.
    let mut again = Kept::default();
    Procedure::Throughput.measure(&mut bench, &mut known, &mut again).unwrap();
    assert!(again.0.iter().all(|trial| is_long(&trial)), "{again:?}", again = again.0);
}

/// A gateway that loses one frame of a thousand at any rate, and more above 20,000 a second.
#[test]
fn a_throughput_that_tolerates_some_loss_stands_beside_the_other() {
    let Some(mut bench) = bench("faulty:rate=20000,loss=1000", Technology::Forward4, FLOWS) else { return };
    bench.directions = Directions::Forward;
    bench.tester_limit = 200_000;
    bench.effort = Effort { trial_seconds: 0.5, resolution: 0.01, tolerated_loss_percent: 0.5, ..bench.effort };
    let measured = Procedure::Throughput.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
    println!("{measured:?}");
    let [without, with] = &measured[..] else { panic!("one of the two is missing: {measured:?}") };
    assert_eq!((&*without.quantity, &*with.quantity), ("throughput", "throughput with up to 0.5 % lost"));
    // The first thousand frames pass.
    assert!(without.value.is_none_or(|value| value < 3_000.0));
    let value = with.value.unwrap();
    assert!((18_000.0..21_000.0).contains(&value) && with.bound.is_none());
}

/// The same gateway: half of the trials pass near its limit, though each loses some. The walk begins at what the search without loss
/// found, far below. Without loss, both are at the limit.
#[test]
fn turns_up_and_down_find_the_rate_that_half_of_the_trials_pass() {
    for (faults, tolerated, name) in [
        ("faulty:rate=20000,loss=1000", 0.5, "throughput of half of the trials with up to 0.5 % lost"),
        ("faulty:rate=20000", 0.0, "throughput of half of the trials"),
    ] {
        let Some(mut bench) = bench(faults, Technology::Forward4, FLOWS) else { return };
        bench.directions = Directions::Forward;
        bench.tester_limit = 200_000;
        let effort = Effort { trial_seconds: 0.2, resolution: 0.01, up_and_down_trials: 24, ..bench.effort };
        bench.effort = Effort { tolerated_loss_percent: tolerated, ..effort };
        let mut kept = Kept::default();
        let measured = Procedure::Throughput.measure(&mut bench, &mut Known::default(), &mut kept).unwrap();
        println!("{measured:?}");
        let [search, turns] = &measured[..] else { panic!("one of the two is missing: {measured:?}") };
        assert_eq!((&*search.quantity, &*turns.quantity), ("throughput", name));
        let value = turns.value.unwrap();
        assert!((18_500.0..21_500.0).contains(&value) && turns.bound.is_none(), "{faults}: {turns:?}");
        assert_eq!(turns.details["trials"], 24);
    }
}

#[test]
fn connections_that_would_expire_in_a_search_are_made_again() {
    let flows = Flows::sessions(500, 4);
    let opened = bench_as("faulty:state=1,timeout=2000", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    // Answers alone keep no connection of this gateway alive: 2 s after the fill none is there.
    bench.directions = Directions::Reverse;
    bench.tester_limit = 20_000;
    bench.effort = Effort { resolution: 0.05, ..bench.effort };
    let found = (0..3).any(|_| {
        let mut known = Known { fill_rate: Some(20_000), ..Known::default() };
        let measured = Procedure::Throughput.measure(&mut bench, &mut known, &mut Silent).unwrap();
        println!("{measured:?}");
        measured[0].value.unwrap() >= 19_000.0
    });
    assert!(found, "answers to connections that had expired were counted as lost by the gateway");
    bench.effort.trial_seconds = 5.0;
    let mut known = Known { fill_rate: Some(20_000), ..Known::default() };
    let refused = Procedure::Throughput.measure(&mut bench, &mut known, &mut Silent).unwrap_err().to_string();
    assert!(refused.contains("forgets UDP connections after 2 s"), "{refused}");
}

/// Filled at 50,000 connections/s once, this gateway now loses all above 10,000.
#[test]
fn a_quick_run_fills_more_slowly_what_is_not_filled_as_fast_as_once() {
    let flows = Flows::sessions(500, 4);
    let opened = bench_as("faulty:state=1,rate=10000", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    bench.tester_limit = 9000;
    let mut known = Known { fill_rate: Some(50_000), ..Known::default() };
    let filled = bench.fill(50_000, &mut Silent).unwrap();
    assert_eq!(filled, 5000);
    bench.effort = Effort { refill_each_trial: true, resolution: 0.2, ..bench.effort };
    let measured = Procedure::Throughput.measure(&mut bench, &mut known, &mut Silent).unwrap();
    assert_eq!((&measured[0].details["fill_rate"], known.fill_rate), (&5000.into(), Some(5000)), "{measured:?}");
    known = Known { throughput: Some(4000), fill_rate: Some(50_000), ..Known::default() };
    let measured = Procedure::Latency.measure(&mut bench, &mut known, &mut Silent).unwrap();
    assert!(measured.iter().all(|one| one.value.is_some()) && known.fill_rate == Some(5000), "{measured:?}");
    // A rate of the user's is kept, and so is one that a full run has measured.
    assert!(matches!(bench.fill(49_999, &mut Silent), Err(BenchError::Unfilled { rate: 49_999, .. })));
    bench.effort.quick = false;
    assert!(matches!(bench.fill(50_000, &mut Silent), Err(BenchError::Unfilled { rate: 50_000, .. })));
}

#[test]
fn the_capacity_of_a_table_that_forgets_is_not_measured() {
    let flows = Flows::sessions(1000, 10);
    let opened = bench_as("faulty:state=1,timeout=2000", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    // 10,000 connections at 2,000 a second.
    let mut known = Known { fill_rate: Some(2000), ..Known::default() };
    let refused = Procedure::Capacity.measure(&mut bench, &mut known, &mut Silent).unwrap_err().to_string();
    assert!(refused.contains("forgets UDP connections after 2 s"), "{refused}");
}

/// A gateway without a limit of connections that loses one frame of fifty: whatever number is offered, some are missing.
#[test]
fn losses_that_do_not_depend_on_the_number_are_no_capacity() {
    let flows = Flows::sessions(1000, 10);
    let opened = bench_as("faulty:state=1,loss=50", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    let mut known = Known { fill_rate: Some(20_000), ..Known::default() };
    let measured = Procedure::Capacity.measure(&mut bench, &mut known, &mut Silent).unwrap();
    println!("{measured:?}");
    let kept = measured[0].value.unwrap();
    assert!((9_000.0..9_900.0).contains(&kept) && measured[0].bound == Some(Bound::AtLeast), "{measured:?}");
    assert!(format!("{measured:?}").contains("offer them more slowly"), "{measured:?}");
}

/// The same gateway, where one frame of twenty may be lost: all the others are kept, and made at any rate.
#[test]
fn losses_that_are_tolerated_end_neither_capacity_nor_connection_rate() {
    let flows = Flows::sessions(1000, 10);
    let opened = bench_as("faulty:state=1,loss=50", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    (bench.tester_limit, bench.lowest_rate_part) = (20_000, 4);
    let mut measure = |procedure: Procedure, percent: f64| {
        bench.effort = Effort { tolerated_loss_percent: percent, resolution: 0.3, ..bench.effort };
        let mut known = Known { fill_rate: Some(20_000), ..Known::default() };
        let measured = procedure.measure(&mut bench, &mut known, &mut Silent).unwrap().remove(0);
        println!("{measured:?}");
        measured
    };
    let kept = measure(Procedure::Capacity, 5.0);
    assert!((9_500.0..10_000.0).contains(&kept.value.unwrap()) && kept.bound == Some(Bound::AtLeast), "{kept:?}");
    assert!(format!("{kept:?}").contains("lost frames; offer more"), "{kept:?}");
    assert_eq!(kept.quantity, "connection table capacity with up to 5 % lost");
    let reached = (0..4).any(|_| {
        let rate = measure(Procedure::ConnectionRate, 5.0);
        assert_eq!(rate.quantity, "connection establishment rate with up to 5 % lost");
        rate.value == Some(20_000.0)
    });
    assert!(reached, "a busy machine only takes away, but hardly four times");
    // One in fifty is more than one in a hundred.
    assert_eq!(measure(Procedure::ConnectionRate, 1.0).value, None);
}

#[test]
fn each_point_of_a_scalability_series_has_its_own_marks() {
    let Some(mut bench) = bench("faulty:", Technology::Forward4, Flows::sessions(100, 100)) else { return };
    // More than the tester has cores for: every point is the highest that was tried.
    bench.tester_limit = 5000;
    bench.effort = Effort { trial_seconds: 0.05, ..bench.effort };
    let measured = Procedure::Scalability.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
    let quantities: Vec<&str> = measured.iter().map(|m| m.quantity.as_str()).collect();
    assert_eq!(
        quantities[..3],
        ["throughput, 100 sessions", "throughput, 1000 sessions", "throughput, 10000 sessions"]
    );
    let (points, ratio) = measured.split_at(3);
    assert!(points.iter().all(|m| m.value.is_some() && m.bound == Some(Bound::AtLeast)), "{points:?}");
    assert_eq!((ratio.len(), ratio[0].bound), (1, Some(Bound::Unknown)), "{ratio:?}");
}

#[test]
fn an_overloaded_gateway_serves_both_directions_alike() {
    // Plain forwarding by the kernel, in two NAPI threads on one core.
    let Some(mut bench) = bench("plain", Technology::Forward4, FLOWS) else { return };
    bench.directions = Directions::Both;
    bench.tester_limit = 8_000_000;
    let shares: Vec<f64> = (0..3)
        .filter_map(|_| {
            // A fraction of a second at more than any gateway forwards on one core.
            let plan = bench.plain("overload", Directions::Both, 0, 400_000);
            let outcome = bench.trial(&plan, &mut Silent).unwrap().outcome;
            let received = |d: &tombolo_generator::DirectionOutcome| d.arrivals.received as f64;
            let (there, back) = (received(outcome.forward.as_ref()?), received(outcome.reverse.as_ref()?));
            println!("{there} and {back}");
            Some(there.min(back) / there.max(back))
        })
        .collect();
    assert!(shares.iter().any(|share| *share > 0.6), "one direction starved: {shares:?}");
}
