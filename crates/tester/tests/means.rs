//! Frames that leave by AF_XDP and frames longer than a page, through a gateway with planted faults;
//! ports of the machine's own, and what their drivers drop.

#![expect(clippy::unwrap_used, reason = "a test: a panic is a failure")]

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;

use common::{FLOWS, Silent, setup, turn};
use tombolo_generator::{Ends, FrameError, FrameKind, Means, Namespace, Port, RigError};
use tombolo_tester::bench::{Bench, BenchError, BenchPlan};
use tombolo_tester::effort::Effort;
use tombolo_tester::gateway::between_ports::laboratory::{Laboratory, Setup};
use tombolo_tester::gateway::between_ports::{Gateway, GatewayError, TableCounts, hosts};
use tombolo_tester::gateway::{Addresses, Spec, Technology, TestFrames};
use tombolo_tester::search::Verdict;
use tombolo_tester::selftest::{self, SelfTestPlan};
use tombolo_tester::trial::{Directions, Trial};

fn plan(gateway: Box<dyn Gateway>, test_frames: TestFrames, frame_bytes: u16, means: Option<Means>) -> BenchPlan {
    BenchPlan {
        gateway,
        test_frames,
        frame_bytes,
        imix: None,
        mix: None,
        effort: Effort::QUICK,
        directions: Directions::Forward,
        cores: (vec![0], vec![1]),
        tester_limit: 200_000,
        frames: 100_000,
        means,
    }
}

/// A probed bench; `None` (said loudly) where the kernel cannot send so.
fn bench(gateway: &str, frame_bytes: u16, means: Option<Means>) -> Option<Bench> {
    let (spec, technology): (Spec, _) = (gateway.parse().unwrap(), Technology::Forward4);
    let mtu = (frame_bytes > 1518).then(|| u32::from(frame_bytes) - 18);
    let started = Laboratory::start(Setup { mtu, ..setup(&spec, technology, FLOWS) }).unwrap();
    let test_frames = TestFrames::new(technology, &hosts::addresses(technology, &spec, &FLOWS), &FLOWS).unwrap();
    let mut bench = match Bench::open(plan(Box::new(started), test_frames, frame_bytes, means)) {
        Err(BenchError::Rig(why @ RigError::AfXdp { .. })) => {
            let _ = writeln!(std::io::stderr(), "SKIP: {gateway}: {why}");
            return None;
        }
        other => other.unwrap(),
    };
    bench.probe(&mut Silent).unwrap();
    Some(bench)
}

/// A trial that lost so many frames, if one of five did: a pause of the machine may lose others.
fn run(bench: &mut Bench, rate: u64, frames: u32, lost: u64) -> Trial {
    let mut trials = (0..5).map(|_| {
        bench.gateway.flush().unwrap();
        bench.trial(&bench.plain("test", Directions::Forward, rate, frames), &mut Silent).unwrap()
    });
    trials.find(|trial| trial.lost() == lost).unwrap()
}

#[test]
fn planted_faults_are_counted_exactly_however_frames_leave_and_how_long_they_are() {
    if tombolo_lab::skip_without("planted faults and the means of sending", &["ip"]) {
        return;
    }
    let _turn = turn();
    for (means, frame_bytes, rate, frames) in [
        (Some(Means::AfXdp), 64, 40_000, 20_000),
        (Some(Means::AfXdp), 9216, 4_000, 2_000),
        (Some(Means::PacketSockets), 9216, 4_000, 2_000),
        (None, 9216, 4_000, 2_000),
    ] {
        let Some(mut bench) = bench("faulty:loss=100,misdirect=90", frame_bytes, means) else { return };
        let lost = u64::from(frames / 100);
        let trial = run(&mut bench, rate, frames, lost);
        let frames = u64::from(frames);
        // Every 900th is lost, and not there to be misdirected.
        let misdirected = frames / 90 - frames / 900;
        let arrivals = &trial.outcome.forward.as_ref().unwrap().arrivals;
        assert_eq!(
            (trial.lost(), arrivals.count(FrameError::DestinationPort)),
            (lost, misdirected),
            "{means:?}, {frame_bytes}"
        );
        assert_eq!(arrivals.received, frames - lost - misdirected);
        assert_ne!(trial.verdict, Verdict::Passed, "{:?}", trial.reasons);
        let means = means.unwrap_or(Means::AfXdp);
        assert_eq!(bench.sending().means, means);
        let ports = bench.ports();
        assert!(ports.iter().all(|port| port.driver == "veth" && port.xdp == "native"), "{ports:?}");
        assert_eq!(ports[0].hardware_timestamps, "none");
    }
}

