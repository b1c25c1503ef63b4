//! How often the configuration was read again, and what came of it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reloads since the start.
#[derive(Debug, Default)]
pub struct Reloads {
    taken: AtomicU64,
    refused: AtomicU64,
}

impl Reloads {
    /// Counts one.
    pub(crate) fn count(&self, is_taken: bool) {
        let counter = if is_taken { &self.taken } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// How often each happened, by name.
    pub(crate) fn read(&self) -> [(&'static str, u64); 2] {
        [("taken", &self.taken), ("refused", &self.refused)]
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}
