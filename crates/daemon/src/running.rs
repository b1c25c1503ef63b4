//! The running gateway as threads other than its workers see it: what it is made of, what it has
//! counted, and what may be changed while packets flow.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tombolo_config::{Host as HostSettings, LogLevel, Wording};
use tombolo_engine::cluster::MOST_NODES;
use tombolo_engine::counters::{Counters, Totals};
use tombolo_engine::flush::{Flushed, flush};
use tombolo_engine::static_bindings::{self, Conflict};
use tombolo_engine::{Now, Plan, settle};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::host::{Host, Setting};
use tombolo_io::queue::{QueueCounters, QueueTotals};
use tombolo_io::supervisor::Supervisor;
use tombolo_tables::Tables;
use tombolo_tables::binding::Binding;

use crate::accelerator::{Accelerator, Prepared};
use crate::agreement::Agreement;
use crate::binding_log::removals::Removals;
use crate::change::{Changed, End};
use crate::copies::Copies;
use crate::far_ends::Answer;
use crate::found::{self, Found};
use crate::health::Health;
use crate::maintenance::Swept;
use crate::own_address::{self, InUse, OwnAddresses};
use crate::provided::Provided;
use crate::provision::{limit_to, setting};
use crate::reload::{Next, ReloadError, Said, Wish};
use crate::reloads::Reloads;
use crate::source_guard::Guard;
use crate::table_text::TableText;
use crate::tap::Taps;
use crate::targets::Targets;
use crate::upkeep;
use crate::worker::Pulse;

/// A packet is on its way for much less.
const SHORT: Duration = Duration::from_millis(20);
/// A worker that is kept from the processor may take so long.
const LONG: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_millis(2);

/// Reads the configuration again, to take the place of the plan given.
pub type Read = Box<dyn Fn(&Plan, Wish) -> Result<Next, ReloadError> + Send + Sync>;

/// Where the plan comes from.
pub struct Source {
    /// The configuration file.
    pub path: PathBuf,
    /// Reads it again.
    pub read: Read,
    /// Has the log tell as much as the configuration says.
    pub set_log_level: Box<dyn Fn(LogLevel) + Send + Sync>,
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
    /// That of the thread that answers requests which come to the host itself.
    pub door: Arc<Counters>,
    /// What each queue of the device has received and sent.
    pub queues: Vec<Arc<QueueCounters>>,
    /// What the sweeps have counted.
    pub swept: Arc<Swept>,
    /// Bindings that were removed, for the log.
    pub removals: Removals,
    /// Metrics and the log, and where they are.
    pub targets: Targets,
    /// Reloads, by what came of them.
    pub reloads: Reloads,
    /// The kernel's fast path, if it is on.
    pub accelerator: Option<Accelerator>,
    /// Who looks on as packets pass.
    pub taps: Arc<Taps>,
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
    /// The host, as far as plans change it.
    pub provided: Arc<Provided>,
    /// What plans leave open, as it was found.
    pub(crate) found: Mutex<Found>,
    /// What the tables are made for, as the next process reads it.
    pub text: TableText,
    /// By which workers are seen to take up a plan.
    pub pulses: Vec<Pulse>,
    /// Copies of the tables at other nodes of the cluster, and of theirs here.
    pub(crate) copies: Option<Arc<Copies>>,
    /// What nodes have agreed on, where they do while they run.
    pub(crate) agreement: Option<Arc<Agreement>>,
    /// The process ends: others are to have what is this node's.
    pub(crate) is_leaving: AtomicBool,
    /// What the configuration in force says. Held while it is replaced, so that no change is lost.
    pub in_force: Mutex<InForce>,
}

/// The configuration in force.
#[derive(Debug)]
pub struct InForce {
    said: Said,
    /// The one that comes back unless this one is confirmed.
    unconfirmed: Option<Unconfirmed>,
}

impl InForce {
    /// The one that the gateway is started with.
    #[must_use]
    pub fn new(settings: HostSettings, wording: Wording) -> Self {
        Self { said: Said { settings, wording }, unconfirmed: None }
    }
}

#[derive(Debug)]
struct Unconfirmed {
    fallback: Next,
    until: Instant,
}

