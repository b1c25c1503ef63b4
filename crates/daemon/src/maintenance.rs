//! The thread that sweeps out what has expired, a little at a time.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::worker::StopSignal;
use tombolo_tables::Tables;
use tombolo_tables::sweep::Sweeper;

/// A pass over all tables takes this many steps of [`STEP`]: ten seconds.
const STEPS: usize = 50;
const STEP: Duration = Duration::from_millis(200);

/// The running thread.
#[derive(Debug)]
pub struct Maintenance(JoinHandle<Expiry>);

impl Maintenance {
    /// Starts the thread; it ends when `stop` is given.
    #[must_use]
    pub fn start(tables: Arc<Tables>, plan: Arc<ArcSwap<Plan>>, stop: StopSignal) -> Self {
        Self(std::thread::spawn(move || sweep(&tables, &plan, &stop)))
    }

    /// Waits for its end; says what has expired.
    #[must_use]
    pub fn join(self) -> Expiry {
        self.0.thread().unpark();
        self.0.join().unwrap_or_default()
    }
}

fn sweep(tables: &Tables, plan: &ArcSwap<Plan>, stop: &StopSignal) -> Expiry {
    let mut sweeper = Sweeper::new(tables, Now(monotonic_nanos()).tick());
    let mut expired = Expiry::default();
    let parts = Sweeper::parts(tables).div_ceil(STEPS);
    while !stop.is_given() {
        expired.times = plan.load().times;
        sweeper.advance(tables, parts, Now(monotonic_nanos()).tick(), &mut expired);
        std::thread::park_timeout(STEP);
    }
    expired
}
