//! The tables together: what is created in several of them at once, and in which order.
//!
//! The order of writes makes each step safe against other writers, and against the death of this
//! one:
//!
//! * a binding is made: claim a record, at home if one is free there (home.rs); claim an outside slot; fill the record, make it readable;
//!   publish it in the inside index; make it live. Whoever loses the race for the inside endpoint
//!   undoes its steps in reverse.
//! * a binding goes: retire the record (one caller wins); end the shortcuts to it; unlink it from the inside
//!   index; close the outside slot; free the record. If it goes with sessions on it ([`Removal`]), they go
//!   before the record is free, so that none is ever found under a number that is another
//!   binding's.
//! * a session is made on a binding: touch the binding; count the session; put it into the table, or
//!   into the binding's record if it is the first of a TCP binding (first.rs); look at the binding again. If it has gone meanwhile, whoever made the session takes it back;
//!   if it goes later, who removes the binding sees the session. Either way one of the two takes it
//!   off the count.
//!
//! * a subscriber gets a block of ports: claim the block; note it in the record.
//! * a subscriber goes: retire the record; unlink it; close its blocks; free the record.
//!
//! # Sessions that only the outside has sent in
//! They are counted for their binding and its subscriber, against a [`Budget`]: whoever opens one
//! adds it, whoever answers it takes it off. Those that end otherwise are nobody's business but the
//! sweep's, which sees all sessions in each pass and writes the true number. So a count may be too
//! high for a pass, and too low by those that were opened during one; it is never wrong for long,
//! and never after a crash.
//!
//! # Bindings without sessions
//! Where a session would decide nothing, packets make none, and the binding keeps its own time: it
//! is touched by whoever sends, by the outside a little [ahead](crate::shortcut), and notes when the inside did ([`Tables::keep`]). One in which the
//! inside has been silent for its whole lifetime is kept by the outside alone, which any stranger
//! can do. Such bindings count for the subscriber as one session each that the inside has not
//! answered, and beyond the budget the outside keeps none of them.
//!
//! A crash in between leaves a record that is not linked, never a link to a record that is not
//! there; [`repair`](crate::audit::repair) frees it.

use std::cell::Cell;

use crate::atomic::{Ordering, fence};
use crate::binding::{Binding, BindingId, Bindings, InsideKey, MOST_UNANSWERED};
use crate::blocks::{BlockIndex, SMALLEST_BLOCK};
use crate::changes::Changes;
use crate::conversation::{CONVERSATIONS, Conversations};
use crate::entry::flags;
use crate::first::{First, Opened};
use crate::hash::HashKey;
use crate::index::{Index, Inserted};
use crate::lease::Leases;
use crate::memory::{MemoryError, MemorySource};
use crate::outside::{OutsideIndex, Slot};
use crate::path_mtu::{PATHS, PathMtus};
use crate::session::{
    COUNTED, Inserted as InsertedSession, LOAD, Lifetimes, Session, SessionKey, SessionRef, Sessions, State, Sweep,
    UNANSWERED,
};
use crate::session_ref::Place;
use crate::subscriber::{Subscriber, SubscriberId, SubscriberKey, Subscribers};
use crate::tick::Tick;

/// IP protocol number of TCP.
const TCP: u8 = 6;
/// How often the removal of a binding is tried that packets use meanwhile.
const ATTEMPTS: usize = 8;

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
    /// Leases of bindings.
    pub leases: u32,
}

impl Capacity {
    /// Bytes that tables of this size take, to a few kilobytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // A line each, a bit for whether it is used and one for whether it has changed, and entries of an index of
        // which 70 % are.
        let records = u64::from(self.subscribers) + u64::from(self.bindings);
        let lines = records * (64 * 7 + 80) / 7 + records / 4;
        // 16 bytes each, of which LOAD percent are used, and the overflow.
        let sessions = self.sessions * 16 * 100 / LOAD * 33 / 32;
        let outside = u64::from(self.outside_slots);
        let others = (u64::from(self.leases) + u64::from(PATHS) + u64::from(CONVERSATIONS)) * 64;
        lines + others + sessions + outside * 4 + outside * 4 / u64::from(SMALLEST_BLOCK)
    }
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
    /// Leases.
    pub leases: usize,
    /// Paths that are smaller than their services were told.
    pub paths: usize,
    /// Connections in which helpers rewrite what the ends say.
    pub conversations: usize,
}

