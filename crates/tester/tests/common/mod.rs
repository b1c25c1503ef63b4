//! A bench with a forwarder whose faults are planted.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tombolo_tester::bench::{Bench, BenchPlan, Observer, Status};
use tombolo_tester::effort::Effort;
use tombolo_tester::gateway::between_ports::{hosts, laboratory::Laboratory, laboratory::Setup};
use tombolo_tester::gateway::{Flows, Spec, Technology, TestFrames};
use tombolo_tester::trial::{Directions, TrialRecord};

pub(crate) struct Silent;

impl Observer for Silent {
    fn trial(&mut self, record: &TrialRecord) -> std::io::Result<()> {
        println!("{} {} {:?} {:?}", record.purpose, record.rate, record.verdict, record.reasons);
        Ok(())
    }

    fn tick(&mut self, _: &Status) -> bool {
        true
    }
}

/// A bench that has the machine for itself: the tests of this file take turns.
pub(crate) struct Alone {
    pub(crate) bench: Bench,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Alone {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut Bench {
        &mut self.bench
    }
}

pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bench with this gateway, probed; `None` (said loudly) without the privileges or a second core.
pub(crate) fn bench(gateway: &str, technology: Technology, flows: Flows) -> Option<Alone> {
    bench_as(gateway, technology, technology, flows)
}

/// A lab of one queue a port.
pub(crate) fn setup(spec: &Spec, technology: Technology, flows: Flows) -> Setup {
    Setup {
        spec: spec.clone(),
        technology,
        flows,
        tombolo: "tombolo".into(),
        settings: String::new(),
        queues: 1,
        mtu: None,
    }
}

/// The same, with the gateway asked as if it did something else.
pub(crate) fn bench_as(gateway: &str, technology: Technology, asked: Technology, flows: Flows) -> Option<Alone> {
    let mut alone = unprobed(gateway, technology, asked, flows, |_| {})?;
    alone.bench.probe(&mut Silent).unwrap();
    alone.bench.gateway.flush().unwrap();
    Some(alone)
}

/// The same, not probed yet, and opened with a plan that `change` has changed.
pub(crate) fn unprobed(
    gateway: &str,
    technology: Technology,
    asked: Technology,
    flows: Flows,
    change: impl FnOnce(&mut BenchPlan),
) -> Option<Alone> {
    if tombolo_lab::skip_without(gateway, &["ip"]) {
        return None;
    }
    let turn = turn();
    let spec: Spec = gateway.parse().unwrap();
    let started = Laboratory::start(setup(&spec, technology, flows)).unwrap();
    let addresses = hosts::addresses(technology, &spec, &flows);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(cores > 1, "these tests need two cores: one sends, one is the gateway's");
    let mut plan = BenchPlan {
        gateway: Box::new(started),
        test_frames: TestFrames::new(asked, &addresses, &flows).unwrap(),
        frame_bytes: asked.kinds().0.shortest(),
        imix: None,
        mix: None,
        effort: Effort::QUICK,
        directions: Directions::Forward,
        cores: (vec![0], vec![1]),
        tester_limit: 200_000,
        frames: 1_000_000,
        means: None,
    };
    change(&mut plan);
    Some(Alone { bench: Bench::open(plan).unwrap(), _turn: turn })
}

pub(crate) const FLOWS: Flows = Flows::RFC_4814;