/// Who goes by a new plan first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Engine and kernel within milliseconds of each other.
    Together,
    /// The engine; the kernel takes no packets until it has the plan as well.
    EngineFirst,
}

impl Running {
    /// The moment.
    #[must_use]
    pub fn now(&self) -> Now {
        Now(monotonic_nanos())
    }

    /// What all engines have counted.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in self.counters.iter().chain([&self.door]) {
            counters.add_to(&mut totals);
        }
        totals
    }

    /// Packets that were redirected to each node of the cluster, and by each to this one: by the engines, and by the
    /// programs in the kernel.
    #[must_use]
    pub fn redirected(&self) -> [[u64; MOST_NODES]; 2] {
        let mut redirected = self.totals().redirected;
        let by_programs = self.accelerator.as_ref().map(|accelerator| accelerator.taken().redirected);
        for (sum, count) in redirected.iter_mut().flatten().zip(by_programs.iter().flatten().flatten()) {
            *sum += count;
        }
        redirected
    }

    /// What all engines have counted of the service that has this number.
    #[must_use]
    pub fn totals_of(&self, number: u8) -> Totals {
        let mut totals = Totals::default();
        for counters in self.counters.iter().chain([&self.door]) {
            counters.add_service_to(number, &mut totals);
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

    /// Reads the configuration file again. What it does not concern is not disturbed; what must end is
    /// ended.
    ///
    /// # Errors
    /// [`ReloadError`]: the old configuration stays in force.
    pub fn reload(self: &Arc<Self>, wish: Wish) -> Result<Changed, ReloadError> {
        let mut in_force = self.lock();
        let current = self.plan.load_full();
        if wish.dry_run {
            return self.foresee(&in_force, (self.source.read)(&current, wish)?);
        }
        self.supervisor.reloading();
        let changed = self.reload_alone(&mut in_force, &current, wish);
        self.reloads.count(changed.is_ok());
        self.supervisor.ready();
        changed
    }

    /// The same, while nobody else changes the plan.
    fn reload_alone(
        self: &Arc<Self>,
        in_force: &mut InForce,
        current: &Arc<Plan>,
        wish: Wish,
    ) -> Result<Changed, ReloadError> {
        let next = (self.source.read)(current, wish)?;
        tombolo_io::fault::check("reload-read").map_err(ReloadError::Step)?;
        let Said { settings, wording } = in_force.said.clone();
        let before = Next { plan: Plan::clone(current), settings, wording };
        let mut changed = self.take_over(in_force, next, Order::Together)?;
        tracing::info!("configuration reloaded");
        // A further one confirms the one before, unless it is to be confirmed itself.
        let pending = in_force.unconfirmed.take();
        if let Some(seconds) = wish.confirm_within {
            let fallback = pending.map_or(before, |pending| pending.fallback);
            let until = Instant::now() + Duration::from_secs(seconds.into());
            in_force.unconfirmed = Some(Unconfirmed { fallback, until });
            changed.confirm_within = Some(seconds);
            self.await_confirmation(until);
        }
        Ok(changed)
    }

    /// What would change.
    fn foresee(&self, in_force: &InForce, mut next: Next) -> Result<Changed, ReloadError> {
        let current = self.plan.load_full();
        self.known().complete(&mut next.plan, &next.settings.shared_pools);
        let keys = next.follow(&in_force.said, &current, self.accelerator.is_some())?;
        self.targets.check_ports(&next.settings)?;
        let losses = settle::foresee(&self.tables, &current, &next.plan);
        Ok(Changed { keys, ends: End::all(&losses, &next.plan), ..Changed::default() })
    }

    /// Exchanges the configuration in force for another one.
    fn take_over(&self, in_force: &mut InForce, mut next: Next, order: Order) -> Result<Changed, ReloadError> {
        let current = self.plan.load_full();
        let mut faults = self.complete(&mut next)?;
        let keys = next.follow(&in_force.said, &current, self.accelerator.is_some())?;
        let Next { mut plan, settings, wording } = next;
        if let Some(mtu) = self.source.mtu {
            limit_to(&mut plan, mtu);
        }
        plan.times.draining_since = current.times.draining_since;
        let targets = self.targets.prepare(&settings)?;
        let lies_otherwise = self.text.begin(&current, &plan)?;
        let needed = setting(&settings, &plan);
        if let Some(needed) = &needed
            && let Err(error) = self.extend_host(&in_force.said.settings, &settings, needed)
        {
            if lies_otherwise {
                self.text.settle(&current)?;
            }
            return Err(error);
        }
        // What is in the way of others goes first.
        let _ = self.reconcile(&plan);
        tombolo_io::fault::trip("reload-bindings");
        let plan = Arc::new(plan);
        self.accelerator.iter().for_each(|accelerator| accelerator.follow_settings(&settings));
        let mut not_followed = Vec::new();
        match order {
            Order::Together => not_followed = self.put(Arc::clone(&plan), &settings),
            Order::EngineFirst => self.put_in_engine(&plan, &settings),
        }
        if let Some(needed) = &needed {
            self.reduce_host(&settings, needed);
        }
        faults.extend(self.provided.with(|host| host.shortcomings().to_vec()).unwrap_or_default());
        self.health.set(own_address::PART, faults);
        self.let_packets_pass();
        let removed = &mut |binding: &Binding| self.removals.report(binding);
        let losses = settle::settle(&self.tables, &current, &plan, self.now(), removed);
        let conflicts = self.reconcile(&plan);
        for conflict in &conflicts {
            tracing::warn!(service = conflict.service, binding = ?conflict.binding, "{}", conflict.reason);
        }
        tombolo_io::fault::trip("reload-settled");
        if order == Order::EngineFirst
            && let Some(accelerator) = &self.accelerator
        {
            not_followed = self.put_in_kernel(accelerator, accelerator.prepare(&plan));
        }
        if lies_otherwise && let Err(error) = self.text.settle(&plan) {
            tracing::error!("the next start will have to carry the state over: {error}");
        }
        self.targets.put(targets);
        (self.source.set_log_level)(settings.log_level);
        in_force.said = Said { settings, wording };
        let changed = Changed { keys, ends: End::all(&losses, &plan), conflicts, not_followed, confirm_within: None };
        changed.log();
        Ok(changed)
    }

    /// Brings the static bindings in line with a plan.
    fn reconcile(&self, plan: &Plan) -> Vec<Conflict> {
        let removed = &mut |binding: &Binding| self.removals.report(binding);
        static_bindings::reconcile_and_report(&self.tables, plan, self.now(), removed)
    }

    fn extend_host(&self, was: &HostSettings, settings: &HostSettings, needed: &Setting) -> Result<(), ReloadError> {
        tombolo_io::fault::check("reload-host").map_err(ReloadError::Step)?;
        let HostSettings { device, table, mtu, .. } = settings;
        let extend = |host: &mut Host| {
            let has_other_mtu = *mtu != was.mtu;
            if has_other_mtu {
                host.set_mtu(device, *mtu)?;
            }
            host.extend(device, *table, needed).inspect_err(|_| {
                if has_other_mtu {
                    let _ = host.set_mtu(device, was.mtu);
                }
            })
        };
        Ok(self.provided.with(extend).ok_or(ReloadError::NotNow)??)
    }

    fn reduce_host(&self, settings: &HostSettings, needed: &Setting) {
        let HostSettings { device, table, .. } = settings;
        let reduce = |host: &mut Host| {
            if let Err(error) = host.reduce(device, *table, needed) {
                tracing::warn!("what the configuration does not need any more stays on the host: {error}");
            }
            upkeep::answer_neighbours(host, device, &self.health);
        };
        self.provided.with(reduce);
    }

    /// Waits until no packet is on its way by a plan that was replaced: workers look for another one with each
    /// batch, unless they wait for packets, and programs end.
    fn let_packets_pass(&self) {
        let (began, before) = (Instant::now(), self.pulses.iter().map(Pulse::count).collect::<Vec<_>>());
        let wait = |all_beat: bool| began.elapsed() < if all_beat { SHORT } else { LONG };
        while wait(self.pulses.iter().zip(&before).all(|(pulse, before)| pulse.count() != *before)) {
            std::thread::sleep(STEP);
        }
    }

    /// Goes back when the time is over, unless the configuration was confirmed.
    fn await_confirmation(self: &Arc<Self>, until: Instant) {
        let running = Arc::downgrade(self);
        let wait = move || {
            while let Some(running) = running.upgrade() {
                let mut in_force = running.lock();
                let pending = in_force.unconfirmed.as_ref().map(|pending| pending.until);
                if pending != Some(until) {
                    return;
                }
                if Instant::now() >= until {
                    return running.go_back(&mut in_force, "nobody has confirmed the configuration");
                }
                drop(in_force);
                drop(running);
                std::thread::sleep(SHORT);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("unconfirmed".into()).spawn(wait) {
            tracing::error!("the configuration stays even if it is not confirmed: {error}");
        }
    }

    fn go_back(&self, in_force: &mut InForce, why: &str) {
        let Some(Unconfirmed { fallback, .. }) = in_force.unconfirmed.take() else { return };
        tracing::warn!("{why}: the one before comes back; the file is as it is");
        match self.take_over(in_force, fallback, Order::Together) {
            Ok(_) => tracing::info!("configuration reloaded"),
            Err(error) => tracing::error!("the configuration before cannot come back: {error}"),
        }
    }

    /// The configuration in force stays.
    ///
    /// # Errors
    /// [`ReloadError::NothingToConfirm`].
    pub fn confirm(&self) -> Result<(), ReloadError> {
        self.lock().unconfirmed.take().ok_or(ReloadError::NothingToConfirm)?;
        tracing::info!("configuration confirmed");
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if services share addresses with the host, or did under an earlier plan.
    pub(crate) fn shares_addresses(&self) -> bool {
        self.known().own != OwnAddresses::default()
    }

    /// True if something is to be followed that the plan leaves open.
    pub(crate) fn leaves_open(&self) -> bool {
        self.shares_addresses() || found::is_wanted(&self.plan.load())
    }

    /// Goes by what the host has now, leaving out the ports of its sockets, and by `answers` of the resolver, which it
    /// takes. False if it is to be done again soon: a reload is at work, which may take its time, or something has come
    /// that has to last.
    pub(crate) fn follow(&self, in_use: &InUse, answers: &mut Vec<Answer>) -> bool {
        let Ok(mut in_force) = self.in_force.try_lock() else { return false };
        self.follow_alone(&mut in_force, in_use, std::mem::take(answers))
    }

    fn follow_alone(&self, in_force: &mut InForce, in_use: &InUse, answers: Vec<Answer>) -> bool {
        let Said { settings, wording } = in_force.said.clone();
        let (plan, before) = (self.plan.load_full(), self.known());
        let look = |host: &mut Host| before.look(host, (&plan, &settings.shared_pools), in_use);
        let Some(Ok(mut found)) = self.provided.with(look) else { return false };
        found.far_ends.learn(answers);
        let is_settled = !found.native.is_coming();
        if found.decides_as(&before) {
            self.keep(found);
            return is_settled;
        }
        // An address that is gone serves nobody any more.
        let order = if found.own.has_addresses_of(&before.own) { Order::Together } else { Order::EngineFirst };
        let next = Next { plan: Plan::clone(&plan), settings, wording };
        self.keep(found.clone());
        match self.take_over(in_force, next, order) {
            Ok(_) => found.say(&before, &plan),
            Err(error) => {
                // Asked again, it will be another one than before.
                self.keep(before);
                tracing::error!("what has changed around the gateway is not followed: {error}");
            }
        }
        is_settled
    }

    /// What plans leave open, as it was found last.
    pub(crate) fn known(&self) -> Found {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, found: Found) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Completes what is to come by what is found. What of the host's addresses is left open.
    fn complete(&self, next: &mut Next) -> Result<Vec<String>, ReloadError> {
        let Next { plan, settings, .. } = next;
        let pools = &settings.shared_pools;
        let before = self.known();
        let mut found = before.clone();
        if !found.knows(plan, pools) {
            let look = |host: &mut Host| before.look(host, (plan, pools), &own_address::in_use_beside(pools));
            found = self.provided.with(look).ok_or(ReloadError::NotNow)??;
        }
        found.far_ends = found.far_ends.for_plan(plan);
        if found != before {
            found.say(&before, plan);
            self.keep(found.clone());
        }
        Ok(found.complete(plan, pools))
    }

    /// Ends, or allows again, the making of bindings and sessions. What is open goes on.
    pub fn drain(&self, on: bool) {
        let in_force = self.lock();
        let mut plan = Plan::clone(&self.plan.load());
        if plan.times.draining_since.is_some() != on {
            plan.times.draining_since = on.then(|| self.now().tick());
            self.put(Arc::new(plan), &in_force.said.settings);
            self.announce_alone(&in_force);
            tracing::info!(on, "draining");
        }
    }

    /// The gateway ends: it drains, and its slices go at once to those who have their copies.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.drain(true);
    }

    /// Has routers told what they are to bring to this node of a cluster, or that it is nothing. False if that is to
    /// be done again.
    pub(crate) fn announce(&self) -> bool {
        self.announce_alone(&self.lock())
    }

    fn announce_alone(&self, in_force: &InForce) -> bool {
        let settings = &in_force.said.settings;
        let needed = settings.cluster.as_ref().and_then(|_| setting(settings, &self.plan.load()));
        let Some(needed) = needed else { return true };
        match self.extend_host(settings, settings, &needed) {
            Ok(()) => self.reduce_host(settings, &needed),
            Err(ReloadError::NotNow) => return false,
            Err(error) => {
                tracing::error!("the services are not announced: {error}");
                return false;
            }
        }
        true
    }

    /// The plan for the packets from now on, in the engine and in the kernel within milliseconds of
    /// each other: the kernel's programs are loaded before, which takes longest.
    fn put(&self, plan: Arc<Plan>, settings: &HostSettings) -> Vec<String> {
        let prepared = self.accelerator.as_ref().map(|accelerator| (accelerator, accelerator.prepare(&plan)));
        tombolo_io::fault::trip("reload-prepared");
        self.guard.follow(settings, &self.settings.device, &plan, &self.health);
        self.plan.store(plan);
        tombolo_io::fault::trip("reload-stored");
        prepared.map_or_else(Vec::new, |(accelerator, prepared)| self.put_in_kernel(accelerator, prepared))
    }

    /// The plan for the packets from now on, in the engine alone: a second earlier, where the one before serves
    /// nobody any more.
    fn put_in_engine(&self, plan: &Arc<Plan>, settings: &HostSettings) {
        self.accelerator.iter().for_each(|accelerator| accelerator.pause("the host's address has changed"));
        self.guard.follow(settings, &self.settings.device, plan, &self.health);
        self.plan.store(Arc::clone(plan));
    }

    fn put_in_kernel(&self, accelerator: &Accelerator, prepared: Prepared) -> Vec<String> {
        let not_followed = accelerator.exchange(prepared);
        tombolo_io::fault::trip("reload-exchanged");
        self.health.set("fast path", accelerator.faults());
        not_followed
    }

    /// Has workers and programs take up who looks on as packets pass.
    ///
    /// # Errors
    /// Why the kernel's programs show nothing, or go on showing what nobody wants.
    pub(crate) fn follow_taps(&self) -> Result<(), String> {
        let _stays = self.lock();
        let plan = self.plan.load_full();
        let watch = self.taps.watch(&plan);
        let watched = self.accelerator.as_ref().map_or(Ok(()), |accelerator| accelerator.watch(&plan, watch));
        // Nothing in it is different; workers look for taps because it is another one.
        self.plan.store(Arc::new(Plan::clone(&plan)));
        watched
    }

    /// Shows what the kernel's programs have seen to those who look on.
    pub(crate) fn show_sightings(&self) {
        let Some(accelerator) = &self.accelerator else { return };
        let plan = self.plan.load();
        let lost = accelerator.sightings(&mut |sighting| self.taps.show(&plan, sighting));
        if lost > 0 {
            self.taps.lose(lost);
        }
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
