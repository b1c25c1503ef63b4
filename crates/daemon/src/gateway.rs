//! Puts the gateway together, waits for a signal, takes it apart again.
//!
//! Order matters: workers serve the device before packets are routed to it, and routes go before
//! the device.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Net};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tombolo_config::{ConfigError, Configuration, Host as HostSettings, MetricsAddress, Provision};
use tombolo_engine::plan::{AnsweredBy, Routed, ServiceKind};
use tombolo_engine::{Engine, Now, Plan};
use tombolo_fastpath::FastPathError;
use tombolo_io::clock::monotonic_nanos;
use tombolo_io::host::{Family, Forwarding, Host, HostError};
use tombolo_io::tun::{ExistingDevice, KernelEntry, Tun, TunConfig, TunError};
use tombolo_io::worker::{StopSignal, Worker, WorkerError};

use crate::accelerator::{Accelerator, Lookout};
use crate::binding_log::{BindingLog, Removals};
use crate::control::{answer::Control, place};
use crate::discovery::{self, DiscoveryError, Listening};
use crate::lending::{self, Lending};
use crate::listener::Listener;
use crate::maintenance::{Maintenance, Probes};
use crate::metrics::Metrics;
use crate::reload;
use crate::running::{Running, Source, Swept};
use crate::state::{State, StateError};
use crate::worker::EngineHandler;

/// Packets that the kernel keeps for each queue before it drops. A super-packet counts as one.
const QUEUE_PACKETS: u32 = 1000;

