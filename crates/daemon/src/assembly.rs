//! The parts of the gateway, put together at the start and taken apart at the end.
//!
//! The start is a transaction: until it is complete, whatever fails takes back all that was done
//! before. The kernel's programs are attached last, since from then on they decide about packets; so
//! a start that fails leaves those of an earlier process as they are. Workers serve the device
//! before packets are routed to it, and routes go before the device.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use tombolo_config::{Host as HostSettings, MetricsAddress, Provision, Wording};
use tombolo_engine::mechanism::{Fragments, ReassemblyLimits};
use tombolo_engine::{Engine, Now, Plan, layout};
use tombolo_fastpath::PinnedMemory;
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::host::Host;
use tombolo_io::privileges::Tasks;
use tombolo_io::supervisor::Supervisor;
use tombolo_io::tun::{ExistingDevice, KernelEntry, Tun, TunConfig};
use tombolo_io::worker::{StopSignal, Worker};

use crate::accelerator::Accelerator;
use crate::agreement::Agreement;
use crate::awaits::Awaits;
use crate::binding_log::live::BindingLog;
use crate::binding_log::marks::StateFound;
use crate::binding_log::writer::{Ground, host_name};
use crate::control::answer::Control;
use crate::copies::{Copies, CopyThreads};
use crate::directories;
use crate::doctor;
use crate::error::{DaemonError, system};
use crate::error_chain::in_one_line;
use crate::far_ends::{self, FarEnds};
use crate::fault;
use crate::found::{self, Found};
use crate::health::Health;
use crate::lease_files::{LeaseFiles, Report};
use crate::limits::Limits;
use crate::listener::Listener;
use crate::lookout::Lookout;
use crate::maintenance::{Maintenance, Probes, Swept};
use crate::metrics::Metrics;
use crate::migration::boot_id;
use crate::own_address;
use crate::ownership::Ownership;
use crate::pcp_door::Door;
use crate::peers::Peers;
use crate::privileges::{self, Account, Places, Tasked};
use crate::provided::Provided;
use crate::provision::{Diversion, diversions, limit_to, routes, setting, with_own_addresses};
use crate::reloads::Reloads;
use crate::running::{InForce, Running, Source};
use crate::source_guard::Guard;
use crate::state::State;
use crate::tap::Taps;
use crate::targets::Targets;
use crate::team::Team;
use crate::threads::Guarded;
use crate::upkeep::{self, Upkeep};
use crate::watchdog;
use crate::worker::{EngineHandler, Pulse};

/// Packets that the kernel keeps for each queue before it drops. A super-packet counts as one.
const QUEUE_PACKETS: u32 = 1000;
/// Routes that are logged one by one.
const ROUTES_SAID: usize = 100;
/// How long routers and other nodes may take to hear that a node ends, which serves them meanwhile.
const TO_BE_HEARD: Duration = Duration::from_millis(500);
/// How long slices may take to be handed over to those who have their copies. Those that were not are taken over once the lease is at its end.
const TO_HAND_OVER: Duration = Duration::from_millis(1500);
/// How long a worker has to end.
const TO_END: Duration = Duration::from_secs(5);

/// What is to be started.
pub(crate) struct Wanted<'a> {
    /// Where the plan comes from.
    pub(crate) source: Source,
    /// What it is on its host.
    pub(crate) settings: &'a HostSettings,
    /// What the configuration says, word by word.
    pub(crate) wording: Wording,
    /// What it does.
    pub(crate) plan: Plan,
    /// What is logged of dynamic pools.
    pub(crate) report: &'a Report,
    /// What of it services leave to the network.
    pub(crate) awaits: Awaits,
    /// Who is told how it does.
    pub(crate) supervisor: Arc<Supervisor>,
}

