//! The tester against a gateway with planted faults: it must find what was planted, how often, and
//! nothing else.

#![expect(clippy::unwrap_used, reason = "a test: a panic is a failure")]

mod common;

use std::time::{Duration, Instant};

use common::{FLOWS, Silent, bench, bench_as, setup, turn};
use tombolo_generator::{FrameError, become_realtime, pin_to};
use tombolo_tester::bench::{Bench, BenchError, BenchPlan};
use tombolo_tester::effort::Effort;
use tombolo_tester::gateway::between_ports::{hosts, laboratory::Laboratory};
use tombolo_tester::gateway::{Flows, Spec, Technology, TestFrames};
use tombolo_tester::procedure::{Known, packet::Procedure};
use tombolo_tester::search::Verdict;
use tombolo_tester::summary::percentile;
use tombolo_tester::trial::{Directions, Trial, TrialPlan, evenly_timed};

/// One trial with an empty table.
fn run(bench: &mut Bench, rate: u64, frames: u32) -> Trial {
    bench.gateway.flush().unwrap();
    bench.trial(&bench.plain("test", Directions::Forward, rate, frames), &mut Silent).unwrap()
}

#[test]
fn loss_duplication_corruption_and_misdirection_are_counted_exactly() {
    let faults = "faulty:loss=100,duplicate=70,corrupt=90,misdirect=130";
    let Some(mut bench) = bench(faults, Technology::Forward4, FLOWS) else { return };
    let frames = 20_000;
    // A pause of the machine may lose frames that nobody planted; such a trial says so itself.
    let trial = (0..5)
        .map(|_| run(&mut bench, 40_000, frames))
        .find(|t| t.lost() == 200 && t.verdict != Verdict::Invalid)
        .unwrap();
    let arrivals = &trial.outcome.forward.as_ref().unwrap().arrivals;
    // The first fault of the list wins, so each number has one fate.
    let fate = |n: u64| [100, 90, 130, 70].into_iter().position(|every| n.is_multiple_of(every));
    let count = |which| (1..=u64::from(frames)).filter(|n| fate(*n) == Some(which)).count() as u64;
    assert_eq!(trial.lost(), count(0));
    assert_eq!(arrivals.count(FrameError::UdpChecksum), count(1));
    assert_eq!(arrivals.count(FrameError::DestinationPort), count(2));
    assert_eq!(arrivals.duplicates, count(3));
    assert_eq!(trial.verdict, Verdict::Failed, "{:?}", trial.reasons);
}

/// The faults, each with the frames that have it: of those that meet in a frame, the first.
fn planted(faults: &[(u64, FrameError)], frames: u64) -> Vec<(FrameError, u64)> {
    let fate = |n: u64| faults.iter().position(|(every, _)| n.is_multiple_of(*every));
    let count = |which| (1..=frames).filter(|n| fate(*n) == Some(which)).count() as u64;
    faults.iter().enumerate().map(|(which, (_, error))| (*error, count(which))).collect()
}

#[test]
fn every_field_of_the_headers_is_checked() {
    use FrameError::{DontFragment, FlowLabel, HopLimit, Identification, LinkAddress, TrafficClass};
    let ipv4 = [(60, HopLimit), (70, TrafficClass), (80, DontFragment), (90, Identification), (110, LinkAddress)];
    let ipv6 = [(60, HopLimit), (70, TrafficClass), (80, FlowLabel), (110, LinkAddress)];
    for (gateway, technology, faults) in [
        ("faulty:hops=60,tos=70,df=80,id=90,mac=110", Technology::Forward4, &ipv4[..]),
        ("faulty:hops=60,tos=70,label=80,mac=110", Technology::Forward6, &ipv6[..]),
    ] {
        let Some(mut bench) = bench(gateway, technology, FLOWS) else { return };
        let frames = 20_000;
        let trial = (0..5).map(|_| run(&mut bench, 40_000, frames)).find(|t| t.lost() == 0).unwrap();
        let arrivals = &trial.outcome.forward.as_ref().unwrap().arrivals;
        for (error, count) in planted(faults, frames.into()) {
            assert_eq!(arrivals.count(error), count, "{technology} {error:?}");
        }
        assert_eq!((trial.verdict, bench.deviations.len()), (Verdict::Failed, 0), "{:?}", trial.reasons);
    }
}

