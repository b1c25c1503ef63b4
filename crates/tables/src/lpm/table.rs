//! The table: the writer's side.

use std::sync::Arc;

use super::blocks::{Allocator, OutOfBlocks, Span};
use super::build::Leaf;
use super::epoch::Epochs;
use super::exact::ExactRoutes;
use super::key::Key;
use super::layout;
use super::prefix::{LpmError, NextHop, Prefix, Route};
use super::reader::Reader;
use super::trie::Trie;
use super::update::Change;
use crate::memory::MemorySource;

/// Routes of one family and the trie that answers for them. One writer; [`Lpm::reader`] makes
/// readers.
#[derive(Debug)]
pub struct Lpm<K: Key> {
    trie: Trie,
    routes: ExactRoutes<K>,
    /// Routes of each length.
    lengths: Vec<u32>,
}

/// Size of a table. The memory is a bound: a table that needs more refuses the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bits that the root array decides on (8 to 24); it takes 4 bytes * 2^`root_bits`.
    pub root_bits: u8,
    /// Bytes of the span: root and nodes.
    pub bytes: usize,
}

/// Bytes that a table takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// Routes in the table.
    pub routes: usize,
    /// Bytes of the span: the bound.
    pub capacity: usize,
    /// Bytes of the root array and the header.
    pub root: usize,
    /// Bytes of nodes in use.
    pub nodes: usize,
    /// Bytes between nodes, free for new ones.
    pub free: usize,
    /// Bytes of replaced nodes that a reader may still see.
    pub retired: usize,
    /// Bytes of the writer's exact routes.
    pub exact: usize,
}

impl Shape {
    /// A table for up to `routes` routes and their updates: for any prefixes of IPv4, and for IPv6
    /// of any but the most adverse (long chains of nested prefixes, each alone).
    #[must_use]
    pub fn for_routes<K: Key>(routes: usize) -> Self {
        // 18 bits: a megabyte, which pays from some ten thousand routes on (100,000 IPv6 routes,
        // keys inside them: 11.2 instead of 15.7 ns).
        let root_bits = if routes > 50_000 { 18 } else { 16 };
        Self { root_bits, bytes: (4 << root_bits) + routes * 64 + (64 << 10) }
    }
}

impl MemoryReport {
    /// All bytes touched, of readers' and writer's memory: root, nodes, free and retired blocks,
    /// exact routes.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.root + self.nodes + self.free + self.retired + self.exact
    }
}

impl<K: Key> Lpm<K> {
    /// An empty table in the span `name` of `source`, which is all zeros.
    ///
    /// # Errors
    /// [`LpmError::Shape`] if the shape is out of range, [`LpmError::Memory`] if the memory cannot
    /// be had.
    pub fn new(source: &mut dyn MemorySource, name: &'static str, shape: Shape) -> Result<Self, LpmError> {
        let Shape { root_bits, bytes } = shape;
        let needed = Span::least_bytes(root_bits.min(24));
        if !(8..=24).contains(&root_bits) || bytes < needed {
            return Err(LpmError::Shape { root_bits, bytes, needed });
        }
        let span = Span::take(source, name, bytes, K::BITS, root_bits)?;
        let trie = Trie {
            blocks: Allocator::new(&span),
            span: Arc::new(span),
            epochs: Arc::default(),
            written: Vec::new(),
            replaced: Vec::new(),
            last_resort: false,
        };
        Ok(Self { trie, routes: ExactRoutes::default(), lengths: vec![0; usize::from(K::BITS) + 1] })
    }

    /// A table of many routes at once. Of routes with the same prefix, the last counts.
    ///
    /// # Errors
    /// As [`Self::new`]; [`LpmError::Full`] if the span is too small.
    pub fn build(
        source: &mut dyn MemorySource,
        name: &'static str,
        shape: Shape,
        routes: &[Route<K>],
    ) -> Result<Self, LpmError> {
        let mut table = Self::new(source, name, shape)?;
        table.routes.reserve(routes);
        let mut leaves: Vec<Leaf> = routes.iter().map(|route| leaf(*route)).collect();
        // Stable: of equal prefixes the last given stays last.
        leaves.sort_by_key(|leaf| (leaf.key, leaf.len));
        leaves.dedup_by(|later, kept| {
            let same = (later.key, later.len) == (kept.key, kept.len);
            if same {
                kept.word = later.word;
            }
            same
        });
        for leaf in &leaves {
            let prefix = Prefix::covering(K::from_left_aligned(leaf.key), leaf.len);
            table.routes.insert(Route { prefix, next_hop: NextHop::from_low_bits(leaf.word) });
            table.lengths[usize::from(leaf.len)] += 1;
        }
        table.trie.build_root(&leaves).map_err(|OutOfBlocks| table.full())?;
        Ok(table)
    }

