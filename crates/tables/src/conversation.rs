//! Connections in which the gateway rewrites what the ends say (an FTP client's PORT, RFC 6384): by how much the
//! sequence numbers of each direction differ since. One cache line each: [`ConversationRecord`].
//!
//! ```text
//! as sent      ....... PORT 10,0,0,2,4,1\r\n .......
//!                      ^ at            end ^
//! as received  ....... PORT 192,0,2,1,200,7\r\n ....       sequence number + difference behind `at`,
//!                                                          + difference - grown up to it
//! ```
//!
//! Such connections are few, and only helpers ask: so there is a lock, which other packets do not take, and an
//! index in the process, which is made from the records. The records are in shared memory, like all state: a
//! connection outlives the process with its differences. A process that dies while it changes a record may leave
//! one direction with the old end of it and the new difference; that connection breaks, and no other.
//!
//! There is room for a bounded number. A new one gets the place of one that is over, and else none: what is there
//! is not harmed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tombolo_records::{from_words, to_words};

use crate::arena::{Arena, LIFE_WORD, Stored, WORDS};
use crate::atomic::{AtomicU64, Ordering};
use crate::binding::{InsideKey, halves, join};
use crate::memory::{MemoryError, MemorySource};
use crate::tick::{Tick, ticks};

/// Room for so many. Models make tables anew for each execution, and hold no conversations.
pub(crate) const CONVERSATIONS: u32 = if cfg!(loom) { 1 } else { 4096 };

/// Seconds that one is kept whose ends have both said their last.
const ENDED: u32 = 240;

crate::arena::id! {
    /// Number of a conversation; 1 and up.
    ConversationId
}

/// Whose it is: the inside endpoint and the remote address. The remote port is the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The end inside.
    pub inside: InsideKey,
    /// The remote address, as on the wire.
    pub remote: [u8; 4],
}

/// One direction. Sequence numbers are those of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stream {
    /// Behind the last byte that was seen.
    pub next: u32,
    /// Where the last text begins that was rewritten.
    pub at: u32,
    /// By how many bytes the stream behind that text is longer for the receiver; 24 bits.
    pub difference: i32,
    /// By how many bytes that text has grown.
    pub grown: i8,
    /// Bytes of that text as its sender has it.
    pub length: u8,
    /// Bits whose meaning is the helper's.
    pub flags: u8,
}

/// A conversation: the inside's stream, and the outside's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversation {
    /// Whose it is.
    pub ends: Ends,
    /// What the inside says, and what the outside says.
    pub streams: [Stream; 2],
}

/// Largest difference of a stream, either way.
pub const MOST_DIFFERENCE: i32 = (1 << 23) - 1;

tombolo_records::records! {
    /// A conversation as it lies in the tables. Addresses and ports stand as on the wire.
    plain pub struct ConversationRecord as conversation {
        /// As in the binding.
        inside: [u64; 2],
        /// As in the binding.
        inside4: u32,
        /// As in the binding.
        inside_port: u16,
        /// As in the binding.
        protocol: u8,
        /// As in the binding.
        service: u8,
        /// Address of the remote.
        remote4: u32,
        /// Of what the inside says: where the last text begins that was rewritten.
        out_at: u32,
        /// The arena's: when it was used (tick), generation, stage.
        life: u64,
        /// Behind its last byte.
        out_next: u32,
        /// Its difference, and eight flags below.
        out_difference: u32,
        /// The same of what the outside says.
        in_at: u32,
        /// The same.
        in_next: u32,
        /// The same.
        in_difference: u32,
        /// By how much the last text has grown that was rewritten, inside's and outside's.
        grown: u16,
        /// Its length.
        length: u16,
    }
}

const FLAG_BITS: u32 = 8;

