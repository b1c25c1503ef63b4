//! Starts the gateway, waits for a signal, stops it.
//!
//! Order matters: workers serve the device before packets are routed to it, and routes go before
//! the device.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tombolo_config::{Configuration, Host as HostSettings, MetricsAddress, Provision};
use tombolo_engine::counters::Counters;
use tombolo_engine::{Engine, Now, Plan};
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::host::{Forwarding, Host};
use tombolo_io::queue::{QueueCounters, Refusal};
use tombolo_io::tun::{ExistingDevice, KernelEntry, Tun, TunConfig};
use tombolo_io::worker::{StopSignal, Worker};

use crate::accelerator::Accelerator;
use crate::binding_log::{BindingLog, LogSettings, Removals};
use crate::control::answer::Control;
use crate::directories;
use crate::discovery;
use crate::error::{DaemonError, system};
use crate::lease_files::{LeaseFiles, Report};
use crate::listener::Listener;
use crate::lookout::Lookout;
use crate::maintenance::{Maintenance, Probes, Swept};
use crate::metrics::Metrics;
use crate::prefix_watch::PrefixWatch;
use crate::provision::{Diversion, diversions, limit_to, routes, with_own_addresses};
use crate::reload;
use crate::running::{Running, Source};
use crate::state::State;
use crate::worker::EngineHandler;

/// Packets that the kernel keeps for each queue before it drops. A super-packet counts as one.
const QUEUE_PACKETS: u32 = 1000;

/// Runs the gateway that the file at `path` describes until SIGINT or SIGTERM; SIGHUP reads the
/// file again.
///
/// Logs `ready` once packets are routed to it.
///
/// # Errors
/// [`DaemonError`]. Whatever was changed on the host has been taken back.
pub fn run(path: &Path) -> Result<(), DaemonError> {
    let configuration = tombolo_config::load(path)?;
    let (file, settings) = (path.to_owned(), configuration.host.clone());
    let reload = move |current: &Plan| reload::plan(&file, &settings, current);
    let source = Source { path: path.to_owned(), reload: Box::new(reload), mtu: None };
    serve(configuration, source, &Report::default(), || Ok(()))
}

/// Runs a gateway until SIGINT or SIGTERM; SIGHUP reads `source` again. `prepared` is called when
/// everything that takes privileges has been done, before packets are served.
///
/// # Errors
/// As [`run`].
pub(crate) fn serve(
    configuration: Configuration,
    source: Source,
    report: &Report,
    prepared: impl FnOnce() -> Result<(), DaemonError>,
) -> Result<(), DaemonError> {
    let Configuration { host: settings, mut plan, warnings } = configuration;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let awaiting = discovery::awaiting(&plan);
    discovery::complete(&mut plan, discovery::advertised, tombolo_io::resolver::ipv6_addresses)?;
    // From here on a signal is not lost: it waits until the gateway is complete, and then ends it.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(system("preparing for signals"))?;
    let stop = StopSignal::new().map_err(system("making the stop signal"))?;
    let signals_handle = signals.handle();

    let gateway = Gateway::start(source, &settings, plan, &stop, report, prepared)?;
    let watch = awaiting.and_then(|service| PrefixWatch::start(service, &gateway.running, stop.clone()));
    tracing::info!("ready");
    let watcher = gateway.watch(stop.clone(), signals_handle);
    for signal in &mut signals {
        match signal {
            SIGHUP => {
                if let Err(error) = gateway.running.reload() {
                    tracing::error!("configuration not reloaded, the old one stays in force: {error}");
                }
            }
            _ => break,
        }
    }
    let result = gateway.stop(&stop, watcher);
    watch.into_iter().for_each(PrefixWatch::join);
    result
}

struct Gateway {
    // Dropped in this order: nobody asks any more, then routes and addresses go.
    listeners: Vec<Listener>,
    host: Host,
    workers: Vec<Worker<EngineHandler>>,
    maintenance: Maintenance,
    leases: LeaseFiles,
    log: Option<BindingLog>,
    lookout: Option<Lookout>,
    running: Arc<Running>,
    state: State,
}

