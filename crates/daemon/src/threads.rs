//! Threads beside the workers. None ends unnoticed: a gateway whose sweeper has died fills up in
//! silence, and one whose log has died cannot say who had which port.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tombolo_io::worker::StopSignal;

use crate::health::Health;

/// How often a thread is started again within [`WINDOW`].
const RESTARTS: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// Between a panic and the next try.
const PAUSE: Duration = Duration::from_millis(500);

/// A thread that others count on.
#[derive(Debug, Clone)]
pub(crate) struct Guarded {
    /// Its name.
    pub(crate) name: &'static str,
    /// Ends the gateway.
    pub(crate) stop: StopSignal,
    /// Where is said why.
    pub(crate) health: Arc<Health>,
}

/// Starts a thread without which the gateway ends: if it panics, the stop signal is given.
///
/// # Errors
/// If there are no more threads.
pub(crate) fn spawn<T: Send + 'static>(
    guarded: Guarded,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(guarded.name.to_owned()).spawn(move || match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            guarded.give_up();
            std::panic::resume_unwind(panic)
        }
    })
}

/// Starts a thread that is started again if it panics, which is said. If it goes on to panic, the
/// gateway ends.
///
/// # Errors
/// If there are no more threads.
pub(crate) fn spawn_again<T: Send + 'static>(
    guarded: Guarded,
    mut body: impl FnMut() -> T + Send + 'static,
) -> io::Result<JoinHandle<Option<T>>> {
    Builder::new().name(guarded.name.to_owned()).spawn(move || {
        let mut panics: Vec<Instant> = Vec::new();
        loop {
            if let Ok(value) = catch_unwind(AssertUnwindSafe(&mut body)) {
                return Some(value);
            }
            panics.retain(|at| at.elapsed() < WINDOW);
            panics.push(Instant::now());
            if panics.len() > RESTARTS {
                guarded.give_up();
                return None;
            }
            tracing::error!("the thread {} panicked and is started again; this is a defect, report it", guarded.name);
            std::thread::sleep(PAUSE);
        }
    })
}

impl Guarded {
    fn give_up(&self) {
        self.health.fail(&format!("the thread {} panicked; this is a defect, report it", self.name));
        self.stop.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn guarded() -> Guarded {
        Guarded { name: "test", stop: StopSignal::new().unwrap(), health: Arc::default() }
    }

    #[test]
    fn a_panic_ends_the_gateway() {
        let guarded = guarded();
        let thread = spawn(guarded.clone(), || panic!("as it shall")).unwrap();
        assert!(thread.join().is_err());
        assert!(guarded.stop.is_given() && guarded.health.fatal().unwrap().contains("test"));
    }

    #[test]
    fn a_thread_that_can_begin_again_does() {
        let (guarded, runs) = (guarded(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&runs);
        let body = move || {
            assert!(counted.fetch_add(1, Ordering::Relaxed) > 0, "as it shall");
            7
        };
        assert_eq!(spawn_again(guarded.clone(), body).unwrap().join().unwrap(), Some(7));
        assert!(!guarded.stop.is_given() && runs.load(Ordering::Relaxed) == 2);
    }
}