#[test]
fn a_hop_limit_that_every_frame_has_wrong_is_stated() {
    let Some(mut bench) = bench("faulty:hops=1,tos=1", Technology::Forward4, FLOWS) else { return };
    // Of two faults in every frame the first is done.
    let said: Vec<&String> = bench.deviations.iter().collect();
    assert!(said.len() == 1 && said[0].contains("takes 3 off the hop limit"), "{said:?}");
    let passed = (0..4).map(|_| run(&mut bench, 40_000, 20_000)).any(|trial| trial.verdict == Verdict::Passed);
    assert!(passed, "what every frame has is measured all the same");
}

/// Takes the sending core away from the generator for a while, as the machine's other work does.
fn pause_of_the_sending_core(after: Duration, length: Duration) -> std::thread::JoinHandle<()> {
    pause_of_core(0, after, length)
}

fn pause_of_core(core: usize, after: Duration, length: Duration) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        pin_to(0, &[core]).unwrap();
        become_realtime(0, 60).unwrap();
        std::thread::sleep(after);
        let begun = Instant::now();
        while begun.elapsed() < length {
            std::hint::spin_loop();
        }
    })
}

#[test]
fn a_pause_of_the_tester_does_not_excuse_losses_elsewhere() {
    let Some(mut bench) = bench("faulty:loss=500", Technology::Forward4, FLOWS) else { return };
    // Another pause of the machine, near the end, would make the trial late as a whole: the kernel
    // gives others 50 ms of each second of a real-time core, so the trial is shorter than that.
    let blamed = (0..6).any(|_| {
        let pause = pause_of_the_sending_core(Duration::from_millis(200), Duration::from_millis(15));
        let trial = run(&mut bench, 40_000, 24_000);
        pause.join().unwrap();
        let forward = trial.outcome.forward.as_ref().unwrap();
        let was_paused = forward.pauses.iter().any(|pause| pause.late_max_ns > 10_000_000);
        was_paused && trial.lost() >= 48 && trial.verdict == Verdict::Failed
    });
    assert!(blamed, "a tester's pause passed for the cause of losses that it had no part in");
}

#[test]
fn a_core_that_was_taken_from_the_gateway_is_told_from_its_own_pause() {
    let Some(mut bench) = bench("faulty:", Technology::Forward4, FLOWS) else { return };
    let told = (0..6).any(|_| {
        let pause = pause_of_core(1, Duration::from_millis(200), Duration::from_millis(30));
        let trial = run(&mut bench, 40_000, 24_000);
        pause.join().unwrap();
        let was_away = trial.absences.iter().any(|absence| absence.core == 1 && absence.length_ns() > 20_000_000);
        assert!(!trial.why().contains("the gateway passed nothing"), "{:?}", trial.reasons);
        was_away && (trial.lost() == 0 || trial.why().contains("kept core 1 away"))
    });
    assert!(told);
}

#[test]
fn a_pause_of_the_gateway_is_its_own_and_is_named() {
    let Some(mut bench) = bench("faulty:outage=60", Technology::Forward4, FLOWS) else { return };
    let named = (0..4).any(|_| {
        let plan = bench.plain("test", Directions::Forward, 40_000, 20_000);
        let mut was_reset = false;
        let trial = bench
            .trial_with(&plan, &mut Silent, &mut |gateway, elapsed| {
                if !was_reset && elapsed > Duration::from_millis(300) {
                    gateway.reset()?;
                    was_reset = true;
                }
                Ok(())
            })
            .unwrap();
        trial.verdict == Verdict::Failed && trial.reasons.iter().any(|r| r.contains("the gateway passed nothing for 6"))
    });
    assert!(named);
}

#[test]
fn reordering_is_counted_but_fails_nothing() {
    let Some(mut bench) = bench("faulty:reorder=50", Technology::Forward6, FLOWS) else { return };
    let trial = (0..5).map(|_| run(&mut bench, 40_000, 20_000)).find(|t| t.lost() == 0).unwrap();
    // The last frame has no successor to be swapped with.
    assert_eq!(trial.outcome.forward.as_ref().unwrap().arrivals.reordered, 399);
    assert_eq!(trial.verdict, Verdict::Passed, "{:?}", trial.reasons);
}

#[test]
fn a_delay_is_measured_within_twenty_microseconds() {
    // What the forwarder takes without a planted delay is its own. A machine that is busy with
    // something else adds to either.
    let mut tries = (0..4).map(|_| {
        let pair = median_delay("faulty:").zip(median_delay("faulty:delay=3000"));
        println!("own delay and planted one, ns: {pair:?}");
        pair.is_none_or(|(own, delayed)| (delayed - own).abs_diff(3_000_000) <= 20_000)
    });
    assert!(tries.any(|is_right| is_right));
}

