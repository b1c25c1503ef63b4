//! The owner's end: what has changed goes to the backups of the slices that it is of.
//!
//! ```text
//! changes -> pending, a bit for each record and backup -> batch -> in flight -> acknowledged
//!               ^                                                    |
//!               +--------------- the connection breaks <-------------+
//! ```
//!
//! Of each record it is known which backup has been sent it, and as of which slice: a record that is gone, or
//! another subscriber's by now, is removed there.
//!
//! A subscriber is sent before its bindings: it was made before them, bits of bindings are taken before those of
//! subscribers, and all subscribers that are pending go in front.

use std::collections::VecDeque;
use std::sync::Arc;

use tombolo_tables::Tables;
use tombolo_tables::binding::BindingId;
use tombolo_tables::subscriber::{MOST_BLOCKS, SubscriberId};
use tombolo_tables::tick::Tick;

use super::batch::{Header, Section, Writer};
use super::bits::Bits;
use super::record::{BindingRecord, COPIED_FLAGS, Class, Kind, Record, Removed, SubscriberRecord};
use super::view::View;

/// Bytes that may be on their way to a backup without its word that it has them.
pub const WINDOW_BYTES: usize = 4 << 20;
/// No slice: the backup was sent nothing.
const NONE: u16 = u16::MAX;

/// How a connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Everything is copied.
    Whole,
    /// The backup has a copy from this sender, which goes on where it broke off.
    Resumed,
}

/// Records of one kind, as far as one backup has them.
#[derive(Debug)]
struct Records {
    kind: Kind,
    /// To be sent.
    pending: Bits,
    /// Of these, the ones that a whole copy still lacks.
    lacking: Bits,
    /// As of which slice each was sent.
    sent_as: Vec<u16>,
}

/// Numbers of records that were sent at once, and the slices as of which they were.
#[derive(Debug)]
struct Flight {
    number: u64,
    bytes: usize,
    subscribers: Vec<(u32, u16)>,
    bindings: Vec<(u32, u16)>,
}

/// A backup.
#[derive(Debug)]
struct Backup {
    node: u8,
    subscribers: Records,
    bindings: Records,
    flights: VecDeque<Flight>,
    bytes_in_flight: usize,
    number: u64,
    is_connected: bool,
    /// A whole copy is to begin, or has begun and is not complete.
    begins: bool,
    is_whole: bool,
}

/// The owner's end of all copies.
#[derive(Debug)]
pub struct Sender {
    tables: Arc<Tables>,
    backups: Vec<Backup>,
    /// TCP bindings that were sent as open.
    open: Bits,
    /// Where [`classify`](Self::classify) goes on.
    next_part: usize,
}

impl Records {
    fn new(kind: Kind, last: u32) -> Self {
        let nothing = || Bits::new(last);
        Self { kind, pending: nothing(), lacking: nothing(), sent_as: vec![NONE; last as usize + 1] }
    }

    fn was_sent(&self, number: u32) -> Option<u16> {
        self.sent_as.get(number as usize).copied().filter(|slice| *slice != NONE)
    }

    /// Record `number`, which is of a slice for this backup or of none, has changed.
    fn change(&mut self, number: u32, is_its: bool) {
        if is_its || self.was_sent(number).is_some() {
            self.pending.set(number, true);
        }
    }

    fn forget_all(&mut self) {
        self.pending.clear();
        self.lacking.clear();
        self.sent_as.fill(NONE);
    }

    /// Record `number` was written into a batch, as one of a slice or as gone.
    fn sent(&mut self, number: u32, slice: u16) {
        self.pending.set(number, false);
        self.lacking.set(number, false);
        if let Some(entry) = self.sent_as.get_mut(number as usize) {
            *entry = slice;
        }
    }

