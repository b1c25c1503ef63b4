//! Who has which block of ports: a dense array, one word a block, for services that hand ports out
//! in blocks (RFC 6888 REQ-14, RFC 7422 section 2).
//!
//! ```text
//! block, 32 bits   0                       free
//!                  0 | subscriber id (31)  taken by the subscriber
//!                  10 | tick (30)          given back at that tick, kept back for a while
//!                  11 | 0 (29) | known (1) offered: in a cluster the slice's backup has been told, and knows
//! ```
//!
//! What is offered nobody has. At its owner it may be granted, as soon as the backup knows; at the backup it is what may have been
//! granted by now (`cluster/replica/offers.rs`).
//!
//! There is one word for every 64 outside slots, so blocks have at least 64 ports. The blocks of an
//! address lie in a row; where the row begins is the pool's business. A subscriber's record says
//! which blocks it has ([`Subscribers::blocks`](crate::subscriber::Subscribers)): a block is
//! claimed here first and then noted there, so a crash in between leaves a block that its owner
//! does not have, which [`repair`](crate::audit::repair) gives back.

use crate::atomic::{AtomicU32, Ordering};
use crate::memory::{MemoryError, MemorySource, Slab};
use crate::subscriber::SubscriberId;
use crate::tick::Tick;

const CLOSED: u32 = 1 << 31;
/// With [`CLOSED`]: the block is offered. So ticks have 30 bits, which last 36 years.
pub(crate) const OFFERED: u32 = 1 << 30;
/// With both: its offer was acknowledged.
const KNOWN: u32 = 1;
const TOLD: u32 = CLOSED | OFFERED;
const ACKNOWLEDGED: u32 = TOLD | KNOWN;

/// Fewest ports in a block.
pub const SMALLEST_BLOCK: u32 = 64;

/// What stands in the word of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Nobody has it.
    Nobody,
    /// A subscriber has it.
    Subscriber(SubscriberId),
    /// It was given back at this tick.
    Closed(Tick),
    /// Nobody has it, and it is offered.
    Offered {
        /// The backup has said that it knows.
        is_acknowledged: bool,
    },
}

impl Holder {
    fn from_word(word: u32) -> Self {
        match SubscriberId::new(word & !CLOSED) {
            _ if word & TOLD == TOLD => Self::Offered { is_acknowledged: word == ACKNOWLEDGED },
            _ if word & CLOSED != 0 => Self::Closed(Tick(word & !CLOSED)),
            Some(id) => Self::Subscriber(id),
            None => Self::Nobody,
        }
    }
}

/// The blocks of all pools.
#[derive(Debug)]
pub struct BlockIndex {
    words: Slab<AtomicU32>,
}

