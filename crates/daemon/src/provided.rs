//! The host as the gateway has set it up, for those that change it further while it runs: who puts back
//! what somebody has taken away, and who reloads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tombolo_io::host::Host;

/// The host, once the start is complete and until the end.
#[derive(Debug, Default)]
pub struct Provided(Mutex<Option<Host>>);

impl Provided {
    /// The start is complete.
    pub(crate) fn hold(&self, host: Host) {
        *self.lock() = Some(host);
    }

    /// Does something with the host, while nobody else does; `None` if there is none.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Host) -> T) -> Option<T> {
        self.lock().as_mut().map(act)
    }

    /// The end has come: whoever drops it takes everything back.
    pub(crate) fn take(&self) -> Option<Host> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Host>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
