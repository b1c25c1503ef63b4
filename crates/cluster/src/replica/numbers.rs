//! Which own record is the copy of which record of the owner.

use std::marker::PhantomData;

use tombolo_tables::arena::{Arena, Stored};

/// Copies of the records of one kind that one owner has. What has gone here by other hands, and whose number is
/// another record's by now, is nobody's copy any more: the generation of the record tells.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    /// Own numbers by the owner's; 0 is none.
    own: Vec<u32>,
    /// The owner's numbers by own ones, and the generation of the record.
    theirs: Vec<(u32, u64)>,
    /// The owner's numbers end here.
    last: u32,
    of: PhantomData<T>,
}

impl<T: Stored> Numbers<T> {
    /// No copy of records up to the owner's number `last`, in an arena with room for `capacity`.
    pub(super) fn new(last: u32, capacity: u32) -> Self {
        Self { own: Vec::new(), theirs: vec![(0, 0); capacity as usize + 1], last, of: PhantomData }
    }

    /// Whether the owner can have a record with this number.
    pub(super) fn can_be(&self, theirs: u32) -> bool {
        (1..=self.last).contains(&theirs)
    }

    /// Nothing is a copy any more.
    pub(super) fn clear(&mut self) {
        self.own.clear();
        self.theirs.fill((0, 0));
    }

    /// The copy of record `theirs`.
    pub(super) fn find(&self, arena: &Arena<T>, theirs: u32) -> Option<T::Id> {
        let own = self.own.get(theirs as usize).copied().and_then(std::num::NonZeroU32::new)?;
        let id = T::Id::from(own);
        let is_its = self.theirs.get(own.get() as usize) == Some(&(theirs, arena.generation(id)));
        is_its.then_some(id)
    }

    /// Whether an own record is a copy.
    pub(super) fn has(&self, arena: &Arena<T>, own: T::Id) -> bool {
        let (theirs, _) = self.theirs.get(number(own)).copied().unwrap_or_default();
        theirs != 0 && self.find(arena, theirs).is_some_and(|found| number(found) == number(own))
    }

    /// From now on `own` is the copy of `theirs`, and of nothing else.
    pub(super) fn set(&mut self, arena: &Arena<T>, theirs: u32, own: T::Id) {
        self.forget(own);
        self.forget_theirs(theirs);
        let place = theirs as usize;
        if place >= self.own.len() {
            self.own.resize(place + 1, 0);
        }
        self.own[place] = own.into().get();
        if let Some(entry) = self.theirs.get_mut(number(own)) {
            *entry = (theirs, arena.generation(own));
        }
    }

    /// `own` is no copy any more.
    pub(super) fn forget(&mut self, own: T::Id) {
        let Some(entry) = self.theirs.get_mut(number(own)) else { return };
        let (theirs, _) = std::mem::take(entry);
        if let Some(place) = self.own.get_mut(theirs as usize).filter(|place| **place == own.into().get()) {
            *place = 0;
        }
    }

    /// There is no copy of `theirs` any more.
    pub(super) fn forget_theirs(&mut self, theirs: u32) {
        let Some(own) = self.own.get_mut(theirs as usize).map(std::mem::take) else { return };
        if let Some(entry) = self.theirs.get_mut(own as usize).filter(|entry| entry.0 == theirs) {
            *entry = (0, 0);
        }
    }
}

fn number(id: impl Into<std::num::NonZeroU32>) -> usize {
    id.into().get() as usize
}

#[cfg(test)]
mod tests {
    use tombolo_tables::binding::{Binding, Bindings};
    use tombolo_tables::memory::Heap;
    use tombolo_tables::tick::Tick;

    use super::*;

    #[test]
    fn a_record_is_the_copy_of_one_and_only_while_it_lives() {
        let bindings = Bindings::new(&mut Heap, 4).unwrap();
        let mut numbers: Numbers<Binding> = Numbers::new(1000, 4);
        let make = || {
            let id = bindings.claim(0).unwrap();
            bindings.publish(id, &Binding::default(), Tick(1));
            bindings.settle(id);
            id
        };
        let (first, second) = (make(), make());
        numbers.set(&bindings, 1000, first);
        numbers.set(&bindings, 7, second);
        assert_eq!([1000, 7, 8].map(|theirs| numbers.find(&bindings, theirs)), [Some(first), Some(second), None]);
        numbers.set(&bindings, 8, first);
        assert_eq!([1000, 7, 8].map(|theirs| numbers.find(&bindings, theirs)), [None, Some(second), Some(first)]);
        numbers.set(&bindings, 8, second);
        assert_eq!([7, 8].map(|theirs| numbers.find(&bindings, theirs)), [None, Some(second)]);
        assert!(numbers.has(&bindings, second) && !numbers.has(&bindings, first));
        // Its number becomes another's.
        assert!(bindings.retire(second, &Binding::default(), Tick(1)));
        bindings.free(second);
        assert_eq!(bindings.claim(0), Some(second));
        assert!(!numbers.has(&bindings, second) && numbers.find(&bindings, 8).is_none());
        assert!(numbers.can_be(1000) && !numbers.can_be(1001) && !numbers.can_be(0));
    }
}
