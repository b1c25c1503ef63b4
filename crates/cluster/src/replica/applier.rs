//! The receiver's end: what another node sends becomes records of the own tables.
//!
//! The owner decides. Whatever stands here in the way of what it says (a binding of the same host, or at the
//! same port, a block that somebody else had) is outdated and goes: the owner has had it end, and will say so.
//! So the order in which records come does not count, nor that one comes twice, nor that versions are skipped.
//!
//! A subscriber that was replaced at the owner may have bindings here of which the owner has not spoken yet: its
//! record stays until they are gone, found by nobody ([`Tables::part_with`]).
//!
//! That the owner decides, it does for its own slices. Numbers outlast a slice that moves: what here was the copy of one of its records may
//! be of a slice that this node owns by now, and at the other end the number another record's. So whatever a number stands for counts only
//! while it is of a slice that is the sender's to speak of, and what is in the way of such a slice goes, but nothing of any other.
//!
//! What a backup gives back ([`Purpose::Return`]) is the receiver's own, and no copy. There the receiver decides: what
//! is in the way of its own stays away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tombolo_tables::Tables;
use tombolo_tables::binding::{Binding, BindingId, InsideKey, Origin, flags};
use tombolo_tables::outside::Slot;
use tombolo_tables::subscriber::{Subscriber, SubscriberId, SubscriberKey};
use tombolo_tables::tables::{BindError, Removal};
use tombolo_tables::tick::Tick;

use super::batch::{self, BatchError, Epochs, Header, Section};
use super::numbers::Numbers;
use super::record::{BindingRecord, BlockRecord, BlockState, Class, Kind, Progress, Record, Removed, SubscriberRecord};
use super::slices::Copied;
use super::to::To;
use super::view::{ServiceName, View};

/// How often flags of a binding are changed that somebody else changes meanwhile.
const ATTEMPTS: usize = 8;

/// What an owner has sent cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A batch makes no sense.
    #[error("a batch that makes no sense: {0}")]
    Batch(#[from] BatchError),
    /// Batches do not follow each other.
    #[error("batch {found} where number {wanted} was to come")]
    Number {
        /// The number that was to come.
        wanted: u64,
        /// The one that came.
        found: u64,
    },
    /// The sender had the slice before somebody else did.
    #[error("slice {slice} as of epoch {theirs}, which is {own} here; give both nodes the same file of slices")]
    Epoch {
        /// The slice.
        slice: u16,
        /// The sender's epoch.
        theirs: u32,
        /// That of this node.
        own: u32,
    },
    /// The slice is not the sender's, or this node is not its backup.
    #[error("slice {0}, which is not copied from it to this node; give both nodes the same file of slices")]
    Slice(u16),
    /// A number that the sender's tables do not have.
    #[error("record {0}, of which its tables have none")]
    Record(u32),
}

/// What became of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Subscribers that came.
    pub subscribers: u64,
    /// Bindings that came.
    pub bindings: u64,
    /// Records that went.
    pub removed: u64,
    /// Bindings and subscribers that had to go since the owner's word is against them.
    pub outdated: u64,
    /// Records that have no place here: no such service or port, or no room.
    pub unplaced: u64,
}

/// What records are applied for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The sender owns the slices, and this node has the copy.
    Copy,
    /// This node owns the slices, and its backup gives back what it has.
    Return,
}

/// What there is here of what one other node has.
#[derive(Debug)]
pub struct Applier {
    tables: Arc<Tables>,
    purpose: Purpose,
    other: u8,
    services: Vec<Option<u8>>,
    subscribers: Numbers<Subscriber>,
    bindings: Numbers<Binding>,
    /// Replaced subscribers that still have bindings, and the generations of their records.
    parted: Vec<(SubscriberId, u64)>,
    number: u64,
    is_complete: bool,
    /// How far the copies of single slices are, where owners are agreed on.
    copied: Copied,
    /// Slices of this node's of which the other one says that it owns them since, and as of which epoch.
    claimed: BTreeMap<u16, u32>,
    applied: Applied,
}