    /// A reader for another thread, or this one.
    #[must_use]
    pub fn reader(&self) -> Reader<K> {
        Reader::new(Arc::clone(&self.trie.span), Arc::clone(&self.trie.epochs))
    }

    /// Adds a route or changes its next hop; the next hop that it had.
    ///
    /// # Errors
    /// [`LpmError::Full`]; the table is then as before.
    pub fn insert(&mut self, route: Route<K>) -> Result<Option<NextHop>, LpmError> {
        self.apply(Change { leaf: leaf(route), insert: true })?;
        let before = self.routes.insert(route);
        self.lengths[usize::from(route.prefix.prefix_len())] += u32::from(before.is_none());
        Ok(before)
    }

    /// Removes a route; the next hop that it had, or none if there was no such route.
    ///
    /// # Errors
    /// [`LpmError::Full`] if the span is so full of blocks that readers hold that not even a
    /// removal fits; the table is then as before.
    pub fn remove(&mut self, prefix: Prefix<K>) -> Result<Option<NextHop>, LpmError> {
        if self.routes.find(prefix).is_none() {
            return Ok(None);
        }
        let word = self.routes.cover(&self.lengths, prefix);
        let leaf = Leaf { key: prefix.key().left_aligned(), len: prefix.prefix_len(), word };
        self.apply(Change { leaf, insert: false })?;
        self.lengths[usize::from(prefix.prefix_len())] -= 1;
        Ok(self.routes.remove(prefix))
    }

    fn apply(&mut self, change: Change) -> Result<(), LpmError> {
        self.trie.apply(change).map_err(|OutOfBlocks| self.full())
    }

    fn full(&self) -> LpmError {
        let memory = self.memory();
        LpmError::Full { capacity: memory.capacity, retired: memory.retired }
    }

    /// The next hop of exactly this prefix.
    #[must_use]
    pub fn find(&self, prefix: Prefix<K>) -> Option<NextHop> {
        self.routes.find(prefix)
    }

    /// All routes, sorted by prefix.
    #[must_use]
    pub fn routes(&self) -> Vec<Route<K>> {
        let mut routes = Vec::with_capacity(self.len());
        self.routes.for_each(&mut |route| routes.push(route));
        routes.sort_unstable();
        routes
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.iter().map(|count| *count as usize).sum()
    }

    /// True if there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes taken.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let (nodes, free, retired) = self.trie.blocks.bytes();
        MemoryReport {
            routes: self.len(),
            capacity: self.trie.span.bytes(),
            root: 4 * (layout::HEADER_WORDS + (1 << self.trie.span.root_bits())),
            nodes,
            free,
            retired,
            exact: self.routes.bytes(),
        }
    }

    /// Nodes in the trie and the longest chain of them.
    #[must_use]
    pub fn extent(&self) -> (usize, usize) {
        self.trie.extent()
    }

    /// The span, for readers that no writer disturbs.
    pub(super) fn into_span(self) -> Arc<Span> {
        self.trie.span
    }

    /// The epochs, for owners whose tables programs in the kernel read.
    #[must_use]
    pub fn epochs(&self) -> &Epochs {
        &self.trie.epochs
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.trie.check();
    }

    #[cfg(test)]
    pub(super) fn span(&self) -> &Span {
        &self.trie.span
    }

    /// Frees what no reader sees any more. Changes do so by themselves; useful before a report.
    pub fn reclaim(&mut self) {
        self.trie.blocks.reclaim(&self.trie.epochs);
    }
}

fn leaf<K: Key>(route: Route<K>) -> Leaf {
    let len = route.prefix.prefix_len();
    Leaf { key: route.prefix.key().left_aligned(), len, word: layout::route(len, route.next_hop.number()) }
}
