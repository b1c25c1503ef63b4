//! Goes through the records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::description::{Description, DescriptionError, Place};
use crate::binding::{Binding, BindingId, InsideKey, flags};
use crate::blocks::OFFERED;
use crate::conversation::{Conversation, Ends, Stream};
use crate::lease::{Before, Lease, Use};
use crate::memory::{Backing, Slab};
use crate::session::{DOUBTED, Session, SessionKey, State, UNANSWERED};
use crate::subscriber::{Subscriber, SubscriberKey};
use crate::tick::Tick;

/// Where the tables lie.
pub trait FormerMemory {
    /// The span of table `name`, if it is there.
    fn span(&self, name: &'static str) -> Option<Arc<dyn Backing>>;
}

/// A subscriber and the blocks of ports that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerSubscriber {
    /// Who it is, and its address.
    pub subscriber: Subscriber,
    /// Its blocks, by their place in the address.
    pub blocks: Vec<u16>,
}

/// The tables. Services, states and records have the numbers that they had.
#[derive(Debug)]
pub struct FormerTables {
    ticks: Ticks,
    life: Life,
    bindings: Records,
    binding: BindingPlaces,
    subscribers: Records,
    subscriber: SubscriberPlaces,
    sessions: [Records; 2],
    session: SessionPlaces,
    outside: Slab<AtomicU32>,
    blocks: Slab<AtomicU32>,
    closed: u32,
    leases: Option<FormerLeases>,
    conversations: Option<FormerConversations>,
}

