//! The thread that looks for interfaces and rules of netfilter which have come, gone or changed, and
//! follows the kernel's routes.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_io::links::LinkWatch;
use tombolo_io::worker::StopSignal;

use crate::accelerator::Accelerator;
use crate::running::Running;
use crate::threads::{self, Guarded};

/// How often is looked at the interfaces although nothing was heard of them.
const PERIOD: Duration = Duration::from_secs(5);
/// How often is asked whether something was heard, where no routes are waited for.
const PACE: Duration = Duration::from_millis(250);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Lookout(JoinHandle<()>);

impl Lookout {
    /// Starts it; it ends when `stop` is given. Nothing is started where there is no fast path.
    ///
    /// # Errors
    /// If there are no more threads.
    pub(crate) fn start(running: &Arc<Running>, stop: StopSignal) -> std::io::Result<Option<Self>> {
        if running.accelerator.is_none() {
            return Ok(None);
        }
        let guarded = Guarded { name: "lookout", stop: stop.clone(), health: Arc::clone(&running.health) };
        let running = Arc::clone(running);
        let thread = threads::spawn(guarded, move || {
            if let Some(accelerator) = &running.accelerator {
                look_out(&running, accelerator, &stop);
            }
        })?;
        Ok(Some(Self(thread)))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}

fn look_out(running: &Running, accelerator: &Accelerator, stop: &StopSignal) {
    let mut routes = accelerator.take_routes();
    let watch = LinkWatch::open()
        .inspect_err(|error| tracing::warn!("interfaces are looked at every few seconds only: {error}"))
        .ok();
    let mut next = Instant::now();
    while !stop.is_given() {
        let mut heard = match &mut routes {
            Some(routes) => accelerator.follow(routes),
            None => {
                std::thread::park_timeout(PACE);
                false
            }
        };
        tombolo_io::fault::trip("thread-lookout");
        heard |= watch.as_ref().is_some_and(|watch| watch.has_changed().unwrap_or(true));
        heard |= accelerator.has_other_rules();
        if (heard || Instant::now() >= next) && !stop.is_given() {
            accelerator.look();
            // The device goes with the threads that end: no fault.
            if stop.is_given() {
                break;
            }
            running.health.set("fast path", accelerator.faults());
            next = Instant::now() + PERIOD;
        }
    }
}