impl Memory {
    /// Bytes of all tables together.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.subscribers + self.bindings + self.outside + self.sessions + self.leases + self.paths + self.conversations
    }
}

/// What a reader outside this process has to know to read them: sizes, and the key of the
/// hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Buckets of the inside index.
    pub inside_buckets: u32,
    /// Pairs of records in which bindings are at home.
    pub binding_pairs: u32,
    /// Buckets of the subscribers' index.
    pub subscriber_buckets: u32,
    /// Lines of sessions, without the overflow.
    pub session_lines: u32,
    /// Lines of the overflow.
    pub overflow_lines: u32,
    /// Bindings.
    pub bindings: u32,
    /// It is noted which bindings change.
    pub notes_changes: bool,
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

/// How many sessions there may be that only the outside has sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Of a binding; at most [`MOST_UNANSWERED`].
    pub of_binding: u32,
    /// Of all bindings of a subscriber.
    pub of_subscriber: u32,
}

/// Who opens a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opener {
    /// The inside: it counts for a subscriber that may have so many, if there is a limit.
    Inside {
        /// Sessions of the subscriber.
        limit: Option<u32>,
    },
    /// The outside, which any packet to a binding does.
    Outside {
        /// How many sessions it may open.
        budget: Budget,
        /// The session will count for the subscriber once the inside answers.
        counts: bool,
    },
}

impl Opener {
    /// True if the session counts for its subscriber, or will.
    fn counts(&self) -> bool {
        match self {
            Self::Inside { limit } => limit.is_some(),
            Self::Outside { counts, .. } => *counts,
        }
    }
}

/// Who keeps a binding that needs no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// The inside.
    Inside,
    /// The outside, which any packet to a binding does.
    Outside {
        /// Ticks that the inside may be silent before the outside keeps the binding alone.
        alone_after: u32,
        /// Ticks that it keeps it [ahead](crate::shortcut).
        ahead: u32,
        /// Of how many bindings of a subscriber it may, those counted that have a session that the
        /// inside has not answered.
        budget: u32,
    },
}

