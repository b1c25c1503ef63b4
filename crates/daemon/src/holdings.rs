//! Which slices the tables have all of, as their owner's, kept beside the tables: a process that adopts them knows by this what it
//! has, where nodes agree on owners while they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_engine::mapping::slices::MOST_SLICES;
use tombolo_tables::memory::{MemoryError, MemorySource, Slab};

/// A word for each slice: the epoch as of which this node owns it, 0 if it does not.
#[derive(Debug, Clone)]
pub(crate) struct Holdings(Arc<Slab<AtomicU64>>);

impl Holdings {
    /// Those beside the tables of `source`.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub(crate) fn take(source: &mut dyn MemorySource) -> Result<Self, MemoryError> {
        Ok(Self(Arc::new(Slab::take(source, "holdings", usize::from(MOST_SLICES))?)))
    }

    /// The slices that are held, and as of which epochs.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "nobody agrees on owners in such a build"))]
    pub(crate) fn all(&self) -> Vec<(u16, u32)> {
        let epochs = self.0.iter().map(|word| u32::try_from(word.load(Ordering::Relaxed)).unwrap_or(0));
        (0..MOST_SLICES).zip(epochs).filter(|(_, epoch)| *epoch != 0).collect()
    }

    /// A slice is held as of this epoch, or not any more.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "nobody agrees on owners in such a build"))]
    pub(crate) fn hold(&self, slice: u16, epoch: Option<u32>) {
        if let Some(word) = self.0.get(usize::from(slice)) {
            word.store(epoch.unwrap_or(0).into(), Ordering::Relaxed);
        }
    }
}
