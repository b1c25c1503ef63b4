//! A value that its trial does not support carries a mark and the reason, or is not there.

#![expect(clippy::unwrap_used, reason = "a test: a panic is a failure")]

mod common;

use common::{FLOWS, Silent, bench, bench_as, turn};
use serde_json::Value;
use tombolo_tester::bench::{BenchError, Status};
use tombolo_tester::effort::Effort;
use tombolo_tester::forecast::Forecast;
use tombolo_tester::gateway::{Flows, Technology};
use tombolo_tester::procedure::{Bound, Known, Measured, packet::Procedure};
use tombolo_tester::results::ResultFile;
use tombolo_tester::series::{Anew, Progress, SeriesPlan, SeriesResult};
use tombolo_tester::trial::Directions;

fn at(throughput: u64) -> Known {
    Known { throughput: Some(throughput), fill_rate: Some(20_000), ..Known::default() }
}

#[test]
fn nothing_recovers_from_what_was_no_overload() {
    let Some(mut bench) = bench("faulty:", Technology::Forward4, FLOWS) else { return };
    bench.effort.overload_seconds = 0.2;
    let measured = Procedure::Recovery.measure(&mut bench, &mut at(5000), &mut Silent).unwrap();
    assert_eq!(measured[0].value, None, "{measured:?}");
    assert!(measured[0].doubts[0].contains("nothing was overloaded"), "{:?}", measured[0].doubts);
}

#[test]
fn what_was_overloaded_recovers() {
    let Some(mut bench) = bench("faulty:rate=20000", Technology::Forward4, FLOWS) else { return };
    bench.effort.overload_seconds = 0.3;
    let times = (0..4).map(|_| Procedure::Recovery.measure(&mut bench, &mut at(20_000), &mut Silent).unwrap());
    let recovered = |m: &Vec<Measured>| m[0].value.is_some_and(|ms| ms < 20.0) && m[0].doubts.is_empty();
    assert!(times.inspect(|m| println!("{m:?}")).any(|m| recovered(&m)));
}

#[test]
fn a_point_of_the_loss_curve_that_was_never_sent_is_no_value() {
    let Some(mut bench) = bench("faulty:", Technology::Forward4, FLOWS) else { return };
    // More than any tester sends: every point above what it reaches would be the same trial.
    bench.tester_limit = 40_000_000;
    bench.effort = Effort { trial_seconds: 0.004, repeat_invalid: 0, loss_step_percent: 10, ..bench.effort };
    let measured = Procedure::FrameLoss.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
    let points = measured[0].details["points"].as_array().unwrap();
    assert_eq!(points[0]["valid"], false, "{points:?}");
    assert!(points[0]["percent_of_max"].as_f64().unwrap() < 99.0, "the rate that was reached, not the one asked for");
    assert!(!measured[0].doubts.is_empty());
}

#[test]
fn the_latency_of_a_lossy_stream_is_marked_and_lost_frames_are_slowest() {
    let Some(mut bench) = bench("faulty:loss=9", Technology::Forward4, FLOWS) else { return };
    bench.effort = Effort { latency_seconds: 0.3, latency_from_seconds: 0.1, timed_frames: 500, ..bench.effort };
    let measured = Procedure::Latency.measure(&mut bench, &mut at(10_000), &mut Silent).unwrap();
    let (typical, worst) = (&measured[0], &measured[1]);
    assert_eq!((typical.bound, worst.bound), (None, Some(Bound::AtLeast)));
    assert!(typical.doubts[0].contains("lost"), "{:?}", typical.doubts);
    bench.effort.variation_seconds = 0.3;
    let pdv = Procedure::Pdv.measure(&mut bench, &mut at(10_000), &mut Silent).unwrap();
    assert_eq!((pdv[0].bound, pdv[0].doubts.len()), (Some(Bound::AtLeast), 2));
}

#[test]
fn a_gateway_that_is_still_dead_when_the_trial_ends_has_no_reset_time() {
    let Some(mut bench) = bench("faulty:outage=5000", Technology::Forward4, FLOWS) else { return };
    bench.effort.reset_seconds = 0.6;
    let measured = Procedure::Reset.measure(&mut bench, &mut at(10_000), &mut Silent).unwrap();
    for one in measured {
        assert_eq!(one.bound, Some(Bound::AtLeast), "{one:?}");
        assert!(one.doubts.iter().any(|doubt| doubt.contains("not recovered")));
    }
}

