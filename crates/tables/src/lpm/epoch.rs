//! When may a replaced block be reused? When every reader that could have seen it has let go.
//!
//! A reader pins before it reads and unpins after (once a batch of packets): one store and one
//! fence, in a cache line of its own. The writer stamps what it replaces with the current epoch and
//! moves the epoch on; a block is free once every pinned reader's epoch is later than its stamp. A
//! reader that stays pinned delays reuse and nothing else: in the end changes report a full table.
//!
//! Readers inside the kernel cannot pin. Where there are any, the owner calls
//! [`Epochs::expect_kernel`] and then, every so often, [`Epochs::kernel_passed`] after a grace
//! period of the kernel's RCU: BPF programs run inside RCU read sections, and
//! `membarrier(MEMBARRIER_CMD_GLOBAL)` waits for one.

use crate::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

const IDLE: u64 = u64::MAX;

/// The epochs of one table.
#[derive(Debug)]
pub struct Epochs {
    now: AtomicU64,
    /// Stamps below this have been waited for in the kernel; `IDLE` if nobody reads there.
    kernel: AtomicU64,
    readers: Mutex<Vec<Arc<Slot>>>,
}

/// A reader's cache line: the epoch at which it pinned, or idle. Two lines, for the adjacent-line
/// prefetcher.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Slot(AtomicU64);

impl Default for Epochs {
    fn default() -> Self {
        Self { now: AtomicU64::new(1), kernel: AtomicU64::new(IDLE), readers: Mutex::default() }
    }
}

impl Epochs {
    pub(super) fn register(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot(AtomicU64::new(IDLE)));
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&slot));
        slot
    }

    #[inline]
    pub(super) fn pin(&self, slot: &Slot) {
        // Release: reads under an earlier pin are over.
        slot.0.store(self.now.load(Ordering::Acquire), Ordering::Release);
        // Pairs with the fence in `oldest`: either the writer sees this pin, or the reads that
        // follow see what the writer had replaced before it looked.
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn unpin(&self, slot: &Slot) {
        slot.0.store(IDLE, Ordering::Release);
    }

    /// The stamp for blocks that are unreachable as of now.
    pub(super) fn stamp(&self) -> u64 {
        self.now.fetch_add(1, Ordering::AcqRel)
    }

    /// Blocks stamped below the result are seen by nobody.
    pub(super) fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|slot| Arc::strong_count(slot) > 1);
        let pinned = readers.iter().map(|slot| slot.0.load(Ordering::Acquire)).min().unwrap_or(IDLE);
        pinned.min(self.kernel.load(Ordering::Acquire))
    }

    /// From now on, programs inside the kernel read the table too.
    pub fn expect_kernel(&self) {
        self.kernel.store(0, Ordering::Release);
    }

    /// The epoch to hand to [`Self::kernel_passed`] after the kernel's grace period that begins
    /// now.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// A grace period of the kernel has passed since [`Self::current`] returned `epoch`.
    pub fn kernel_passed(&self, epoch: u64) {
        self.kernel.store(epoch, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_reader_holds_back_what_was_replaced_after_its_pin() {
        let epochs = Epochs::default();
        let slot = epochs.register();
        let before = epochs.stamp();
        epochs.pin(&slot);
        let after = epochs.stamp();
        assert!(before < epochs.oldest());
        assert!(after >= epochs.oldest());
        epochs.unpin(&slot);
        assert!(after < epochs.oldest());
    }

    #[test]
    fn a_reader_that_is_gone_holds_nothing_back() {
        let epochs = Epochs::default();
        let slot = epochs.register();
        epochs.pin(&slot);
        drop(slot);
        assert_eq!(epochs.oldest(), IDLE);
    }

    #[test]
    fn the_kernel_holds_back_until_its_grace_period() {
        let epochs = Epochs::default();
        epochs.expect_kernel();
        let stamp = epochs.stamp();
        assert!(stamp >= epochs.oldest());
        let current = epochs.current();
        epochs.kernel_passed(current);
        assert!(stamp < epochs.oldest());
    }
}
