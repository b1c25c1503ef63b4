//! What there is to be said of a record, to whom: what the tables hold now.

use tombolo_tables::Tables;
use tombolo_tables::binding::{BindingId, flags};
use tombolo_tables::blocks::Holder;
use tombolo_tables::subscriber::{MOST_BLOCKS, SubscriberId};
use tombolo_tables::tick::Tick;

use super::batch::{Epochs, Section};
use super::bits::Bits;
use super::record::{BindingRecord, BlockRecord, BlockState, COPIED_FLAGS, Class, Record, SubscriberRecord};
use super::to::To;
use super::view::{Block, View};

/// What is to be said of a record now.
pub(super) enum Word {
    /// This.
    Is(Section, Record),
    /// It is gone.
    Gone(Section),
    /// Nothing: the backup does not have it, and need not.
    Nothing,
    /// Not yet.
    Later,
}

/// What there is to be said to a receiver.
pub(super) struct Words<'a> {
    pub(super) tables: &'a Tables,
    pub(super) view: View<'a>,
    pub(super) epochs: Epochs<'a>,
    pub(super) to: To,
    pub(super) only_new: bool,
    pub(super) now: Tick,
}

impl Words<'_> {
    fn section(&self, slice: u16) -> Section {
        Section { slice, epoch: (self.epochs)(slice) }
    }

    /// The section of a record of this slice, if it is for the receiver.
    pub(super) fn its(&self, slice: Option<u16>) -> Option<Section> {
        let slice = slice.filter(|slice| self.view.is_for(self.to, *slice))?;
        Some(self.section(slice))
    }

    /// Of slices that are not copied there any more nothing is said, and nothing would be heard.
    fn gone(&self, sent_as: Option<u16>) -> Word {
        self.its(sent_as).map_or(Word::Nothing, Word::Gone)
    }

    pub(super) fn of_subscriber(&self, number: u32, sent_as: Option<u16>) -> Word {
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

    /// What is to be said of a block that nobody has; nothing of one that somebody has by now, whose record says it.
    pub(super) fn of_block(&self, word: u32, block: &Block) -> Option<(Section, Record)> {
        let state = match self.tables.blocks.read(word) {
            Holder::Offered { .. } => BlockState::Offered,
            Holder::Closed(at) if self.now.since(at) < self.view.rest() => BlockState::Resting(self.now.since(at)),
            Holder::Closed(_) | Holder::Nobody | Holder::Subscriber(_) => return None,
        };
        let Block { service, outside_ipv4, place, slice } = *block;
        let section = self.its(Some(slice))?;
        Some((section, Record::Block(BlockRecord { service, outside_ipv4, place, state })))
    }

    /// Whose subscriber was not sent is said later, if there is one: `is_sent` says so of its number. Whether it has an open connection
    /// goes into `open`.
    pub(super) fn of_binding(
        &self,
        number: u32,
        sent_as: Option<u16>,
        is_sent: impl Fn(u32) -> bool,
        open: &mut Bits,
    ) -> Word {
        let found = BindingId::new(number).and_then(|id| Some((id, self.tables.bindings.read(id)?.0)));
        let Some((id, binding)) = found else { return self.gone(sent_as) };
        let is_said = !self.only_new || binding.flags & flags::COPIED == 0;
        let section = self.its(self.view.slice_of_binding(&binding)).filter(|_| is_said);
        let Some(section) = section else { return self.gone(sent_as) };
        // One that was admitted since changes were taken is taken the next time, and then sent first.
        if binding.subscriber != 0 && !is_sent(binding.subscriber) {
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