#[test]
fn a_reset_that_empties_the_table_is_no_outage() {
    let flows = Flows::sessions(500, 2);
    let opened = bench_as("faulty:outage=50,state=1", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    bench.directions = Directions::Both;
    bench.effort.reset_seconds = 0.6;
    let measured = Procedure::Reset.measure(&mut bench, &mut at(10_000), &mut Silent).unwrap();
    let [_, gap, survivors] = &measured[..] else { panic!("{measured:?}") };
    assert!((gap.value.unwrap() - 50.0).abs() < 15.0 && gap.bound.is_none(), "{gap:?}");
    // Those that the stream made again answer; the others went with the table.
    assert!(survivors.value.is_some_and(|share| share > 90.0), "{survivors:?}");
}

#[test]
fn answers_without_sessions_are_no_connections() {
    let flows = Flows::sessions(500, 4);
    let opened = bench_as("faulty:keep=500", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    bench.tester_limit = 40_000;
    // Down to an eighth: below that nothing new is to be seen.
    bench.lowest_rate_part = 8;
    let is_stated = (0..4).any(|_| {
        let measured = Procedure::ConnectionRate.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
        assert_eq!(measured[0].value, None, "{measured:?}");
        println!("{:?}", measured[0].doubts);
        measured[0].doubts[0].contains("500 of 2000 sessions")
    });
    assert!(is_stated);
    let torn = Procedure::Teardown.measure(&mut bench, &mut at(10_000), &mut Silent).unwrap();
    assert_eq!(torn[0].value, None, "{torn:?}");
}

#[test]
fn sessions_that_are_there_are_stated_with_the_rate() {
    let flows = Flows::sessions(500, 4);
    let opened = bench_as("faulty:state=1", Technology::Forward4, Technology::Nat44, flows);
    let Some(mut bench) = opened else { return };
    bench.tester_limit = 20_000;
    let mut known = Known::default();
    let tries = (0..3).map(|_| Procedure::ConnectionRate.measure(&mut bench, &mut known, &mut Silent).unwrap());
    let stated = |m: &Measured| m.value.is_some() && m.details["established"] == "sessions";
    assert!(tries.inspect(|m| println!("{m:?}")).any(|m| stated(&m[0])));
}

#[test]
fn a_loss_that_does_not_depend_on_the_rate_is_flagged() {
    let Some(mut bench) = bench("faulty:loss=2000", Technology::Forward4, FLOWS) else { return };
    // Trials of 0.1 s: at 20,000 frames/s one frame is lost, below that none.
    bench.tester_limit = 80_000;
    bench.effort = Effort { trial_seconds: 0.1, resolution: 0.2, verify_failures: 0, ..bench.effort };
    let flagged = (0..4).any(|_| {
        let measured = Procedure::Throughput.measure(&mut bench, &mut Known::default(), &mut Silent).unwrap();
        println!("{measured:?}");
        measured[0].doubts.iter().any(|doubt| doubt.contains("at every rate"))
    });
    assert!(flagged);
}

struct Nobody;

impl Progress for Nobody {
    fn status(&mut self, _: u32, _: u32, _: &Status) {}

    fn planned(&mut self, forecast: &Forecast) {
        println!("{forecast:?}");
    }

    fn measured(&mut self, _: &str, _: u32, measured: &[Measured]) {
        println!("{measured:?}");
    }

    fn failed(&mut self, gateway: &str, error: &BenchError) {
        println!("{gateway}: {error}");
    }
}

#[test]
fn one_failed_fill_does_not_end_a_gateways_series() {
    if tombolo_lab::skip_without("one_failed_fill", &["ip"]) {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let mut results = ResultFile::open(&directory.path().join("series.jsonl")).unwrap();
    let effort = Effort { repetitions: 2, ..Effort::QUICK };
    let gateways = vec!["faulty:capacity=1000".parse().unwrap()];
    let plan = SeriesPlan {
        directions: Directions::Forward,
        flows: Some(Flows::sessions(1000, 2)),
        sending_cores: Some(vec![0]),
        gateway_cores: Some(vec![1]),
        known: Known { fill_rate: Some(20_000), ..Known::default() },
        max_rate: Some(100_000),
        ..SeriesPlan::new(Procedure::Teardown, gateways, effort, "tombolo".into())
    };
    let result = plan.run(&mut results, false, &mut Nobody).unwrap();
    assert_eq!(result.failures.len(), 2, "each repetition is tried: {:?}", result.failures);
    assert!(result.tallies[0].1.trials >= 6, "{:?}", result.tallies);
}

#[test]
fn a_series_goes_on_with_more_repetitions() {
    if tombolo_lab::skip_without("more_repetitions", &["ip"]) {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("series.jsonl");
    let plan = |repetitions: u32| {
        let effort = Effort { repetitions, trial_seconds: 0.1, ..Effort::QUICK };
        let gateways = vec!["faulty:rate=20000".parse().unwrap()];
        SeriesPlan {
            directions: Directions::Forward,
            sending_cores: Some(vec![0]),
            gateway_cores: Some(vec![1]),
            max_rate: Some(100_000),
            ..SeriesPlan::new(Procedure::ReceivedRate, gateways, effort, "tombolo".into())
        }
    };
    let run = |repetitions: u32, resume: bool| {
        plan(repetitions).run(&mut ResultFile::open(&file).unwrap(), resume, &mut Nobody).unwrap()
    };
    let count = |result: &SeriesResult| result.summaries[0].summary.unwrap().count;
    assert_eq!(count(&run(1, false)), 1);
    let more = run(3, true);
    assert_eq!((count(&more), more.summaries[0].missing), (3, 0));
    let rate = more.summaries.iter().find(|summary| summary.quantity == "received rate under overload").unwrap();
    let summary = rate.summary.unwrap();
    assert!((15_000.0..=25_000.0).contains(&summary.median), "what it forwards under overload: {summary:?}");
    let lines = std::fs::read_to_string(&file).unwrap();
    let is_rate = |line: &&str| line.contains("\"record\":\"result\"") && line.contains("received rate under overload");
    assert_eq!(lines.lines().filter(is_rate).count(), 3);
    assert!(lines.contains("\"measurements\":2"), "the forecast is of what is left");
}

/// Each of two gateways with limits of their own is measured in each repetition, and is the same one after it was made anew in
/// the other order, also while its trials go up and down; these begin where they ended in the repetition before.
#[test]
fn gateways_that_are_made_anew_keep_their_names_and_what_is_known_of_them() {
    if tombolo_lab::skip_without("made_anew", &["ip"]) {
        return;
    }
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("series.jsonl");
    let effort = Effort { repetitions: 3, trial_seconds: 0.1, up_and_down_trials: 8, ..Effort::QUICK };
    let gateways = vec!["faulty:rate=20000".parse().unwrap(), "faulty:rate=10000".parse().unwrap()];
    let plan = SeriesPlan {
        directions: Directions::Forward,
        sending_cores: Some(vec![0]),
        gateway_cores: Some(vec![1]),
        max_rate: Some(100_000),
        anew: Anew::Trials(3),
        ..SeriesPlan::new(Procedure::Throughput, gateways, effort, "tombolo".into())
    };
    let result = plan.run(&mut ResultFile::open(&file).unwrap(), false, &mut Nobody).unwrap();
    assert!(result.failures.is_empty(), "{:?}", result.failures);
    assert_eq!(result.tallies[0].0, "faulty:rate=20000", "they are listed as they were asked for");
    let limits = [("faulty:rate=20000", 20_000.0), ("faulty:rate=10000", 10_000.0)];
    for summary in &result.summaries {
        let limit = limits.iter().find(|(name, _)| *name == summary.gateway).unwrap().1;
        let values = summary.summary.unwrap();
        let of_limit = values.min / limit..values.max / limit;
        assert!(of_limit.start > 0.85 && of_limit.end < 1.1 && values.count == 3, "{summary:?}");
    }
    assert_eq!(result.summaries.len(), 4);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (name, _) in limits {
        let own = || lines.iter().filter(move |line| line["gateway"] == name);
        // Two for each time that it was made: three repetitions, and after three and six trials of each.
        let probes = own().filter(|line| line["purpose"] == "probe").count();
        assert!(probes >= 3 * (1 + 2) * 2, "{name}: {probes} probes");
        let mut ended_at = None;
        let mut begun = 0;
        for line in own() {
            if line["purpose"] == "up and down" {
                begun += u32::from(ended_at.is_some());
                let rate = line["rate"].as_f64().unwrap();
                assert!(ended_at.take().is_none_or(|ended: f64| (ended - rate).abs() < 1.0), "{name}: {line}");
            } else if line["record"] == "result" && line["quantity"].as_str().unwrap().contains("half of the trials") {
                ended_at = line["value"].as_f64();
            }
        }
        assert_eq!(begun, 2, "{name}");
    }
}
