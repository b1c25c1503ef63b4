//! The thread that sweeps out what has expired, a little at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tombolo_engine::sweep::{Expiry, MOST_PROBES};
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::worker::StopSignal;
use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId};
use tombolo_tables::session::{Session, Sweep};
use tombolo_tables::subscriber::Subscriber;
use tombolo_tables::sweep::{Policy, Sweeper};
use tombolo_tables::tables::Removal;
use tombolo_tables::tick::Tick;

use crate::binding_log::removals::Removals;
use crate::threads::{self, Guarded};

/// A pass over all tables takes this many steps of [`STEP`]: ten seconds.
const STEPS: usize = 50;
const STEP: Duration = Duration::from_millis(200);

/// Leases are looked at once in so many steps: once a second.
const STEPS_OF_LEASES: usize = 5;

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

/// What the sweeps have seen and done so far.
#[derive(Debug, Default)]
pub struct Swept {
    /// Sessions that the last whole pass left in place.
    pub sessions: AtomicU64,
    /// Whole passes.
    pub passes: AtomicU64,
    /// Sessions that expired.
    pub expired_sessions: AtomicU64,
    /// Bindings that expired.
    pub expired_bindings: AtomicU64,
    /// Subscribers that went.
    pub expired_subscribers: AtomicU64,
}

/// The running thread.
#[derive(Debug)]
pub struct Maintenance(JoinHandle<Option<Expiry>>);

impl Maintenance {
    /// Starts the thread; it ends when `stop` is given. It counts in `swept` what it does, and
    /// hands the bindings that went to `removals`. If it panics it is started again: tables that
    /// nobody sweeps fill up.
    ///
    /// # Errors
    /// If there are no more threads.
    pub(crate) fn start(
        tables: Arc<Tables>,
        plan: Arc<ArcSwap<Plan>>,
        probes: Arc<Probes>,
        swept: Arc<Swept>,
        removals: Removals,
        guarded: Guarded,
    ) -> std::io::Result<Self> {
        let stop = guarded.stop.clone();
        let body = move || sweep(&tables, &plan, &probes, &swept, removals.clone(), &stop);
        Ok(Self(threads::spawn_again(guarded, body)?))
    }

    /// Waits for its end; says what has expired.
    #[must_use]
    pub fn join(self) -> Expiry {
        self.0.thread().unpark();
        self.0.join().ok().flatten().unwrap_or_default()
    }
}

/// Expiry that counts what stays and hands what goes to the log.
struct Observed {
    expiry: Expiry,
    stayed: u64,
    removals: Removals,
}

impl Policy for Observed {
    fn session(&mut self, session: &Session, now: Tick) -> Sweep {
        let verdict = self.expiry.session(session, now);
        self.stayed += u64::from(verdict != Sweep::Remove);
        verdict
    }

    fn binding_lifetime(&self, binding: &Binding) -> u32 {
        self.expiry.binding_lifetime(binding)
    }

    fn counts_as_touched(&self, binding: &Binding, touched: Tick) -> Option<Tick> {
        self.expiry.counts_as_touched(binding, touched)
    }

    fn dismisses(&self, subscriber: &Subscriber) -> bool {
        self.expiry.dismisses(subscriber)
    }

    fn binding_removed(&mut self, id: BindingId, binding: &Binding) {
        self.removals.report(binding);
        self.expiry.binding_removed(id, binding);
    }

    fn subscriber_removed(&mut self, subscriber: &Subscriber) {
        self.expiry.subscriber_removed(subscriber);
    }
}

fn sweep(
    tables: &Tables,
    plan: &ArcSwap<Plan>,
    probes: &Probes,
    swept: &Swept,
    removals: Removals,
    stop: &StopSignal,
) -> Expiry {
    let mut sweeper = Sweeper::new(tables, Now(monotonic_nanos()).tick());
    let mut policy = Observed { expiry: Expiry::default(), stayed: 0, removals };
    let parts = Sweeper::parts(tables).div_ceil(STEPS);
    let mut step = 0_usize;
    // From now on what hosts ask for is known, unless it was before.
    let _ = tables.leases.epoch(monotonic_nanos());
    while !stop.is_given() {
        tombolo_io::fault::trip("thread-maintenance");
        policy.expiry.follow(&plan.load());
        if step.is_multiple_of(STEPS_OF_LEASES) {
            end_leases(tables, Now(monotonic_nanos()).tick(), &mut policy);
        }
        step += 1;
        let complete = sweeper.advance(tables, parts, Now(monotonic_nanos()).tick(), &mut policy);
        publish(&mut policy, complete, swept);
        probes.add(policy.expiry.probes.drain(..));
        std::thread::park_timeout(STEP);
    }
    policy.expiry
}

/// Leases whose time is over end, and bindings that have gone with theirs are logged; their sessions go in one
/// pass over all.
fn end_leases(tables: &Tables, now: Tick, policy: &mut Observed) {
    let withdrawn = tables.leases.tidy(tables, now);
    let mut removal = Removal::new(tables);
    for (id, binding) in withdrawn {
        removal.finish_withdrawn(id, &binding);
        policy.binding_removed(id, &binding);
    }
    removal.finish();
}

fn publish(policy: &mut Observed, complete: bool, swept: &Swept) {
    swept.expired_sessions.store(policy.expiry.sessions, Ordering::Relaxed);
    swept.expired_bindings.store(policy.expiry.bindings, Ordering::Relaxed);
    swept.expired_subscribers.store(policy.expiry.subscribers, Ordering::Relaxed);
    if complete {
        swept.sessions.store(policy.stayed, Ordering::Relaxed);
        swept.passes.fetch_add(1, Ordering::Release);
        policy.stayed = 0;
    }
}