impl Applier {
    /// Nothing yet of what node `other` has, in `tables`. Its tables have room for so many subscribers and
    /// bindings.
    #[must_use]
    pub fn new(tables: Arc<Tables>, purpose: Purpose, other: u8, (subscribers, bindings): (u32, u32)) -> Self {
        Self {
            purpose,
            other,
            services: Vec::new(),
            subscribers: Numbers::new(subscribers, tables.subscribers.capacity()),
            bindings: Numbers::new(bindings, tables.bindings.capacity()),
            parted: Vec::new(),
            number: 0,
            is_complete: false,
            copied: Copied::default(),
            claimed: BTreeMap::new(),
            applied: Applied::default(),
            tables,
        }
    }

    /// A connection begins, on which the owner numbers its services so. Gives the names of those that there are
    /// none of here: what they have cannot be copied.
    pub fn connect(&mut self, services: &[ServiceName], view: View<'_>) -> Vec<String> {
        self.number = 0;
        self.services = vec![None; usize::from(u8::MAX) + 1];
        let mut unknown = Vec::new();
        for service in services {
            let own = view.number_of(service);
            self.services[usize::from(service.number)] = own;
            if own.is_none() {
                unknown.push(service.name.clone());
            }
        }
        unknown
    }

    /// Whether everything has been copied, up to the changes that are on their way.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether there is a whole copy of a slice, up to the changes that are on their way, as of this epoch; where owners are agreed on.
    #[must_use]
    pub fn has(&self, slice: u16, epoch: u32) -> bool {
        self.copied.progress(slice, epoch) == Some(Progress::Whole)
    }

    /// Whether a copy of a slice has begun, as of this epoch.
    #[must_use]
    pub fn has_begun(&self, slice: u16, epoch: u32) -> bool {
        self.copied.progress(slice, epoch).is_some()
    }

    /// What there was of some slices is here no more.
    pub fn lose(&mut self, is_lost: impl Fn(u16) -> bool) {
        self.copied.lose(is_lost);
    }

    /// Whether there is a slice whose copy was lost here, and is to be here again, but has not begun anew. If that does not change, this node has
    /// heard too late that the copy was to be elsewhere for a while: the owner had begun it anew before, and takes it for whole.
    #[must_use]
    pub fn lacks_beginning(&self, view: View<'_>, epochs: Epochs<'_>) -> bool {
        let is_here = |(slice, epoch): (u16, u32)| epochs(slice) == epoch && self.is_about(Some(slice), view);
        self.copied.lost().any(is_here)
    }

    /// What there is of the owner's slices is no whole copy: the next connection begins with everything.
    pub fn begin_anew(&mut self) {
        self.is_complete = false;
    }

    /// Slices that this node hands over, and of which their successor has spoken as their owner, each with its epoch.
    pub fn take_claimed(&mut self) -> BTreeMap<u16, u32> {
        std::mem::take(&mut self.claimed)
    }

    /// What became of all records so far.
    #[must_use]
    pub fn applied(&self) -> Applied {
        self.applied
    }

    /// The owner serves again, in whose place this node has: bindings that were made here meanwhile go, which it was
    /// offered; and sessions, in one pass over all, so that none is there when their binding goes.
    pub fn end_acting(&mut self, view: View<'_>, now: Tick) {
        let mut removal = Removal::new(&self.tables);
        for id in self.tables.bindings.iter() {
            let Some((binding, _)) = self.tables.bindings.read(id) else { continue };
            if !self.is_about(view.slice_of_binding(&binding), view) {
                continue;
            }
            if binding.flags & flags::COPIED == 0 {
                let _ = removal.unbind_if(id, |_| true, now);
            } else {
                removal.clear(id);
            }
        }
        removal.finish();
    }

    /// Of some slices this node is the backup by now, which it had served: sessions go, in one pass as above. Of what the owner has not spoken
    /// of yet it is noted whether a connection is open.
    pub fn end_serving(&mut self, is_meant: impl Fn(u16) -> bool, view: View<'_>, now: Tick) {
        let mut removal = Removal::new(&self.tables);
        for id in self.tables.bindings.iter() {
            let Some((binding, _)) = self.tables.bindings.read(id) else { continue };
            let slice = view.slice_of_binding(&binding).filter(|slice| is_meant(*slice));
            if !self.is_about(slice, view) {
                continue;
            }
            let is_open = View::class_of(&self.tables, id, &binding, now) == Class::Established;
            if is_open && !self.bindings.has(&self.tables.bindings, id) {
                let flags = binding.flags | flags::RESUMED | flags::COPIED;
                let _ = self.tables.change_flags(id, &binding, flags);
            }
            removal.clear(id);
        }
        removal.finish();
    }

