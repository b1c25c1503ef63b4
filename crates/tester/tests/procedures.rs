//! Procedures beyond searching one rate, each against a fault that must not pass for a figure.

#![expect(clippy::unwrap_used, reason = "a test: a panic is a failure")]

mod common;

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{FLOWS, Silent, bench, turn, unprobed};
use tombolo_generator::{Background, Ends, FrameKind, Template, Transport};
use tombolo_tester::bench::{BenchError, Mix};
use tombolo_tester::effort::Effort;
use tombolo_tester::gateway::{Addresses, Flows, Technology};
use tombolo_tester::procedure::dns64::{Dns64Plan, Resolver, Shares};
use tombolo_tester::procedure::{Bound, Known, Measured, packet::Procedure};
use tombolo_tester::results::ResultFile;
use tombolo_tester::search::Verdict;
use tombolo_tester::trial::Directions;

fn named<'a>(measured: &'a [Measured], quantity: &str) -> &'a Measured {
    measured.iter().find(|one| one.quantity == quantity).unwrap_or_else(|| panic!("no {quantity}: {measured:?}"))
}

#[test]
fn what_a_crowd_of_flows_takes_away_is_found() {
    let flows = Flows::sessions(100, 100);
    let Some(mut bench) = bench("faulty:rate=40000,crowd=1000", Technology::Forward4, flows) else { return };
    bench.effort = Effort {
        flows_step: 100,
        trial_seconds: 0.3,
        latency_seconds: 0.3,
        latency_from_seconds: 0.1,
        verify_failures: 2,
        ..bench.effort
    };
    bench.tester_limit = 100_000;
    let found = (0..3).any(|_| {
        bench.gateway.flush().unwrap();
        let measured = Procedure::Overload.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
        let lost = |flows| named(&measured, &format!("throughput degradation, {flows} flows")).value;
        println!("{:?} and {:?} %", lost(100), lost(10_000));
        lost(100).is_some_and(|percent| percent.abs() < 8.0)
            && lost(10_000).is_some_and(|percent| (percent - 50.0).abs() < 8.0)
    });
    assert!(found, "half of the rate is lost once there are more than 1000 flows");
}

#[test]
fn the_degradation_of_what_the_tester_limits_is_no_figure() {
    let Some(mut bench) = bench("faulty:", Technology::Forward4, Flows::sessions(10, 10)) else { return };
    // Every point is the highest that was tried.
    bench.tester_limit = 5000;
    bench.effort = Effort {
        flows_step: 100,
        trial_seconds: 0.05,
        latency_seconds: 0.1,
        latency_from_seconds: 0.03,
        timed_frames: 50,
        ..bench.effort
    };
    for procedure in [Procedure::Overload, Procedure::OverloadIncremental] {
        let measured = procedure.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
        let lost = named(&measured, "throughput degradation, 100 flows");
        assert_eq!((lost.bound, lost.doubts.is_empty()), (Some(Bound::Unknown), false), "{lost:?}");
        // Of a hundred flows that begin within 0.05 s the last is 99 intervals after the first.
        let interval = &named(&measured, "throughput, 100 flows").details["interval_us"];
        let expected = (procedure == Procedure::OverloadIncremental).then_some(0.05e6 / 99.0);
        assert_eq!(interval.as_f64(), expected);
    }
}

const NDR: &str = "non-drop rate (conditional throughput)";
const PDR: &str = "partial-drop rate, 0.5 % (conditional throughput)";

#[test]
fn a_loss_at_every_rate_is_within_the_partial_drop_rate_and_not_the_non_drop_rate() {
    let Some(mut bench) = bench("faulty:loss=1000", Technology::Forward4, FLOWS) else { return };
    bench.tester_limit = 40_000;
    bench.lowest_rate_part = 2;
    let seen = (0..3).any(|_| {
        let measured = Procedure::Mlrsearch.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
        println!("{measured:?}");
        let (ndr, pdr) = (named(&measured, NDR), named(&measured, PDR));
        assert!(ndr.value.is_none() && ndr.doubts[0].contains("at no load"), "{ndr:?}");
        // A thousandth of the load was lost, and is no throughput.
        pdr.bound == Some(Bound::AtLeast) && pdr.value.is_some_and(|rate| (rate - 39_960.0).abs() < 1.0)
    });
    assert!(seen);
}

