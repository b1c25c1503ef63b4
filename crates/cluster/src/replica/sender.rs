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
//! A backup that has served in an owner's place sends back what it has, by the same means: [`To::Owner`].
//!
//! Where owners are agreed on, slices come to a connection that goes on ([`Sender::take_up`]): of each it is said where its copy begins, and
//! that it is whole (slices.rs).
//!
//! Blocks that nobody has are told of where owners are agreed on (offers.rs): behind all subscribers, so that who has left a block is gone
//! there before.
//!
//! A subscriber is sent before its bindings: it was made before them, bits of bindings are taken before those of
//! subscribers, and all subscribers that are pending go in front.

use std::collections::VecDeque;
use std::sync::Arc;

use tombolo_tables::Tables;
use tombolo_tables::binding::BindingId;
use tombolo_tables::blocks::Holder;
use tombolo_tables::subscriber::SubscriberId;
use tombolo_tables::tick::Tick;

use super::batch::{Epochs, Header, Writer};
use super::bits::Bits;
use super::offers::{Offers, Told};
use super::record::{Class, Kind, Progress, Record, Removed};
use super::slices::Announced;
use super::to::To;
use super::view::View;
use super::words::{Word, Words};

/// Bytes that may be on their way to a backup without its word that it has them.
pub const WINDOW_BYTES: usize = 4 << 20;
/// No slice: the backup was sent nothing.
const NONE: u16 = u16::MAX;

/// What an owner is sent by its backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacking {
    /// It has lost its tables.
    Everything,
    /// Bindings that were made while it was not seen.
    New,
}

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

/// Who is sent records.
#[derive(Debug)]
struct Receiver {
    to: To,
    /// Of bindings that are copies nothing is said.
    only_new: bool,
    subscribers: Records,
    bindings: Records,
    flights: VecDeque<Flight>,
    /// Blocks that nobody has.
    told: Told,
    /// Slices whose copies begin, or are to be whole.
    slices: Announced,
    bytes_in_flight: usize,
    number: u64,
    is_connected: bool,
    /// A whole copy is to begin, or has begun and is not complete.
    begins: bool,
    is_whole: bool,
    /// The newest batch with which a copy was whole, and the newest one that was acknowledged.
    completed: u64,
    acknowledged: u64,
    /// What there is now is to be sent before it is whole again in that sense.
    is_marked: bool,
    /// How far all that had changed at some moment is on its way.
    settling: Settling,
}

/// How far all that had changed at some moment is on its way to a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settling {
    /// Some of it may not have been sent.
    Unsent,
    /// With this batch all of it was.
    Sent(u64),
}

/// The owner's end of all copies.
#[derive(Debug)]
pub struct Sender {
    tables: Arc<Tables>,
    receivers: Vec<Receiver>,
    /// TCP bindings that were sent as open.
    open: Bits,
    /// Where [`classify`](Self::classify) goes on.
    next_part: usize,
    offers: Offers,
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