/// The gateway as far as it is there.
pub(crate) struct Gateway {
    stop: StopSignal,
    health: Arc<Health>,
    /// Directory of the control socket; held open, it keeps others from removing it.
    directory: Option<(PathBuf, std::fs::File)>,
    listeners: Vec<Listener>,
    running: Option<Arc<Running>>,
    /// Until the start is complete.
    host: Option<Host>,
    provided: Arc<Provided>,
    upkeep: Option<Upkeep>,
    workers: Vec<Worker<EngineHandler>>,
    pulses: Vec<Pulse>,
    watchdog: Option<JoinHandle<()>>,
    maintenance: Option<Maintenance>,
    leases: Option<LeaseFiles>,
    log: Option<Arc<BindingLog>>,
    lookout: Option<Lookout>,
    limits: Option<Limits>,
    door: Option<Door>,
    peers: Option<Peers>,
    copies: Option<CopyThreads>,
    ownership: Option<Ownership>,
    state: Option<State>,
}

impl Gateway {
    /// Starts everything; or takes back what it has done. `prepared` is called when everything that
    /// takes privileges has been done, but for attaching the fast path; `ended` when the gateway is to
    /// end, by whatever part of it.
    pub(crate) fn start(
        wanted: Wanted<'_>,
        stop: &StopSignal,
        prepared: impl FnOnce() -> Result<(), DaemonError>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, DaemonError> {
        let mut gateway = Self {
            stop: stop.clone(),
            health: Arc::default(),
            directory: None,
            listeners: Vec::new(),
            running: None,
            host: None,
            provided: Arc::default(),
            upkeep: None,
            workers: Vec::new(),
            pulses: Vec::new(),
            watchdog: None,
            maintenance: None,
            leases: None,
            log: None,
            lookout: None,
            limits: None,
            door: None,
            peers: None,
            copies: None,
            ownership: None,
            state: None,
        };
        let supervisor = Arc::clone(&wanted.supervisor);
        match gateway.assemble(wanted, prepared).and_then(|()| gateway.watch(supervisor, ended)) {
            Ok(()) => Ok(gateway),
            Err(error) => {
                tracing::error!("the start failed, and what it had changed is taken back");
                // A worker that has ended is the reason for whatever failed then.
                Err(gateway.undo().unwrap_or(error))
            }
        }
    }

    fn assemble(
        &mut self,
        Wanted { source, settings, wording, mut plan, report, awaits, supervisor }: Wanted<'_>,
        prepared: impl FnOnce() -> Result<(), DaemonError>,
    ) -> Result<(), DaemonError> {
        let account = Account::of(settings)?;
        if let Some(account) = &account {
            tombolo_io::memory::trust(account.number());
        }
        let processors = tombolo_io::worker::processors().map_err(system("reading the processors"))?;
        let (found, mut faults) = complete(settings, &mut plan)?;
        self.health.set(far_ends::PART, found.far_ends.faults(&plan));
        layout::spread(&mut plan, tombolo_config::addresses_to_come());
        let state = self.state.insert(State::open_for(settings, &plan)?);
        fault::point("state")?;
        let tun = make_device(settings, settings.queues.unwrap_or(processors.len()))?;
        let device = tun.name().to_owned();
        fault::point("device")?;
        let host = self.host.insert(Host::open()?);
        fault::point("host")?;
        let mtu = prepare_device(host, &device, settings, &mut plan)?;
        fault::point("link")?;
        let adopted = tombolo_engine::adoption::adopt(&state.tables, &plan, Now(monotonic_nanos()));
        if adopted > 0 {
            tracing::info!(bindings = adopted, "copies of another node's bindings are this node's by now");
        }
        for conflict in tombolo_engine::static_bindings::reconcile(&state.tables, &plan, Now(monotonic_nanos())) {
            tracing::warn!(service = conflict.service, binding = ?conflict.binding, "static binding: {}", conflict.reason);
        }
        fault::point("bindings")?;
        let routes = match &settings.provision {
            Provision::Gateway => routes(&plan),
            Provision::Administrator { routes, .. } => routes.clone(),
        };
        let diversions = diversions(&plan);
        let needed = setting(settings, &plan);
        let leases = LeaseFiles::load(&plan, &settings.lease_files, crate::state::secret()?);
        let plan = Arc::new(ArcSwap::from_pointee(plan));
        let probes = Arc::new(Probes::default());
        let taps = Arc::<Taps>::default();
        let tun_queues = tun.into_queues();
        let count = tun_queues.len();
        let [one, other, ..] = crate::state::secret()?;
        let workers = u16::try_from(count).unwrap_or(u16::MAX);
        let fragments = Arc::new(Fragments::new(ReassemblyLimits::default(), [one, other], workers));
        let team = Team {
            settings,
            processors,
            state,
            fragments: &fragments,
            plan: &plan,
            probes: &probes,
            taps: &taps,
            stop: &self.stop,
        };
        let (mut counters, mut queues) = (Vec::new(), Vec::new());
        for queue in tun_queues {
            let started = team.start(queue, count)?;
            self.workers.push(started.worker);
            self.pulses.push(started.pulse);
            counters.push(started.counters);
            queues.push(started.queue);
        }
        // One more engine, for what the host itself is asked.
        let beside = u16::try_from(count).unwrap_or(u16::MAX - 1);
        let clerk = Engine::new(Arc::clone(&state.tables), state.seed, beside, beside + 1);
        fault::point("workers")?;
        let guarded = |name| Guarded { name, stop: self.stop.clone(), health: Arc::clone(&self.health) };
        let log = Arc::clone(self.log.insert(Arc::new(begin_log(settings, state, &plan, guarded("binding-log"))?)));
        let removals = log.removals().clone();
        fault::point("log")?;
        let swept = Arc::<Swept>::default();
        let maintenance = Maintenance::start(
            Arc::clone(&state.tables),
            Arc::clone(&plan),
            probes,
            Arc::clone(&swept),
            removals.clone(),
            guarded("maintenance"),
        );
        self.maintenance = Some(maintenance.map_err(system("starting a thread"))?);
        fault::point("maintenance")?;
        let accelerator = Accelerator::start(settings, state, &plan.load())?;
        fault::point("programs")?;
        let guard = Guard::raise(settings, &device, &plan.load(), &self.health);
        fault::point("guard")?;
        bring_packets(host, &device, settings, routes, diversions)?;
        if let Some(needed) = &needed {
            host.extend(&device, settings.table, needed)?;
        }
        faults.extend_from_slice(host.shortcomings());
        self.health.set(own_address::PART, faults);
        upkeep::answer_neighbours(host, &device, &self.health);
        warn_of_obstacles(settings, &plan.load());
        fault::point("routes")?;
        let copies =
            Copies::prepare(settings.cluster.as_ref(), &plan, (&state.tables, state.is_fresh), self.stop.clone())?;
        let agreed = plan.load().cluster.clone().filter(|cluster| cluster.is_agreed());
        let agreement = agreed.map(|cluster| Arc::new(Agreement::of(cluster.slices().end)));
        let running = self.running.insert(Arc::new(Running {
            source: Source { mtu, ..source },
            settings: settings.clone(),
            tables: Arc::clone(&state.tables),
            plan,
            counters,
            door: Arc::clone(clerk.counters()),
            queues,
            swept,
            removals,
            targets: Targets::new(Arc::clone(&log)),
            reloads: Reloads::default(),
            accelerator,
            taps,
            guard,
            started: Now(monotonic_nanos()),
            health: Arc::clone(&self.health),
            supervisor,
            put_back: Arc::<AtomicU64>::default(),
            provided: Arc::clone(&self.provided),
            found: Mutex::new(found),
            text: state.text(),
            pulses: self.pulses.clone(),
            copies,
            agreement,
            is_leaving: AtomicBool::new(false),
            in_force: Mutex::new(InForce::new(settings.clone(), wording)),
        }));
        self.lookout = Lookout::start(running, self.stop.clone()).map_err(system("starting a thread"))?;
        self.limits = Some(Limits::start(running, self.stop.clone()).map_err(system("starting a thread"))?);
        self.door = Some(Door::start(running, clerk, self.stop.clone()).map_err(system("starting a thread"))?);
        self.peers = Peers::start(running, self.stop.clone()).map_err(system("starting a thread"))?;
        if let Some(copies) = &running.copies {
            self.copies = Some(copies.start(&self.health, &self.stop).map_err(system("starting a thread"))?);
        }
        self.ownership = Ownership::start(running, state.holdings(), &self.stop)?;
        fault::point("watch")?;
        listen(running, &mut self.directory, &mut self.listeners)?;
        fault::point("listeners")?;
        let tasks = Tasks::open().map_err(system("opening the list of threads"))?;
        prepared()?;
        self.leases = Some(leases.start(report.clone(), running.counters.clone(), self.stop.clone()));
        fault::point("leases")?;
        if matches!(settings.provision, Provision::Gateway) {
            host.remove_leftovers(&device, settings.table)?;
        }
        fault::point("leftovers")?;
        if let Some(accelerator) = &running.accelerator {
            state.catch_up();
            accelerator.attach();
            running.health.set("fast path", accelerator.faults());
        }
        if let Err(error) = state.complete(running.accelerator.is_some(), log.ends().as_ref()) {
            tracing::error!("a restart will lose all state: {}", in_one_line(&error));
        }
        fault::point("attach")?;
        let dead = directories::remove_dead();
        if dead > 0 {
            tracing::info!(dead, "directories of gateways that were killed removed from {}", directories::ROOT);
        }
        fault::point("sandbox")?;
        let places = Places {
            configuration: &running.source.path,
            socket: self.directory.as_ref().map_or(Path::new(""), |(path, _)| path),
            pins: state.kernel_memory().map(PinnedMemory::directory),
        };
        let tasked = Tasked { has_programs: running.accelerator.is_some(), awaits };
        if let Some(ports) = privileges::give_up(settings, account, tasked, &places, tasks)? {
            running.targets.restrict_to(ports);
        }
        host.complete();
        let (put_back, guarded) = (Arc::clone(&running.put_back), guarded("upkeep"));
        self.host.take().into_iter().for_each(|host| self.provided.hold(host));
        let provided = Arc::clone(&self.provided);
        self.upkeep = Upkeep::start(provided, device, guarded, put_back).map_err(system("watching the host"))?;
        Ok(())
    }

    /// What other threads see of it.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.running.clone()
    }