impl Gateway {
    fn start(
        source: Source,
        settings: &HostSettings,
        mut plan: Plan,
        stop: &StopSignal,
        report: &Report,
        prepared: impl FnOnce() -> Result<(), DaemonError>,
    ) -> Result<Self, DaemonError> {
        let processors = tombolo_io::worker::processors().map_err(system("reading the processors"))?;
        let state = State::open_for(settings, &plan)?;
        let tun = make_device(settings, settings.queues.unwrap_or(processors.len()))?;
        let device = tun.name().to_owned();
        let mut host = Host::open()?;
        let mtu = prepare_device(&mut host, &device, settings, &mut plan)?;
        for conflict in tombolo_engine::static_bindings::reconcile(&state.tables, &plan, Now(monotonic_nanos())) {
            tracing::warn!(service = conflict.service, binding = ?conflict.binding, "static binding: {}", conflict.reason);
        }
        let routes = match &settings.provision {
            Provision::Gateway => routes(&plan),
            Provision::Administrator { routes, .. } => routes.clone(),
        };
        let diversions = diversions(&plan);
        let leases = LeaseFiles::load(&plan, &settings.lease_files);
        let plan = Arc::new(ArcSwap::from_pointee(plan));
        let probes = Arc::new(Probes::default());
        let team = Team { settings, processors, state: &state, plan: &plan, probes: &probes, stop };
        let Workers { workers, counters, queues } = team.start(tun)?;
        let (log, removals) = start_log(settings, &state, &plan, stop)?;
        let swept = Arc::<Swept>::default();
        let maintenance = Maintenance::start(
            Arc::clone(&state.tables),
            Arc::clone(&plan),
            probes,
            Arc::clone(&swept),
            removals.clone(),
            stop.clone(),
        );
        let accelerator = Accelerator::start(settings, &state, &plan.load())?;
        bring_packets(&mut host, &device, settings, routes, diversions)?;
        let running = Arc::new(Running {
            source: Source { mtu, ..source },
            settings: settings.clone(),
            tables: Arc::clone(&state.tables),
            plan,
            counters,
            queues,
            swept,
            removals,
            accelerator,
            started: Now(monotonic_nanos()),
            changing: Mutex::default(),
        });
        let lookout = Lookout::start(&running, stop.clone());
        let listeners = listen(&running)?;
        prepared()?;
        let leases = leases.start(report.clone(), running.counters.clone(), stop.clone());
        Ok(Self { listeners, host, workers, maintenance, leases, log, lookout, running, state })
    }

    /// A worker that ends early ends the gateway: it gives the stop signal, and this closes the
    /// wait for signals.
    fn watch(&self, stop: StopSignal, signals: signal_hook::iterator::Handle) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            while !stop.is_given() {
                std::thread::park_timeout(std::time::Duration::from_millis(200));
            }
            signals.close();
        })
    }

    fn stop(self, stop: &StopSignal, watcher: std::thread::JoinHandle<()>) -> Result<(), DaemonError> {
        let Self { listeners, host, workers, maintenance, leases, log, lookout, running, state } = self;
        drop(listeners);
        if let Some(accelerator) = &running.accelerator {
            accelerator.detach();
        }
        drop(host);
        stop.stop();
        lookout.into_iter().for_each(Lookout::join);
        watcher.thread().unpark();
        let results: Vec<_> = workers.into_iter().map(Worker::join).collect();
        let _ = watcher.join();
        let expired = maintenance.join();
        leases.join();
        log.into_iter().for_each(BindingLog::join);
        let totals = running.totals();
        tracing::info!(
            received_inside = totals.received[0],
            received_outside = totals.received[1],
            forwarded_outward = totals.forwarded[0],
            forwarded_inward = totals.forwarded[1],
            sessions_expired = expired.sessions,
            bindings_expired = expired.bindings,
            "stopped"
        );
        for (refusal, count) in Refusal::ALL.into_iter().zip(running.queue_totals().refused) {
            if count > 0 {
                tracing::warn!(reason = refusal.name(), count, "not taken by the device: {}", refusal.cause());
            }
        }
        for (reason, count) in totals.drops() {
            tracing::info!(reason = reason.name(), count, "dropped");
        }
        state.close(running.settings.run_directory.is_some());
        Ok(results.into_iter().try_for_each(|result| result.map(drop))?)
    }
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
    for prefix in routes {
        host.add_route(device, prefix)?;
        tracing::info!(%prefix, device, "route added");
    }
    if let Some(Diversion { sources, exempt }) = diversions {
        host.divert(device, settings.table, &sources, &exempt)?;
        tracing::info!(?sources, table = settings.table, device, "hosts inside diverted");
    }
    for remedy in Forwarding::read().remedies() {
        tracing::warn!("the host does not forward packets; run: {remedy}");
    }
    Ok(())
}

