//! Runs the gateway: starts it, waits for signals, ends it.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXFSZ};
use signal_hook::iterator::Signals;
use tombolo_config::{Configuration, LogLevel};
use tombolo_engine::Plan;
use tombolo_io::supervisor::Supervisor;
use tombolo_io::worker::StopSignal;

use crate::assembly::{Gateway, Wanted};
use crate::awaits::Awaits;
use crate::discovery;
use crate::error::{DaemonError, system};
use crate::error_chain::in_one_line;
use crate::found_watch::FoundWatch;
use crate::lease_files::Report;
use crate::ownership;
use crate::prefix_watch::PrefixWatch;
use crate::reload::{Next, Wish};
use crate::running::{Running, Source};

/// Signals that end a process which does not expect them, and mean nothing to a gateway.
const MEANINGLESS: [i32; 6] = [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXFSZ];

/// Runs the gateway that the file at `path` describes, whose `configuration` was just read, until SIGINT or
/// SIGTERM; SIGHUP reads the file again. `set_log_level` is called with the level that it then has.
///
/// Logs `ready` once packets are routed to it, and tells whoever supervises the process.
///
/// # Errors
/// [`DaemonError`]. If it did not start, whatever was changed on the host has been taken back.
pub fn run(
    path: &Path,
    mut configuration: Configuration,
    set_log_level: impl Fn(LogLevel) + Send + Sync + 'static,
) -> Result<(), DaemonError> {
    let file = path.to_owned();
    let awaits = Awaits::of(&configuration.plan);
    let slicing = configuration.host.cluster.as_ref().map(ownership::slicing).transpose()?.flatten();
    if let Some(slicing) = slicing {
        configuration.divide(path, slicing)?;
    }
    let read = move |current: &Plan, wish| Next::read(&file, awaits, slicing, current, wish);
    let set_log_level = Box::new(set_log_level);
    let source = Source { path: path.to_owned(), read: Box::new(read), set_log_level, mtu: None };
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
    let Configuration { host: settings, mut plan, warnings, wording } = configuration;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let supervisor = Supervisor::of_environment().unwrap_or_else(|error| {
        tracing::warn!("NOTIFY_SOCKET cannot be reached, so nobody is told how the gateway does: {error}");
        Supervisor::default()
    });
    let supervisor = Arc::new(supervisor);
    let awaiting = discovery::awaiting(&plan);
    let awaits = Awaits::of(&plan);
    if let Some(lack) = discovery::complete(&mut plan, None, discovery::advertised, discovery::resolved) {
        tracing::warn!("{}", in_one_line(&lack));
    }
    // From here on a signal is not lost: it waits until the gateway is complete, and then ends it.
    let known = [SIGINT, SIGTERM, SIGHUP].into_iter().chain(MEANINGLESS);
    let mut signals = Signals::new(known).map_err(system("preparing for signals"))?;
    let stop = StopSignal::new().map_err(system("making the stop signal"))?;
    let signals_handle = signals.handle();

    let supervised = Arc::clone(&supervisor);
    let wanted = Wanted { source, settings: &settings, wording, plan, report, awaits, supervisor: supervised };
    // What ends a worker or the watchdog ends the wait for signals.
    let gateway = Gateway::start(wanted, &stop, prepared, move || signals_handle.close())?;
    let running = gateway.running();
    let awaited = awaiting.zip(running.as_ref());
    let watch = awaited.and_then(|(service, running)| PrefixWatch::start(service, running, stop.clone()));
    let found = running.as_ref().and_then(|running| FoundWatch::start(running, stop.clone()));
    let reload = running.and_then(start_reloading);
    tracing::info!("ready");
    supervisor.ready();
    tombolo_io::fault::trip("ready");
    for signal in &mut signals {
        match signal {
            // One that waits stands for all.
            SIGHUP => {
                let _ = reload.as_ref().map(|reload| reload.try_send(()));
            }
            SIGINT | SIGTERM => break,
            other => {
                let name = signal_hook::low_level::signal_name(other).unwrap_or("a signal");
                tracing::info!("{name} means nothing here: SIGHUP reloads, SIGTERM ends the gateway");
            }
        }
    }
    supervisor.stopping();
    let result = gateway.stop();
    watch.into_iter().for_each(PrefixWatch::join);
    found.into_iter().for_each(FoundWatch::join);
    result
}

/// Reads the configuration again whenever something is sent, on a thread of its own: it may wait for
/// the resolver, and whoever wants to end the gateway does not wait for that.
fn start_reloading(running: Arc<Running>) -> Option<SyncSender<()>> {
    let (wanted, requests) = sync_channel(1);
    let thread = std::thread::Builder::new().name("reload".into()).spawn(move || {
        while requests.recv().is_ok() {
            match running.reload(Wish::default()) {
                Ok(changed) => {
                    for why in changed.not_followed {
                        tracing::warn!("the engine serves without the fast path: {why}");
                    }
                }
                Err(error) => {
                    tracing::error!("configuration not reloaded, the old one stays in force: {error}");
                }
            }
        }
    });
    thread.inspect_err(|error| tracing::error!("SIGHUP has no effect, there is no thread for it: {error}")).ok()?;
    Some(wanted)
}