    /// Record `number` is to be sent before the copy is whole.
    fn lack(&mut self, number: u32) {
        self.pending.set(number, true);
        self.lacking.set(number, true);
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

    /// It is not known whether the backup has been sent records, or heard that they are gone. What is said of slices is said behind them.
    fn send_again(&mut self, flight: Vec<(u32, u16)>) {
        for (number, slice) in flight {
            self.lack(number);
            if let Some(entry) = self.sent_as.get_mut(number as usize).filter(|entry| **entry == NONE) {
                *entry = slice;
            }
        }
    }
}

impl Sender {
    /// The sender of `tables`, in which changes are noted.
    #[must_use]
    pub fn new(tables: Arc<Tables>) -> Self {
        let open = Bits::new(tables.bindings.capacity());
        Self { tables, receivers: Vec::new(), open, next_part: 0, offers: Offers::default() }
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// A connection with the backup `node` begins. `has_copy`: it says that it has a complete copy of this sender's
    /// slices. How it goes on.
    pub fn connect(&mut self, node: u8, has_copy: bool, view: View<'_>) -> Start {
        self.begin(To::Backup(node), has_copy, false, view)
    }

    /// The owner `node` is to be sent what it does not have of its slices.
    pub fn give_back(&mut self, node: u8, lacking: Lacking, view: View<'_>) {
        self.begin(To::Owner(node), false, lacking == Lacking::New, view);
    }

    /// Nothing more is sent there, and all that there was is forgotten.
    pub fn forget(&mut self, to: To) {
        self.receivers.retain(|receiver| receiver.to != to);
    }

    fn begin(&mut self, to: To, has_copy: bool, only_new: bool, view: View<'_>) -> Start {
        self.disconnect(to);
        let Some(place) = self.receivers.iter().position(|receiver| receiver.to == to) else {
            let (subscribers, bindings) = (self.tables.subscribers.capacity(), self.tables.bindings.capacity());
            self.receivers.push(Receiver {
                to,
                only_new,
                subscribers: Records::new(Kind::Subscriber, subscribers),
                bindings: Records::new(Kind::Binding, bindings),
                flights: VecDeque::new(),
                told: Told::default(),
                slices: Announced::default(),
                bytes_in_flight: 0,
                number: 0,
                is_connected: false,
                begins: true,
                is_whole: false,
                completed: 0,
                acknowledged: 0,
                is_marked: false,
                settling: Settling::Unsent,
            });
            return self.begin(to, false, only_new, view);
        };
        self.receivers[place].only_new = only_new;
        let is_resumed = has_copy && self.receivers[place].is_whole;
        if !is_resumed {
            self.begin_whole(place, view);
        }
        let receiver = &mut self.receivers[place];
        receiver.is_connected = true;
        (receiver.number, receiver.completed, receiver.acknowledged) = (0, 0, 0);
        receiver.is_marked = is_resumed;
        if is_resumed { Start::Resumed } else { Start::Whole }
    }

    /// Everything of the receiver's slices is pending.
    fn begin_whole(&mut self, place: usize, view: View<'_>) {
        let tables = Arc::clone(&self.tables);
        let receiver = &mut self.receivers[place];
        receiver.subscribers.forget_all();
        receiver.bindings.forget_all();
        (receiver.begins, receiver.is_whole) = (true, false);
        let to = receiver.to;
        receiver.slices = Announced::default();
        if view.makes_offers() && matches!(to, To::Backup(_)) {
            receiver.slices.begin(view.cluster().slices().filter(|slice| view.is_for(to, *slice)));
        }
        let is_its = |slice: Option<u16>| slice.is_some_and(|slice| view.is_for(to, slice));
        for id in tables.subscribers.iter() {
            if tables.subscribers.read(id).is_some_and(|(found, _)| is_its(view.slice_of_subscriber(&found))) {
                receiver.subscribers.lack(id.get());
            }
        }
        for id in tables.bindings.iter() {
            if tables.bindings.read(id).is_some_and(|(found, _)| is_its(view.slice_of_binding(&found))) {
                receiver.bindings.lack(id.get());
            }
        }
        self.tell_anew(to, |slice| view.is_for(to, slice), view);
    }

    /// Some slices are copied to the backup `node` from now on: what there is of them is pending.
    pub fn take_up(&mut self, node: u8, is_taken: impl Fn(u16) -> bool, view: View<'_>) {
        let to = To::Backup(node);
        self.tell_anew(to, &is_taken, view);
        let Self { tables, receivers, .. } = self;
        // Of one that does not exist everything is pending once it does.
        let Some(receiver) = receivers.iter_mut().find(|receiver| receiver.to == to) else { return };
        receiver.is_whole = false;
        if view.makes_offers() {
            receiver.slices.begin(view.cluster().slices().filter(|slice| is_taken(*slice)));
        }
        for id in tables.subscribers.iter() {
            let found = tables.subscribers.read(id);
            if found.and_then(|(found, _)| view.slice_of_subscriber(&found)).is_some_and(&is_taken) {
                receiver.subscribers.lack(id.get());
            }
        }
        for id in tables.bindings.iter() {
            let found = tables.bindings.read(id);
            if found.and_then(|(found, _)| view.slice_of_binding(&found)).is_some_and(&is_taken) {
                receiver.bindings.lack(id.get());
            }
        }
    }

    /// The connection is over: what was not acknowledged is pending again.
    pub fn disconnect(&mut self, to: To) {
        let Some(receiver) = self.receivers.iter_mut().find(|receiver| receiver.to == to) else { return };
        receiver.is_connected = false;
        receiver.settling = Settling::Unsent;
        receiver.bytes_in_flight = 0;
        receiver.told.tell_again();
        receiver.slices.say_again();
        // What numbers stand for there is forgotten where a copy begins: all records have to follow.
        receiver.is_whole &= !receiver.slices.begins();
        for flight in std::mem::take(&mut receiver.flights) {
            receiver.subscribers.send_again(flight.subscribers);
            receiver.bindings.send_again(flight.bindings);
        }
    }

    /// Takes what has changed since the last time.
    pub fn collect(&mut self, view: View<'_>) {
        let Self { tables, receivers, offers, .. } = self;
        // In this order: see above.
        tables.changed_bindings.take(&mut |number| {
            let found = BindingId::new(number).and_then(|id| tables.bindings.read(id));
            let slice = found.and_then(|(binding, _)| view.slice_of_binding(&binding));
            for Receiver { to, bindings, .. } in receivers.iter_mut() {
                bindings.change(number, slice.is_some_and(|slice| view.is_for(*to, slice)));
            }
        });
        tables.changed_subscribers.take(&mut |number| {
            let found = SubscriberId::new(number).and_then(|id| tables.subscribers.read(id));
            let slice = found.and_then(|(subscriber, _)| view.slice_of_subscriber(&subscriber));
            if let Some((subscriber, _)) = found.filter(|_| view.makes_offers()) {
                offers.look_at(subscriber.key.service, subscriber.outside_ipv4);
            }
            for Receiver { to, subscribers, .. } in receivers.iter_mut() {
                subscribers.change(number, slice.is_some_and(|slice| view.is_for(*to, slice)));
            }
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
                    self.receivers.iter_mut().for_each(|receiver| receiver.bindings.change(id.get(), false));
                }
            }
            self.next_part = (self.next_part + 1) % all.max(1);
        }
    }

