//! Changing one route under running readers.
//!
//! Entries change in place where the runs of a node stay as they are; else the node is written anew
//! beside the old one and its parent's entry is stored. Blocks are taken before anything that
//! readers see changes, so a full table is left as it was.

use super::blocks::OutOfBlocks;
use super::build::Leaf;
use super::layout::{MAX_SKIP, STRIDE, has_len, is_node, yields_to};
use super::trie::{Draft, Trie, head, slot, tail, window};
use crate::atomic::Ordering;

/// A change of one route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The prefix, and the entry that its keys get: the route's own, or what a removed route
    /// uncovers.
    pub(super) leaf: Leaf,
    /// True for a new route or next hop, false for a removal.
    pub(super) insert: bool,
}

impl Change {
    /// True if a key with this entry, inside the prefix, gets the change's entry.
    fn applies(&self, word: u32) -> bool {
        if self.insert {
            // Never true of a node's entry.
            yields_to(word, self.leaf.len)
        } else {
            has_len(word, self.leaf.len)
        }
    }
}

impl Trie {
    /// Makes the change; all of it or nothing.
    pub(super) fn apply(&mut self, change: Change) -> Result<(), OutOfBlocks> {
        self.last_resort = !change.insert;
        let root_bits = self.span.root_bits();
        let first = slot(window(change.leaf.key, 0), 0, root_bits);
        if change.leaf.len < root_bits {
            for place in first..first + (1 << (root_bits - change.leaf.len)) {
                let word = self.span.root()[place].load(Ordering::Relaxed);
                if change.applies(word) {
                    self.span.root()[place].store(change.leaf.word, Ordering::Release);
                } else {
                    self.cover(word, &change);
                }
            }
            return Ok(());
        }
        let before = self.span.root()[first].load(Ordering::Relaxed);
        match self.change(before, root_bits, &change) {
            Ok(after) => {
                if after != before {
                    self.span.root()[first].store(after, Ordering::Release);
                }
                self.commit();
                Ok(())
            }
            Err(OutOfBlocks) => {
                self.abandon();
                Err(OutOfBlocks)
            }
        }
    }

    /// The entry, `at` bits into the key, after the change. The prefix shares those bits, or is
    /// shorter.
    fn change(&mut self, word: u32, at: u8, change: &Change) -> Result<u32, OutOfBlocks> {
        if is_node(word) {
            if change.leaf.len <= at {
                self.cover(word, change);
                return Ok(word);
            }
            return self.change_node(word, at, change);
        }
        if change.leaf.len <= at {
            return Ok(if change.applies(word) { change.leaf.word } else { word });
        }
        if change.insert { self.build(&[change.leaf], at, word) } else { Ok(word) }
    }

    fn change_node(&mut self, word: u32, at: u8, change: &Change) -> Result<u32, OutOfBlocks> {
        let node = self.node(word);
        let [skip, rest, _, _] = node.meta.load(Ordering::Relaxed).to_le_bytes();
        let (from, stride, len) = (at + skip, 64 - rest, change.leaf.len);
        let bits = window(change.leaf.key, at);
        let difference = head(bits ^ node.expected.load(Ordering::Relaxed), skip.min(len - at));
        if difference != 0 || len < from {
            if !change.insert {
                return Ok(word);
            }
            #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
            let agree = difference.leading_zeros() as u8;
            return if difference != 0 { self.branch(word, at, agree, change) } else { self.end(word, at, change) };
        }
        if len == from {
            self.cover_entries(word, change);
            if change.insert {
                return Ok(word);
            }
            // Without a block for a tidier node the old one does: it says the same.
            return self.settle_node(word, self.draft(word), at).or(Ok(word));
        }
        let first = slot(bits, skip, stride);
        if len >= from + stride {
            self.change_slot(word, first, at, from + stride, change)
        } else {
            self.change_range(word, first..first + (1 << (from + stride - len)), at, change)
        }
    }

