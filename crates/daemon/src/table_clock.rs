//! The time when tables were last in use, kept beside them: their ticks mean nothing after a reboot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_tables::former::FormerMemory;
use tombolo_tables::memory::{MemoryError, MemorySource, Slab};

use crate::utc::{Moment, Utc};

/// Two words: seconds since 1970, and nanoseconds of the monotonic clock at that moment.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Slab<AtomicU64>>);

impl Clock {
    /// The clock beside the tables of `source`.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn take(source: &mut dyn MemorySource) -> Result<Self, MemoryError> {
        Ok(Self(Arc::new(Slab::take(source, "clock", 2)?)))
    }

    /// Notes the moment.
    pub(crate) fn note(&self, moment: Moment) {
        self.0[0].store(moment.utc.0, Ordering::Relaxed);
        self.0[1].store(moment.now.0, Ordering::Relaxed);
    }

    /// The last moment that was noted, on both clocks.
    pub(crate) fn read(memory: &dyn FormerMemory) -> Option<(Utc, u64)> {
        let words: Slab<AtomicU64> = Slab::whole(memory.span("clock")?);
        let [utc, nanos] = [0, 1].map(|n: usize| words.get(n).map_or(0, |word| word.load(Ordering::Relaxed)));
        (utc != 0).then_some((Utc(utc), nanos))
    }
}
