//! The span of words, the view of a node in it, and the writer's allocator of blocks.

use std::collections::VecDeque;
use std::hint::select_unpredictable;

use super::epoch::Epochs;
use super::layout::{HEADER_WORDS, MAGIC, MAX_UNITS, NODE, UNIT_WORDS, unit};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::memory::{CACHE_LINE, MemoryError, MemorySource, Slab};

/// The words that readers see.
#[derive(Debug)]
pub(super) struct Span {
    words: Slab<AtomicU32>,
    /// Blocks start below this unit, so that even the largest block lies inside the span.
    limit: u32,
    root_bits: u8,
}

/// A node as it lies in the span; [`super`] draws it. Always a view of the largest block: what is
/// behind a smaller one belongs to others, and its entries are never chosen.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node {
    pub(super) bitmap: AtomicU64,
    pub(super) expected: AtomicU64,
    pub(super) meta: AtomicU32,
    /// The fallback, then the entries.
    pub(super) entries: [AtomicU32; ENTRIES],
}

const NODE_SPAN: usize = MAX_UNITS * UNIT_WORDS;
const ENTRIES: usize = NODE_SPAN - 5;
const _: () = assert!(size_of::<Node>() == NODE_SPAN * size_of::<u32>());
const _: () = assert!(std::mem::offset_of!(Node, entries) == 4 * super::layout::FALLBACK);

impl Span {
    /// Bytes that a span of these root bits needs at least.
    pub(super) fn least_bytes(root_bits: u8) -> usize {
        (HEADER_WORDS + (1 << root_bits) + 2 * NODE_SPAN) * size_of::<u32>()
    }

    pub(super) fn take(
        source: &mut dyn MemorySource,
        name: &'static str,
        bytes: usize,
        key_bits: u8,
        root_bits: u8,
    ) -> Result<Self, MemoryError> {
        let count = bytes / size_of::<u32>();
        let words: Slab<AtomicU32> = Slab::take(source, name, count)?;
        let units = u32::try_from(count / UNIT_WORDS).unwrap_or(u32::MAX).min(unit(u32::MAX));
        #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
        let limit = units - MAX_UNITS as u32;
        for (word, value) in words.iter().zip([MAGIC, u32::from(key_bits), u32::from(root_bits), units]) {
            word.store(value, Ordering::Relaxed);
        }
        Ok(Self { words, limit, root_bits })
    }

    pub(super) fn root_bits(&self) -> u8 {
        self.root_bits
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u32>()
    }

    /// The root array.
    #[inline]
    pub(super) fn root(&self) -> &[AtomicU32] {
        &self.words[HEADER_WORDS..HEADER_WORDS + (1 << self.root_bits)]
    }

    /// The entry at place `index` of the root.
    #[inline]
    pub(super) fn root_entry(&self, index: usize) -> u32 {
        self.words[HEADER_WORDS + index].load(Ordering::Acquire)
    }

    /// The node that an entry leads to; nothing if the unit is outside the span.
    #[inline]
    pub(super) fn node(&self, word: u32) -> Option<&Node> {
        let unit = word.wrapping_sub(NODE);
        (unit < self.limit).then(|| self.node_at(unit))
    }

    /// As [`Self::node`], and true; for other entries the header seen as a node, whose entries mean
    /// nothing, and false.
    #[inline]
    pub(super) fn node_or_header(&self, word: u32) -> (&Node, bool) {
        let unit = word.wrapping_sub(NODE);
        let inside = unit < self.limit;
        (self.node_at(select_unpredictable(inside, unit, 0)), inside)
    }

    /// The node at a unit below the limit.
    #[inline]
    fn node_at(&self, unit: u32) -> &Node {
        debug_assert!(unit < self.limit);
        // SAFETY: both callers pass a unit below `limit`, and: `limit` is the span's units less the
        // units of a `Node`, so that the node lies inside the slab, whose words are valid for the
        // life of `self`; the span is aligned to a cache line and a unit is 16 bytes, so the node
        // is aligned to 8; all fields are atomics, for which any bytes are valid. `bitmap` and
        // `expected` are written as 64-bit words while no other thread reaches the block. Against
        // two 32-bit loads for each: 100,000 IPv6 routes 8.9 instead of 9.7 ns a lookup.
        unsafe { &*self.words.as_ptr().add(unit as usize * UNIT_WORDS).cast::<Node>() }
    }

    /// Asks the processor to load the node's first line.
    #[inline]
    pub(super) fn prefetch(&self, word: u32) {
        self.words.prefetch(unit(word) as usize * UNIT_WORDS);
    }
}

/// No block of the size asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutOfBlocks;

/// A block: its first unit and its length in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) unit: u32,
    pub(super) units: u8,
}

/// Hands out blocks of 2 to 18 units: from the list of its size, else from the end of what was used
/// so far, else from a larger free block.
#[derive(Debug)]
pub(super) struct Allocator {
    free: [Vec<u32>; MAX_UNITS + 1],
    first: u32,
    /// Everything from this unit on was never used.
    fresh: u32,
    limit: u32,
    /// Replaced blocks and the stamp after which they are free, oldest first.
    retired: VecDeque<(u64, Block)>,
    retired_units: usize,
    free_units: usize,
}