    /// It is not known whether the backup has been sent records, or heard that they are gone.
    fn send_again(&mut self, flight: Vec<(u32, u16)>) {
        for (number, slice) in flight {
            self.pending.set(number, true);
            if let Some(entry) = self.sent_as.get_mut(number as usize).filter(|entry| **entry == NONE) {
                *entry = slice;
            }
        }
    }
}

/// What is to be said of a record now.
enum Word {
    /// This.
    Is(Section, Record),
    /// It is gone.
    Gone(Section),
    /// Nothing: the backup does not have it, and need not.
    Nothing,
    /// Not yet.
    Later,
}

impl Sender {
    /// The sender of `tables`, in which changes are noted.
    #[must_use]
    pub fn new(tables: Arc<Tables>) -> Self {
        let open = Bits::new(tables.bindings.capacity());
        Self { tables, backups: Vec::new(), open, next_part: 0 }
    }

    /// A connection with node `node` begins. `has_copy`: it says that it has a complete copy of this sender's
    /// slices. How it goes on.
    pub fn connect(&mut self, node: u8, has_copy: bool, view: View<'_>) -> Start {
        self.disconnect(node);
        let Some(place) = self.backups.iter().position(|backup| backup.node == node) else {
            let (subscribers, bindings) = (self.tables.subscribers.capacity(), self.tables.bindings.capacity());
            self.backups.push(Backup {
                node,
                subscribers: Records::new(Kind::Subscriber, subscribers),
                bindings: Records::new(Kind::Binding, bindings),
                flights: VecDeque::new(),
                bytes_in_flight: 0,
                number: 0,
                is_connected: false,
                begins: true,
                is_whole: false,
            });
            return self.connect(node, false, view);
        };
        let is_resumed = has_copy && self.backups[place].is_whole;
        if !is_resumed {
            self.begin_whole(place, view);
        }
        let backup = &mut self.backups[place];
        backup.is_connected = true;
        backup.number = 0;
        if is_resumed { Start::Resumed } else { Start::Whole }
    }

    /// Everything of the backup's slices is pending.
    fn begin_whole(&mut self, place: usize, view: View<'_>) {
        let tables = Arc::clone(&self.tables);
        let backup = &mut self.backups[place];
        backup.subscribers.forget_all();
        backup.bindings.forget_all();
        (backup.begins, backup.is_whole) = (true, false);
        let is_its = |slice: Option<u16>| slice.and_then(|slice| view.backup_of(slice)) == Some(backup.node);
        for id in tables.subscribers.iter() {
            if tables.subscribers.read(id).is_some_and(|(found, _)| is_its(view.slice_of_subscriber(&found))) {
                backup.subscribers.pending.set(id.get(), true);
                backup.subscribers.lacking.set(id.get(), true);
            }
        }
        for id in tables.bindings.iter() {
            if tables.bindings.read(id).is_some_and(|(found, _)| is_its(view.slice_of_binding(&found))) {
                backup.bindings.pending.set(id.get(), true);
                backup.bindings.lacking.set(id.get(), true);
            }
        }
    }

    /// The connection with `node` is over: what was not acknowledged is pending again.
    pub fn disconnect(&mut self, node: u8) {
        let Some(backup) = self.backups.iter_mut().find(|backup| backup.node == node) else { return };
        backup.is_connected = false;
        backup.bytes_in_flight = 0;
        for flight in std::mem::take(&mut backup.flights) {
            backup.subscribers.send_again(flight.subscribers);
            backup.bindings.send_again(flight.bindings);
        }
    }

    /// Takes what has changed since the last time.
    pub fn collect(&mut self, view: View<'_>) {
        let Self { tables, backups, .. } = self;
        // In this order: see above.
        tables.changed_bindings.take(&mut |number| {
            let found = BindingId::new(number).and_then(|id| tables.bindings.read(id));
            let slice = found.and_then(|(binding, _)| view.slice_of_binding(&binding));
            let whose = slice.and_then(|slice| view.backup_of(slice));
            backups.iter_mut().for_each(|backup| backup.bindings.change(number, whose == Some(backup.node)));
        });
        tables.changed_subscribers.take(&mut |number| {
            let found = SubscriberId::new(number).and_then(|id| tables.subscribers.read(id));
            let slice = found.and_then(|(subscriber, _)| view.slice_of_subscriber(&subscriber));
            let whose = slice.and_then(|slice| view.backup_of(slice));
            backups.iter_mut().for_each(|backup| backup.subscribers.change(number, whose == Some(backup.node)));
        });
    }