    /// The prefix lies below one slot.
    fn change_slot(&mut self, word: u32, slot: usize, at: u8, below: u8, change: &Change) -> Result<u32, OutOfBlocks> {
        let mut draft = self.draft(word);
        let before = draft.slots[slot];
        let after = self.change(before, below, change)?;
        if after == before && (change.insert || !is_node(after)) {
            return Ok(word);
        }
        draft.slots[slot] = after;
        if change.insert {
            return self.rewrite(word, &draft);
        }
        // Below, the route is gone already: without a block for a tidier node, the old one takes
        // the entry.
        Ok(self.settle_node(word, draft, at).unwrap_or_else(|OutOfBlocks| {
            self.store_child(word, before, after);
            word
        }))
    }

    /// Stores `after` over a child's entry, which is a run of its own.
    fn store_child(&self, word: u32, before: u32, after: u32) {
        let node = self.node(word);
        let count = node.bitmap.load(Ordering::Relaxed).count_ones() as usize;
        for entry in &node.entries[1..=count] {
            if entry.load(Ordering::Relaxed) == before {
                entry.store(after, Ordering::Release);
                return;
            }
        }
    }

    /// The prefix is a range of slots.
    fn change_range(
        &mut self,
        word: u32,
        range: std::ops::Range<usize>,
        at: u8,
        change: &Change,
    ) -> Result<u32, OutOfBlocks> {
        let mut draft = self.draft(word);
        let mut below = Vec::new();
        for entry in &mut draft.slots[range] {
            if change.applies(*entry) {
                *entry = change.leaf.word;
            } else if is_node(*entry) {
                below.push(*entry);
            }
        }
        if below.is_empty() && !change.insert {
            return self.settle_node(word, draft, at);
        }
        let after = self.rewrite(word, &draft)?;
        for entry in below {
            self.cover(entry, change);
        }
        if change.insert {
            return Ok(after);
        }
        self.settle_node(after, self.draft(after), at).or(Ok(after))
    }

    /// Changes every key below an entry, in place: the prefix covers them all.
    fn cover(&self, word: u32, change: &Change) {
        if is_node(word) {
            let fallback = &self.node(word).entries[0];
            if change.applies(fallback.load(Ordering::Relaxed)) {
                fallback.store(change.leaf.word, Ordering::Release);
            }
            self.cover_entries(word, change);
        }
    }

    /// As [`Self::cover`], without the node's fallback.
    fn cover_entries(&self, word: u32, change: &Change) {
        let node = self.node(word);
        let count = node.bitmap.load(Ordering::Relaxed).count_ones() as usize;
        for entry in &node.entries[1..=count] {
            let word = entry.load(Ordering::Relaxed);
            if change.applies(word) {
                entry.store(change.leaf.word, Ordering::Release);
            } else {
                self.cover(word, change);
            }
        }
    }

    /// The prefix leaves the bits that a node skips after `agree` of them: a new node above decides
    /// there.
    fn branch(&mut self, word: u32, at: u8, agree: u8, change: &Change) -> Result<u32, OutOfBlocks> {
        let old = self.draft(word);
        let stride = STRIDE.min(old.skip - agree);
        let below = at + agree + stride;
        let mut upper = self.upper((word, at), &old, agree, stride, old.fallback)?;
        let first = slot(window(change.leaf.key, at), agree, stride);
        if change.leaf.len < below {
            upper.slots[first..first + (1 << (below - change.leaf.len))].fill(change.leaf.word);
        } else {
            upper.slots[first] = self.build(&[change.leaf], below, old.fallback)?;
        }
        self.write(&upper)
    }