    /// Has the workers watched.
    fn watch(&mut self, supervisor: Arc<Supervisor>, ended: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
        let (pulses, health) = (self.pulses.clone(), Arc::clone(&self.health));
        let started = watchdog::start(pulses, health, supervisor, self.stop.clone(), ended);
        self.watchdog = Some(started.map_err(system("starting the watchdog"))?);
        Ok(())
    }

    /// The start has failed. Says how a worker has failed, if one has.
    fn undo(&mut self) -> Option<DaemonError> {
        let state = self.state.take();
        let results = self.end();
        state.into_iter().for_each(State::abandon);
        results.into_iter().find_map(Result::err)
    }

    /// Ends everything, and says what it was good for.
    pub(crate) fn stop(mut self) -> Result<(), DaemonError> {
        let results = self.end();
        if let Some(running) = &self.running {
            report(running);
        }
        let is_kept = self.running.as_ref().is_some_and(|running| running.settings.run_directory.is_some());
        if let Some(state) = self.state.take() {
            state.close(is_kept);
        }
        results.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.health.fatal().map_or(Ok(()), |why| Err(DaemonError::Failed(why)))
    }

    /// Has routers bring packets to other nodes.
    fn leave_cluster(&self) {
        if let Some(running) = self.running.as_ref().filter(|running| running.settings.cluster.is_some()) {
            running.leave();
            wait_for_successors(running);
            std::thread::sleep(TO_BE_HEARD);
        }
    }

