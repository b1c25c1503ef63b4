//! Who has the routes of slices announced: a thread that is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Has routes announced, on a thread of its own.
#[derive(Debug, Clone)]
pub(super) struct Announcer {
    pub(super) thread: std::thread::Thread,
    pub(super) is_due: Arc<AtomicBool>,
}

impl Announcer {
    /// What is announced is not what it should be.
    pub(super) fn announce(&self) {
        self.is_due.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