/// What all workers have in common.
struct Team<'a> {
    settings: &'a HostSettings,
    processors: Vec<usize>,
    state: &'a State,
    plan: &'a Arc<ArcSwap<Plan>>,
    probes: &'a Arc<Probes>,
    stop: &'a StopSignal,
}

/// A worker for each queue of the device, what it counts, and what its queue does.
struct Workers {
    workers: Vec<Worker<EngineHandler>>,
    counters: Vec<Arc<Counters>>,
    queues: Vec<Arc<QueueCounters>>,
}

impl Team<'_> {
    fn start(&self, tun: Tun) -> Result<Workers, DaemonError> {
        let mut started = Workers { workers: Vec::new(), counters: Vec::new(), queues: Vec::new() };
        let queues = tun.into_queues();
        let count = u16::try_from(queues.len()).unwrap_or(u16::MAX);
        for queue in queues {
            let number = queue.number();
            let worker = u16::try_from(number).unwrap_or(u16::MAX);
            let engine = Engine::new(Arc::clone(&self.state.tables), self.state.seed, worker, count);
            started.counters.push(Arc::clone(engine.counters()));
            started.queues.push(queue.counters());
            let handler = EngineHandler::new(engine, Arc::clone(self.plan), Arc::clone(self.probes));
            let cpu = self.settings.pin.then(|| self.processors[number % self.processors.len()]);
            let name = format!("worker-{number}");
            started.workers.push(Worker::start(&name, cpu, queue, handler, self.stop.clone())?);
        }
        Ok(started)
    }
}

/// The log of bindings, if there is to be one.
fn start_log(
    settings: &HostSettings,
    state: &State,
    plan: &Arc<ArcSwap<Plan>>,
    stop: &StopSignal,
) -> Result<(Option<BindingLog>, Removals), DaemonError> {
    let Some(path) = &settings.binding_log else { return Ok((None, Removals::default())) };
    let (tables, plan) = (Arc::clone(&state.tables), Arc::clone(plan));
    let log = LogSettings { path, rate: settings.binding_log_rate, detail: settings.binding_log_detail };
    let started = BindingLog::start(log, tables, plan, stop.clone());
    let (log, removals) = started.map_err(|source| DaemonError::Log { path: path.clone(), source })?;
    Ok((Some(log), removals))
}

/// The control socket and the metrics. A gateway that cannot be asked still serves packets, so a
/// control socket that cannot be made is a warning; metrics were asked for.
fn listen(running: &Arc<Running>) -> Result<Vec<Listener>, DaemonError> {
    let directory = directories::of_socket(&running.settings);
    let socket = directory.join(directories::SOCKET);
    let control = directories::make_private(&directory)
        .and_then(|()| Listener::unix("control", &socket, Arc::new(Control(Arc::clone(running)))));
    let mut listeners = Vec::new();
    match control {
        Ok(listener) => listeners.push(listener),
        Err(error) => tracing::warn!("no control socket at {}: {error}", socket.display()),
    }
    if let Some(address) = &running.settings.metrics {
        let service = Arc::new(Metrics(Arc::clone(running)));
        let (listener, name) = match address {
            MetricsAddress::Tcp(address) => (Listener::tcp("metrics", *address, service), address.to_string()),
            MetricsAddress::Unix(path) => (Listener::unix("metrics", path, service), path.display().to_string()),
        };
        listeners.push(listener.map_err(|source| DaemonError::Metrics { address: name, source })?);
    }
    Ok(listeners)
}