/// Retired blocks that are let pile up before the readers' epochs are looked at.
const RECLAIM_AT: usize = 64;
/// Units that only removals may take, so that a full table can still shrink.
const RESERVE: u32 = 144;
/// Units in a cache line.
const LINE_UNITS: u32 = 4;
const _: () = assert!(LINE_UNITS as usize * UNIT_WORDS * 4 == CACHE_LINE);

impl Allocator {
    pub(super) fn new(span: &Span) -> Self {
        let words = HEADER_WORDS + (1 << span.root_bits);
        let first = u32::try_from(words.next_multiple_of(CACHE_LINE / 4) / UNIT_WORDS).unwrap_or(u32::MAX);
        Self {
            free: Default::default(),
            first,
            fresh: first,
            limit: span.limit,
            retired: VecDeque::new(),
            retired_units: 0,
            free_units: 0,
        }
    }

    /// A block of `units`; `last_resort` opens the reserve.
    pub(super) fn take(&mut self, units: u8, last_resort: bool) -> Result<u32, OutOfBlocks> {
        if let Some(unit) = self.take_free(units) {
            return Ok(unit);
        }
        // A small block does not cross a cache line; of a larger one the header may, which is rare.
        let in_line = self.fresh % LINE_UNITS + u32::from(units);
        if u32::from(units) < LINE_UNITS && in_line > LINE_UNITS && self.fresh + LINE_UNITS <= self.limit {
            let rest = LINE_UNITS - self.fresh % LINE_UNITS;
            self.give_run(self.fresh, rest);
            self.fresh += rest;
        }
        let limit = if last_resort { self.limit } else { self.limit.saturating_sub(RESERVE) };
        if self.fresh + u32::from(units) <= limit {
            let unit = self.fresh;
            self.fresh += u32::from(units);
            return Ok(unit);
        }
        self.split(units)
            .or_else(|| {
                self.join();
                self.take_free(units).or_else(|| self.split(units))
            })
            .ok_or(OutOfBlocks)
    }

    fn take_free(&mut self, units: u8) -> Option<u32> {
        let unit = self.free[usize::from(units)].pop()?;
        self.free_units -= usize::from(units);
        Some(unit)
    }

    fn split(&mut self, units: u8) -> Option<u32> {
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_UNITS")]
        let larger = (units + 1..=MAX_UNITS as u8).find(|size| !self.free[usize::from(*size)].is_empty())?;
        let unit = self.take_free(larger)?;
        self.give(Block { unit: unit + u32::from(units), units: larger - units });
        Some(unit)
    }

    /// Joins free neighbours: the last thing tried before the table counts as full.
    fn join(&mut self) {
        let mut blocks: Vec<Block> = Vec::new();
        for (units, list) in (0u8..).zip(&mut self.free) {
            blocks.extend(list.drain(..).map(|unit| Block { unit, units }));
        }
        self.free_units = 0;
        blocks.sort_unstable_by_key(|block| block.unit);
        let mut rest = blocks.into_iter().peekable();
        while let Some(block) = rest.next() {
            let mut units = u32::from(block.units);
            while let Some(next) = rest.next_if(|next| next.unit == block.unit + units) {
                units += u32::from(next.units);
            }
            self.give_run(block.unit, units);
        }
    }

    /// Gives a run of units back, in blocks of the largest size.
    fn give_run(&mut self, unit: u32, units: u32) {
        let mut at = unit;
        while at < unit + units {
            #[expect(clippy::cast_possible_truncation, reason = "at most MAX_UNITS")]
            let size = (unit + units - at).min(MAX_UNITS as u32) as u8;
            self.give(Block { unit: at, units: size });
            at += u32::from(size);
        }
    }

    /// Takes back a block that no reader has seen, or none sees any more.
    pub(super) fn give(&mut self, block: Block) {
        self.free[usize::from(block.units)].push(block.unit);
        self.free_units += usize::from(block.units);
    }

    /// Keeps replaced blocks until nobody sees them.
    pub(super) fn retire(&mut self, blocks: &mut Vec<Block>, epochs: &Epochs) {
        if blocks.is_empty() {
            return;
        }
        let stamp = epochs.stamp();
        for block in blocks.drain(..) {
            self.retired_units += usize::from(block.units);
            self.retired.push_back((stamp, block));
        }
        if self.retired.len() >= RECLAIM_AT {
            self.reclaim(epochs);
        }
    }

    /// Frees the retired blocks that nobody sees any more.
    pub(super) fn reclaim(&mut self, epochs: &Epochs) {
        let oldest = epochs.oldest();
        while let Some((_, block)) = self.retired.pop_front_if(|(stamp, _)| *stamp < oldest) {
            self.retired_units -= usize::from(block.units);
            self.give(block);
        }
    }

    /// Bytes of blocks in use, of free blocks among them, and of blocks that wait for readers.
    pub(super) fn bytes(&self) -> (usize, usize, usize) {
        let bytes = |units: usize| units * UNIT_WORDS * size_of::<u32>();
        let touched = (self.fresh - self.first) as usize;
        (bytes(touched - self.free_units - self.retired_units), bytes(self.free_units), bytes(self.retired_units))
    }
}
