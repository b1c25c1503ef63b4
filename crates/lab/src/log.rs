//! What a process writes to its outputs, kept while it runs.

use std::{
    io::Read,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// How much output is kept of each process; beyond it the oldest half goes.
const LOG_BYTES: usize = 4 << 20;

/// The text that a process writes to one of its outputs.
#[derive(Debug, Default)]
pub(crate) struct Log {
    state: Mutex<LogState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    bytes: Vec<u8>,
    ended: bool,
}

impl Log {
    /// The data are consistent at every step, so a panic elsewhere does not matter.
    fn locked(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a pipe to its end on a thread of its own.
    pub(crate) fn reading(pipe: Option<impl Read + Send + 'static>) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let writer = Arc::clone(&log);
        let reader = move || {
            if let Some(pipe) = pipe {
                writer.read_all(pipe);
            }
            writer.locked().ended = true;
            writer.ended.notify_all();
        };
        let started = thread::Builder::new().name("lab-output".to_owned()).spawn(reader);
        if started.is_err() {
            log.locked().ended = true;
        }
        log
    }

    fn read_all(&self, mut pipe: impl Read) {
        let mut buffer = [0; 8192];
        while let Ok(length) = pipe.read(&mut buffer) {
            if length == 0 {
                break;
            }
            let mut state = self.locked();
            state.bytes.extend_from_slice(&buffer[..length]);
            if state.bytes.len() > LOG_BYTES {
                state.bytes.drain(..LOG_BYTES / 2);
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.locked().bytes).into_owned()
    }

    pub(crate) fn wait_for_end(&self, limit: Duration) {
        let state = self.locked();
        drop(self.ended.wait_timeout_while(state, limit, |state| !state.ended));
    }
}