    /// Whether a slice is the other node's to speak of.
    fn is_about(&self, slice: Option<u16>, view: View<'_>) -> bool {
        let from = match self.purpose {
            Purpose::Copy => To::Owner(self.other),
            Purpose::Return => To::Backup(self.other),
        };
        slice.is_some_and(|slice| view.is_for(from, slice))
    }

    /// Applies a batch; its number, to be acknowledged. `has_acted`: this node may have served the slices, so
    /// that copies have sessions.
    ///
    /// # Errors
    /// [`Refused`]: the connection is of no use any more.
    pub fn apply(
        &mut self,
        bytes: &[u8],
        view: View<'_>,
        epochs: Epochs<'_>,
        now: Tick,
        has_acted: bool,
    ) -> Result<u64, Refused> {
        let tables = Arc::clone(&self.tables);
        let mut batch = Batch {
            applier: self,
            view,
            removal: has_acted.then(|| Removal::new(&tables)),
            tables: &tables,
            now,
            completes: false,
            begun: BTreeSet::new(),
            whole: BTreeSet::new(),
        };
        let cell = std::cell::RefCell::new(&mut batch);
        let read: Result<(), Refused> = batch::read(
            bytes,
            |header| cell.borrow_mut().begin(header),
            |section, record| {
                let mut batch = cell.borrow_mut();
                if batch.is_late(section, &record, epochs) {
                    batch.leave_out(section.slice, &record);
                    return Ok(());
                }
                batch.check(section, epochs)?;
                batch.record(section, record)
            },
        );
        if matches!(read, Err(Refused::Slice(_))) {
            // It may come again, when this node has heard of it as well.
            batch.applier.number -= 1;
        }
        read?;
        if !batch.begun.is_empty() {
            batch.forget_numbers();
        }
        let completes = batch.completes;
        if batch.applier.purpose == Purpose::Copy {
            let whole = std::mem::take(&mut batch.whole);
            if !whole.is_empty() {
                batch.drop_others(|slice| whole.contains(&slice));
            } else if completes && !view.cluster().is_agreed() {
                batch.drop_others(|_| true);
            }
        }
        // Who is gone has no bindings once their numbers are free.
        drop(batch.removal.take());
        batch.drop_parted();
        self.is_complete |= completes;
        Ok(self.number)
    }
}

/// A batch that is being applied.
struct Batch<'a, 't> {
    applier: &'a mut Applier,
    tables: &'t Tables,
    view: View<'a>,
    removal: Option<Removal<'t>>,
    now: Tick,
    completes: bool,
    /// Slices whose copies begin with this batch,
    begun: BTreeSet<u16>,
    /// and those whose copies are whole with it.
    whole: BTreeSet<u16>,
}

impl Batch<'_, '_> {
    fn begin(&mut self, header: Header) -> Result<(), Refused> {
        let wanted = self.applier.number + 1;
        if header.number != wanted {
            return Err(Refused::Number { wanted, found: header.number });
        }
        self.applier.number = wanted;
        self.completes = header.completes;
        if header.begins {
            self.applier.is_complete = false;
            if self.applier.purpose == Purpose::Copy {
                let is_others = |slice| self.view.is_for(To::Owner(self.applier.other), slice);
                self.view.each_block(is_others, |word, _| self.tables.blocks.withdraw(word));
            }
            self.applier.subscribers.clear();
            self.applier.bindings.clear();
            self.applier.copied.clear();
        }
        Ok(())
    }

    /// Whether something was said of a slice before somebody else had it, or the copy of it, as this node knows already: it is left out, and
    /// the connection goes on for all other slices. Whoever had the slice then has no say; or says everything again, once another copy has begun.
    fn is_late(&self, Section { slice, epoch }: Section, record: &Record, epochs: Epochs<'_>) -> bool {
        if !self.view.cluster().is_agreed() {
            return false;
        }
        let own = epochs(slice);
        let begins = matches!(record, Record::Slice(Progress::Begins));
        let is_removal = matches!(record, Record::Removed(_));
        let is_its = || self.is_about(Some(slice)) && !self.applier.copied.is_lost(slice, epoch);
        let is_elsewhere = || !begins && (is_removal || self.applier.has_begun(slice, epoch)) && !is_its();
        epoch < own || epoch == own && is_elsewhere()
    }

