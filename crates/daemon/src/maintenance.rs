//! The thread that sweeps out what has expired, a little at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tombolo_engine::sweep::{Expiry, MOST_PROBES};
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::worker::StopSignal;
use tombolo_tables::Tables;
use tombolo_tables::session::Session;
use tombolo_tables::sweep::Sweeper;

/// A pass over all tables takes this many steps of [`STEP`]: ten seconds.
const STEPS: usize = 50;
const STEP: Duration = Duration::from_millis(200);

/// Connections to be probed: found by this thread, sent by the workers, which have the queues.
#[derive(Debug, Default)]
pub struct Probes(Mutex<VecDeque<Session>>);

impl Probes {
    /// Adds some, as far as there is room; who is not probed has the transitory time all the same.
    fn add(&self, sessions: impl Iterator<Item = Session>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_PROBES.saturating_sub(waiting.len());
        waiting.extend(sessions.take(room));
    }

    /// Takes the next one.
    pub fn take(&self) -> Option<Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// The running thread.
#[derive(Debug)]
pub struct Maintenance(JoinHandle<Expiry>);

impl Maintenance {
    /// Starts the thread; it ends when `stop` is given.
    #[must_use]
    pub fn start(tables: Arc<Tables>, plan: Arc<ArcSwap<Plan>>, probes: Arc<Probes>, stop: StopSignal) -> Self {
        Self(std::thread::spawn(move || sweep(&tables, &plan, &probes, &stop)))
    }

    /// Waits for its end; says what has expired.
    #[must_use]
    pub fn join(self) -> Expiry {
        self.0.thread().unpark();
        self.0.join().unwrap_or_default()
    }
}

fn sweep(tables: &Tables, plan: &ArcSwap<Plan>, probes: &Probes, stop: &StopSignal) -> Expiry {
    let mut sweeper = Sweeper::new(tables, Now(monotonic_nanos()).tick());
    let mut expired = Expiry::default();
    let parts = Sweeper::parts(tables).div_ceil(STEPS);
    while !stop.is_given() {
        expired.times = plan.load().times;
        sweeper.advance(tables, parts, Now(monotonic_nanos()).tick(), &mut expired);
        probes.add(expired.probes.drain(..));
        std::thread::park_timeout(STEP);
    }
    expired
}
