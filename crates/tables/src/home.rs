//! Where the record of a binding is at home: four places that the hash of its inside endpoint names,
//! two pairs of lines that lie beside each other.
//!
//! A record that lies there is found without the index: the lines of all four are loaded at once, so
//! that a look-up waits for memory once, where index and record are two waits. Nothing else changes:
//! a record never moves, its number is its place, the index knows it, and who finds no place at home
//! free takes any. At home only records count that are settled: of two writers at one inside endpoint
//! the index tells which one has made the binding, and that one settles.

use crate::binding::{Binding, BindingId, Bindings, InsideKey};
use crate::hash::Hash;

impl Bindings {
    /// Pairs of records that can be a home.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        // Number 0 is never given out; the last number may be without a neighbour.
        (self.capacity() / 2 + 1).min(self.capacity().div_ceil(2)).max(1)
    }

    /// The four numbers at which a binding with this hash is at home; 0 is none.
    fn home(&self, hash: Hash) -> [[u32; 2]; 2] {
        hash.buckets(self.pairs()).map(|pair| [pair * 2, pair * 2 + 1])
    }

    /// The binding of an inside endpoint, if its record is at home.
    #[inline]
    pub(crate) fn find_at_home(&self, hash: Hash, key: &InsideKey) -> Option<(BindingId, Binding)> {
        self.home(hash).into_iter().flatten().find_map(|number| {
            let id = BindingId::new(number).filter(|_| self.is_settled(number) && self.has_key(number, key))?;
            let (binding, _) = self.read(id)?;
            (binding.inside == *key).then_some((id, binding))
        })
    }

    /// Claims a record for a binding with this hash: at home, or anywhere near `hint`.
    pub(crate) fn claim_at_home(&self, hash: Hash, hint: u32) -> Option<BindingId> {
        let home = self.home(hash).into_iter().flatten();
        home.filter_map(|number| self.claim_number(number)).next().or_else(|| self.claim(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKey;
    use crate::memory::Heap;
    use std::collections::HashSet;

    #[test]
    fn every_record_is_given_out_once_and_most_of_them_at_home() {
        for capacity in [1, 2, 3, 1000, 1001] {
            let bindings = Bindings::new(&mut Heap, capacity).unwrap();
            let hash = |n: u32| HashKey::new([1, 2, 3, 4]).hash([n.into(), 0, 0]);
            let mut claimed = HashSet::new();
            let mut at_home = 0;
            for n in 0..capacity {
                let id = bindings.claim_at_home(hash(n), n).unwrap();
                assert!(claimed.insert(id) && (1..=capacity).contains(&id.get()));
                at_home += usize::from(bindings.home(hash(n)).as_flattened().contains(&id.get()));
            }
            assert_eq!(bindings.claim_at_home(hash(0), 0), None);
            assert!(capacity < 1000 || at_home > 750, "{at_home} of {capacity}");
        }
    }
}