impl FormerTables {
    /// The tables in `memory`, which `description` is about.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn open(memory: &dyn FormerMemory, description: &Description) -> Result<Self, DescriptionError> {
        let span = |name| memory.span(name).ok_or(DescriptionError::Table(name));
        let line = description.record("session_line")?;
        let records = |name, size| Ok(Records { words: Slab::whole(span(name)?), size });
        Ok(Self {
            ticks: Ticks { shift: description.number("TICK_SHIFT")? },
            life: Life::new(description)?,
            bindings: records("bindings", description.record("binding")?)?,
            binding: BindingPlaces::new(description)?,
            subscribers: records("subscribers", description.record("subscriber")?)?,
            subscriber: SubscriberPlaces::new(description)?,
            sessions: [records("sessions", line)?, records("sessions-overflow", line)?],
            session: SessionPlaces::new(description)?,
            outside: Slab::whole(span("outside-index")?),
            blocks: Slab::whole(span("port-blocks")?),
            closed: u32::try_from(description.number("SLOT_CLOSED")?)
                .map_err(|_| DescriptionError::Lacks("SLOT_CLOSED".into()))?,
            leases: FormerLeases::open(memory, description),
            conversations: FormerConversations::open(memory, description),
        })
    }

    /// All leases, those of bindings that are gone included.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let Some(leases) = &self.leases else { return Vec::new() };
        let living = |number| self.living(&leases.records, leases.places.life, number);
        let read = |number| Some(leases.places.read(&living(number)?.0, self.ticks));
        (1..=leases.records.last()).filter_map(read).collect()
    }

    /// All conversations, and when each was used last.
    #[must_use]
    pub fn conversations(&self) -> Vec<(Conversation, Tick)> {
        let Some(conversations) = &self.conversations else { return Vec::new() };
        let read = |number| {
            let (record, used) = self.living(&conversations.records, conversations.places.life, number)?;
            Some((conversations.places.read(&record), used))
        };
        (1..=conversations.records.last()).filter_map(read).collect()
    }

    /// Since when the leases are known; 0 if they are not.
    #[must_use]
    pub fn leases_since(&self) -> u64 {
        let since = self.leases.as_ref().and_then(|leases| leases.since.first());
        since.map_or(0, |since| since.load(Ordering::Relaxed))
    }

    /// Highest number that a binding can have.
    #[must_use]
    pub fn last_binding(&self) -> u32 {
        self.bindings.last()
    }

    /// Highest number that a subscriber can have.
    #[must_use]
    pub fn last_subscriber(&self) -> u32 {
        self.subscribers.last()
    }

    /// Binding `number` and when it was last touched, if it is live. Its service and its subscriber
    /// are numbers of these tables, and its slot is none.
    #[must_use]
    pub fn binding(&self, number: u32) -> Option<(Binding, Tick)> {
        let (record, touched) = self.living(&self.bindings, self.binding.life, number)?;
        Some((self.binding.read(&record, self.ticks), touched))
    }

    /// When the inside last sent on binding `number`, if the tables say so.
    #[must_use]
    pub fn binding_seen(&self, number: u32) -> Option<Tick> {
        let (record, _) = self.living(&self.bindings, self.binding.life, number)?;
        Some(self.ticks.tick(u64::from(record.u32(self.binding.seen?))))
    }

    /// Subscriber `number`, if it is live.
    #[must_use]
    pub fn subscriber(&self, number: u32) -> Option<FormerSubscriber> {
        let (record, _) = self.living(&self.subscribers, self.subscriber.life, number)?;
        Some(self.subscriber.read(&record))
    }

    /// Calls `each` with every session. Its binding and its state are numbers of these tables; of
    /// its flags it has [`UNANSWERED`] and [`DOUBTED`].
    pub fn each_session(&self, mut each: impl FnMut(&Session)) {
        for number in 1..=self.last_binding() {
            let found = self.living(&self.bindings, self.binding.life, number);
            if let Some(session) = found.and_then(|(record, _)| self.first_session(number, &record)) {
                each(&session);
            }
        }
        let SessionPlaces { entries, size, .. } = self.session;
        for lines in &self.sessions {
            for line in 0..lines.count() {
                for offset in (entries.offset..entries.offset + entries.size).step_by(size) {
                    if let Some(session) = self.session.read(lines, line, offset, self.ticks) {
                        each(&session);
                    }
                }
            }
        }
    }

    /// The first session of a binding, where it lies in the binding's record.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word, and a state is a small number")]
    fn first_session(&self, number: u32, record: &Record) -> Option<Session> {
        let word = u64::from_ne_bytes(record.bytes(self.binding.first?));
        let places = &self.session;
        let state = State(masked(word, places.state) as u8);
        let key = SessionKey {
            binding: BindingId::new(number)?,
            remote_ipv4: (masked(word, places.first_remote) as u32).to_ne_bytes(),
            remote_port: (masked(word, places.port) as u16).to_ne_bytes(),
        };
        let seen = self.ticks.tick(u64::from(record.u32(self.binding.seen?)));
        (state.0 != 0).then(|| Session { key, state, flags: places.flags(word), seen })
    }

    /// When outside slot `slot` was closed, if it is kept back.
    #[must_use]
    pub fn slot_closed(&self, slot: u32) -> Option<Tick> {
        self.closed_at(&self.outside, slot)
    }

    /// When block `block` of ports was given back, if it is kept back.
    #[must_use]
    pub fn block_closed(&self, block: u32) -> Option<Tick> {
        // What is offered nobody has given back.
        let word = self.blocks.get(block as usize)?.load(Ordering::Relaxed);
        let is_offered = word & self.closed != 0 && word & OFFERED != 0;
        if is_offered { None } else { self.closed_at(&self.blocks, block) }
    }

    fn closed_at(&self, slots: &[AtomicU32], slot: u32) -> Option<Tick> {
        let word = slots.get(slot as usize)?.load(Ordering::Relaxed);
        (word & self.closed != 0).then(|| self.ticks.tick(u64::from(word & !self.closed)))
    }

    /// A record, and when it was touched; nothing if it is not live, or became another one's while
    /// it was read.
    fn living(&self, records: &Records, life: Place, number: u32) -> Option<(Record, Tick)> {
        if number == 0 {
            return None;
        }
        let number = number as usize;
        let before = records.word(number, life)?;
        if !self.life.is_live(before) {
            return None;
        }
        let record = records.copy(number)?;
        fence(Ordering::Acquire);
        let after = records.word(number, life)?;
        let is_same = self.life.is_live(after) && (before ^ after) & self.life.generation == 0;
        is_same.then(|| (record, self.ticks.tick(masked(before, self.life.touched))))
    }
}

/// The clock of the tables.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    shift: u64,
}

impl Ticks {
    /// A tick of theirs as one of ours.
    fn tick(self, theirs: u64) -> Tick {
        let nanos = u128::from(theirs) << self.shift.min(63);
        Tick(u32::try_from(nanos >> Tick::SHIFT).unwrap_or(u32::MAX))
    }
}

/// What the word `life` of a record says.
#[derive(Debug)]
struct Life {
    stage: u64,
    readable: [u64; 2],
    generation: u64,
    touched: u64,
}

impl Life {
    fn new(description: &Description) -> Result<Self, DescriptionError> {
        Ok(Self {
            stage: description.number("LIFE_STAGE")?,
            readable: [description.number("STAGE_LIVE")?, description.number("STAGE_OPENING")?],
            generation: description.number("LIFE_GENERATION")?,
            touched: description.number("LIFE_TOUCHED")?,
        })
    }