    /// Looks at one of `rounds` parts of the bindings: where a connection has been opened or closed since the
    /// binding was sent, it is sent again.
    pub fn classify(&mut self, rounds: usize, now: Tick) {
        let all = self.tables.bindings.parts();
        for _ in 0..all.div_ceil(rounds.max(1)) {
            for id in self.tables.bindings.used(self.next_part) {
                let Some((binding, _)) = self.tables.bindings.read(id) else { continue };
                let is_open = View::class_of(&self.tables, id, &binding, now) == Class::Established;
                if is_open != self.open.has(id.get()) {
                    self.backups.iter_mut().for_each(|backup| backup.bindings.change(id.get(), false));
                }
            }
            self.next_part = (self.next_part + 1) % all.max(1);
        }
    }

    /// Appends the next batch for `node` to `out`; false if there is nothing to be sent, or the backup has to
    /// acknowledge something first.
    pub fn fill(&mut self, node: u8, view: View<'_>, epoch: u32, now: Tick, out: &mut Vec<u8>) -> bool {
        let Self { tables, backups, open, .. } = self;
        let connected = backups.iter_mut().find(|backup| backup.node == node && backup.is_connected);
        let Some(backup) = connected.filter(|backup| backup.bytes_in_flight < WINDOW_BYTES) else { return false };
        let mut writer = Writer::new(out);
        let mut flight = Flight { number: backup.number + 1, bytes: 0, subscribers: Vec::new(), bindings: Vec::new() };
        let word = Words { tables, view, epoch, node, now };
        let mut is_full = false;
        backup.subscribers.write(&mut writer, &mut flight.subscribers, &mut is_full, |number, sent_as| {
            word.of_subscriber(number, sent_as)
        });
        let subscribers = &backup.subscribers;
        backup.bindings.write(&mut writer, &mut flight.bindings, &mut is_full, |number, sent_as| {
            word.of_binding(number, sent_as, subscribers, open)
        });
        let lacks = backup.subscribers.lacking.count() + backup.bindings.lacking.count() > 0;
        let completes = !backup.is_whole && !lacks;
        if writer.is_empty() && !backup.begins && !completes {
            writer.abandon();
            return false;
        }
        backup.number += 1;
        flight.bytes = writer.finish(Header { number: backup.number, begins: backup.begins, completes });
        backup.begins = false;
        backup.is_whole |= completes;
        backup.bytes_in_flight += flight.bytes;
        backup.flights.push_back(flight);
        true
    }

    /// The backup has applied all batches up to `number`; false if it cannot have.
    #[must_use]
    pub fn acknowledge(&mut self, node: u8, number: u64) -> bool {
        let Some(backup) = self.backups.iter_mut().find(|backup| backup.node == node) else { return false };
        while let Some(flight) = backup.flights.pop_front_if(|flight| flight.number <= number) {
            backup.bytes_in_flight -= flight.bytes;
        }
        number <= backup.number
    }

    /// Whether `node` was sent everything, up to what has changed since.
    #[must_use]
    pub fn is_whole(&self, node: u8) -> bool {
        self.backups.iter().any(|backup| backup.node == node && backup.is_whole)
    }

    /// Records that `node` is to be sent, and was not yet.
    #[must_use]
    pub fn pending(&self, node: u8) -> usize {
        let backup = self.backups.iter().find(|backup| backup.node == node);
        backup.map_or(0, |backup| backup.subscribers.pending.count() + backup.bindings.pending.count())
    }