impl Stream {
    const fn packed(&self) -> u32 {
        (self.difference as u32) << FLAG_BITS | self.flags as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lowest byte is taken on purpose")]
    pub(crate) const fn unpacked(next: u32, at: u32, packed: u32, grown: u8, length: u8) -> Self {
        let difference = packed.cast_signed() >> FLAG_BITS;
        Self { next, at, difference, grown: grown.cast_signed(), length, flags: packed as u8 }
    }
}

impl Stored for Conversation {
    type Id = ConversationId;
    const NAMES: [&'static str; 2] = ["conversations", "conversations-used"];

    fn to_words(&self) -> [u64; WORDS] {
        let Self { ends: Ends { inside, remote }, streams: [out, back] } = self;
        to_words(ConversationRecord {
            inside: halves(inside.ipv6),
            inside4: u32::from_ne_bytes(inside.ipv4),
            inside_port: u16::from_ne_bytes(inside.port),
            protocol: inside.protocol,
            service: inside.service,
            remote4: u32::from_ne_bytes(*remote),
            out_at: out.at,
            life: 0,
            out_next: out.next,
            out_difference: out.packed(),
            in_at: back.at,
            in_next: back.next,
            in_difference: back.packed(),
            grown: u16::from_ne_bytes([out.grown.cast_unsigned(), back.grown.cast_unsigned()]),
            length: u16::from_ne_bytes([out.length, back.length]),
        })
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let record: ConversationRecord = from_words(words);
        let ([out_grown, in_grown], [out_length, in_length]) =
            (record.grown.to_ne_bytes(), record.length.to_ne_bytes());
        Self {
            ends: Ends {
                inside: InsideKey {
                    ipv6: join(record.inside),
                    ipv4: record.inside4.to_ne_bytes(),
                    port: record.inside_port.to_ne_bytes(),
                    protocol: record.protocol,
                    service: record.service,
                },
                remote: record.remote4.to_ne_bytes(),
            },
            streams: [
                Stream::unpacked(record.out_next, record.out_at, record.out_difference, out_grown, out_length),
                Stream::unpacked(record.in_next, record.in_at, record.in_difference, in_grown, in_length),
            ],
        }
    }
}

/// All conversations.
#[derive(Debug)]
pub struct Conversations {
    records: Arena<Conversation>,
    found_by: Mutex<FoundBy>,
    unchanged: AtomicU64,
}

#[derive(Debug, Default)]
struct FoundBy {
    ends: HashMap<Ends, ConversationId>,
    /// When all places were found to be in use.
    full: Tick,
}

impl Conversations {
    /// None yet, or those that the memory has.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource) -> Result<Self, MemoryError> {
        let records: Arena<Conversation> = Arena::new(source, CONVERSATIONS)?;
        let ends = records.find_again().map(|(id, conversation)| (conversation.ends, id)).collect();
        let found_by = FoundBy { ends, ..FoundBy::default() };
        Ok(Self { records, found_by: Mutex::new(found_by), unchanged: AtomicU64::default() })
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.records.bytes()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.records.count()
    }

    /// How many there is room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.records.capacity()
    }

    /// Segments that a helper had to leave as they were, since this process began.
    #[must_use]
    pub fn unchanged(&self) -> u64 {
        self.unchanged.load(Ordering::Relaxed)
    }

    /// One more.
    pub fn count_unchanged(&self) {
        self.unchanged.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a conversation, or begins it anew. False if there is no room: none is over, which `is_over` says of
    /// one that nobody has used for so many ticks.
    pub fn begin(&self, conversation: &Conversation, now: Tick, is_over: impl Fn(&Conversation, u32) -> bool) -> bool {
        let mut found_by = self.found_by.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = found_by.ends.get(&conversation.ends).copied() {
            self.store(id, conversation);
            let _ = self.records.touch(id, now);
            return true;
        }
        let Some(id) = self.records.claim(0).or_else(|| self.make_room(&mut found_by, now, is_over)) else {
            return false;
        };
        self.records.publish(id, conversation, now);
        self.records.settle(id);
        found_by.ends.insert(conversation.ends, id);
        true
    }

    /// What `work` makes of the conversation between `ends`, which nobody else changes meanwhile; `None` if there
    /// is none.
    pub fn with<T>(&self, ends: &Ends, now: Tick, work: impl FnOnce(&mut Conversation) -> T) -> Option<T> {
        let found_by = self.found_by.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *found_by.ends.get(ends)?;
        let (mut conversation, _) = self.records.read(id)?;
        let before = conversation;
        let result = work(&mut conversation);
        if conversation != before {
            self.store(id, &conversation);
        }
        let _ = self.records.touch(id, now);
        Some(result)
    }

    /// All of them, with when each was used last.
    pub fn iter(&self) -> impl Iterator<Item = (Conversation, Tick)> + '_ {
        self.records.iter().filter_map(|id| self.records.read(id))
    }

