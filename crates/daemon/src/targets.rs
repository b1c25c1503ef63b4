//! Where the gateway is read from outside: metrics, and the log of bindings. A reload changes both while
//! packets pass.
//!
//! As with the host, what is new is opened first, and only when nothing can fail any more does it take the
//! place of the old.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tombolo_config::{Collector, Host, MetricsAddress, Transport};

use crate::binding_log::live::{self, BindingLog};
use crate::binding_log::marks::StateFound;
use crate::listener::{Listener, Service};
use crate::reload::ReloadError;

/// What is in use.
#[derive(Debug)]
pub struct Targets {
    pub(crate) log: Arc<BindingLog>,
    metrics: Mutex<Metrics>,
    /// TCP ports that collectors may have, if they may not have all.
    ports: OnceLock<Vec<u16>>,
}

/// Where metrics are served, if anywhere, and by whom: nobody before the gateway is complete, and at its end.
#[derive(Default)]
struct Metrics {
    service: Option<Arc<dyn Service>>,
    served: Option<Served>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").field("served", &self.served).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Served {
    address: MetricsAddress,
    _listener: Listener,
}

/// What is opened and not used yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    log: live::Prepared,
    /// None if it stays as it is.
    metrics: Option<Option<Served>>,
}

impl Targets {
    pub(crate) fn new(log: Arc<BindingLog>) -> Self {
        Self { log, metrics: Mutex::default(), ports: OnceLock::new() }
    }

    /// Opens what the settings name and what is not open yet.
    ///
    /// # Errors
    /// [`ReloadError::Target`]: nothing was changed.
    pub(crate) fn prepare(&self, settings: &Host) -> Result<Prepared, ReloadError> {
        self.check_ports(settings)?;
        let metrics = self.prepare_metrics(settings.metrics.as_ref())?;
        let log = self.log.prepare(settings).map_err(|error| refused("gateway.binding_log", &error))?;
        Ok(Prepared { log, metrics })
    }

    /// Only these TCP ports can be connected to from now on.
    pub(crate) fn restrict_to(&self, ports: Vec<u16>) {
        let _ = self.ports.set(ports);
    }

    /// Whether collectors can be reached.
    ///
    /// # Errors
    /// [`ReloadError::Target`].
    pub(crate) fn check_ports(&self, settings: &Host) -> Result<(), ReloadError> {
        let Some(ports) = self.ports.get() else { return Ok(()) };
        let by_stream = |collector: &&Collector| collector.transport != Transport::Udp;
        let mut others = settings.binding_log_collectors.iter().filter(by_stream);
        let Some(other) = others.find(|collector| !ports.contains(&collector.address.port())) else { return Ok(()) };
        let why = format!(
            "the running gateway may not connect to TCP port {}, only to the usual ones of collectors and to those \
             that it was started with; a restart takes it",
            other.address.port()
        );
        Err(ReloadError::Target { key: "gateway.binding_log_collectors", why })
    }

    fn prepare_metrics(&self, wanted: Option<&MetricsAddress>) -> Result<Option<Option<Served>>, ReloadError> {
        let Metrics { service, served } = &*self.lock();
        if served.as_ref().map(|served| &served.address) == wanted {
            return Ok(None);
        }
        let service = service.as_ref().ok_or(ReloadError::NotNow)?;
        let start = |address| Served::start(address, Arc::clone(service));
        wanted.map(start).transpose().map(Some).map_err(|error| refused("gateway.metrics", &error))
    }

    /// Goes over to what was prepared.
    pub(crate) fn put(&self, Prepared { log, metrics }: Prepared) {
        self.log.put(log, StateFound::Tables);
        if let Some(metrics) = metrics {
            let before = std::mem::replace(&mut self.lock().served, metrics);
            drop(before);
        }
    }

    /// Clients are served by `service` from now on.
    pub(crate) fn serve_by(&self, service: Arc<dyn Service>) {
        self.lock().service = Some(service);
    }

    /// Serves metrics from the start on.
    ///
    /// # Errors
    /// What the kernel says of the address.
    pub(crate) fn serve(&self, address: &MetricsAddress) -> io::Result<()> {
        let Metrics { service, served } = &mut *self.lock();
        *served = service.clone().map(|service| Served::start(address, service)).transpose()?;
        Ok(())
    }

    /// Nobody is served any more.
    pub(crate) fn close(&self) {
        let before = std::mem::take(&mut *self.lock());
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(key: &'static str, error: &io::Error) -> ReloadError {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => format!("the running gateway may not open it ({error}); a restart takes it"),
        _ => error.to_string(),
    };
    ReloadError::Target { key, why }
}

impl Served {
    fn start(address: &MetricsAddress, service: Arc<dyn Service>) -> io::Result<Self> {
        let listener = match address {
            MetricsAddress::Tcp(address) => Listener::tcp("metrics", *address, service),
            MetricsAddress::Unix(path) => Listener::unix("metrics", path, service),
        }?;
        Ok(Self { address: address.clone(), _listener: listener })
    }
}
