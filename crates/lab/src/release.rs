//! Threads that go on until they are told to stop, also when whoever should tell them panics.

use std::sync::atomic::{AtomicBool, Ordering};

/// Dropped, it tells them.
pub(crate) struct Release<'s>(pub(crate) &'s AtomicBool);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