    /// A record is left out; but its number stands for something else from now on than it did.
    fn leave_out(&mut self, slice: u16, record: &Record) {
        match record {
            Record::Subscriber(SubscriberRecord { number, .. }) if self.applier.subscribers.can_be(*number) => {
                let copy = self.copy_of_subscriber(*number).and_then(|id| self.tables.subscribers.read(id));
                if copy.is_some_and(|(copy, _)| self.view.slice_of_subscriber(&copy) != Some(slice)) {
                    self.remove_subscriber(*number);
                }
                self.applier.subscribers.forget_theirs(*number);
            }
            Record::Binding(BindingRecord { number, .. }) if self.applier.bindings.can_be(*number) => {
                let copy = self.copy_of_binding(*number).and_then(|id| self.tables.bindings.read(id));
                if copy.is_some_and(|(copy, _)| self.view.slice_of_binding(&copy) != Some(slice)) {
                    self.remove_binding(*number);
                }
                self.applier.bindings.forget_theirs(*number);
            }
            _ => {}
        }
    }

    fn check(&mut self, Section { slice, epoch }: Section, epochs: Epochs<'_>) -> Result<(), Refused> {
        let own = epochs(slice);
        if epoch < own {
            return Err(Refused::Epoch { slice, theirs: epoch, own });
        }
        if self.is_about(Some(slice)) {
            return Ok(());
        }
        if self.view.backup_of(slice) == Some(self.applier.other) && epoch > own {
            self.applier.claimed.insert(slice, epoch);
        }
        Err(Refused::Slice(slice))
    }

    fn is_about(&self, slice: Option<u16>) -> bool {
        self.applier.is_about(slice, self.view)
    }

    /// Whether what there is of a slice is the other node's to change: what this node had of it is its own until the other one's copy begins.
    fn is_copied(&self, slice: Option<u16>) -> bool {
        let cluster = self.view.cluster();
        let has_begun = |slice: u16| self.applier.copied.has_begun_since(slice, cluster.epoch_of(slice));
        let is_its = self.applier.purpose == Purpose::Return || !cluster.is_agreed() || slice.is_some_and(has_begun);
        is_its && self.is_about(slice)
    }

    /// The copy of the owner's subscriber `theirs`.
    fn copy_of_subscriber(&mut self, theirs: u32) -> Option<SubscriberId> {
        let id = self.applier.subscribers.find(&self.tables.subscribers, theirs)?;
        let found = self.tables.subscribers.read(id);
        let is_copy = found.is_some_and(|(found, _)| self.is_copied(self.view.slice_of_subscriber(&found)));
        if !is_copy {
            self.applier.subscribers.forget_theirs(theirs);
        }
        is_copy.then_some(id)
    }

    /// The copy of the owner's binding `theirs`.
    fn copy_of_binding(&mut self, theirs: u32) -> Option<BindingId> {
        let id = self.applier.bindings.find(&self.tables.bindings, theirs)?;
        let found = self.tables.bindings.read(id);
        let is_copy = found.is_some_and(|(found, _)| self.is_copied(self.view.slice_of_binding(&found)));
        if !is_copy {
            self.applier.bindings.forget_theirs(theirs);
        }
        is_copy.then_some(id)
    }

