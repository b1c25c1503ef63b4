//! The naive model that the trie is checked against: a map of prefixes, tried from the longest.

use std::collections::HashMap;

use super::key::Key;
use super::prefix::{NextHop, Prefix, Route};

/// Routes by prefix; slow and plainly right.
#[derive(Clone, Debug)]
pub struct Model<K> {
    routes: HashMap<Prefix<K>, NextHop>,
}

impl<K> Default for Model<K> {
    fn default() -> Self {
        Self { routes: HashMap::new() }
    }
}

impl<K: Key> Model<K> {
    /// Adds or replaces a route; the next hop that it had.
    pub fn insert(&mut self, route: Route<K>) -> Option<NextHop> {
        self.routes.insert(route.prefix, route.next_hop)
    }

    /// Removes a route; the next hop that it had.
    pub fn remove(&mut self, prefix: Prefix<K>) -> Option<NextHop> {
        self.routes.remove(&prefix)
    }

    /// The longest prefix that contains `key`: its length and next hop.
    #[must_use]
    pub fn lookup(&self, key: K) -> Option<(u8, NextHop)> {
        (0..=K::BITS).rev().find_map(|len| Some((len, *self.routes.get(&Prefix::covering(key, len))?)))
    }

    /// All routes, sorted by prefix.
    #[must_use]
    pub fn routes(&self) -> Vec<Route<K>> {
        let mut routes: Vec<_> =
            self.routes.iter().map(|(prefix, next_hop)| Route { prefix: *prefix, next_hop: *next_hop }).collect();
        routes.sort_unstable();
        routes
    }
}