    /// Appends the next batch to `out`; false if there is nothing to be sent, or the receiver has to
    /// acknowledge something first.
    pub fn fill(&mut self, to: To, view: View<'_>, epochs: Epochs<'_>, now: Tick, out: &mut Vec<u8>) -> bool {
        let Self { tables, receivers, open, .. } = self;
        let connected = receivers.iter_mut().find(|receiver| receiver.to == to && receiver.is_connected);
        let Some(receiver) = connected.filter(|receiver| receiver.bytes_in_flight < WINDOW_BYTES) else { return false };
        let mut writer = Writer::new(out);
        let mut flight =
            Flight { number: receiver.number + 1, bytes: 0, subscribers: Vec::new(), bindings: Vec::new() };
        let word = Words { tables, view, epochs, to, only_new: receiver.only_new, now };
        let mut is_full = false;
        let section = |slice| word.its(Some(slice));
        receiver.slices.write(Progress::Begins, receiver.number + 1, &mut writer, &mut is_full, section);
        receiver.subscribers.write(&mut writer, &mut flight.subscribers, &mut is_full, |number, sent_as| {
            word.of_subscriber(number, sent_as)
        });
        receiver.told.write(receiver.number + 1, &mut writer, &mut is_full, |at, block| word.of_block(at, block));
        let subscribers = &receiver.subscribers;
        receiver.bindings.write(&mut writer, &mut flight.bindings, &mut is_full, |number, sent_as| {
            word.of_binding(number, sent_as, |id| subscribers.was_sent(id).is_some(), open)
        });
        let blocks = receiver.told.pending();
        let lacks = receiver.subscribers.lacking.count() + receiver.bindings.lacking.count() + blocks > 0;
        let is_past_mark = receiver.is_marked && receiver.subscribers.pending.count() + blocks == 0;
        if !lacks {
            receiver.slices.write(Progress::Whole, receiver.number + 1, &mut writer, &mut is_full, section);
        }
        let completes = !receiver.is_whole && !lacks && receiver.slices.pending() == 0;
        let has_all = !is_full && receiver.subscribers.pending.count() + receiver.bindings.pending.count() == 0;
        if has_all && receiver.settling == Settling::Unsent {
            receiver.settling = Settling::Sent(receiver.number + u64::from(!writer.is_empty()));
        }
        if writer.is_empty() && !receiver.begins && !completes {
            writer.abandon();
            receiver.pass_mark(is_past_mark);
            return false;
        }
        receiver.number += 1;
        flight.bytes = writer.finish(Header { number: receiver.number, begins: receiver.begins, completes });
        receiver.begins = false;
        if completes {
            (receiver.is_whole, receiver.completed) = (true, receiver.number);
        }
        receiver.pass_mark(is_past_mark);
        receiver.bytes_in_flight += flight.bytes;
        receiver.flights.push_back(flight);
        true
    }

    /// All batches up to `number` have been applied; false if they cannot have.
    #[must_use]
    pub fn acknowledge(&mut self, to: To, number: u64) -> bool {
        let Some(receiver) = self.receivers.iter_mut().find(|receiver| receiver.to == to) else { return false };
        while let Some(flight) = receiver.flights.pop_front_if(|flight| flight.number <= number) {
            receiver.bytes_in_flight -= flight.bytes;
        }
        for word in receiver.told.known_by(number) {
            self.tables.blocks.acknowledge(word);
        }
        receiver.slices.acknowledge(number);
        receiver.acknowledged = receiver.acknowledged.max(number);
        number <= receiver.number
    }