impl BlockIndex {
    /// Blocks for pools that take `outside_slots` slots of the outside index, all free.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, outside_slots: u32) -> Result<Self, MemoryError> {
        let words = outside_slots / SMALLEST_BLOCK + 1;
        Ok(Self { words: Slab::take(source, "port-blocks", words as usize)? })
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }

    /// Number of blocks there is room for.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.words.len()).unwrap_or(u32::MAX)
    }

    /// True if there is no room for any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Who has `block`; nobody if there is no such block.
    #[must_use]
    pub fn read(&self, block: u32) -> Holder {
        let word = self.words.get(block as usize);
        word.map_or(Holder::Nobody, |word| Holder::from_word(word.load(Ordering::Acquire)))
    }

    /// True if `block` could be claimed now.
    #[must_use]
    pub fn is_available(&self, block: u32, now: Tick, reuse_after: u32) -> bool {
        (block as usize) < self.words.len() && is_available(self.read(block), now, reuse_after)
    }

    /// Gives `block` to `id` if it is free, or was given back `reuse_after` ticks ago or more.
    #[must_use]
    pub fn claim(&self, block: u32, id: SubscriberId, now: Tick, reuse_after: u32) -> bool {
        let Some(word) = self.words.get(block as usize) else { return false };
        let current = word.load(Ordering::Relaxed);
        is_available(Holder::from_word(current), now, reuse_after)
            && word.compare_exchange(current, id.get(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives `block` to `id` if it is offered, and the offer was acknowledged.
    #[must_use]
    pub fn claim_offered(&self, block: u32, id: SubscriberId) -> bool {
        self.replace(block, id.get(), |holder| holder == Holder::Offered { is_acknowledged: true })
    }

    /// Offers `block` if it could be claimed now, and is not offered.
    #[must_use]
    pub fn offer(&self, block: u32, now: Tick, reuse_after: u32) -> bool {
        let is_free = |holder| !matches!(holder, Holder::Offered { .. }) && is_available(holder, now, reuse_after);
        self.replace(block, TOLD, is_free)
    }

    /// The backup knows that `block` is offered.
    pub fn acknowledge(&self, block: u32) {
        self.replace(block, ACKNOWLEDGED, |holder| holder == Holder::Offered { is_acknowledged: false });
    }

    /// Whether `block` is offered. If so, nobody is taken to know any more.
    pub fn doubt(&self, block: u32) -> bool {
        self.replace(block, TOLD, |holder| matches!(holder, Holder::Offered { .. }))
    }

    /// `block` is offered no more, and was never granted.
    pub fn withdraw(&self, block: u32) {
        self.replace(block, 0, |holder| matches!(holder, Holder::Offered { .. }));
    }

    /// `block` is offered no more, and may have been granted: it is kept back as if given back at `now`. False if it was not offered.
    pub fn close_offered(&self, block: u32, now: Tick) -> bool {
        self.replace(block, closed(now), |holder| matches!(holder, Holder::Offered { .. }))
    }

    /// Replaces the word of a block whose holder is `meant`; false if it is not, or becomes another's now.
    fn replace(&self, block: u32, to: u32, meant: impl Fn(Holder) -> bool) -> bool {
        let Some(word) = self.words.get(block as usize) else { return false };
        let current = word.load(Ordering::Relaxed);
        meant(Holder::from_word(current))
            && word.compare_exchange(current, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives the block back at once: nothing was ever sent from it.
    pub fn release(&self, block: u32, id: SubscriberId) {
        self.exchange(block, id, 0);
    }

    /// Gives the block back at `now`; it is kept back until [`claim`](Self::claim) finds it old
    /// enough.
    pub fn close(&self, block: u32, id: SubscriberId, now: Tick) {
        self.exchange(block, id, closed(now));
    }

    /// Keeps a free block back as if it had been given back at `at`; one that somebody has stays.
    pub fn keep_back(&self, block: u32, at: Tick) {
        if let Some(word) = self.words.get(block as usize) {
            let _ = word.compare_exchange(0, closed(at), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn exchange(&self, block: u32, id: SubscriberId, to: u32) {
        if let Some(word) = self.words.get(block as usize) {
            let _ = word.compare_exchange(id.get(), to, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// The word of a block that was given back.
const fn closed(at: Tick) -> u32 {
    CLOSED | (at.0 & !TOLD)
}

fn is_available(holder: Holder, now: Tick, reuse_after: u32) -> bool {
    match holder {
        Holder::Nobody | Holder::Offered { .. } => true,
        Holder::Subscriber(_) => false,
        Holder::Closed(at) => now.since(at) >= reuse_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    #[test]
    fn a_block_has_one_holder_and_is_kept_back_after_it_was_given_back() {
        let id = |n| SubscriberId::new(n).unwrap();
        let blocks = BlockIndex::new(&mut Heap, 640).unwrap();
        assert_eq!(blocks.len(), 11);
        assert!(blocks.claim(3, id(1), Tick(10), 5) && !blocks.claim(3, id(2), Tick(10), 5));
        blocks.close(3, id(2), Tick(10));
        assert_eq!(blocks.read(3), Holder::Subscriber(id(1)), "only the holder gives back");
        blocks.close(3, id(1), Tick(10));
        assert!(!blocks.is_available(3, Tick(14), 5) && blocks.is_available(3, Tick(15), 5));
        assert!(!blocks.claim(3, id(2), Tick(14), 5) && blocks.claim(3, id(2), Tick(15), 5));
        blocks.release(3, id(2));
        assert_eq!(blocks.read(3), Holder::Nobody);
        assert!(!blocks.claim(11, id(1), Tick(0), 0) && !blocks.is_available(11, Tick(0), 0));
    }

    #[test]
    fn an_offer_is_granted_once_it_is_known_and_not_twice() {
        let id = |n| SubscriberId::new(n).unwrap();
        let blocks = BlockIndex::new(&mut Heap, 640).unwrap();
        let offered = |is_acknowledged| Holder::Offered { is_acknowledged };
        assert!(blocks.offer(3, Tick(10), 5) && !blocks.offer(3, Tick(10), 5));
        assert_eq!(blocks.read(3), offered(false));
        assert!(!blocks.claim_offered(3, id(1)));
        blocks.acknowledge(3);
        assert_eq!(blocks.read(3), offered(true));
        assert!(blocks.claim_offered(3, id(1)) && !blocks.claim_offered(3, id(2)));
        // What comes late changes nothing.
        blocks.acknowledge(3);
        assert!(!blocks.doubt(3) && !blocks.close_offered(3, Tick(10)));
        blocks.withdraw(3);
        assert_eq!(blocks.read(3), Holder::Subscriber(id(1)));
        blocks.close(3, id(1), Tick(10));
        assert!(!blocks.offer(3, Tick(14), 5) && blocks.offer(3, Tick(15), 5));
        blocks.acknowledge(3);
        assert!(blocks.doubt(3) && !blocks.claim_offered(3, id(2)), "another backup does not know");
        assert!(blocks.close_offered(3, Tick(20)));
        assert!(!blocks.claim(3, id(2), Tick(24), 5) && blocks.claim(3, id(2), Tick(25), 5));
        // Whoever goes by nobody's knowledge takes what is offered, too.
        assert!(blocks.offer(4, Tick(20), 5) && blocks.claim(4, id(2), Tick(20), 5));
    }
}
