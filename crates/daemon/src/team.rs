//! The workers of the gateway: one for each queue of its device.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tombolo_config::Host;
use tombolo_engine::counters::Counters;
use tombolo_engine::mechanism::Fragments;
use tombolo_engine::{Engine, Plan};
use tombolo_io::merge::Merging;
use tombolo_io::queue::{QueueCounters, TunQueue};
use tombolo_io::worker::{StopSignal, Worker, WorkerError};

use crate::maintenance::Probes;
use crate::state::State;
use crate::tap::Taps;
use crate::worker::{EngineHandler, Pulse};

/// What all workers have in common.
pub(crate) struct Team<'a> {
    pub(crate) settings: &'a Host,
    pub(crate) processors: Vec<usize>,
    pub(crate) state: &'a State,
    /// Those that wait for the others.
    pub(crate) fragments: &'a Arc<Fragments>,
    pub(crate) plan: &'a Arc<ArcSwap<Plan>>,
    pub(crate) probes: &'a Arc<Probes>,
    pub(crate) taps: &'a Arc<Taps>,
    pub(crate) stop: &'a StopSignal,
}

/// A worker, what it counts, what its queue does, and by what it is seen to live.
pub(crate) struct Started {
    pub(crate) worker: Worker<EngineHandler>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) queue: Arc<QueueCounters>,
    pub(crate) pulse: Pulse,
}

impl Team<'_> {
    /// Starts the worker of a queue; of `count` in all.
    pub(crate) fn start(&self, queue: TunQueue, count: usize) -> Result<Started, WorkerError> {
        let number = queue.number();
        let (worker, count) = (u16::try_from(number).unwrap_or(u16::MAX), u16::try_from(count).unwrap_or(u16::MAX));
        let engine = Engine::new(Arc::clone(&self.state.tables), self.state.seed, worker, count);
        let engine = engine.sharing(Arc::clone(self.fragments));
        let (counters, queue_counters) = (Arc::clone(engine.counters()), queue.counters());
        let handler = EngineHandler::new(engine, Arc::clone(self.plan), Arc::clone(self.probes), Arc::clone(self.taps));
        let pulse = handler.pulse();
        let cpu = self.settings.pin.then(|| self.processors[number % self.processors.len()]);
        let worker = Worker::start(&format!("worker-{number}"), cpu, Merging::new(queue), handler, self.stop.clone())?;
        Ok(Started { worker, counters, queue: queue_counters, pulse })
    }
}
