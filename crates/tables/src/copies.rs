//! What another node's tables have, made again in these: the operations of whoever copies, which traffic has
//! no use for. The other node decides; whatever stands here in the way of what it says is outdated.

use crate::binding::{Binding, BindingId};
use crate::blocks::Holder;
use crate::subscriber::{Subscriber, SubscriberId};
use crate::tables::{BindError, Candidate, Removal, Tables};
use crate::tick::Tick;

/// How often something is removed that packets use meanwhile.
const ATTEMPTS: usize = 8;

impl Tables {
    /// Admits a subscriber that another node has.
    pub fn copy_subscriber(&self, subscriber: &Subscriber, now: Tick) -> Option<(SubscriberId, Subscriber)> {
        self.admit_as(subscriber, now, true)
    }

    /// Makes `wanted` at its outside slot, kept back or not, as if touched at `now`.
    ///
    /// # Errors
    /// [`BindError`]: `NoneFree` also if another binding has the inside endpoint.
    pub fn copy_binding(&self, wanted: &Binding, now: Tick) -> Result<BindingId, BindError> {
        let candidate = Candidate { slot: wanted.outside_slot, ipv4: wanted.outside_ipv4, port: wanted.outside_port };
        let (id, made) = self.bind_again(wanted, [candidate], 0, now)?;
        if made.outside_slot != wanted.outside_slot || made.subscriber != wanted.subscriber {
            return Err(BindError::NoneFree);
        }
        self.bindings.see(id, now);
        Ok(id)
    }

    /// Removes binding `id`, whatever packets do with it meanwhile; its sessions go with `removal`, where there
    /// may be some. The binding, if it went.
    pub fn drop_binding(&self, id: BindingId, removal: Option<&mut Removal<'_>>, now: Tick) -> Option<Binding> {
        if let Some(removal) = removal {
            return removal.unbind_if(id, |_| true, now);
        }
        (0..ATTEMPTS).find_map(|_| {
            let (binding, seen) = self.bindings.read(id)?;
            self.unbind(id, &binding, seen, now).then_some(binding)
        })
    }

    /// Removes subscriber `id`, whatever packets do with it meanwhile; false if it has bindings, or is gone.
    pub fn drop_subscriber(&self, id: SubscriberId, now: Tick) -> bool {
        (0..ATTEMPTS).any(|_| {
            self.subscribers.read(id).is_some_and(|(subscriber, seen)| self.dismiss(id, &subscriber, seen, now))
        })
    }

    /// Nothing finds subscriber `id` any more, and its blocks are given back: another one takes its place. The
    /// record stays until its last binding has gone ([`drop_subscriber`](Self::drop_subscriber)).
    pub fn part_with(&self, id: SubscriberId, subscriber: &Subscriber, now: Tick) {
        self.subscriber_index.remove(self.key.hash(subscriber.key.words()), id.get());
        for block in self.subscribers.block_words(id) {
            self.blocks.close(block, id, now);
        }
        self.subscribers.set_blocks(id, &[]);
    }

    /// Whether nobody has this block.
    #[must_use]
    pub fn has_free_block(&self, block: u32) -> bool {
        !matches!(self.blocks.read(block), Holder::Subscriber(_))
    }

    /// Gives subscriber `id` the blocks at `places` of its address, whose place 0 is word `first` of the block
    /// index, and no others. Whoever else has one loses it.
    pub fn give_blocks(&self, id: SubscriberId, first: u32, places: &[u16], now: Tick) {
        let had: Vec<u16> = self.subscribers.blocks(id).collect();
        if had == places {
            return;
        }
        let word = |place: u16| first.wrapping_add(u32::from(place));
        for (_, block) in had.iter().zip(self.subscribers.block_words(id)).filter(|(had, _)| !places.contains(had)) {
            self.blocks.close(block, id, now);
        }
        for &place in places.iter().filter(|place| !had.contains(place)) {
            if self.blocks.read(word(place)) != Holder::Subscriber(id) {
                self.take_block(word(place), place, now);
            }
            let _ = self.blocks.claim(word(place), id, now, 0);
        }
        let places: Vec<u16> =
            places.iter().copied().filter(|&place| self.blocks.read(word(place)) == Holder::Subscriber(id)).collect();
        self.subscribers.set_blocks_of(id, first, &places);
        self.changed_subscribers.set(id.get());
    }

    /// The other node offers the block with this word in the block index, which is at `place` of its address: nobody has it there.
    /// Whoever has it here loses it.
    pub fn copy_offer(&self, word: u32, place: u16, now: Tick) {
        self.take_block(word, place, now);
        let _ = self.blocks.offer(word, now, 0);
    }