/// Why a session could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// Another writer was faster: the session is there, or its binding is gone.
    Raced,
    /// The subscriber has as many sessions as it may have.
    Limit,
    /// The outside has opened as many as it may, and nobody has answered.
    Budget,
    /// There is no room where the session may be.
    TableFull,
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
    /// Bindings that hosts have asked for.
    pub leases: Leases,
    /// Paths that are smaller than their services were told.
    pub paths: PathMtus,
    /// Connections in which helpers rewrite what the ends say.
    pub conversations: Conversations,
    /// Subscribers that have changed, for whoever copies them.
    pub changed_subscribers: Changes,
    /// Bindings that have changed.
    pub changed_bindings: Changes,
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
            leases: Leases::new(source, capacity.leases)?,
            paths: PathMtus::new(source, key)?,
            conversations: Conversations::new(source)?,
            changed_subscribers: Changes::new(
                source,
                ["subscribers-changed", "subscribers-changed-words"],
                capacity.subscribers,
            )?,
            changed_bindings: Changes::new(source, ["bindings-changed", "bindings-changed-words"], capacity.bindings)?,
            key,
        })
    }

    /// The same tables, in which it is noted which subscribers and bindings change.
    #[must_use]
    pub fn noting_changes(mut self) -> Self {
        self.changed_subscribers.note();
        self.changed_bindings.note();
        self
    }

    /// What a program in the kernel needs to read the same memory.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let (session_lines, overflow_lines) = self.sessions.sizes();
        Geometry {
            inside_buckets: self.inside_index.buckets(),
            binding_pairs: self.bindings.pairs(),
            subscriber_buckets: self.subscriber_index.buckets(),
            session_lines,
            overflow_lines,
            bindings: self.bindings.capacity(),
            notes_changes: self.changed_bindings.are_noted(),
            key: self.key,
        }
    }

    /// Bytes that the tables take.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            subscribers: self.subscribers.bytes() + self.subscriber_index.bytes() + self.changed_subscribers.bytes(),
            bindings: self.bindings.bytes() + self.inside_index.bytes() + self.changed_bindings.bytes(),
            outside: self.outside.bytes() + self.blocks.bytes(),
            sessions: self.sessions.bytes(),
            leases: self.leases.bytes(),
            paths: self.paths.bytes(),
            conversations: self.conversations.bytes(),
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
        let at_home = self.bindings.find_at_home(hash, key);
        if at_home.is_some() {
            return at_home;
        }
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
        self.bind_as_of(&Binding { created: now, ..*template }, candidates, reuse_after, now, now)
    }

    /// As [`bind`](Self::bind), for a binding that was made before, in other tables: it keeps the
    /// time at which it was made.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind_again(
        &self,
        template: &Binding,
        candidates: impl IntoIterator<Item = Candidate>,
        reuse_after: u32,
        now: Tick,
    ) -> Result<(BindingId, Binding), BindError> {
        self.bind_as_of(template, candidates, reuse_after, now, now)
    }

    /// As [`bind`](Self::bind), at `now`, for a binding that was made when `template` says, and counts as
    /// touched at `touched`.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind_as_of(
        &self,
        template: &Binding,
        candidates: impl IntoIterator<Item = Candidate>,
        reuse_after: u32,
        now: Tick,
        touched: Tick,
    ) -> Result<(BindingId, Binding), BindError> {
        // Eight words of the bitmap of free records are a cache line: each subscriber begins in one
        // of its own, so that writers for different subscribers do not share one.
        let hint = now.0.wrapping_mul(31).wrapping_add(template.subscriber.wrapping_mul(8));
        let hash = self.key.hash(template.inside.words());
        let id = self.bindings.claim_at_home(hash, hint).ok_or(BindError::TableFull)?;
        let claimed = candidates.into_iter().find(|candidate| self.outside.claim(candidate.slot, id, now, reuse_after));
        let Some(candidate) = claimed else {
            self.bindings.free(id);
            return Err(BindError::NoneFree);
        };
        let binding = Binding {
            outside_ipv4: candidate.ipv4,
            outside_port: candidate.port,
            outside_slot: candidate.slot,
            ..*template
        };
        self.bindings.publish(id, &binding, touched);
        let inserted = self.inside_index.insert(hash, id.get(), |other| self.bindings.has_key(other, &binding.inside));
        if inserted == Inserted::New {
            if let Some(subscriber) = SubscriberId::new(binding.subscriber) {
                self.subscribers.count_binding(subscriber);
            }
            self.bindings.settle(id);
            self.changed_bindings.set(id.get());
            return Ok((id, binding));
        }
        self.outside.release(candidate.slot, id);
        self.bindings.free(id);
        self.find_inside(&binding.inside).ok_or(BindError::TableFull)
    }

    /// Removes a binding that was last touched at `seen`; its outside slot is kept back from `now`
    /// on. False if it was touched since, or is gone.
    pub fn unbind(&self, id: BindingId, binding: &Binding, seen: Tick, now: Tick) -> bool {
        let withdrawn = self.withdraw(id, binding, seen, now);
        if withdrawn {
            self.free_binding(id, binding.subscriber);
        }
        withdrawn
    }

    /// The first half of [`unbind`](Self::unbind): nothing finds the binding any more, but its
    /// number is not free yet.
    pub(crate) fn withdraw(&self, id: BindingId, binding: &Binding, seen: Tick, now: Tick) -> bool {
        if !self.bindings.retire(id, binding, seen) {
            return false;
        }
        self.bindings.end_shortcuts(seen, now);
        self.inside_index.remove(self.key.hash(binding.inside.words()), id.get());
        self.outside.close(binding.outside_slot, id, now);
        true
    }

    fn free_binding(&self, id: BindingId, subscriber: u32) {
        if let Some(subscriber) = SubscriberId::new(subscriber) {
            self.subscribers.uncount_binding(subscriber);
        }
        self.bindings.free(id);
        self.changed_bindings.set(id.get());
    }

    /// Gives binding `id` other flags, if it still has those of `binding`. False if it has not, or is another one.
    #[must_use]
    pub fn change_flags(&self, id: BindingId, binding: &Binding, flags: u16) -> bool {
        let changed = self.bindings.change_flags(id, binding, flags);
        self.changed_bindings.set(id.get());
        changed
    }

    /// A connection of binding `id` is open from now on: a copy of the binding is worth more by that.
    pub fn note_open(&self, id: BindingId) {
        self.changed_bindings.set(id.get());
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
        self.admit_as(subscriber, now, false)
    }

    /// As [`admit`](Self::admit), as a copy of what another node has or not.
    pub(crate) fn admit_as(
        &self,
        subscriber: &Subscriber,
        now: Tick,
        is_copied: bool,
    ) -> Option<(SubscriberId, Subscriber)> {
        let id = self.subscribers.claim(now.0.wrapping_mul(31))?;
        self.subscribers.publish(id, subscriber, now);
        if is_copied {
            self.subscribers.set_copied(id, true);
        }
        let hash = self.key.hash(subscriber.key.words());
        match self.subscriber_index.insert(hash, id.get(), |other| self.subscribers.has_key(other, &subscriber.key)) {
            Inserted::New => {
                self.subscribers.settle(id);
                self.changed_subscribers.set(id.get());
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
        self.blocks.claim(word, id, now, reuse_after) && self.note_block(id, first, place, most)
    }

    /// The same, if the block is offered and the offer was acknowledged.
    pub fn grant_offered_block(&self, id: SubscriberId, first: u32, place: u16, most: usize) -> bool {
        let word = first.wrapping_add(u32::from(place));
        self.blocks.claim_offered(word, id) && self.note_block(id, first, place, most)
    }

    /// A subscriber has a block that was claimed for it; or not, and then it goes back.
    fn note_block(&self, id: SubscriberId, first: u32, place: u16, most: usize) -> bool {
        let noted = self.subscribers.add_block(id, first, place, most);
        if !noted {
            self.blocks.release(first.wrapping_add(u32::from(place)), id);
        }
        self.changed_subscribers.set(id.get());
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
        self.changed_subscribers.set(id.get());
        true
    }

    /// A packet of `keeper` uses a binding that needs no session: it stays for another lifetime,
    /// unless the outside keeps too many. False if it has gone meanwhile.
    #[inline]
    pub fn keep(&self, id: BindingId, binding: &Binding, keeper: Keeper, now: Tick) -> bool {
        match keeper {
            Keeper::Inside => {
                let is_there = self.bindings.touch(id, now);
                if is_there {
                    self.bindings.see(id, now);
                }
                is_there
            }
            Keeper::Outside { alone_after, ahead, budget } => {
                let is_alone = now.since(self.bindings.seen(id)) >= alone_after;
                let subscriber = SubscriberId::new(binding.subscriber);
                let is_over = |id| self.subscribers.unanswered(id) >= budget;
                let ahead = Tick(now.0.saturating_add(ahead));
                is_alone && subscriber.is_some_and(is_over) || self.bindings.touch(id, ahead)
            }
        }
    }

    /// Makes a session of `binding`, which was found under the number in `key` and touched, for
    /// `opener`. Entries that have outlived `lifetimes` are reused.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        &self,
        key: &SessionKey,
        binding: &Binding,
        state: State,
        opener: Opener,
        lifetimes: &Lifetimes,
        now: Tick,
    ) -> Result<SessionRef<'_>, OpenError> {
        let subscriber = SubscriberId::new(binding.subscriber);
        let (owner, flags) = match opener {
            Opener::Inside { limit } => {
                let owner = self.count_session(subscriber, limit)?;
                (owner, if owner.is_some() { COUNTED } else { 0 })
            }
            Opener::Outside { budget, .. } => {
                let of_subscriber = subscriber.map_or(0, |id| self.subscribers.unanswered(id));
                let of_binding = self.bindings.unanswered(key.binding);
                if of_binding >= budget.of_binding.min(MOST_UNANSWERED).into() || of_subscriber >= budget.of_subscriber
                {
                    return Err(OpenError::Budget);
                }
                (None, UNANSWERED)
            }
        };
        let uncount = || owner.iter().for_each(|id| self.subscribers.uncount_session(*id));
        let session = match self.insert(key, binding, (state, flags), opener, lifetimes, now) {
            InsertedSession::New(session) => session,
            InsertedSession::Existing(_) => {
                uncount();
                return Err(OpenError::Raced);
            }
            InsertedSession::Full => {
                uncount();
                return Err(OpenError::TableFull);
            }
        };
        fence(Ordering::SeqCst);
        if self.bindings.read(key.binding).is_some_and(|(current, _)| current == *binding) {
            if flags == UNANSWERED {
                self.bindings.change_unanswered(key.binding, |count| count.saturating_add(1));
                subscriber
                    .iter()
                    .for_each(|id| self.subscribers.change_unanswered(*id, |count| count.saturating_add(1)));
            }
            return Ok(session);
        }
        // If it is gone already, who removed it has seen the flag.
        if self.take(&session).is_some() {
            uncount();
        }
        Err(OpenError::Raced)
    }

    /// Puts a session where it belongs: the first one of a TCP binding into the binding's record, if
    /// nobody counts it; others into the table.
    fn insert(
        &self,
        key: &SessionKey,
        binding: &Binding,
        (state, flags): (State, u8),
        opener: Opener,
        lifetimes: &Lifetimes,
        now: Tick,
    ) -> InsertedSession<'_> {
        if binding.inside.protocol == TCP && !opener.counts() {
            let first = SessionRef { place: Place::Binding(self.bindings.place_of_first(key.binding)), key: *key };
            match self.bindings.open_first(key, u64::from(state.0) << 8 | u64::from(flags), now) {
                Opened::New => return InsertedSession::New(first),
                Opened::Existing => return InsertedSession::Existing(first),
                Opened::Taken => {}
            }
        }
        self.sessions.insert(key, state, flags, lifetimes, now)
    }

    /// The session with this key.
    #[inline]
    #[must_use]
    pub fn find_session(&self, key: &SessionKey) -> Option<SessionRef<'_>> {
        let first = self.bindings.place_of_first(key.binding);
        let word = first.word.load(Ordering::Acquire);
        if First::has_key(word, key) && First::is_live(word) {
            return Some(SessionRef { place: Place::Binding(first), key: *key });
        }
        self.sessions.find(key)
    }

    /// Looks at every session: those of the table, in the order of their lines, then the first ones of
    /// bindings. What somebody is at just now is left out.
    pub fn each_session(&self) -> impl Iterator<Item = Session> + '_ {
        let lines = (0..self.sessions.lines()).flat_map(|line| self.sessions.read_line(line));
        let settled = lines.filter(|(_, pending)| !pending).map(|(session, _)| session);
        settled.chain(self.bindings.iter().filter_map(|id| self.bindings.first_session(id)))
    }

    /// Removes a session that was found; its flags, or nothing if it is gone already.
    fn take(&self, session: &SessionRef<'_>) -> Option<u8> {
        match session.place {
            Place::Table(entry) => self.sessions.remove(entry, &session.key),
            Place::Binding(first) => {
                let word = first.word.load(Ordering::Acquire);
                let is_there = First::has_key(word, &session.key) && First::is_live(word);
                (is_there && first.end(word)).then(|| flags(word))
            }
        }
    }

    /// Counts one more session of a subscriber that has a limit.
    fn count_session(
        &self,
        subscriber: Option<SubscriberId>,
        limit: Option<u32>,
    ) -> Result<Option<SubscriberId>, OpenError> {
        let Some((id, limit)) = subscriber.zip(limit) else { return Ok(None) };
        if self.subscribers.count_session(id, limit) { Ok(Some(id)) } else { Err(OpenError::Limit) }
    }

    /// The inside sends for the first time in a session of `binding` that the outside has opened:
    /// it goes from state `from` to `to`, and from now on it counts for the subscriber.
    ///
    /// # Errors
    /// [`OpenError::Limit`], [`OpenError::Raced`].
    pub fn answer(
        &self,
        session: &SessionRef<'_>,
        binding: &Binding,
        (from, to): (State, State),
        limit: Option<u32>,
    ) -> Result<(), OpenError> {
        let subscriber = SubscriberId::new(binding.subscriber);
        // A session that was opened before there was a limit is not counted.
        let limit = limit.filter(|_| !session.is_first());
        let owner = self.count_session(subscriber, limit)?;
        if !session.answer(from, to, if owner.is_some() { COUNTED } else { 0 }) {
            owner.iter().for_each(|id| self.subscribers.uncount_session(*id));
            return Err(OpenError::Raced);
        }
        self.bindings.change_unanswered(session.binding(), |count| count.saturating_sub(1));
        subscriber.iter().for_each(|id| self.subscribers.change_unanswered(*id, |count| count.saturating_sub(1)));
        Ok(())
    }

    /// Removes a session that was found; false if it is gone already.
    pub fn remove_session(&self, session: &SessionRef<'_>) -> bool {
        // To be read first: once the session is gone, the number may be another binding's.
        let owner = self.owner_of(session.binding());
        let removed = self.take(session);
        if let Some(owner) = owner.filter(|_| removed.is_some_and(|flags| flags & COUNTED != 0)) {
            self.subscribers.uncount_session(owner);
        }
        removed.is_some()
    }

    /// Looks at every session of `lines` lines from `first`, and does with each what `decide` says.
    /// Those that were counted are taken off their subscribers' counts.
    pub fn sweep_sessions(&self, first: usize, lines: usize, mut decide: impl FnMut(&Session) -> Sweep) {
        let owner = Cell::new(None);
        let decide = |session: &Session| {
            let verdict = decide(session);
            let is_counted = verdict == Sweep::Remove && session.flags & COUNTED != 0;
            owner.set(is_counted.then(|| self.owner_of(session.key.binding)).flatten());
            verdict
        };
        let gone = |_: &Session| owner.take().iter().for_each(|owner| self.subscribers.uncount_session(*owner));
        self.sessions.sweep_and_tell(first, lines, decide, gone);
    }

    /// Whose the sessions of a binding are, also of one that is about to go.
    fn owner_of(&self, binding: BindingId) -> Option<SubscriberId> {
        self.bindings.read_until_free(binding).and_then(|binding| SubscriberId::new(binding.subscriber))
    }
}