    /// This node grants by offers from now on, of slices of which `node` has the copy: what it had granted before, and what of that was
    /// given back, is to be known there until [`is_held`](Self::is_held) says so again.
    pub fn mark(&mut self, node: u8, view: View<'_>) {
        let to = To::Backup(node);
        self.tell(to, |slice| view.is_for(to, slice), view);
        let marked = self.receivers.iter_mut().find(|receiver| receiver.to == to);
        marked.into_iter().for_each(|receiver| receiver.is_marked = true);
    }

    /// What any receiver was told of some slices' blocks counts no more, and this one is told of all of them.
    fn tell_anew(&mut self, to: To, is_meant: impl Fn(u16) -> bool, view: View<'_>) {
        if view.makes_offers() && matches!(to, To::Backup(_)) {
            self.receivers.iter_mut().for_each(|receiver| receiver.told.forget(&is_meant));
            view.each_block(&is_meant, |word, block| {
                self.tables.blocks.doubt(word);
                self.offers.look_at(block.service, block.outside_ipv4);
            });
            self.tell(to, is_meant, view);
        }
    }

    /// A receiver is to be told of some slices' blocks that are not simply free. Of those that somebody has as well, who may have gone
    /// before anything is said of it.
    fn tell(&mut self, to: To, is_meant: impl Fn(u16) -> bool, view: View<'_>) {
        let Self { tables, receivers, .. } = self;
        let Some(receiver) = receivers.iter_mut().find(|receiver| receiver.to == to) else { return };
        view.each_block(is_meant, |word, block| {
            if tables.blocks.read(word) != Holder::Nobody {
                receiver.told.tell(word, block);
            }
        });
    }

    /// Offers blocks where there are too few: of addresses that somebody was granted something of, and of a part of all others, so that
    /// all are looked at in `rounds`.
    pub fn offer(&mut self, rounds: usize, view: View<'_>, now: Tick) {
        if !view.makes_offers() {
            return;
        }
        let Self { tables, receivers, offers, .. } = self;
        for address in offers.due(rounds, view) {
            let backup = view.slice_of(address.service, address.outside_ipv4).and_then(|slice| view.backup_of(slice));
            let receiver = receivers.iter_mut().find(|receiver| backup.map(To::Backup) == Some(receiver.to));
            if let Some(receiver) = receiver {
                offers.make(address, tables, view, now, &mut |word, block| receiver.told.tell(word, block));
            }
        }
    }

    fn receiver(&self, to: To) -> Option<&Receiver> {
        self.receivers.iter().find(|receiver| receiver.to == to)
    }

    /// Whether everything was sent, up to what has changed since.
    #[must_use]
    pub fn is_whole(&self, to: To) -> bool {
        self.receiver(to).is_some_and(|receiver| receiver.is_whole)
    }

    /// Whether the receiver has said that it has everything that there was when everything had been sent.
    #[must_use]
    pub fn is_held(&self, to: To) -> bool {
        self.receiver(to).is_some_and(|receiver| receiver.is_held())
    }

    /// Whether the receiver has all that has changed before now, is from now on asked anew: also which connections are open, of which
    /// nobody may have said anything yet.
    pub fn settle(&mut self, to: To, view: View<'_>, now: Tick) {
        self.collect(view);
        self.classify(1, now);
        if let Some(receiver) = self.receivers.iter_mut().find(|receiver| receiver.to == to) {
            receiver.settling = Settling::Unsent;
        }
    }

    /// Whether the receiver has said that it has all that had changed when that was asked last.
    #[must_use]
    pub fn is_settled(&self, to: To) -> bool {
        let is_settled = |receiver: &Receiver| match receiver.settling {
            Settling::Sent(number) => receiver.is_connected && receiver.acknowledged >= number,
            Settling::Unsent => false,
        };
        self.is_held(to) && self.receiver(to).is_some_and(is_settled)
    }

    /// Records that are to be sent, and were not yet.
    #[must_use]
    pub fn pending(&self, to: To) -> usize {
        let records = |receiver: &Receiver| receiver.subscribers.pending.count() + receiver.bindings.pending.count();
        let count = |receiver: &Receiver| records(receiver) + receiver.told.pending() + receiver.slices.pending();
        self.receiver(to).map_or(0, count)
    }

    /// Bytes that were sent and not acknowledged.
    #[must_use]
    pub fn in_flight(&self, to: To) -> usize {
        self.receiver(to).map_or(0, |receiver| receiver.bytes_in_flight)
    }
}

impl Receiver {
    fn is_held(&self) -> bool {
        self.is_whole && !self.is_marked && self.acknowledged >= self.completed
    }

    /// All that there was at the mark has been sent.
    fn pass_mark(&mut self, is_past: bool) {
        if is_past {
            (self.completed, self.is_marked) = (self.completed.max(self.number), false);
        }
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