    /// The prefix ends within the bits that a node skips: what the node skips after it falls back
    /// to it.
    fn end(&mut self, word: u32, at: u8, change: &Change) -> Result<u32, OutOfBlocks> {
        let old = self.draft(word);
        let bits = change.leaf.len - at;
        let stride = STRIDE.min(bits);
        let mut covered = old.clone();
        for entry in covered.slots.iter_mut().filter(|entry| change.applies(**entry)) {
            *entry = change.leaf.word;
        }
        let upper = self.upper((word, at), &covered, bits - stride, stride, change.leaf.word)?;
        let after = self.write(&upper)?;
        for entry in old.slots() {
            self.cover(*entry, change);
        }
        Ok(after)
    }

    /// A node that takes over `skip + stride` of the bits that `old` skips, and `old` without them,
    /// with `fallback`, as its one child.
    fn upper(
        &mut self,
        (word, at): (u32, u8),
        old: &Draft,
        skip: u8,
        stride: u8,
        fallback: u32,
    ) -> Result<Draft, OutOfBlocks> {
        let below = at + skip + stride;
        let lower = Draft {
            skip: old.skip - skip - stride,
            expected: tail(old.expected, skip + stride),
            fallback,
            ..old.clone()
        };
        let mut upper = Draft {
            skip,
            stride,
            expected: head(old.expected, skip),
            fallback: old.fallback,
            slots: [old.fallback; 1 << STRIDE],
        };
        // A node that neither skips nor tells keys apart is an entry.
        let single = lower.slots().iter().all(|entry| *entry == lower.slots[0]);
        let leaf = single && lower.skip == 0 && !is_node(lower.slots[0]) && yields_to(lower.slots[0], below);
        upper.slots[slot(old.expected, skip, stride)] = if leaf { lower.slots[0] } else { self.write(&lower)? };
        self.replace(word);
        Ok(upper)
    }

    /// Brings a node to a draft: in place, or by a new node.
    fn rewrite(&mut self, word: u32, draft: &Draft) -> Result<u32, OutOfBlocks> {
        if self.overwrite(word, draft) {
            return Ok(word);
        }
        let after = self.write(draft)?;
        self.replace(word);
        Ok(after)
    }

    /// As [`Self::rewrite`], after a removal: a node that decides nothing any more goes.
    fn settle_node(&mut self, word: u32, draft: Draft, at: u8) -> Result<u32, OutOfBlocks> {
        let other = draft.slots().iter().copied().find(|entry| !is_node(*entry));
        let mut children = draft.slots().iter().enumerate().filter(|(_, entry)| is_node(**entry));
        // The entry of every key here but those of one child, if there is such an entry. It must
        // not be of a route longer than `at`: two such routes side by side can look alike, and stay
        // two routes.
        let outside = other.filter(|other| {
            let uniform = draft.slots().iter().all(|entry| entry == other || is_node(*entry));
            uniform && yields_to(*other, at) && (draft.skip == 0 || *other == draft.fallback)
        });
        match (outside, children.next(), children.next()) {
            (Some(outside), None, None) => {
                self.replace(word);
                Ok(outside)
            }
            (Some(outside), Some((slot, child)), None) => {
                let child = *child;
                match self.merged(&draft, outside, slot, child).map(|merged| self.write(&merged)) {
                    Some(Ok(after)) => {
                        self.replace(word);
                        self.replace(child);
                        Ok(after)
                    }
                    _ => self.rewrite(word, &draft),
                }
            }
            _ => self.rewrite(word, &draft),
        }
    }

    /// A node and its one child as one node, if the bits to skip fit.
    fn merged(&self, draft: &Draft, outside: u32, slot: usize, child: u32) -> Option<Draft> {
        let lower = self.draft(child);
        let consumed = draft.skip + draft.stride;
        if consumed + lower.skip > MAX_SKIP || (lower.skip > 0 && lower.fallback != outside) {
            return None;
        }
        let expected = draft.expected | (slot as u64) << (64 - consumed) | lower.expected >> consumed;
        Some(Draft { skip: consumed + lower.skip, expected, fallback: outside, ..lower })
    }
}
