//! The writer's view of the trie: nodes unpacked into drafts, drafts packed into blocks.

use std::sync::Arc;

use super::blocks::{Allocator, Block, Node, OutOfBlocks, Span};
use super::epoch::Epochs;
use super::layout::{NODE_WORDS, STRIDE, UNIT_WORDS, is_node, node, unit};
use crate::atomic::Ordering;

/// The trie and what its one writer needs to change it. Keys are left-aligned in 128 bits.
#[derive(Debug)]
pub(super) struct Trie {
    pub(super) span: Arc<Span>,
    pub(super) epochs: Arc<Epochs>,
    pub(super) blocks: Allocator,
    /// Blocks that the change under way has written but not yet made reachable.
    pub(super) written: Vec<Block>,
    /// Blocks that the change under way replaces.
    pub(super) replaced: Vec<Block>,
    /// The change under way may take the reserve.
    pub(super) last_resort: bool,
}

/// A node unpacked: one entry a slot.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) skip: u8,
    pub(super) stride: u8,
    /// The skipped bits, left-aligned; zeros after them.
    pub(super) expected: u64,
    pub(super) fallback: u32,
    /// The first 2^stride count.
    pub(super) slots: [u32; 1 << STRIDE],
}

/// A draft packed: the bitmap and the entries of its runs.
pub(super) struct Packed {
    pub(super) bitmap: u64,
    pub(super) entries: [u32; 1 << STRIDE],
    pub(super) count: usize,
}

impl Draft {
    pub(super) fn slots(&self) -> &[u32] {
        &self.slots[..1 << self.stride]
    }

    pub(super) fn packed(&self) -> Packed {
        let mut packed = Packed { bitmap: 0, entries: [0; 1 << STRIDE], count: 0 };
        for (slot, word) in self.slots().iter().enumerate() {
            if packed.count == 0 || packed.entries[packed.count - 1] != *word {
                packed.bitmap |= 1 << slot;
                packed.entries[packed.count] = *word;
                packed.count += 1;
            }
        }
        packed
    }

    fn meta(&self, units: u8) -> u32 {
        u32::from_le_bytes([self.skip, 64 - self.stride, units, 0])
    }
}

/// The first `bits` bits (0 to 64) of `window`, the rest zero.
pub(super) fn head(window: u64, bits: u8) -> u64 {
    window & !u64::MAX.checked_shr(u32::from(bits)).unwrap_or(0)
}

/// `window` without its first `bits` bits (0 to 64).
pub(super) fn tail(window: u64, bits: u8) -> u64 {
    window.checked_shl(u32::from(bits)).unwrap_or(0)
}

/// The 64 bits of a left-aligned key from bit `at` on.
pub(super) fn window(key: u128, at: u8) -> u64 {
    (key.checked_shl(u32::from(at)).unwrap_or(0) >> 64) as u64
}

/// The `stride` bits of `window` after its first `skip`.
pub(super) fn slot(window: u64, skip: u8, stride: u8) -> usize {
    usize::try_from(tail(window, skip) >> (64 - stride)).unwrap_or(0)
}

impl Trie {
    /// The node that an entry leads to. Only the writer writes entries, so there is one.
    pub(super) fn node(&self, word: u32) -> &Node {
        self.span.node(word).unwrap_or_else(|| unreachable!("an entry leads outside the table"))
    }

    pub(super) fn draft(&self, word: u32) -> Draft {
        let node = self.node(word);
        let [skip, rest, _, _] = node.meta.load(Ordering::Relaxed).to_le_bytes();
        let (stride, bitmap) = (64 - rest, node.bitmap.load(Ordering::Relaxed));
        let mut draft = Draft {
            skip,
            stride,
            expected: node.expected.load(Ordering::Relaxed),
            fallback: node.entries[0].load(Ordering::Relaxed),
            slots: [0; 1 << STRIDE],
        };
        let mut run = 0;
        for slot in 0..1usize << stride {
            run += usize::from(bitmap >> slot & 1 == 1);
            draft.slots[slot] = node.entries[run].load(Ordering::Relaxed);
        }
        draft
    }

    fn block(&self, word: u32) -> Block {
        let [_, _, units, _] = self.node(word).meta.load(Ordering::Relaxed).to_le_bytes();
        Block { unit: unit(word), units }
    }