    fn is_live(&self, life: u64) -> bool {
        self.readable.contains(&(life & self.stage))
    }
}

/// The bits of `word` that `mask` has, as a number.
fn masked(word: u64, mask: u64) -> u64 {
    (word & mask).checked_shr(mask.trailing_zeros()).unwrap_or(0)
}

/// Records that follow each other.
#[derive(Debug)]
struct Records {
    words: Slab<AtomicU64>,
    /// Bytes of each: whole words.
    size: usize,
}

impl Records {
    fn count(&self) -> usize {
        self.words.len() * 8 / self.size
    }

    fn last(&self) -> u32 {
        u32::try_from(self.count().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The word at `place`, which is as long as one.
    fn word(&self, number: usize, place: Place) -> Option<u64> {
        let at = number.checked_mul(self.size)?.checked_add(place.offset)?;
        (number < self.count() && at.is_multiple_of(8)).then(|| self.words[at / 8].load(Ordering::Acquire))
    }

    fn copy(&self, number: usize) -> Option<Record> {
        let words = self.size / 8;
        let first = number.checked_mul(words)?;
        let words = self.words.get(first..first + words)?;
        Some(Record(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()))
    }
}

/// A record, copied.
struct Record(Vec<u8>);

impl Record {
    /// The bytes at `place`, of which there are `N`.
    fn bytes<const N: usize>(&self, place: Place) -> [u8; N] {
        self.0.get(place.offset..place.offset + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    fn u32(&self, place: Place) -> u32 {
        u32::from_ne_bytes(self.bytes(place))
    }
}

/// Where a record has the inside endpoint that it is of.
#[derive(Debug)]
struct InsidePlaces {
    ipv6: Place,
    ipv4: Place,
    port: Place,
    protocol: Place,
    service: Place,
}

impl InsidePlaces {
    /// Of the records that are called `record`.
    fn new(description: &Description, record: &str) -> Result<Self, DescriptionError> {
        let field = |name: &str, size| description.field(&format!("{record}.{name}"), size);
        Ok(Self {
            ipv6: field("inside", 16)?,
            ipv4: field("inside4", 4)?,
            port: field("inside_port", 2)?,
            protocol: field("protocol", 1)?,
            service: field("service", 1)?,
        })
    }

    fn read(&self, record: &Record) -> InsideKey {
        let [protocol] = record.bytes(self.protocol);
        let [service] = record.bytes(self.service);
        InsideKey {
            ipv6: record.bytes(self.ipv6),
            ipv4: record.bytes(self.ipv4),
            port: record.bytes(self.port),
            protocol,
            service,
        }
    }
}

#[derive(Debug)]
struct BindingPlaces {
    life: Place,
    inside: InsidePlaces,
    outside4: Place,
    outside_port: Place,
    flags: Place,
    subscriber: Place,
    created: Place,
    /// Not every version knew these.
    seen: Option<Place>,
    first: Option<Place>,
    configured: u64,
    operator: u64,
    leased: u64,
}

impl BindingPlaces {
    fn new(description: &Description) -> Result<Self, DescriptionError> {
        Ok(Self {
            life: description.field("binding.life", 8)?,
            inside: InsidePlaces::new(description, "binding")?,
            outside4: description.field("binding.outside4", 4)?,
            outside_port: description.field("binding.outside_port", 2)?,
            flags: description.field("binding.flags", 2)?,
            subscriber: description.field("binding.subscriber", 4)?,
            created: description.field("binding.created", 4)?,
            seen: description.field("binding.seen", 4).ok(),
            first: description.field("binding.first", 8).ok(),
            configured: description.number("BINDING_STATIC")?,
            operator: description.number("BINDING_OPERATOR")?,
            // Not every version knew leases.
            leased: description.number("BINDING_LEASED").unwrap_or(0),
        })
    }

    fn read(&self, record: &Record, ticks: Ticks) -> Binding {
        let found = u64::from(u16::from_ne_bytes(record.bytes(self.flags)));
        let flag = |theirs: u64, ours: u16| if found & theirs != 0 { ours } else { 0 };
        Binding {
            inside: self.inside.read(record),
            outside_ipv4: record.bytes(self.outside4),
            outside_port: record.bytes(self.outside_port),
            flags: flag(self.configured, flags::STATIC)
                | flag(self.operator, flags::OPERATOR)
                | flag(self.leased, flags::LEASED),
            subscriber: record.u32(self.subscriber),
            outside_slot: u32::MAX,
            created: ticks.tick(u64::from(record.u32(self.created))),
        }
    }
}

/// Not every version had leases.
#[derive(Debug)]
struct FormerLeases {
    records: Records,
    places: LeasePlaces,
    since: Slab<AtomicU64>,
}

impl FormerLeases {
    fn open(memory: &dyn FormerMemory, description: &Description) -> Option<Self> {
        Some(Self {
            records: Records { words: Slab::whole(memory.span("leases")?), size: description.record("lease").ok()? },
            places: LeasePlaces::new(description).ok()?,
            since: Slab::whole(memory.span("leases-since")?),
        })
    }
}

#[derive(Debug)]
struct LeasePlaces {
    life: Place,
    inside: InsidePlaces,
    nonce: Place,
    nonce_end: Place,
    expires: Place,
    remote4: Place,
    remote_port: Place,
    kind: Place,
    for_remote: u64,
    was_dynamic: u64,
}

impl LeasePlaces {
    fn new(description: &Description) -> Result<Self, DescriptionError> {
        Ok(Self {
            life: description.field("lease.life", 8)?,
            inside: InsidePlaces::new(description, "lease")?,
            nonce: description.field("lease.nonce", 8)?,
            nonce_end: description.field("lease.nonce_end", 4)?,
            expires: description.field("lease.expires", 4)?,
            remote4: description.field("lease.remote4", 4)?,
            remote_port: description.field("lease.remote_port", 2)?,
            kind: description.field("lease.kind", 2)?,
            for_remote: description.number("LEASE_FOR_REMOTE")?,
            was_dynamic: description.number("LEASE_WAS_DYNAMIC")?,
        })
    }

    fn read(&self, record: &Record, ticks: Ticks) -> Lease {
        let kind = u64::from(u16::from_ne_bytes(record.bytes(self.kind)));
        let (begin, end): ([u8; 8], [u8; 4]) = (record.bytes(self.nonce), record.bytes(self.nonce_end));
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&begin);
        nonce[8..].copy_from_slice(&end);
        Lease {
            inside: self.inside.read(record),
            purpose: match kind & self.for_remote {
                0 => Use::Anybody,
                _ => Use::Remote(record.bytes(self.remote4), record.bytes(self.remote_port)),
            },
            nonce,
            expires: ticks.tick(u64::from(record.u32(self.expires))),
            before: if kind & self.was_dynamic == 0 { Before::Nothing } else { Before::Dynamic },
            subscriber: 0,
        }
    }
}

/// Not every version had conversations.
#[derive(Debug)]
struct FormerConversations {
    records: Records,
    places: ConversationPlaces,
}

impl FormerConversations {
    fn open(memory: &dyn FormerMemory, description: &Description) -> Option<Self> {
        let words = Slab::whole(memory.span("conversations")?);
        let records = Records { words, size: description.record("conversation").ok()? };
        Some(Self { records, places: ConversationPlaces::new(description).ok()? })
    }
}

#[derive(Debug)]
struct ConversationPlaces {
    life: Place,
    inside: InsidePlaces,
    remote4: Place,
    /// The inside's stream, and the outside's.
    streams: [StreamPlaces; 2],
    grown: Place,
    length: Place,
}

#[derive(Debug)]
struct StreamPlaces {
    at: Place,
    next: Place,
    difference: Place,
}

impl ConversationPlaces {
    fn new(description: &Description) -> Result<Self, DescriptionError> {
        let stream = |name: &str| {
            let field = |field: &str| description.field(&format!("conversation.{name}_{field}"), 4);
            Ok(StreamPlaces { at: field("at")?, next: field("next")?, difference: field("difference")? })
        };
        Ok(Self {
            life: description.field("conversation.life", 8)?,
            inside: InsidePlaces::new(description, "conversation")?,
            remote4: description.field("conversation.remote4", 4)?,
            streams: [stream("out")?, stream("in")?],
            grown: description.field("conversation.grown", 2)?,
            length: description.field("conversation.length", 2)?,
        })
    }

    fn read(&self, record: &Record) -> Conversation {
        let (grown, length): ([u8; 2], [u8; 2]) = (record.bytes(self.grown), record.bytes(self.length));
        let stream = |side: usize| {
            let StreamPlaces { at, next, difference } = &self.streams[side];
            let number = |place: &Place| record.u32(*place);
            Stream::unpacked(number(next), number(at), number(difference), grown[side], length[side])
        };
        Conversation {
            ends: Ends { inside: self.inside.read(record), remote: record.bytes(self.remote4) },
            streams: [stream(0), stream(1)],
        }
    }
}

#[derive(Debug)]
struct SubscriberPlaces {
    life: Place,
    inside: Place,
    inside4: Place,
    outside4: Place,
    service: Place,
    blocks: Place,
}

impl SubscriberPlaces {
    fn new(description: &Description) -> Result<Self, DescriptionError> {
        Ok(Self {
            life: description.field("subscriber.life", 8)?,
            inside: description.field("subscriber.inside", 16)?,
            inside4: description.field("subscriber.inside4", 4)?,
            outside4: description.field("subscriber.outside4", 4)?,
            service: description.field("subscriber.service", 1)?,
            blocks: description.any_field("subscriber.blocks")?,
        })
    }

    fn read(&self, record: &Record) -> FormerSubscriber {
        let [service] = record.bytes(self.service);
        let key = SubscriberKey { ipv6: record.bytes(self.inside), ipv4: record.bytes(self.inside4), service };
        let lanes = record.0.get(self.blocks.offset..self.blocks.offset + self.blocks.size).unwrap_or(&[]);
        // As numbers of the machine: the first lane is the lowest part of the word.
        let words = lanes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or([0; 8])));
        let lanes = words.flat_map(|word| word.to_le_bytes().chunks(2).map(lane).collect::<Vec<_>>());
        FormerSubscriber {
            subscriber: Subscriber { key, outside_ipv4: record.bytes(self.outside4) },
            blocks: lanes.filter_map(|lane| lane.checked_sub(1)).collect(),
        }
    }
}

fn lane(bytes: &[u8]) -> u16 {
    bytes.try_into().map_or(0, u16::from_le_bytes)
}

#[derive(Debug)]
struct SessionPlaces {
    /// The sessions of a line, each of `size` bytes.
    entries: Place,
    size: usize,
    word: Place,
    remote: Place,
    seen: Place,
    binding: u64,
    port: u64,
    state: u64,
    pending: u64,
    unanswered: u64,
    doubted: u64,
    first_remote: u64,
}

impl SessionPlaces {
    fn new(description: &Description) -> Result<Self, DescriptionError> {
        Ok(Self {
            entries: description.any_field("session_line.entry")?,
            size: description.record("session")?,
            word: description.field("session.word", 8)?,
            remote: description.field("session.remote", 4)?,
            seen: description.field("session.seen", 4)?,
            binding: description.number("SESSION_BINDING")?,
            port: description.number("SESSION_PORT")?,
            state: description.number("SESSION_STATE")?,
            pending: description.number("SESSION_PENDING")?,
            // Not every version knew these.
            unanswered: description.number("SESSION_UNANSWERED").unwrap_or(0),
            doubted: description.number("SESSION_DOUBTED").unwrap_or(0),
            first_remote: description.number("FIRST_REMOTE").unwrap_or(0),
        })
    }

