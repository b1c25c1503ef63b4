//! From an outside endpoint to its binding: a dense array, no hashing for inbound packets.
//!
//! ```text
//! pool entry k     | address 0          | address 1          | ...
//! address          | TCP | UDP | ICMP   |                           span slots each
//! slot, 32 bits    0                      free
//!                  0 | binding id (31)    taken by the binding
//!                  1 | tick (31)          closed at that tick, kept back for a while
//! ```
//!
//! Other protocols have their slots among these: which, the engine says.
//!
//! A slot is claimed by compare-and-swap, so an outside endpoint has one owner whatever races. A
//! port that was closed is kept back (RFC 6888 REQ-8) in its own slot, without a list.

use crate::atomic::{AtomicU32, Ordering};
use crate::binding::BindingId;
use crate::memory::{MemoryError, MemorySource, Slab};
use crate::tick::Tick;

tombolo_records::constants! {
    /// The slot was closed, at the tick in its other bits.
    pub(crate) const CLOSED: u32 as SLOT_CLOSED = 1 << 31;
}

/// What stands in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Nobody has it.
    Free,
    /// A binding has it.
    Taken(BindingId),
    /// It was closed at this tick.
    Closed(Tick),
}

impl Slot {
    fn from_word(word: u32) -> Self {
        match BindingId::new(word & !CLOSED) {
            _ if word & CLOSED != 0 => Self::Closed(Tick(word & !CLOSED)),
            Some(id) => Self::Taken(id),
            None => Self::Free,
        }
    }
}

/// The slots of all pools.
#[derive(Debug)]
pub struct OutsideIndex {
    pub(crate) slots: Slab<AtomicU32>,
}

impl OutsideIndex {
    /// An index of `slots` slots, all free.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, slots: u32) -> Result<Self, MemoryError> {
        Ok(Self { slots: Slab::take(source, "outside-index", slots as usize)? })
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if there is no slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What stands in `slot`; free if there is no such slot.
    #[inline]
    #[must_use]
    pub fn read(&self, slot: u32) -> Slot {
        self.slots.get(slot as usize).map_or(Slot::Free, |word| Slot::from_word(word.load(Ordering::Acquire)))
    }

    /// Starts loading the line of `slot`.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        self.slots.prefetch(slot as usize);
    }

    /// True if `slot` could be claimed now.
    #[must_use]
    pub fn is_available(&self, slot: u32, now: Tick, reuse_after: u32) -> bool {
        (slot as usize) < self.slots.len() && is_available(self.read(slot), now, reuse_after)
    }

    /// Gives `slot` to `id` if it is free, or was closed `reuse_after` ticks ago or more.
    #[must_use]
    pub fn claim(&self, slot: u32, id: BindingId, now: Tick, reuse_after: u32) -> bool {
        let Some(word) = self.slots.get(slot as usize) else {
            return false;
        };
        let current = word.load(Ordering::Relaxed);
        is_available(Slot::from_word(current), now, reuse_after)
            && word.compare_exchange(current, id.get(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives the slot back at once: nothing was ever sent from it.
    pub fn release(&self, slot: u32, id: BindingId) {
        self.exchange(slot, id, 0);
    }

    /// Closes the slot at `now`; it is kept back until [`claim`](Self::claim) finds it old enough.
    pub fn close(&self, slot: u32, id: BindingId, now: Tick) {
        self.exchange(slot, id, CLOSED | (now.0 & !CLOSED));
    }

    /// Keeps a free slot back as if it had been closed at `at`; a taken one stays as it is.
    pub fn keep_back(&self, slot: u32, at: Tick) {
        if let Some(entry) = self.slots.get(slot as usize) {
            let _ = entry.compare_exchange(0, CLOSED | (at.0 & !CLOSED), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn exchange(&self, slot: u32, id: BindingId, word: u32) {
        if let Some(entry) = self.slots.get(slot as usize) {
            let _ = entry.compare_exchange(id.get(), word, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

fn is_available(slot: Slot, now: Tick, reuse_after: u32) -> bool {
    match slot {
        Slot::Free => true,
        Slot::Taken(_) => false,
        Slot::Closed(at) => now.since(at) >= reuse_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    fn id(n: u32) -> BindingId {
        BindingId::new(n).unwrap()
    }

    #[test]
    fn a_slot_has_one_owner_and_is_kept_back_after_closing() {
        let index = OutsideIndex::new(&mut Heap, 10).unwrap();
        assert!(index.claim(3, id(1), Tick(100), 120));
        assert!(!index.claim(3, id(2), Tick(100), 120));
        index.close(3, id(2), Tick(100));
        assert_eq!(index.read(3), Slot::Taken(id(1)), "only the owner closes");
        index.close(3, id(1), Tick(100));
        assert_eq!(index.read(3), Slot::Closed(Tick(100)));
        assert!(!index.claim(3, id(2), Tick(219), 120));
        assert!(index.claim(3, id(2), Tick(220), 120));
        index.release(3, id(2));
        assert_eq!(index.read(3), Slot::Free);
    }

    #[test]
    fn slots_outside_the_index_are_never_given_away() {
        let index = OutsideIndex::new(&mut Heap, 10).unwrap();
        assert!(!index.claim(10, id(1), Tick(0), 0));
        assert_eq!(index.read(u32::MAX), Slot::Free);
    }
}
