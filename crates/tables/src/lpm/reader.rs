//! The readers' side: pin once a batch, look up as often as wanted, unpin.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::batch::{self, GROUP};
use super::blocks::Span;
use super::epoch::{Epochs, Slot};
use super::key::Key;
use super::prefix::NextHop;
use super::walk;

/// A reader of a table, for one thread; clone it for another.
#[derive(Debug)]
pub struct Reader<K> {
    span: Arc<Span>,
    epochs: Arc<Epochs>,
    slot: Arc<Slot>,
    fast: bool,
    key: std::marker::PhantomData<K>,
}

/// A reader that holds what it may be reading.
#[derive(Debug)]
pub struct Pinned<'a, K> {
    reader: &'a Reader<K>,
}

/// What a lookup found: the next hop of the longest route that covers the key, and that route's
/// length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Match(NonZeroU32);

impl Match {
    pub(super) fn from_word(word: u32) -> Option<Self> {
        NonZeroU32::new(word).map(Self)
    }

    /// Where the route leads.
    #[inline]
    #[must_use]
    pub fn next_hop(self) -> NextHop {
        NextHop::from_low_bits(self.0.get())
    }

    /// Bits of the route's prefix.
    #[inline]
    #[must_use]
    pub fn prefix_len(self) -> u8 {
        (self.0.get() >> 24) as u8 - 1
    }
}

impl<K: Key> Reader<K> {
    pub(super) fn new(span: Arc<Span>, epochs: Arc<Epochs>) -> Self {
        let slot = epochs.register();
        Self { span, epochs, slot, fast: walk::has_bit_instructions(), key: std::marker::PhantomData }
    }

    /// Holds every block that the table replaces from now on until the result is dropped. Costs
    /// about as much as a lookup: pin once for a batch of packets. One pin at a time: a second
    /// takes over from the first.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_, K> {
        self.epochs.pin(&self.slot);
        Pinned { reader: self }
    }
}

impl<K: Key> Clone for Reader<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.span), Arc::clone(&self.epochs))
    }
}

impl<K> Drop for Pinned<'_, K> {
    #[inline]
    fn drop(&mut self) {
        self.reader.epochs.unpin(&self.reader.slot);
    }
}

impl<K: Key> Pinned<'_, K> {
    /// Lets go of what was replaced before now: as unpinning and pinning again.
    #[inline]
    pub fn renew(&mut self) {
        self.reader.epochs.pin(&self.reader.slot);
    }

    /// The longest route that covers `key`.
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: K) -> Option<Match> {
        Match::from_word(walk::find(&self.reader.span, self.reader.fast, key))
    }

    /// Looks up `keys[i]` into `matches[i]` for as many as both have.
    #[inline]
    pub fn lookup_batch(&self, keys: &[K], matches: &mut [Option<Match>]) {
        for (keys, matches) in keys.chunks(GROUP).zip(matches.chunks_mut(GROUP)) {
            let mut words = [0; GROUP];
            self.words(keys, &mut words[..keys.len()]);
            for (found, word) in matches.iter_mut().zip(words) {
                *found = Match::from_word(word);
            }
        }
    }

    #[inline]
    fn words(&self, keys: &[K], words: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        if self.reader.fast {
            // SAFETY: `fast` says that this processor has the features of the function.
            return unsafe { batch::walk_group_with_bit_instructions(&self.reader.span, keys, words) };
        }
        batch::walk_group(&self.reader.span, keys, words);
    }
}