    fn record(&mut self, section: Section, record: Record) -> Result<(), Refused> {
        let (number, can_be) = match record {
            Record::Block(_) | Record::Slice(_) => (0, true),
            Record::Subscriber(SubscriberRecord { number, .. })
            | Record::Removed(Removed { number, of: Kind::Subscriber }) => {
                (number, self.applier.subscribers.can_be(number))
            }
            Record::Binding(BindingRecord { number, .. }) | Record::Removed(Removed { number, .. }) => {
                (number, self.applier.bindings.can_be(number))
            }
        };
        if !can_be {
            return Err(Refused::Record(number));
        }
        // All slices that begin stand in front.
        if !self.begun.is_empty() && !matches!(record, Record::Slice(_)) {
            self.forget_numbers();
        }
        let is_placed = match record {
            Record::Subscriber(record) => {
                self.applier.applied.subscribers += 1;
                self.subscriber(section.slice, &record)
            }
            Record::Binding(record) => {
                self.applier.applied.bindings += 1;
                self.binding(section.slice, &record)
            }
            Record::Removed(Removed { number, of: Kind::Subscriber }) => {
                self.applier.applied.removed += 1;
                self.remove_subscriber(number);
                Some(())
            }
            Record::Removed(Removed { number, .. }) => {
                self.applier.applied.removed += 1;
                self.remove_binding(number);
                Some(())
            }
            Record::Block(record) => self.block(section.slice, &record),
            Record::Slice(progress) => {
                self.slice(section, progress);
                Some(())
            }
        };
        self.applier.applied.unplaced += u64::from(is_placed.is_none());
        Ok(())
    }

    /// The owner says how far the copy of a slice is.
    fn slice(&mut self, section: Section, progress: Progress) {
        self.applier.copied.hear(section, progress);
        let with_this_batch = match progress {
            Progress::Begins => &mut self.begun,
            Progress::Whole => &mut self.whole,
        };
        with_this_batch.insert(section.slice);
    }

    /// The service's number here.
    fn service(&self, theirs: u8) -> Option<u8> {
        self.applier.services.get(usize::from(theirs)).copied().flatten()
    }

    /// The copy of a subscriber becomes what the owner says. `None` if there is no place for it.
    fn subscriber(&mut self, slice: u16, record: &SubscriberRecord) -> Option<()> {
        let own = self.copy_of_subscriber(record.number);
        let placed = self.placed(slice, record);
        let Some((wanted, first)) = placed else {
            self.remove_subscriber(record.number);
            return None;
        };
        let is_it = |id: &SubscriberId| self.tables.subscribers.read(*id).is_some_and(|(found, _)| found == wanted);
        let (id, is_new) = match own.filter(is_it) {
            Some(id) => (id, false),
            None => {
                own.into_iter().for_each(|id| self.part_with(id));
                self.admit(&wanted)?
            }
        };
        self.applier.subscribers.set(&self.tables.subscribers, record.number, id);
        if !is_new && self.applier.purpose == Purpose::Return {
            return Some(());
        }
        let places: Vec<u16> = record.blocks.iter().filter_map(|place| place.checked_sub(1)).collect();
        if let Some((first, end)) = first {
            let is_free = |place: u16| {
                self.applier.purpose == Purpose::Copy || self.tables.has_free_block(first.wrapping_add(place.into()))
            };
            let places: Vec<u16> = places.into_iter().filter(|&place| place < end && is_free(place)).collect();
            self.tables.give_blocks(id, first, &places, self.now);
        }
        Some(())
    }

    /// A block that nobody has at the owner. `None` if there is none such here.
    fn block(&mut self, slice: u16, record: &BlockRecord) -> Option<()> {
        let service = self.service(record.service)?;
        let is_its_slice = self.view.slice_of(service, record.outside_ipv4) == Some(slice);
        let (first, end) = self.view.blocks(service, record.outside_ipv4).filter(|_| is_its_slice)?;
        let word = first.wrapping_add(u32::from(Some(record.place).filter(|place| *place < end)?));
        match record.state {
            _ if self.applier.purpose == Purpose::Return => {}
            BlockState::Offered => self.tables.copy_offer(word, record.place, self.now),
            BlockState::Resting(age) => self.tables.blocks.keep_back(word, Tick(self.now.0.saturating_sub(age))),
        }
        Some(())
    }

    /// What a subscriber is here, and where the blocks of its address are, if they are handed out so.
    fn placed(&self, slice: u16, record: &SubscriberRecord) -> Option<(Subscriber, Option<(u32, u16)>)> {
        let service = self.service(record.key.service)?;
        let key = SubscriberKey { service, ..record.key };
        let is_its_slice = self.view.slice_of(service, record.outside_ipv4) == Some(slice);
        let wanted = Subscriber { key, outside_ipv4: record.outside_ipv4 };
        is_its_slice.then(|| (wanted, self.view.blocks(service, record.outside_ipv4)))
    }

