//! Where the tables' bytes come from. The only unsafe code of this crate.
//!
//! A caller provides zeroed spans ([`Backing`]): anonymous memory, a file under the run directory
//! or a BPF array, all mapped into this process. A [`Slab`] views one span as an array of records.
//! Records are made of atomics only, so any number of threads, processes and BPF programs may share
//! a span.

#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod slab;
mod span;

#[cfg(loom)]
pub use modelled::Slab;
#[cfg(not(loom))]
pub use slab::Slab;
pub use span::{Backing, CACHE_LINE, Heap, MemoryError, MemorySource, Record};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_slab_starts_at_zero_and_keeps_what_is_stored() {
        let slab: Slab<AtomicU64> = Slab::take(&mut Heap, "test", 1000).unwrap();
        assert!(slab.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        slab[999].store(7, Ordering::Relaxed);
        assert_eq!(slab[999].load(Ordering::Relaxed), 7);
        slab.prefetch(999);
        slab.prefetch(1000);
    }

    #[test]
    fn a_span_that_is_too_short_is_refused() {
        struct Short;
        impl MemorySource for Short {
            fn take(&mut self, name: &'static str, bytes: usize) -> Result<Arc<dyn Backing>, MemoryError> {
                Heap.take(name, bytes / 2)
            }
        }
        let error = Slab::<AtomicU64>::take(&mut Short, "sessions", 1000).unwrap_err();
        assert_eq!(error.to_string(), "table sessions needs 8000 bytes, its memory has 4000");
    }
}