    /// Writes a draft into a block that no reader reaches yet; the entry that leads to it.
    pub(super) fn write(&mut self, draft: &Draft) -> Result<u32, OutOfBlocks> {
        let packed = draft.packed();
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_UNITS")]
        let units = (NODE_WORDS + packed.count).div_ceil(UNIT_WORDS) as u8;
        let unit = match self.blocks.take(units, self.last_resort) {
            Ok(unit) => unit,
            Err(OutOfBlocks) => {
                self.blocks.reclaim(&self.epochs);
                self.blocks.take(units, self.last_resort)?
            }
        };
        self.written.push(Block { unit, units });
        let node = self.node(node(unit));
        node.bitmap.store(packed.bitmap, Ordering::Relaxed);
        node.expected.store(draft.expected, Ordering::Relaxed);
        node.meta.store(draft.meta(units), Ordering::Relaxed);
        node.entries[0].store(draft.fallback, Ordering::Relaxed);
        for (entry, word) in node.entries[1..].iter().zip(&packed.entries[..packed.count]) {
            entry.store(*word, Ordering::Relaxed);
        }
        Ok(super::layout::node(unit))
    }

    /// Stores a draft of the same runs over a node that readers may be reading. False if the runs
    /// differ.
    pub(super) fn overwrite(&self, word: u32, draft: &Draft) -> bool {
        let (node, packed) = (self.node(word), draft.packed());
        let [skip, rest, _, _] = node.meta.load(Ordering::Relaxed).to_le_bytes();
        let same = node.bitmap.load(Ordering::Relaxed) == packed.bitmap
            && node.expected.load(Ordering::Relaxed) == draft.expected
            && (skip, rest) == (draft.skip, 64 - draft.stride);
        if same {
            let words = std::iter::once(&draft.fallback).chain(&packed.entries[..packed.count]);
            for (entry, word) in node.entries.iter().zip(words) {
                if entry.load(Ordering::Relaxed) != *word {
                    entry.store(*word, Ordering::Release);
                }
            }
        }
        same
    }

    /// Notes that the node is replaced by the change under way.
    pub(super) fn replace(&mut self, word: u32) {
        let block = self.block(word);
        self.replaced.push(block);
    }

    /// The change under way is reachable: its blocks stay, the replaced ones wait for the readers.
    pub(super) fn commit(&mut self) {
        self.written.clear();
        self.blocks.retire(&mut self.replaced, &self.epochs);
    }

    /// The change under way failed: nothing of it is reachable.
    pub(super) fn abandon(&mut self) {
        self.replaced.clear();
        for block in std::mem::take(&mut self.written) {
            self.blocks.give(block);
        }
    }

    /// Nodes in the trie and the longest chain of them, for tests and reports.
    pub(super) fn extent(&self) -> (usize, usize) {
        let mut total = (0, 0);
        for word in self.span.root() {
            let (nodes, depth) = self.extent_below(word.load(Ordering::Relaxed));
            total = (total.0 + nodes, total.1.max(depth));
        }
        total
    }

    fn extent_below(&self, word: u32) -> (usize, usize) {
        if !is_node(word) {
            return (0, 0);
        }
        let mut total = (1, 0);
        for slot in self.draft(word).slots() {
            let (nodes, depth) = self.extent_below(*slot);
            total = (total.0 + nodes, total.1.max(depth));
        }
        (total.0, total.1 + 1)
    }
}

#[cfg(test)]
impl Trie {
    /// Checks what the changes rely on: no entry above a node's slots is of a route that ends below
    /// them.
    pub(super) fn check(&self) {
        for word in self.span.root() {
            self.check_below(word.load(Ordering::Relaxed), self.span.root_bits());
        }
    }

    fn check_below(&self, word: u32, at: u8) {
        if !is_node(word) {
            assert!(super::layout::yields_to(word, at), "an entry at {at} of a route of {}", (word >> 24) - 1);
            return;
        }
        let draft = self.draft(word);
        let from = at + draft.skip;
        assert!(draft.skip == 0 || super::layout::yields_to(draft.fallback, at), "a fallback at {at} is too long");
        assert_eq!(head(draft.expected, draft.skip), draft.expected);
        for slot in draft.slots() {
            self.check_below(*slot, from + draft.stride);
        }
    }
}
