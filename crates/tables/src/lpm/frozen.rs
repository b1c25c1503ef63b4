//! A table that will not change any more: any number of threads look up in it, without pins.

use std::marker::PhantomData;
use std::sync::Arc;

use super::blocks::Span;
use super::key::Key;
use super::prefix::{LpmError, Route};
use super::reader::Match;
use super::table::{Lpm, Shape};
use super::walk;
use crate::memory::Heap;

/// Routes that stay as they are, for snapshots that many threads share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Frozen<K> {
    span: Arc<Span>,
    fast: bool,
    key: PhantomData<K>,
}

impl<K: Key> Frozen<K> {
    /// A table of `routes` on the heap, as large as they need. Of routes with the same prefix, the
    /// last counts.
    ///
    /// # Errors
    /// [`LpmError::Memory`].
    pub fn build(name: &'static str, routes: &[Route<K>]) -> Result<Self, LpmError> {
        let mut shape = Shape::for_routes::<K>(routes.len());
        // A root of 2^16 entries for a handful of routes would cost a cache miss a lookup for
        // nothing.
        if routes.len() < 1 << 10 {
            shape.root_bits = 8;
        }
        loop {
            match Lpm::build(&mut Heap, name, shape, routes) {
                Ok(table) => return Ok(table.freeze()),
                // Long chains of nested prefixes take more than the usual bytes each.
                Err(LpmError::Full { .. }) => shape.bytes *= 2,
                Err(error) => return Err(error),
            }
        }
    }

    /// The longest route that covers `key`.
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: K) -> Option<Match> {
        Match::from_word(walk::find(&self.span, self.fast, key))
    }
}

impl<K: Key> Lpm<K> {
    /// Gives up the right to change the table. Its readers stay what they are.
    #[must_use]
    pub fn freeze(self) -> Frozen<K> {
        // Without a writer no block is ever reused, so nothing has to be pinned.
        Frozen { span: self.into_span(), fast: walk::has_bit_instructions(), key: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lpm::model::Model;
    use crate::lpm::numbers::Numbers;
    use crate::lpm::{NextHop, Prefix};

    #[test]
    fn a_frozen_table_answers_like_the_model_whatever_its_size() {
        let mut numbers = Numbers(7);
        for count in [0_u32, 1, 30, 1023, 1024, 5000] {
            let routes: Vec<Route<u128>> = (0..count)
                .map(|hop| {
                    let len = u8::try_from(12 + numbers.below(117)).unwrap();
                    // Few different beginnings, so that prefixes nest.
                    let key = numbers.key::<u128>() & (u128::MAX >> 90) | u128::from(numbers.below(4)) << 60;
                    Route { prefix: Prefix::covering(key, len), next_hop: NextHop::new(hop).unwrap() }
                })
                .collect();
            let frozen = Frozen::build("test", &routes).unwrap();
            let mut model = Model::default();
            for route in &routes {
                model.insert(*route);
            }
            for route in &routes {
                let key = route.prefix.key();
                let found = frozen.lookup(key).map(|found| (found.prefix_len(), found.next_hop()));
                assert_eq!(found, model.lookup(key));
            }
        }
    }
}