/// Bindings that go together with their sessions.
#[derive(Debug)]
pub struct Removal<'t> {
    tables: &'t Tables,
    withdrawn: Vec<(BindingId, u32)>,
    marks: Vec<u64>,
    /// First sessions that have gone.
    firsts: u64,
}

impl<'t> Removal<'t> {
    /// Nothing goes yet.
    #[must_use]
    pub fn new(tables: &'t Tables) -> Self {
        Self { tables, withdrawn: Vec::new(), marks: vec![0; tables.bindings.parts()], firsts: 0 }
    }

    /// The binding goes, as with [`Tables::unbind`]; its number is free when the sessions have gone.
    pub fn unbind(&mut self, id: BindingId, binding: &Binding, seen: Tick, now: Tick) -> bool {
        let withdrawn = self.tables.withdraw(id, binding, seen, now);
        if withdrawn {
            self.withdrawn.push((id, binding.subscriber));
            self.clear(id);
        }
        withdrawn
    }

    /// Binding `id` goes as long as it is one that is `meant`, which packets may be using meanwhile. The
    /// binding, if it went.
    pub fn unbind_if(&mut self, id: BindingId, meant: impl Fn(&Binding) -> bool, now: Tick) -> Option<Binding> {
        for _ in 0..ATTEMPTS {
            let (binding, seen) = self.tables.bindings.read(id).filter(|(binding, _)| meant(binding))?;
            if self.unbind(id, &binding, seen, now) {
                return Some(binding);
            }
        }
        None
    }