/// Why the gateway did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What the configuration leaves to the network.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The tables.
    #[error(transparent)]
    State(#[from] StateError),
    /// A worker.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The fast path.
    #[error(transparent)]
    FastPath(#[from] FastPathError),
    /// The log of bindings.
    #[error("the log of bindings {path} cannot be opened: check that its directory is there and may be written")]
    Log {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The metrics.
    #[error("metrics cannot be served at {place}: is it in use, or not an address of this host?")]
    Metrics {
        /// Address and port, or path.
        place: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The system.
    #[error("{action} failed")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

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
    serve(configuration, source, &lending::Report::default(), || Ok(()))
}

/// Runs a gateway until SIGINT or SIGTERM; SIGHUP reads `source` again. `prepared` is called when
/// everything that takes privileges has been done, before packets are served.
///
/// # Errors
/// As [`run`].
pub(crate) fn serve(
    configuration: Configuration,
    source: Source,
    report: &lending::Report,
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
    let listening = awaiting.and_then(|service| Listening::start(service, &gateway.running, stop.clone()));
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
    listening.into_iter().for_each(Listening::join);
    result
}

fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> DaemonError {
    move |source| DaemonError::System { action, source }
}

struct Gateway {
    // Dropped in this order: nobody asks any more, then routes and addresses go.
    listeners: Vec<Listener>,
    host: Host,
    workers: Vec<Worker<EngineHandler>>,
    maintenance: Maintenance,
    lending: Lending,
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
        report: &lending::Report,
        prepared: impl FnOnce() -> Result<(), DaemonError>,
    ) -> Result<Self, DaemonError> {
        let processors = tombolo_io::worker::processors().map_err(system("reading the processors"))?;
        let queues = settings.queues.unwrap_or(processors.len());
        let state = State::open_for(settings, &plan)?;
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
        let device = tun.name().to_owned();
        let mut host = Host::open()?;
        let mut mtu = None;
        match &settings.provision {
            Provision::Gateway => {
                host.bring_up(&device, settings.mtu, QUEUE_PACKETS)?;
                host.accept_own_sources(&device)?;
                for &address in &settings.addresses {
                    host.add_address(&device, IpNet::from(IpAddr::from(address)))?;
                    tracing::info!(%address, device, "address added");
                }
                plan = with_own_addresses(plan, &mut host, &device)?;
            }
            Provision::Administrator { up, addresses, .. } => {
                if *up {
                    host.set_up(&device)?;
                }
                for &address in addresses {
                    host.add_address(&device, address)?;
                }
                let bytes = host.mtu(&device)?;
                limit_to(&mut plan, bytes);
                tracing::info!(device, mtu = bytes, "device as the administrator has it");
                mtu = Some(bytes);
            }
        }
        for conflict in tombolo_engine::static_bindings::reconcile(&state.tables, &plan, Now(monotonic_nanos())) {
            tracing::warn!(service = conflict.service, binding = ?conflict.binding, "static binding: {}", conflict.reason);
        }
        let routes = match &settings.provision {
            Provision::Gateway => routes(&plan),
            Provision::Administrator { routes, .. } => routes.clone(),
        };
        let diversions = diversions(&plan);
        let lending = Lending::load(&plan);
        let plan = Arc::new(ArcSwap::from_pointee(plan));
        let probes = Arc::new(Probes::default());
        let mut counters = Vec::new();
        let mut workers = Vec::new();
        let queues = tun.into_queues();
        let count = u16::try_from(queues.len()).unwrap_or(u16::MAX);
        for queue in queues {
            let number = queue.number();
            let worker = u16::try_from(number).unwrap_or(u16::MAX);
            let engine = Engine::new(Arc::clone(&state.tables), state.seed, worker, count);
            counters.push(Arc::clone(engine.counters()));
            let handler = EngineHandler::new(engine, Arc::clone(&plan), Arc::clone(&probes));
            let cpu = settings.pin.then(|| processors[number % processors.len()]);
            workers.push(Worker::start(&format!("worker-{number}"), cpu, queue, handler, stop.clone())?);
        }
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
        for prefix in routes {
            host.add_route(&device, prefix)?;
            tracing::info!(%prefix, device, "route added");
        }
        if let Some(Diversion { sources, exempt }) = diversions {
            host.divert(&device, settings.table, &sources, &exempt)?;
            tracing::info!(?sources, table = settings.table, device, "hosts inside diverted");
        }
        for remedy in Forwarding::read().remedies() {
            tracing::warn!("the host does not forward packets; run: {remedy}");
        }
        let lent = counters.clone();
        let source = Source { mtu, ..source };
        let running = Running::new(
            (source, settings.clone()),
            Arc::clone(&state.tables),
            plan,
            counters,
            (swept, removals),
            accelerator,
        );
        let running = Arc::new(running);
        let lookout = Lookout::start(&running, stop.clone());
        let listeners = listen(&running)?;
        prepared()?;
        let lending = lending.start(report.clone(), lent, stop.clone());
        Ok(Self { listeners, host, workers, maintenance, lending, log, lookout, running, state })
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
        let Self { listeners, host, workers, maintenance, lending, log, lookout, running, state } = self;
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
        lending.join();
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
        for (reason, count) in totals.drops() {
            tracing::info!(reason = reason.name(), count, "dropped");
        }
        state.close(running.settings.run_directory.is_some());
        Ok(results.into_iter().try_for_each(|result| result.map(drop))?)
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
    let started =
        BindingLog::start(path, (settings.binding_log_rate, settings.binding_log_detail), tables, plan, stop.clone());
    let (log, removals) = started.map_err(|source| DaemonError::Log { path: path.clone(), source })?;
    Ok((Some(log), removals))
}

/// The control socket and the metrics. A gateway that cannot be asked still serves packets, so a
/// control socket that cannot be made is a warning; metrics were asked for.
fn listen(running: &Arc<Running>) -> Result<Vec<Listener>, DaemonError> {
    let directory = place::directory(&running.settings);
    let socket = directory.join(place::SOCKET);
    let control = place::make(&directory)
        .and_then(|()| Listener::unix("control", &socket, Arc::new(Control(Arc::clone(running)))));
    let mut listeners = Vec::new();
    match control {
        Ok(listener) => listeners.push(listener),
        Err(error) => tracing::warn!("no control socket at {}: {error}", socket.display()),
    }
    if let Some(address) = &running.settings.metrics {
        let service = Arc::new(Metrics(Arc::clone(running)));
        let (listener, place) = match address {
            MetricsAddress::Tcp(address) => (Listener::tcp("metrics", *address, service), address.to_string()),
            MetricsAddress::Unix(path) => (Listener::unix("metrics", path, service), path.display().to_string()),
        };
        listeners.push(listener.map_err(|source| DaemonError::Metrics { place, source })?);
    }
    Ok(listeners)
}

/// Prefixes that have to be routed to the device: from inside the services' IPv6 prefixes, from
/// outside the pools.
fn routes(plan: &Plan) -> Vec<IpNet> {
    let mut routes = Vec::new();
    for service in &plan.services {
        let Routed { ipv6, ipv4, .. } = service.kind.routed();
        routes.extend(
            ipv6.into_iter().filter_map(|(address, length)| Ipv6Net::new(address, length).ok().map(IpNet::from)),
        );
        routes.extend(ipv4.into_iter().flat_map(|(first, last)| Ipv4Subnets::new(first, last, 0)).map(IpNet::from));
    }
    if plan.own.answered_by == AnsweredBy::Gateway {
        let own = [plan.own.ipv4.map(IpAddr::from), plan.own.ipv6.map(IpAddr::from)].into_iter().flatten();
        let missing: Vec<_> =
            own.filter(|own| !routes.iter().any(|route| route.contains(own))).map(IpNet::from).collect();
        routes.extend(missing);
    }
    routes
}

/// What the device does not take is not sent: it stands for the links on both sides.
pub(crate) fn limit_to(plan: &mut Plan, mtu: u32) {
    for service in &mut plan.services {
        if let ServiceKind::Siit(siit) = &mut service.kind {
            siit.translate.ipv4_mtu = mtu;
            siit.translate.ipv6_mtu = mtu.max(1280);
        }
    }
}

/// Packets that have to reach the device for their sources.
struct Diversion {
    sources: Vec<IpNet>,
    exempt: Vec<IpNet>,
}

/// The hosts inside of all services that have IPv4 there; `None` if no service has.
fn diversions(plan: &Plan) -> Option<Diversion> {
    let subnets = |ranges: Vec<(Ipv4Addr, Ipv4Addr)>| {
        ranges.into_iter().flat_map(|(first, last)| Ipv4Subnets::new(first, last, 0)).map(IpNet::from)
    };
    let mut diversion = Diversion { sources: Vec::new(), exempt: Vec::new() };
    for service in &plan.services {
        let Routed { sources, exempt, .. } = service.kind.routed();
        diversion.sources.extend(subnets(sources));
        diversion.exempt.extend(subnets(exempt));
    }
    (!diversion.sources.is_empty()).then_some(diversion)
}

/// The addresses that errors are sent from, where the configuration names none.
fn with_own_addresses(mut plan: Plan, host: &mut Host, device: &str) -> Result<Plan, HostError> {
    let found_v4 = match host.icmp_source(Family::Ipv4, device)? {
        Some(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    let found_v6 = match host.icmp_source(Family::Ipv6, device)? {
        Some(IpAddr::V6(address)) => Some(address),
        _ => None,
    };
    let is_usable = |address: &Ipv4Addr| !address.is_loopback();
    plan.own.ipv4 = plan.own.ipv4.or(found_v4.filter(is_usable));
    plan.own.ipv6 = plan.own.ipv6.or(found_v6);
    Ok(plan)
}