    /// Bytes that `node` was sent and has not acknowledged.
    #[must_use]
    pub fn in_flight(&self, node: u8) -> usize {
        self.backups.iter().find(|backup| backup.node == node).map_or(0, |backup| backup.bytes_in_flight)
    }
}

impl Records {
    /// Writes what is pending, as `word` has it, until the batch is full.
    fn write(
        &mut self,
        writer: &mut Writer<'_>,
        flight: &mut Vec<(u32, u16)>,
        is_full: &mut bool,
        mut word: impl FnMut(u32, Option<u16>) -> Word,
    ) {
        let mut from = 0;
        while !*is_full && let Some(number) = self.pending.next(from) {
            from = number + 1;
            let sent_as = self.was_sent(number);
            let (section, record, slice) = match word(number, sent_as) {
                Word::Is(section, record) => (section, record, section.slice),
                Word::Gone(section) => (section, Record::Removed(Removed { number, of: self.kind }), NONE),
                Word::Later => continue,
                Word::Nothing => {
                    self.sent(number, NONE);
                    continue;
                }
            };
            *is_full = !writer.add(section, &record);
            if !*is_full {
                self.sent(number, slice);
                flight.push((number, section.slice));
            }
        }
    }
}

/// What there is to be said to a backup.
struct Words<'a> {
    tables: &'a Tables,
    view: View<'a>,
    epoch: u32,
    node: u8,
    now: Tick,
}

impl Words<'_> {
    fn section(&self, slice: u16) -> Section {
        Section { slice, epoch: self.epoch }
    }

    /// The section of a record of this slice, if it is for the backup.
    fn its(&self, slice: Option<u16>) -> Option<Section> {
        let slice = slice.filter(|slice| self.view.backup_of(*slice) == Some(self.node))?;
        Some(self.section(slice))
    }

    fn gone(&self, sent_as: Option<u16>) -> Word {
        sent_as.map_or(Word::Nothing, |slice| Word::Gone(self.section(slice)))
    }

    fn of_subscriber(&self, number: u32, sent_as: Option<u16>) -> Word {
        let found = SubscriberId::new(number).and_then(|id| Some((id, self.tables.subscribers.read(id)?.0)));
        let Some((id, subscriber)) = found else { return self.gone(sent_as) };
        let Some(section) = self.its(self.view.slice_of_subscriber(&subscriber)) else { return self.gone(sent_as) };
        let mut blocks = [0; MOST_BLOCKS];
        for (entry, place) in blocks.iter_mut().zip(self.tables.subscribers.blocks(id)) {
            *entry = place + 1;
        }
        let record = SubscriberRecord { number, key: subscriber.key, outside_ipv4: subscriber.outside_ipv4, blocks };
        Word::Is(section, Record::Subscriber(record))
    }

    fn of_binding(&self, number: u32, sent_as: Option<u16>, subscribers: &Records, open: &mut Bits) -> Word {
        let found = BindingId::new(number).and_then(|id| Some((id, self.tables.bindings.read(id)?.0)));
        let Some((id, binding)) = found else { return self.gone(sent_as) };
        let Some(section) = self.its(self.view.slice_of_binding(&binding)) else { return self.gone(sent_as) };
        // One that was admitted since changes were taken is taken the next time, and then sent first.
        if binding.subscriber != 0 && subscribers.was_sent(binding.subscriber).is_none() {
            return Word::Later;
        }
        let class = View::class_of(self.tables, id, &binding, self.now);
        open.set(number, class == Class::Established);
        let record = BindingRecord {
            number,
            subscriber: binding.subscriber,
            inside: binding.inside,
            outside_ipv4: binding.outside_ipv4,
            outside_port: binding.outside_port,
            flags: binding.flags & COPIED_FLAGS,
            age: self.now.since(binding.created),
            class,
        };
        Word::Is(section, Record::Binding(record))
    }
}