    /// Whoever has a block loses it.
    fn take_block(&self, word: u32, place: u16, now: Tick) {
        if let Holder::Subscriber(other) = self.blocks.read(word) {
            let others: Vec<u16> = self.subscribers.blocks(other).filter(|held| *held != place).collect();
            self.subscribers.set_blocks(other, &others);
            self.blocks.close(word, other, now);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
mod tests {
    use super::*;
    use crate::audit;
    use crate::hash::HashKey;
    use crate::memory::Heap;
    use crate::subscriber::SubscriberKey;
    use crate::tables::Capacity;

    const NOW: Tick = Tick(100);

    fn tables() -> Tables {
        let capacity = Capacity { subscribers: 4, bindings: 8, sessions: 8, outside_slots: 640, leases: 0 };
        Tables::new(&mut Heap, capacity, HashKey::new([1, 2, 3, 4])).unwrap()
    }

    fn admit(tables: &Tables, host: u8) -> (SubscriberId, Subscriber) {
        let key = SubscriberKey { ipv6: [host; 16], ..SubscriberKey::default() };
        tables.admit(&Subscriber { key, outside_ipv4: [192, 0, 2, 1] }, NOW).unwrap()
    }

    fn places(tables: &Tables, id: SubscriberId) -> Vec<u16> {
        tables.subscribers.blocks(id).collect()
    }

    #[test]
    fn blocks_go_to_whom_the_other_node_says() {
        let tables = tables();
        let [(first, _), (second, _)] = [1, 2].map(|host| admit(&tables, host));
        tables.give_blocks(first, 2, &[1, 3], NOW);
        tables.give_blocks(second, 2, &[3, 5], NOW);
        assert_eq!((places(&tables, first), places(&tables, second)), (vec![1], vec![3, 5]));
        assert_eq!(audit::check(&tables), Vec::<String>::new());
        tables.give_blocks(second, 2, &[], NOW);
        tables.give_blocks(first, 2, &[5], NOW);
        assert_eq!((places(&tables, first), places(&tables, second)), (vec![5], vec![]));
        assert_eq!(audit::check(&tables), Vec::<String>::new());
    }

    #[test]
    fn what_the_other_node_offers_nobody_has() {
        let tables = tables();
        let (first, _) = admit(&tables, 1);
        tables.give_blocks(first, 2, &[1, 3], NOW);
        tables.copy_offer(5, 3, NOW);
        tables.copy_offer(6, 4, NOW);
        let offered = Holder::Offered { is_acknowledged: false };
        assert_eq!((places(&tables, first), [5, 6].map(|word| tables.blocks.read(word))), (vec![1], [offered; 2]));
        // And now somebody has one of them.
        let (second, _) = admit(&tables, 2);
        tables.give_blocks(second, 2, &[3], NOW);
        assert_eq!((places(&tables, second), audit::check(&tables)), (vec![3], Vec::<String>::new()));
    }

    #[test]
    fn who_is_parted_with_goes_after_its_last_binding() {
        let tables = tables();
        let (old, subscriber) = admit(&tables, 1);
        tables.give_blocks(old, 0, &[4], NOW);
        let wanted = Binding { subscriber: old.get(), outside_slot: 7, outside_port: [4, 0], ..Binding::default() };
        let binding = tables.copy_binding(&wanted, NOW).unwrap();
        tables.part_with(old, &subscriber, NOW);
        let (new, _) = admit(&tables, 1);
        assert_ne!(new, old);
        tables.give_blocks(new, 0, &[4], NOW);
        assert!(!tables.drop_subscriber(old, NOW), "it has a binding");
        assert!(tables.drop_binding(binding, None, NOW).is_some());
        assert!(tables.drop_subscriber(old, NOW));
        assert_eq!((places(&tables, new), audit::check(&tables)), (vec![4], Vec::<String>::new()));
    }

    #[test]
    fn a_copy_of_a_subscriber_says_so() {
        let tables = tables();
        let key = SubscriberKey { ipv6: [9; 16], service: 200, ..SubscriberKey::default() };
        let wanted = Subscriber { key, outside_ipv4: [192, 0, 2, 1] };
        let (copy, found) = tables.copy_subscriber(&wanted, NOW).unwrap();
        tables.subscribers.change_unanswered(copy, |_| 7);
        assert!(tables.subscribers.is_copied(copy) && found == wanted && tables.find_subscriber(&key).is_some());
        tables.subscribers.set_copied(copy, false);
        assert!(!tables.subscribers.is_copied(copy) && !tables.subscribers.is_copied(admit(&tables, 1).0));
        assert_eq!((tables.subscribers.unanswered(copy), tables.subscribers.read(copy).unwrap().0), (7, wanted));
    }

    #[test]
    fn a_port_that_is_kept_back_is_the_other_node_s() {
        let tables = tables();
        let (id, _) = admit(&tables, 1);
        let wanted = Binding { subscriber: id.get(), outside_slot: 7, outside_port: [4, 0], ..Binding::default() };
        let binding = tables.copy_binding(&wanted, NOW).unwrap();
        assert!(tables.drop_binding(binding, None, NOW).is_some());
        assert!(tables.copy_binding(&wanted, NOW).is_ok());
        assert_eq!(tables.copy_binding(&Binding { outside_slot: 8, ..wanted }, NOW), Err(BindError::NoneFree));
    }
}