fn median_delay(gateway: &str) -> Option<u64> {
    let mut bench = bench(gateway, Technology::Forward4, FLOWS)?;
    let timed = Some(evenly_timed(10_000, 5000, 0.1, 1000));
    // The smallest median of three: other work on the machine only adds.
    let medians = (0..3).map(|_| {
        let plan = TrialPlan { timed, ..bench.plain("test", Directions::Forward, 10_000, 5000) };
        let trial = bench.trial(&plan, &mut Silent).unwrap();
        let mut delays: Vec<u64> = trial.outcome.forward.unwrap().arrivals.timed.into_iter().flatten().collect();
        percentile(&mut delays, 500).unwrap()
    });
    medians.min()
}

#[test]
fn a_limit_of_the_rate_is_found_within_one_percent() {
    let Some(mut bench) = bench("faulty:rate=50000", Technology::Forward4, FLOWS) else { return };
    // The forwarder saves up two milliseconds of its rate: 0.33 % of a trial. Its own pauses must
    // not pass for its limit.
    bench.effort =
        Effort { resolution: 0.002, trial_seconds: 0.6, verify_failures: 3, repeat_invalid: 6, ..bench.effort };
    let mut tries = (0..4).map(|_| {
        let mut known = Known::default();
        let measured = Procedure::Throughput.measure(&mut bench, &mut known, &mut Silent).unwrap();
        assert!(measured[0].value.unwrap() <= 50_500.0, "{measured:?}");
        println!("{measured:?}");
        measured[0].value.unwrap() >= 49_500.0 && measured[0].bound.is_none()
    });
    assert!(tries.any(|is_right| is_right), "a busy machine only takes away, but hardly four times");
}

#[test]
fn a_table_of_ten_thousand_holds_exactly_ten_thousand() {
    let flows = Flows::sessions(4000, 5);
    // The forwarder changes no ports, so it can be asked as a NAT44.
    let opened = bench_as("faulty:capacity=10000", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    let mut known = Known { fill_rate: Some(40_000), ..Known::default() };
    let capacities: Vec<f64> = (0..3)
        .map(|_| Procedure::Capacity.measure(&mut bench, &mut known, &mut Silent).unwrap()[0].value.unwrap())
        .collect();
    assert!(capacities.contains(&10_000.0) && capacities.iter().all(|c| *c <= 10_000.0), "{capacities:?}");
}

#[test]
fn an_outage_is_measured_by_the_reset_procedure() {
    let Some(mut bench) = bench("faulty:outage=200", Technology::Forward4, FLOWS) else { return };
    let mut known = Known { throughput: Some(10_000), ..Known::default() };
    bench.effort.reset_seconds = 0.8;
    let gaps: Vec<f64> = (0..4)
        .map(|_| Procedure::Reset.measure(&mut bench, &mut known, &mut Silent).unwrap())
        .map(|measured| measured.iter().find(|m| m.quantity.contains("gap")).unwrap().value.unwrap())
        .collect();
    assert!(gaps.iter().any(|gap| (gap - 200.0).abs() < 2.0), "{gaps:?} ms");
}

#[test]
fn gateways_that_answer_nothing_or_mangle_everything_are_told_apart() {
    let silent = failure("faulty:loss=1");
    assert!(matches!(silent, Some(BenchError::Silent { .. }) | None), "{silent:?}");
    let mangled = failure("faulty:corrupt=1");
    assert!(matches!(mangled, Some(BenchError::Mangled { .. }) | None), "{mangled:?}");
}

fn failure(gateway: &str) -> Option<BenchError> {
    if tombolo_lab::skip_without(gateway, &["ip"]) {
        return None;
    }
    let _turn = turn();
    let spec: Spec = gateway.parse().unwrap();
    let technology = Technology::Forward4;
    let started = Laboratory::start(setup(&spec, technology, FLOWS)).unwrap();
    let mut bench = Bench::open(BenchPlan {
        gateway: Box::new(started),
        test_frames: TestFrames::new(technology, &hosts::addresses(technology, &spec, &FLOWS), &FLOWS).unwrap(),
        frame_bytes: 64,
        imix: None,
        mix: None,
        effort: Effort::QUICK,
        directions: Directions::Forward,
        cores: (vec![0], vec![1]),
        tester_limit: 200_000,
        frames: 1000,
        means: None,
    })
    .unwrap();
    bench.probe(&mut Silent).err()
}