    /// Nobody asks any more, then programs, routes and addresses go, then the threads end.
    fn end(&mut self) -> Vec<Result<(), DaemonError>> {
        self.leave_cluster();
        self.listeners.clear();
        self.running.iter().for_each(|running| running.targets.close());
        if let Some((directory, _held)) = self.directory.take() {
            directories::remove_empty(&directory);
        }
        tombolo_io::fault::trip("end-listeners");
        if let Some(accelerator) = self.running.as_ref().and_then(|running| running.accelerator.as_ref()) {
            accelerator.detach();
        }
        tombolo_io::fault::trip("end-programs");
        self.stop.stop();
        drop(self.host.take());
        self.upkeep.take().into_iter().for_each(Upkeep::join);
        drop(self.provided.take());
        tombolo_io::fault::trip("end-host");
        self.lookout.take().into_iter().for_each(Lookout::join);
        self.limits.take().into_iter().for_each(Limits::join);
        self.door.take().into_iter().for_each(Door::join);
        self.peers.take().into_iter().for_each(Peers::join);
        self.ownership.take().into_iter().for_each(Ownership::join);
        self.copies.take().into_iter().for_each(CopyThreads::join);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.thread().unpark();
            let _ = watchdog.join();
        }
        let results = self.workers.drain(..).map(join_worker).collect();
        if let Some(expired) = self.maintenance.take().map(Maintenance::join) {
            tracing::debug!(sessions = expired.sessions, bindings = expired.bindings, "expired");
        }
        self.leases.take().into_iter().for_each(LeaseFiles::join);
        let is_kept = self.running.as_ref().is_none_or(|running| running.settings.run_directory.is_some());
        self.log.take().into_iter().for_each(|log| log.join(is_kept));
        tombolo_io::fault::trip("end-threads");
        results
    }
}

