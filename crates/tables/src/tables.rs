//! The tables together: what is created in several of them at once, and in which order.
//!
//! The order of writes makes each step safe against other writers, and against the death of this
//! one:
//!
//! * a binding is made: claim a record; claim an outside slot; fill the record, make it readable;
//!   publish it in the inside index; make it live. Whoever loses the race for the inside endpoint
//!   undoes its steps in reverse.
//! * a binding goes: retire the record (one caller wins); unlink it from the inside index; close
//!   the outside slot; free the record.
//!
//! * a subscriber gets a block of ports: claim the block; note it in the record.
//! * a subscriber goes: retire the record; unlink it; close its blocks; free the record.
//!
//! A crash in between leaves a record that is not linked, never a link to a record that is not
//! there; [`repair`](crate::audit::repair) frees it.

use crate::binding::{Binding, BindingId, Bindings, InsideKey};
use crate::blocks::BlockIndex;
use crate::hash::HashKey;
use crate::index::{Index, Inserted};
use crate::memory::{MemoryError, MemorySource};
use crate::outside::{OutsideIndex, Slot};
use crate::session::Sessions;
use crate::subscriber::{Subscriber, SubscriberId, SubscriberKey, Subscribers};
use crate::tick::Tick;

/// How much there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Subscribers.
    pub subscribers: u32,
    /// Bindings.
    pub bindings: u32,
    /// Sessions.
    pub sessions: u64,
    /// Slots of the outside index: outside addresses x 3 protocols x ports, as the pools need.
    pub outside_slots: u32,
}

/// Bytes that each table takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Subscribers and their index.
    pub subscribers: usize,
    /// Bindings and their inside index.
    pub bindings: usize,
    /// Outside index and blocks of ports.
    pub outside: usize,
    /// Sessions.
    pub sessions: usize,
}

impl Memory {
    /// Bytes of all tables together.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.subscribers + self.bindings + self.outside + self.sessions
    }
}

/// What a reader outside this process has to know to read them: sizes, and the key of the
/// hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Buckets of the inside index.
    pub inside_buckets: u32,
    /// Buckets of the subscribers' index.
    pub subscriber_buckets: u32,
    /// Lines of sessions, without the overflow.
    pub session_lines: u32,
    /// Lines of the overflow.
    pub overflow_lines: u32,
    /// Bindings.
    pub bindings: u32,
    /// The secret of the hashes.
    pub key: HashKey,
}

/// An outside endpoint that may be claimed: its slot, and the address and port that the slot stands
/// for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Slot in the outside index.
    pub slot: u32,
    /// Outside address, as on the wire.
    pub ipv4: [u8; 4],
    /// Outside port, as on the wire.
    pub port: [u8; 2],
}

/// Why a binding could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindError {
    /// Every record is in use, or the index has no room.
    TableFull,
    /// None of the outside endpoints offered is free.
    NoneFree,
}

/// All tables of one gateway.
#[derive(Debug)]
pub struct Tables {
    /// Who was admitted.
    pub subscribers: Subscribers,
    /// Inside endpoints bound to outside endpoints.
    pub bindings: Bindings,
    /// Outside endpoint to binding.
    pub outside: OutsideIndex,
    /// Who has which block of ports.
    pub blocks: BlockIndex,
    /// Bindings and remote endpoints.
    pub sessions: Sessions,
    pub(crate) subscriber_index: Index,
    pub(crate) inside_index: Index,
    pub(crate) key: HashKey,
}