#[test]
fn damaged_frames_are_no_loss_that_a_goal_allows_for() {
    let Some(mut bench) = bench("faulty:corrupt=1000", Technology::Forward4, FLOWS) else { return };
    bench.tester_limit = 40_000;
    bench.lowest_rate_part = 2;
    let measured = Procedure::Mlrsearch.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
    assert!(measured.iter().all(|one| one.value.is_none()), "{measured:?}");
}

#[test]
fn frames_later_than_the_timeout_are_lost_and_others_are_not() {
    let Some(mut bench) = bench("faulty:delay=3000", Technology::Forward4, FLOWS) else { return };
    bench.tester_limit = 20_000;
    bench.lowest_rate_part = 2;
    bench.effort = Effort { trial_seconds: 0.1, resolution: 0.2, ..bench.effort };
    let throughput = |bench: &mut common::Alone, timeout_ms: u64| {
        bench.effort.frame_timeout_ns = timeout_ms * 1_000_000;
        Procedure::Throughput.measure(bench, &mut Known::default(), &mut Silent).unwrap().remove(0)
    };
    let too_short = throughput(&mut bench, 2);
    assert!(too_short.value.is_none() && too_short.doubts[0].contains("later than the frame timeout"), "{too_short:?}");
    let passes = (0..4).map(|_| throughput(&mut bench, 200)).any(|one| one.bound == Some(Bound::AtLeast));
    assert!(passes, "none takes 200 ms");
}

/// Native IPv6 traffic between the lab's hosts and nothing else.
fn background_only() -> (Mix, Background) {
    let addresses = Addresses::default();
    let ends = Ends { source: [0; 6], destination: [0; 6] };
    let template = Template { ends, kind: FrameKind::Ipv6, transport: Transport::Udp, frame_bytes: 84, hop_limit: 0 };
    let (source, destination) = (addresses.inside_ipv6, addresses.outside_ipv6);
    (Mix { n: 100, m: 0 }, Background { template, source, destination, n: 2, m: 0, hop_limit: 0 })
}

#[test]
fn native_traffic_alone_is_counted_like_any_other() {
    let technology = Technology::Forward4;
    let opened = unprobed("faulty:loss=100", technology, technology, FLOWS, |plan| plan.mix = Some(background_only()));
    let Some(mut bench) = opened else { return };
    bench.probe(&mut Silent).unwrap();
    bench.gateway.flush().unwrap();
    let plan = bench.plain("test", Directions::Forward, 40_000, 10_000);
    let trial = (0..5).map(|_| {
        bench.gateway.flush().unwrap();
        bench.trial(&plan, &mut Silent).unwrap()
    });
    let trial = trial.into_iter().find(|trial| trial.verdict == Verdict::Failed && trial.lost() == 100).unwrap();
    let forward = trial.outcome.forward.unwrap();
    assert_eq!((forward.departures.background, forward.arrivals.background), (10_000, 9900));
}

#[test]
fn a_customers_edge_with_ports_of_another_is_found_out() {
    // The forwarder leaves ports as they are. PSID 0 of 32 has 1024 to 1055, and then none to 2047.
    let flows = Flows { inside_first: 1056, ..Flows::sessions(100, 10) };
    let opened = unprobed("faulty:", Technology::Forward4, Technology::MapE, flows, |_| {});
    let Some(mut bench) = opened else { return };
    let Err(BenchError::Mangled { reasons, .. }) = bench.probe(&mut Silent) else { panic!("it was believed") };
    assert!(reasons.contains("source port"), "{reasons}");
}

