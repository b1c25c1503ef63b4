//! Whether a signal has ended the labs of this process.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether a signal has ended this process's labs. Programs that see errors then need not report
/// them.
#[must_use]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

/// Notes that a signal ends the labs.
pub(crate) fn interrupt() {
    INTERRUPTED.store(true, Ordering::Release);
}