    /// The record of a subscriber: one that is here already, or a new one.
    fn admit(&mut self, wanted: &Subscriber) -> Option<(SubscriberId, bool)> {
        let is_copy = self.applier.purpose == Purpose::Copy;
        if let Some((id, found)) = self.tables.find_subscriber(&wanted.key) {
            if found == *wanted {
                self.tables.subscribers.set_copied(id, is_copy);
                return Some((id, false));
            }
            if !is_copy || !self.is_about(self.view.slice_of_subscriber(&found)) {
                return None;
            }
            self.part_with(id);
        }
        let made =
            if is_copy { self.tables.copy_subscriber(wanted, self.now) } else { self.tables.admit(wanted, self.now) };
        made.filter(|(_, found)| found == wanted).map(|(id, _)| (id, true))
    }

    fn remove_subscriber(&mut self, theirs: u32) {
        if let Some(id) = self.copy_of_subscriber(theirs) {
            self.part_with(id);
        }
        self.applier.subscribers.forget_theirs(theirs);
    }

    /// A subscriber is no copy any more, and goes with its last binding.
    fn part_with(&mut self, id: SubscriberId) {
        self.applier.subscribers.forget(id);
        if self.applier.purpose == Purpose::Return {
            return;
        }
        if let Some((subscriber, _)) = self.tables.subscribers.read(id) {
            self.tables.part_with(id, &subscriber, self.now);
            self.applier.parted.push((id, self.tables.subscribers.generation(id)));
        }
    }

    fn drop_parted(&mut self) {
        let parted = std::mem::take(&mut self.applier.parted);
        let stays = |&(id, generation): &(SubscriberId, u64)| {
            self.tables.subscribers.read(id).is_some()
                && self.tables.subscribers.generation(id) == generation
                && !self.tables.drop_subscriber(id, self.now)
        };
        self.applier.parted = parted.into_iter().filter(stays).collect();
    }

    /// The copy of a binding becomes what the owner says. `None` if there is no place for it.
    fn binding(&mut self, slice: u16, record: &BindingRecord) -> Option<()> {
        let own = self.copy_of_binding(record.number);
        let Some(wanted) = self.wanted(slice, record) else {
            own.into_iter().for_each(|id| self.drop(id));
            return None;
        };
        if let Some(id) = own {
            if self.becomes(id, &wanted) {
                return Some(());
            }
            self.drop(id);
        }
        let decides = self.applier.purpose == Purpose::Copy;
        if !decides && !self.is_in_its_blocks(&wanted) {
            return None;
        }
        if let Some((id, found)) = self.tables.find_inside(&wanted.inside) {
            if self.becomes(id, &wanted) {
                self.applier.bindings.set(&self.tables.bindings, record.number, id);
                return Some(());
            }
            if !decides || !self.is_about(self.view.slice_of_binding(&found)) {
                return None;
            }
            self.applier.applied.outdated += 1;
            self.drop(id);
        }
        if let Slot::Taken(other) = self.tables.outside.read(wanted.outside_slot) {
            if !decides {
                return None;
            }
            self.applier.applied.outdated += 1;
            self.drop(other);
        }
        let id = match self.tables.copy_binding(&wanted, self.now) {
            // Numbers of what went in this batch are free once its sessions have gone.
            Err(BindError::TableFull) if self.removal.is_some() => {
                self.removal = Some(Removal::new(self.tables));
                self.tables.copy_binding(&wanted, self.now)
            }
            made => made,
        };
        self.applier.bindings.set(&self.tables.bindings, record.number, id.ok()?);
        Some(())
    }

    /// False if a port is in a block that its subscriber does not have: another one may have it by now.
    fn is_in_its_blocks(&self, binding: &Binding) -> bool {
        if binding.origin() != Origin::Dynamic {
            return true;
        }
        let place = self.view.block_of(binding.inside.service, binding.outside_port);
        let Some((place, id)) = place.zip(SubscriberId::new(binding.subscriber)) else { return true };
        self.tables.subscribers.blocks(id).any(|held| held == place)
    }

