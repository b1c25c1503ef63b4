//! The running gateway as threads other than its workers see it: what it is made of, what it has
//! counted, and what may be changed while packets flow.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tombolo_config::Host as HostSettings;
use tombolo_engine::counters::{Counters, Totals};
use tombolo_engine::flush::{Flushed, flush};
use tombolo_engine::static_bindings::{self, Conflict};
use tombolo_engine::{Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::queue::{QueueCounters, QueueTotals};
use tombolo_io::supervisor::Supervisor;
use tombolo_tables::Tables;
use tombolo_tables::binding::Binding;

use crate::accelerator::Accelerator;
use crate::binding_log::Removals;
use crate::health::Health;
use crate::maintenance::Swept;
use crate::provision::limit_to;
use crate::reload::ReloadError;
use crate::source_guard::Guard;

/// Reads the configuration again: a plan that can take the place of the one given.
pub type Reload = Box<dyn Fn(&Plan) -> Result<Plan, ReloadError> + Send + Sync>;

/// Where the plan comes from.
pub struct Source {
    /// The configuration file.
    pub path: PathBuf,
    /// Reads it again.
    pub reload: Reload,
    /// MTU of the device, where the administrator has set it: a limit of every plan.
    pub mtu: Option<u32>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("path", &self.path).field("mtu", &self.mtu).finish_non_exhaustive()
    }
}

/// The parts of a running gateway.
#[derive(Debug)]
pub struct Running {
    /// Where its plans come from.
    pub source: Source,
    /// Device, interfaces and files: what it is on its host.
    pub settings: HostSettings,
    /// Bindings, sessions, subscribers.
    pub tables: Arc<Tables>,
    /// The plan in force.
    pub plan: Arc<ArcSwap<Plan>>,
    /// One set a worker.
    pub counters: Vec<Arc<Counters>>,
    /// What each queue of the device has received and sent.
    pub queues: Vec<Arc<QueueCounters>>,
    /// What the sweeps have counted.
    pub swept: Arc<Swept>,
    /// Bindings that were removed, for the log.
    pub removals: Removals,
    /// The kernel's fast path, if it is on.
    pub accelerator: Option<Accelerator>,
    /// What keeps spoofed packets of the inside out.
    pub guard: Guard,
    /// When the gateway was ready.
    pub started: Now,
    /// How it does.
    pub health: Arc<Health>,
    /// Who has started the process.
    pub supervisor: Arc<Supervisor>,
    /// What was put back on the host after somebody had taken it away.
    pub put_back: Arc<AtomicU64>,
    /// Held while the plan is replaced, so that no change is lost.
    pub changing: Mutex<()>,
}

/// What came of a new plan.
#[derive(Debug, Default)]
pub struct Changed {
    /// Static bindings that could not be made.
    pub conflicts: Vec<Conflict>,
    /// Where the fast path did not follow, and why. The engine takes the packets there.
    pub not_followed: Vec<String>,
}

impl Running {
    /// The moment.
    #[must_use]
    pub fn now(&self) -> Now {
        Now(monotonic_nanos())
    }

    /// What all workers have counted.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in &self.counters {
            counters.add_to(&mut totals);
        }
        totals
    }

    /// What all queues have counted.
    #[must_use]
    pub fn queue_totals(&self) -> QueueTotals {
        let mut totals = QueueTotals::default();
        self.queues.iter().for_each(|queue| queue.add_to(&mut totals));
        totals
    }

    /// Reads the configuration file again. Connections are not disturbed.
    ///
    /// # Errors
    /// [`ReloadError`]: the old plan stays in force.
    pub fn reload(&self) -> Result<Changed, ReloadError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.supervisor.reloading();
        let changed = self.reload_alone();
        self.supervisor.ready();
        changed
    }

    /// The same, while nobody else changes the plan.
    fn reload_alone(&self) -> Result<Changed, ReloadError> {
        let current = self.plan.load_full();
        let mut plan = (self.source.reload)(&current)?;
        tombolo_io::fault::check("reload-read").map_err(ReloadError::Step)?;
        if let Some(mtu) = self.source.mtu {
            limit_to(&mut plan, mtu);
        }
        plan.times.draining_since = current.times.draining_since;
        let removed = &mut |binding: &Binding| self.removals.report(binding);
        let conflicts = static_bindings::reconcile_and_report(&self.tables, &plan, self.now(), removed);
        for conflict in &conflicts {
            tracing::warn!(service = conflict.service, binding = ?conflict.binding, "{}", conflict.reason);
        }
        tombolo_io::fault::trip("reload-bindings");
        let not_followed = self.put(plan);
        tracing::info!("configuration reloaded");
        Ok(Changed { conflicts, not_followed })
    }

    /// Ends, or allows again, the making of bindings and sessions. What is open goes on.
    pub fn drain(&self, on: bool) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plan = Plan::clone(&self.plan.load());
        if plan.times.draining_since.is_some() != on {
            plan.times.draining_since = on.then(|| self.now().tick());
            self.put(plan);
            tracing::info!(on, "draining");
        }
    }

    /// The plan for the packets from now on, in the engine and in the kernel within milliseconds of
    /// each other: the kernel's programs are loaded before, which takes longest.
    fn put(&self, plan: Plan) -> Vec<String> {
        let plan = Arc::new(plan);
        let prepared = self.accelerator.as_ref().map(|accelerator| (accelerator, accelerator.prepare(&plan)));
        tombolo_io::fault::trip("reload-prepared");
        self.guard.follow(&plan, &self.health);
        self.plan.store(plan);
        tombolo_io::fault::trip("reload-stored");
        let Some((accelerator, prepared)) = prepared else { return Vec::new() };
        let not_followed = accelerator.exchange(prepared);
        tombolo_io::fault::trip("reload-exchanged");
        self.health.set("fast path", accelerator.faults());
        not_followed
    }

    /// Removes all sessions and dynamic bindings, or those of one service.
    pub fn flush(&self, service: Option<u8>) -> Flushed {
        let removed = &mut |binding: &Binding| self.removals.report(binding);
        let flushed = flush(&self.tables, service, self.now(), removed);
        tracing::info!(service, sessions = flushed.sessions, bindings = flushed.bindings, "flushed");
        flushed
    }

    /// Sessions in the tables, as the last whole sweep counted them; `None` before the first.
    #[must_use]
    pub fn sessions(&self) -> Option<u64> {
        let passes = self.swept.passes.load(Ordering::Acquire);
        (passes > 0).then(|| self.swept.sessions.load(Ordering::Relaxed))
    }
}