    fn flags(&self, word: u64) -> u8 {
        let flag = |theirs: u64, ours: u8| if word & theirs != 0 { ours } else { 0 };
        flag(self.unanswered, UNANSWERED) | flag(self.doubted, DOUBTED)
    }

    /// The session `offset` bytes into a line; nothing if the place is free, or changes just now.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word, and a state is a small number")]
    fn read(&self, lines: &Records, line: usize, offset: usize, ticks: Ticks) -> Option<Session> {
        let word_at = Place { offset: offset + self.word.offset, size: 8 };
        let word = lines.word(line, word_at)?;
        let binding = BindingId::new(u32::try_from(masked(word, self.binding)).ok()?)?;
        if word & self.pending != 0 {
            return None;
        }
        let half = |place: Place| {
            let at = offset + place.offset;
            let bytes = lines.word(line, Place { offset: at & !7, size: 8 })?.to_ne_bytes();
            Some([bytes[at & 4], bytes[(at & 4) + 1], bytes[(at & 4) + 2], bytes[(at & 4) + 3]])
        };
        let key = SessionKey {
            binding,
            remote_ipv4: half(self.remote)?,
            remote_port: (masked(word, self.port) as u16).to_ne_bytes(),
        };
        let seen = ticks.tick(u64::from(u32::from_ne_bytes(half(self.seen)?)));
        let state = State(masked(word, self.state) as u8);
        let flags = self.flags(word);
        fence(Ordering::Acquire);
        let is_same = lines.word(line, word_at)? & (self.binding | self.port) == word & (self.binding | self.port);
        is_same.then_some(Session { key, state, flags, seen })
    }
}