    /// What a binding is here.
    fn wanted(&mut self, slice: u16, record: &BindingRecord) -> Option<Binding> {
        let inside = InsideKey { service: self.service(record.inside.service)?, ..record.inside };
        let subscriber = match record.subscriber {
            0 => 0,
            theirs => self.copy_of_subscriber(theirs)?.get(),
        };
        if self.view.slice_of(inside.service, record.outside_ipv4) != Some(slice) {
            return None;
        }
        let slot = self.view.slot(inside.service, inside.protocol, record.outside_ipv4, record.outside_port)?;
        let resumed = if record.class == Class::Established { flags::RESUMED } else { 0 };
        let copied = if self.applier.purpose == Purpose::Copy { flags::COPIED } else { 0 };
        Some(Binding {
            inside,
            outside_ipv4: record.outside_ipv4,
            outside_port: record.outside_port,
            flags: record.flags | resumed | copied,
            subscriber,
            outside_slot: slot,
            created: Tick(self.now.0.saturating_sub(record.age)),
        })
    }

    /// True if binding `id` is `wanted`, or now is: flags change, and the tick in which it was made is reckoned
    /// anew each time.
    fn becomes(&self, id: BindingId, wanted: &Binding) -> bool {
        // Whoever takes the slice over meanwhile changes flags as well.
        for _ in 0..ATTEMPTS {
            let Some((found, _)) = self.tables.bindings.read(id) else { return false };
            if found != (Binding { flags: found.flags, created: found.created, ..*wanted }) {
                return false;
            }
            let flags = match self.applier.purpose {
                Purpose::Copy => wanted.flags,
                Purpose::Return => found.flags | wanted.flags & flags::RESUMED,
            };
            if found.flags == flags || self.tables.change_flags(id, &found, flags) {
                return true;
            }
        }
        false
    }

    fn remove_binding(&mut self, theirs: u32) {
        if let Some(id) = self.copy_of_binding(theirs) {
            self.drop(id);
        }
        self.applier.bindings.forget_theirs(theirs);
    }

    fn drop(&mut self, id: BindingId) {
        self.applier.bindings.forget(id);
        let _ = self.tables.drop_binding(id, self.removal.as_mut(), self.now);
    }

    /// Copies of slices begin that this node had heard of before: what numbers stood for then counts no more. What is here stays until the
    /// copies are whole, and is found again by who and where it is.
    fn forget_numbers(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        let is_begun = |slice: Option<u16>| slice.is_some_and(|slice| begun.contains(&slice));
        for id in self.tables.subscribers.iter() {
            let found = self.tables.subscribers.read(id);
            if found.is_some_and(|(found, _)| is_begun(self.view.slice_of_subscriber(&found))) {
                self.applier.subscribers.forget(id);
            }
        }
        for id in self.tables.bindings.iter() {
            let found = self.tables.bindings.read(id);
            if found.is_some_and(|(found, _)| is_begun(self.view.slice_of_binding(&found))) {
                self.applier.bindings.forget(id);
            }
        }
    }

    /// Copies of some slices are whole: what else there is of them has ended.
    fn drop_others(&mut self, are_whole: impl Fn(u16) -> bool) {
        let is_meant = |slice: Option<u16>| self.is_about(slice.filter(|slice| are_whole(*slice)));
        let stray: Vec<BindingId> = (self.tables.bindings.iter())
            .filter(|id| !self.applier.bindings.has(&self.tables.bindings, *id))
            .filter(|id| {
                let found = self.tables.bindings.read(*id);
                found.is_some_and(|(binding, _)| is_meant(self.view.slice_of_binding(&binding)))
            })
            .collect();
        let strangers: Vec<SubscriberId> = (self.tables.subscribers.iter())
            .filter(|id| !self.applier.subscribers.has(&self.tables.subscribers, *id))
            .filter(|id| {
                let found = self.tables.subscribers.read(*id);
                found.is_some_and(|(subscriber, _)| is_meant(self.view.slice_of_subscriber(&subscriber)))
            })
            .collect();
        self.applier.applied.outdated += (stray.len() + strangers.len()) as u64;
        stray.into_iter().for_each(|id| self.drop(id));
        for id in strangers {
            if !self.applier.parted.iter().any(|(parted, _)| *parted == id) {
                self.part_with(id);
            }
        }
    }
}