impl Tables {
    /// Tables with room for `capacity`, in memory of `source`.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, capacity: Capacity, key: HashKey) -> Result<Self, MemoryError> {
        Ok(Self {
            subscribers: Subscribers::new(source, capacity.subscribers)?,
            subscriber_index: Index::new(source, "subscriber-index", capacity.subscribers)?,
            bindings: Bindings::new(source, capacity.bindings)?,
            inside_index: Index::new(source, "inside-index", capacity.bindings)?,
            outside: OutsideIndex::new(source, capacity.outside_slots)?,
            blocks: BlockIndex::new(source, capacity.outside_slots)?,
            sessions: Sessions::new(source, capacity.sessions, key)?,
            key,
        })
    }

    /// What a program in the kernel needs to read the same memory.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let (session_lines, overflow_lines) = self.sessions.sizes();
        Geometry {
            inside_buckets: self.inside_index.buckets(),
            subscriber_buckets: self.subscriber_index.buckets(),
            session_lines,
            overflow_lines,
            bindings: self.bindings.capacity(),
            key: self.key,
        }
    }

    /// Bytes that the tables take.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            subscribers: self.subscribers.bytes() + self.subscriber_index.bytes(),
            bindings: self.bindings.bytes() + self.inside_index.bytes(),
            outside: self.outside.bytes() + self.blocks.bytes(),
            sessions: self.sessions.bytes(),
        }
    }

    /// Starts loading what [`find_inside`](Self::find_inside) will read first.
    #[inline]
    pub fn prefetch_inside(&self, key: &InsideKey) {
        self.inside_index.prefetch(self.key.hash(key.words()));
    }

    /// The binding of an inside endpoint.
    #[inline]
    #[must_use]
    pub fn find_inside(&self, key: &InsideKey) -> Option<(BindingId, Binding)> {
        let hash = self.key.hash(key.words());
        let id = self.inside_index.find(hash, |id| self.bindings.has_key(id, key)).and_then(BindingId::new)?;
        let (binding, _) = self.bindings.read(id)?;
        (binding.inside == *key).then_some((id, binding))
    }

    /// The binding that has outside slot `slot`.
    #[inline]
    #[must_use]
    pub fn find_outside(&self, slot: u32) -> Option<(BindingId, Binding)> {
        let Slot::Taken(id) = self.outside.read(slot) else {
            return None;
        };
        let (binding, _) = self.bindings.read(id)?;
        (binding.outside_slot == slot).then_some((id, binding))
    }

    /// Makes the binding that `template` describes, on the first of `candidates` that is free; a
    /// slot that was closed is free after `reuse_after` ticks. If another writer made one for the
    /// same inside endpoint meanwhile, that one is the answer.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(
        &self,
        template: &Binding,
        candidates: impl IntoIterator<Item = Candidate>,
        reuse_after: u32,
        now: Tick,
    ) -> Result<(BindingId, Binding), BindError> {
        // Eight words of the bitmap of free records are a cache line: each subscriber begins in one
        // of its own, so that writers for different subscribers do not share one.
        let hint = now.0.wrapping_mul(31).wrapping_add(template.subscriber.wrapping_mul(8));
        let id = self.bindings.claim(hint).ok_or(BindError::TableFull)?;
        let claimed = candidates.into_iter().find(|candidate| self.outside.claim(candidate.slot, id, now, reuse_after));
        let Some(candidate) = claimed else {
            self.bindings.free(id);
            return Err(BindError::NoneFree);
        };
        let binding = Binding {
            outside_ipv4: candidate.ipv4,
            outside_port: candidate.port,
            outside_slot: candidate.slot,
            created: now,
            ..*template
        };
        self.bindings.publish(id, &binding, now);
        let hash = self.key.hash(binding.inside.words());
        let inserted = self.inside_index.insert(hash, id.get(), |other| self.bindings.has_key(other, &binding.inside));
        if inserted == Inserted::New {
            if let Some(subscriber) = SubscriberId::new(binding.subscriber) {
                self.subscribers.count_binding(subscriber);
            }
            self.bindings.settle(id);
            return Ok((id, binding));
        }
        self.outside.release(candidate.slot, id);
        self.bindings.free(id);
        self.find_inside(&binding.inside).ok_or(BindError::TableFull)
    }

    /// Removes a binding that was last touched at `seen`; its outside slot is kept back from `now`
    /// on. False if it was touched since, or is gone.
    pub fn unbind(&self, id: BindingId, binding: &Binding, seen: Tick, now: Tick) -> bool {
        if !self.bindings.retire(id, binding, seen) {
            return false;
        }
        self.inside_index.remove(self.key.hash(binding.inside.words()), id.get());
        self.outside.close(binding.outside_slot, id, now);
        if let Some(subscriber) = SubscriberId::new(binding.subscriber) {
            self.subscribers.uncount_binding(subscriber);
        }
        self.bindings.free(id);
        true
    }

    /// The subscriber with this key.
    #[inline]
    #[must_use]
    pub fn find_subscriber(&self, key: &SubscriberKey) -> Option<(SubscriberId, Subscriber)> {
        let hash = self.key.hash(key.words());
        let id =
            self.subscriber_index.find(hash, |id| self.subscribers.has_key(id, key)).and_then(SubscriberId::new)?;
        let (subscriber, _) = self.subscribers.read(id)?;
        (subscriber.key == *key).then_some((id, subscriber))
    }

    /// Admits a subscriber with its grant; if another writer admitted it meanwhile, with that one's
    /// grant. `None` if there is no room.
    pub fn admit(&self, subscriber: &Subscriber, now: Tick) -> Option<(SubscriberId, Subscriber)> {
        let id = self.subscribers.claim(now.0.wrapping_mul(31))?;
        self.subscribers.publish(id, subscriber, now);
        let hash = self.key.hash(subscriber.key.words());
        match self.subscriber_index.insert(hash, id.get(), |other| self.subscribers.has_key(other, &subscriber.key)) {
            Inserted::New => {
                self.subscribers.settle(id);
                Some((id, *subscriber))
            }
            _ => {
                self.subscribers.free(id);
                self.find_subscriber(&subscriber.key)
            }
        }
    }

    /// Gives subscriber `id` the block at `place` of its address, whose place 0 is word `first` of
    /// the block index, if it is free (or was given back `reuse_after` ticks ago) and the
    /// subscriber has fewer than `most`.
    pub fn grant_block(
        &self,
        id: SubscriberId,
        first: u32,
        place: u16,
        most: usize,
        reuse_after: u32,
        now: Tick,
    ) -> bool {
        let word = first.wrapping_add(u32::from(place));
        if !self.blocks.claim(word, id, now, reuse_after) {
            return false;
        }
        let noted = self.subscribers.add_block(id, first, place, most);
        if !noted {
            self.blocks.release(word, id);
        }
        noted
    }

    /// Removes a subscriber that has no binding and was last touched at `seen`; its blocks of ports
    /// are kept back from `now` on. False if it stays.
    pub fn dismiss(&self, id: SubscriberId, subscriber: &Subscriber, seen: Tick, now: Tick) -> bool {
        if self.subscribers.bindings(id) != 0 || !self.subscribers.retire(id, subscriber, seen) {
            return false;
        }
        self.subscriber_index.remove(self.key.hash(subscriber.key.words()), id.get());
        for block in self.subscribers.block_words(id) {
            self.blocks.close(block, id, now);
        }
        self.subscribers.free(id);
        true
    }

    /// A session of `binding` that was counted is gone.
    pub fn uncount_session(&self, binding: BindingId) {
        let owner = self.bindings.read(binding).and_then(|(binding, _)| SubscriberId::new(binding.subscriber));
        if let Some(subscriber) = owner {
            self.subscribers.uncount_session(subscriber);
        }
    }

    /// Removes every session at once. Bindings without sessions go with the next passes of the
    /// sweep. Packets may go on meanwhile; the count of a subscriber's sessions may then be off by
    /// those that they made.
    pub fn clear_sessions(&self) {
        self.sessions.clear();
        for id in self.subscribers.iter() {
            self.subscribers.set_counts(id, self.subscribers.bindings(id), 0);
        }
    }
}