/// Until other nodes own all that was this one's, if there are any.
fn wait_for_successors(running: &Running) {
    let Some(cluster) = running.plan.load().cluster.clone().filter(|cluster| cluster.is_agreed()) else { return };
    let began = Instant::now();
    while cluster.slices().any(|slice| cluster.owns(slice)) && !cluster.is_alone() && began.elapsed() < TO_HAND_OVER {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A worker that does not end keeps nothing else from ending: the process takes it along.
fn join_worker(worker: Worker<EngineHandler>) -> Result<(), DaemonError> {
    let began = Instant::now();
    while !worker.is_finished() {
        if began.elapsed() > TO_END {
            return Err(DaemonError::Failed("a worker does not end".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(worker.join().map(drop)?)
}

fn report(running: &Running) {
    use std::sync::atomic::Ordering::Relaxed;
    let totals = running.totals();
    tracing::info!(
        received_inside = totals.received[0],
        received_outside = totals.received[1],
        forwarded_outward = totals.forwarded[0],
        forwarded_inward = totals.forwarded[1],
        sessions_expired = running.swept.expired_sessions.load(Relaxed),
        bindings_expired = running.swept.expired_bindings.load(Relaxed),
        "stopped"
    );
    for (reason, count) in totals.drops() {
        tracing::info!(reason = reason.name(), count, "dropped");
    }
}

/// Completes the plan by what is found around the gateway. What is left open, and why.
fn complete(settings: &HostSettings, plan: &mut Plan) -> Result<(Found, Vec<String>), DaemonError> {
    let pools = &settings.shared_pools;
    if pools.is_empty() && !found::is_wanted(plan) {
        return Ok(<_>::default());
    }
    let before = Found::default();
    let found = before.look(&mut Host::open()?, (plan, pools), &own_address::in_use_beside(pools))?;
    let found = Found { far_ends: FarEnds::default().for_plan(plan), ..found };
    found.say(&before, plan);
    let faults = found.complete(plan, pools);
    Ok((found, faults))
}

/// The device with its queues: made, or the administrator's.
fn make_device(settings: &HostSettings, queues: usize) -> Result<Tun, DaemonError> {
    let tun = Tun::create(&TunConfig {
        name: settings.device.clone(),
        queues,
        existing: match settings.provision {
            Provision::Gateway => ExistingDevice::Refuse,
            Provision::Administrator { .. } => ExistingDevice::Adopt,
        },
        entry: KernelEntry::Direct,
    })?;
    tracing::info!(device = tun.name(), queues, offloads = ?tun.offloads(), "device made");
    Ok(tun)
}

/// Sets the device up, and gives it its addresses and the plan those that errors are sent from.
/// Says the MTU where it is the administrator's, who limits the plan by it.
fn prepare_device(
    host: &mut Host,
    device: &str,
    settings: &HostSettings,
    plan: &mut Plan,
) -> Result<Option<u32>, DaemonError> {
    match &settings.provision {
        Provision::Gateway => {
            host.bring_up(device, settings.mtu, QUEUE_PACKETS)?;
            host.accept_own_sources(device)?;
            for &address in &settings.addresses {
                host.add_address(device, IpNet::from(IpAddr::from(address)))?;
                tracing::info!(%address, device, "address added");
            }
            with_own_addresses(plan, host, device)?;
            Ok(None)
        }
        Provision::Administrator { up, addresses, .. } => {
            if *up {
                host.set_up(device)?;
            }
            for &address in addresses {
                host.add_address(device, address)?;
            }
            let bytes = host.mtu(device)?;
            limit_to(plan, bytes);
            tracing::info!(device, mtu = bytes, "device as the administrator has it");
            Ok(Some(bytes))
        }
    }
}

/// Routes and diversions to the device: from here on packets come.
fn bring_packets(
    host: &mut Host,
    device: &str,
    settings: &HostSettings,
    routes: Vec<IpNet>,
    diversions: Option<Diversion>,
) -> Result<(), DaemonError> {
    host.add_routes(device, &routes)?;
    for prefix in routes.iter().take(ROUTES_SAID) {
        tracing::info!(%prefix, device, "route added");
    }
    if routes.len() > ROUTES_SAID {
        tracing::info!(more = routes.len() - ROUTES_SAID, device, "routes added");
    }
    if let Some(Diversion { sources, exempt }) = diversions {
        host.divert(device, settings.table, &sources, &exempt)?;
        tracing::info!(?sources, table = settings.table, device, "hosts inside diverted");
    }
    Ok(())
}

/// Says what stands in packets' way through the host.
fn warn_of_obstacles(settings: &HostSettings, plan: &Plan) {
    for doctor::Finding { found, cure, .. } in doctor::at_start(settings, plan) {
        match cure {
            doctor::Cure::Line(line) => tracing::warn!("{found}; run: {line}"),
            doctor::Cure::Words(words) => tracing::warn!("{found}; {words}"),
        }
    }
}

/// The log of bindings, which writes if there is to be one.
fn begin_log(
    settings: &HostSettings,
    state: &State,
    plan: &Arc<ArcSwap<Plan>>,
    guarded: Guarded,
) -> Result<BindingLog, DaemonError> {
    let log = BindingLog::new(Ground {
        tables: Arc::clone(&state.tables),
        plan: Arc::clone(plan),
        clock: state.clock.clone(),
        gateway: settings.device.clone(),
        boot: boot_id().to_owned(),
        host: host_name(),
        guarded,
    });
    let path = settings.binding_log.clone().unwrap_or_default();
    let prepared = log.prepare(settings).map_err(|source| DaemonError::Log { path, source })?;
    log.put(prepared, if state.is_fresh { StateFound::None } else { StateFound::Tables });
    Ok(log)
}

/// The control socket and the metrics. A gateway that cannot be asked still serves packets, so a
/// control socket that cannot be made is a warning; metrics were asked for.
fn listen(
    running: &Arc<Running>,
    held: &mut Option<(PathBuf, std::fs::File)>,
    listeners: &mut Vec<Listener>,
) -> Result<(), DaemonError> {
    let directory = directories::of_socket(&running.settings);
    let socket = directory.join(directories::SOCKET);
    let control = directories::hold(&directory).and_then(|file| {
        *held = Some((directory, file));
        Listener::unix("control", &socket, Arc::new(Control(Arc::clone(running))))
    });
    match control {
        Ok(listener) => listeners.push(listener),
        Err(error) => {
            running.health.set("control", vec![format!("no control socket at {}: {error}", socket.display())]);
        }
    }
    running.targets.serve_by(Arc::new(Metrics(Arc::clone(running))));
    if let Some(address) = &running.settings.metrics {
        running.targets.serve(address).map_err(|source| {
            let address = match address {
                MetricsAddress::Tcp(address) => address.to_string(),
                MetricsAddress::Unix(path) => path.display().to_string(),
            };
            DaemonError::Metrics { address, source }
        })?;
    }
    Ok(())
}
