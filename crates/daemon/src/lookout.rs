//! The thread that looks for interfaces which have come or gone, and follows the kernel's routes.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tombolo_io::worker::StopSignal;

use crate::running::Running;

/// How often interfaces that have come or gone are looked for.
const PERIOD: Duration = Duration::from_secs(1);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Lookout(JoinHandle<()>);

impl Lookout {
    /// Starts it; it ends when `stop` is given. Nothing is started where there is no fast path.
    #[must_use]
    pub(crate) fn start(running: &Arc<Running>, stop: StopSignal) -> Option<Self> {
        running.accelerator.as_ref()?;
        let running = Arc::clone(running);
        Some(Self(std::thread::spawn(move || {
            let Some(accelerator) = &running.accelerator else { return };
            let mut routes = accelerator.take_routes();
            let mut next = Instant::now() + PERIOD;
            while !stop.is_given() {
                match &mut routes {
                    Some(routes) => accelerator.follow(routes),
                    None => std::thread::park_timeout(PERIOD),
                }
                if Instant::now() >= next && !stop.is_given() {
                    accelerator.look();
                    next = Instant::now() + PERIOD;
                }
            }
        })))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        self.0.thread().unpark();
        let _ = self.0.join();
    }
}
