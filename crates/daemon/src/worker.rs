//! What a worker does with a packet: hands it to its engine, with the plan of the moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tombolo_engine::counters::Whose;
use tombolo_engine::packet::{Outbox, Packet};
use tombolo_engine::refused::Refused;
use tombolo_engine::{Engine, Now, Plan, Verdict};
use tombolo_io::worker::{BATCH, Handler, Loss};

use crate::maintenance::Probes;
use crate::tap::Taps;
use crate::tap::observer::Observer;

/// An engine that serves a queue.
#[derive(Debug)]
pub struct EngineHandler {
    engine: Engine,
    shared: Arc<ArcSwap<Plan>>,
    plan: Arc<Plan>,
    probes: Arc<Probes>,
    taps: Arc<Taps>,
    observer: Observer,
    pulse: Pulse,
    /// What became of the packets of this batch, and whose they were.
    batch: Vec<(Verdict, Whose)>,
}

/// Counts the rounds of a worker, one a second and more while it lives.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    fn beat(&self) {
        // One writer.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Rounds so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Probes that a worker sends in a second, at most.
const PROBES: usize = 100;

impl EngineHandler {
    /// `plan` is looked up once a batch, `taps` when there is another plan.
    #[must_use]
    pub fn new(engine: Engine, shared: Arc<ArcSwap<Plan>>, probes: Arc<Probes>, taps: Arc<Taps>) -> Self {
        let plan = shared.load_full();
        let batch = Vec::with_capacity(BATCH);
        Self { engine, shared, plan, probes, taps, observer: Observer::default(), pulse: Pulse::default(), batch }
    }

    /// By which it is seen to live.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }
}

impl Handler for EngineHandler {
    fn batch_start(&mut self, _now: u64) {
        self.pulse.beat();
        self.batch.clear();
        let current = self.shared.load();
        if !Arc::ptr_eq(&current, &self.plan) {
            self.plan = Arc::clone(&current);
            self.observer.follow(&self.taps);
        }
    }

    fn packet(&mut self, packet: &mut Packet<'_>, now: u64, outbox: &mut impl Outbox) {
        let taken = if self.observer.is_idle() {
            self.engine.observe(&self.plan, packet, Now(now), outbox)
        } else {
            self.observer.process(&mut self.engine, &self.plan, packet, Now(now), outbox)
        };
        self.batch.push(taken);
    }

    fn lost(&mut self, loss: Loss) {
        if let Some(&(verdict, whose)) = self.batch.get(loss.number) {
            self.engine.counters().count_lost(whose, verdict, loss.reason);
        }
    }

    fn idle(&mut self, now: u64, outbox: &mut impl Outbox) -> Duration {
        tombolo_io::fault::trip("thread-worker");
        self.engine.answer_expired(&self.plan, Now(now), outbox);
        self.engine.idle(Now(now));
        self.log_refused();
        self.engine.release_held(&self.plan, Now(now), outbox);
        for session in std::iter::from_fn(|| self.probes.take()).take(PROBES) {
            self.engine.probe(&self.plan, &session, Now(now), outbox);
        }
        Duration::from_secs(1)
    }
}

impl EngineHandler {
    /// Says which packets policy has refused: so many a second, and how many more there were.
    fn log_refused(&mut self) {
        let more = self.engine.take_refused(|refused| {
            let Refused { reason, source, destination, protocol, ports } = *refused;
            let (source_port, destination_port) = ports.unzip();
            tracing::info!(%reason, %source, %destination, protocol, source_port, destination_port, "refused");
        });
        if more > 0 {
            tracing::info!(count = more, "more packets were refused");
        }
    }
}