#[test]
fn live_frames_of_more_than_a_page_are_refused_in_words() {
    if tombolo_lab::skip_without("live frames of more than a page", &["ip"]) {
        return;
    }
    let _turn = turn();
    let spec: Spec = "faulty:".parse().unwrap();
    let technology = Technology::Forward4;
    let started = Laboratory::start(Setup { mtu: Some(9198), ..setup(&spec, technology, FLOWS) }).unwrap();
    let test_frames = TestFrames::new(technology, &hosts::addresses(technology, &spec, &FLOWS), &FLOWS).unwrap();
    let refused = Bench::open(plan(Box::new(started), test_frames, 9216, Some(Means::LiveFrames))).err().unwrap();
    assert!(refused.to_string().contains("cannot be live frames"), "{refused}");
}

/// A namespace of the test's own, which goes away with the value.
struct Place(String);

impl Place {
    fn new(name: &str) -> Option<Place> {
        if tombolo_lab::skip_without(name, &["ip"]) {
            return None;
        }
        let place = Place(format!("tt{}-{name}", std::process::id()));
        assert!(ip(&format!("netns add {}", place.0)));
        Some(place)
    }

    fn ip(&self, arguments: &str) -> bool {
        ip(&format!("-n {} {arguments}", self.0))
    }

    fn port(&self, name: &str) -> Port {
        Port { name: name.to_owned(), namespace: Some(Namespace::named(&self.0)) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.0));
    }
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).status().is_ok_and(|status| status.success())
}

/// No gateway at all: whatever is between the two ports of the namespace.
struct Nothing(Port, Port);

impl Gateway for Nothing {
    fn name(&self) -> String {
        "nothing".to_owned()
    }

    fn description(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn ports(&self) -> (Port, Port) {
        (self.0.clone(), self.1.clone())
    }

    fn ends(&self) -> Result<(Ends, Ends), GatewayError> {
        let ends =
            |source, destination| Ends { source: [2, 0, 0, 0, 0, source], destination: [2, 0, 0, 0, 0, destination] };
        Ok((ends(1, 2), ends(2, 1)))
    }

    fn flush(&mut self) -> Result<(), GatewayError> {
        Ok(())
    }

    fn reset(&mut self) -> Result<(), GatewayError> {
        Ok(())
    }

    fn counts(&mut self) -> Option<TableCounts> {
        None
    }

    fn udp_timeout_seconds(&self) -> Option<u64> {
        None
    }

    fn place(&mut self, _: &[usize]) -> Result<String, GatewayError> {
        Ok(String::new())
    }
}

#[test]
fn what_the_own_port_drops_makes_a_trial_invalid_and_is_not_the_gateways_loss() {
    let Some(place) = Place::new("taps") else { return };
    let _turn = turn();
    // Taps that nobody reads: their driver drops whatever is to be sent.
    for port in ["left", "right"] {
        if !place.ip(&format!("tuntap add dev {port} mode tap")) {
            let _ = writeln!(std::io::stderr(), "SKIP: what the own port drops: no tap devices here");
            return;
        }
        assert!(place.ip(&format!("link set {port} up")));
    }
    for means in [Means::LiveFrames, Means::AfXdp] {
        let gateway = Nothing(place.port("left"), place.port("right"));
        let test_frames = TestFrames::new(Technology::Forward4, &Addresses::default(), &FLOWS).unwrap();
        let mut bench = match Bench::open(plan(Box::new(gateway), test_frames, 64, Some(means))) {
            Err(BenchError::Rig(why @ RigError::AfXdp { .. })) => {
                let _ = writeln!(std::io::stderr(), "SKIP: what the own port drops: {why}");
                continue;
            }
            other => other.unwrap(),
        };
        let trial = bench.trial(&bench.plain("test", Directions::Forward, 10_000, 1000), &mut Silent).unwrap();
        assert_eq!((trial.lost(), trial.port_drops), (1000, (0, 1000)), "{means:?}");
        assert_eq!(trial.verdict, Verdict::Invalid);
        assert!(trial.why().contains("ports dropped 1000 frames instead of sending them"), "{}", trial.why());
    }
}

#[test]
fn the_self_test_runs_over_two_ports_with_a_cable_between_them() {
    let Some(place) = Place::new("cable") else { return };
    let _turn = turn();
    assert!(place.ip("link add left mtu 9198 type veth peer name right mtu 9198"));
    assert!(place.ip("link set left up") && place.ip("link set right up"));
    for frame_bytes in [64, 9216] {
        let result = selftest::run(&SelfTestPlan {
            kind: FrameKind::Ipv4,
            frame_bytes,
            core: 0,
            gateway_core: Some(1),
            means: None,
            between: Some((place.port("left"), place.port("right"))),
        })
        .unwrap();
        assert!(result.highest_rate > 10_000, "{result:?}");
        let names: Vec<&str> = result.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["left", "right"]);
        assert_eq!(result.receiver_ns, None, "there is no gateway's core");
        println!("{frame_bytes}: {result:?}");
    }
}