    /// A binding that was withdrawn by others goes: its number is free when its sessions have gone.
    pub fn finish_withdrawn(&mut self, id: BindingId, binding: &Binding) {
        self.withdrawn.push((id, binding.subscriber));
        self.clear(id);
    }

    /// The sessions of a binding go, which stays.
    pub fn clear(&mut self, id: BindingId) {
        self.firsts += u64::from(self.tables.bindings.end_first(id));
        if let Some(mark) = self.marks.get_mut(id.get() as usize / 64) {
            *mark |= 1 << (id.get() % 64);
        }
    }

    /// The sessions go, in one pass over all of them; says how many.
    pub fn finish(mut self) -> u64 {
        self.remove_sessions()
    }

    fn remove_sessions(&mut self) -> u64 {
        if self.marks.iter().all(|&mark| mark == 0) {
            return 0;
        }
        let mut removed = std::mem::take(&mut self.firsts);
        // The bindings were withdrawn before: see `Tables::open`.
        fence(Ordering::SeqCst);
        self.tables.sweep_sessions(0, self.tables.sessions.lines(), |session| {
            let id = session.key.binding.get() as usize;
            if self.marks.get(id / 64).is_some_and(|mark| mark & 1 << (id % 64) != 0) {
                removed += 1;
                return Sweep::Remove;
            }
            Sweep::Keep
        });
        self.marks.fill(0);
        for (id, subscriber) in self.withdrawn.drain(..) {
            self.tables.free_binding(id, subscriber);
        }
        removed
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.remove_sessions();
    }
}