/// A resolver that synthesizes without asking anybody, and does every Nth answer wrong.
struct FaultyResolver {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Clone, Copy)]
enum Wrong {
    Nothing,
    Silent,
    Address,
    Late,
}

impl FaultyResolver {
    fn start(wrong: Wrong, every: u64) -> FaultyResolver {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut count) = ([0; 1500], 0);
            while !stopped.load(Ordering::Acquire) {
                let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
                count += 1;
                let is_wrong = u64::is_multiple_of(count, every);
                match (wrong, is_wrong) {
                    (Wrong::Silent, true) => continue,
                    (Wrong::Late, true) => std::thread::sleep(Duration::from_millis(150)),
                    _ => {}
                }
                let answer = synthesize(&buffer[..length], matches!((wrong, is_wrong), (Wrong::Address, true)));
                let _ = socket.send_to(&answer, client);
            }
        });
        FaultyResolver { address, stop, thread: Some(thread) }
    }
}

impl Drop for FaultyResolver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// The answer to `AAA-BBB-CCC-DDD.dns64perf.test`, by hand: header, the question, one AAAA record.
fn synthesize(query: &[u8], wrong_address: bool) -> Vec<u8> {
    let label = std::str::from_utf8(&query[13..28]).unwrap();
    let octets: Vec<u8> = label.split('-').map(|part| part.parse().unwrap()).collect();
    let mut address = "64:ff9b::".parse::<Ipv6Addr>().unwrap().octets();
    address[12..].copy_from_slice(&octets);
    address[11] ^= u8::from(wrong_address);
    let mut answer = query.to_vec();
    answer[2] |= 0x80;
    answer[7] = 1;
    answer.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
    answer.extend(address);
    answer
}

fn dns64(wrong: Wrong, every: u64, max_rate: u64) -> (Measured, Vec<String>) {
    // The sending cores of other tests would keep client and authority waiting.
    let _turn = turn();
    let resolver = FaultyResolver::start(wrong, every);
    let directory = tempfile::tempdir().unwrap();
    let mut results = ResultFile::open(&directory.path().join("dns64.jsonl")).unwrap();
    let plan = Dns64Plan {
        resolver: Resolver::At {
            server: resolver.address,
            authority: "127.0.0.1:0".parse().unwrap(),
            prefix: "64:ff9b::".parse().unwrap(),
        },
        effort: Effort { repetitions: 1, trial_seconds: 0.2, resolution: 0.2, ..Effort::QUICK },
        timeout: Duration::from_millis(100),
        shares: Shares::default(),
        cores: (0, 1),
        max_rate: Some(max_rate),
    };
    let mut reasons = Vec::new();
    let mut result = plan.run(&mut results, &mut |_, answers| reasons.push(answers.why())).unwrap();
    (result.measured.remove(0), reasons)
}

#[test]
fn a_resolver_that_answers_everything_has_a_rate_and_the_tester_set_the_limit() {
    let passes = (0..3).map(|_| dns64(Wrong::Nothing, u64::MAX, 2000)).any(|(measured, reasons)| {
        println!("{measured:?} {reasons:?}");
        measured.bound == Some(Bound::AtLeast) && measured.value == Some(2000.0)
    });
    assert!(passes);
}

#[test]
fn a_resolver_that_is_silent_wrong_or_late_now_and_then_has_no_rate() {
    for (wrong, words) in [
        (Wrong::Silent, "queries were not answered"),
        (Wrong::Address, "answers were wrong"),
        (Wrong::Late, "answers came after the timeout"),
    ] {
        // More often than in any trial of the search.
        let (measured, reasons) = dns64(wrong, 2, 4000);
        assert_eq!(measured.value, None, "{measured:?}");
        assert!(reasons.iter().any(|why| why.contains(words)), "{reasons:?}");
    }
}