    /// Ticks that one is kept whose ends have both said their last.
    #[must_use]
    pub const fn ended_after() -> u32 {
        ticks(ENDED)
    }

    fn store(&self, id: ConversationId, conversation: &Conversation) {
        for (word, value) in conversation.to_words().into_iter().enumerate().filter(|&(word, _)| word != LIFE_WORD) {
            self.records.word(id, word).store(value, Ordering::Release);
        }
    }

    /// Ends all that are over, once a tick at most, and claims the place of one.
    fn make_room(
        &self,
        found_by: &mut FoundBy,
        now: Tick,
        is_over: impl Fn(&Conversation, u32) -> bool,
    ) -> Option<ConversationId> {
        if found_by.full == now {
            return None;
        }
        found_by.full = now;
        let records = &self.records;
        found_by.ends.retain(|_, id| {
            let keeps = records.read(*id).is_some_and(|(found, used)| !is_over(&found, now.since(used)));
            if !keeps {
                records.free(*id);
            }
            keeps
        });
        records.claim(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Heap;

    fn conversation(n: u32) -> Conversation {
        let inside = InsideKey { ipv4: n.to_be_bytes(), port: [4, 1], protocol: 6, ..InsideKey::default() };
        Conversation { ends: Ends { inside, remote: [198, 51, 100, 2] }, streams: [Stream::default(); 2] }
    }

    #[test]
    fn a_record_keeps_every_field_and_every_sign() {
        let stream = |n: i32| Stream {
            next: 0xffff_fff0,
            at: 7,
            difference: n * MOST_DIFFERENCE,
            grown: i8::MIN,
            length: 255,
            flags: 0xa5,
        };
        let found = Conversation { streams: [stream(-1), stream(1)], ..conversation(0xffff_ffff) };
        assert_eq!(Conversation::from_words(found.to_words()), found);
    }

    #[test]
    fn it_is_found_again_with_what_was_made_of_it() {
        let conversations = Conversations::new(&mut Heap).unwrap();
        let begun = conversation(1);
        assert!(conversations.with(&begun.ends, Tick(1), |_| ()).is_none());
        assert!(conversations.begin(&begun, Tick(1), |_, _| true));
        conversations.with(&begun.ends, Tick(2), |found| found.streams[1].difference = -9).unwrap();
        let found = conversations.with(&begun.ends, Tick(3), |found| found.streams).unwrap();
        assert_eq!((found[0], found[1].difference), (Stream::default(), -9));
        assert!(conversations.begin(&begun, Tick(4), |_, _| true));
        assert_eq!(conversations.with(&begun.ends, Tick(4), |found| found.streams[1].difference), Some(0));
        assert_eq!(conversations.count(), 1);
    }

    #[test]
    fn a_full_table_refuses_the_new_until_something_is_over() {
        let conversations = Conversations::new(&mut Heap).unwrap();
        let is_over = |_: &Conversation, idle| idle >= 100;
        for n in 0..CONVERSATIONS {
            assert!(conversations.begin(&conversation(n), Tick(1 + n % 2), is_over));
        }
        let one_more = conversation(CONVERSATIONS);
        assert!(!conversations.begin(&one_more, Tick(100), is_over));
        assert!(conversations.begin(&one_more, Tick(101), is_over), "those of the first tick are over");
        assert_eq!(conversations.count(), CONVERSATIONS / 2 + 1);
        assert!(conversations.with(&conversation(1).ends, Tick(101), |_| ()).is_some(), "the others are not");
    }
}
