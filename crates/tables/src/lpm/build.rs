//! Building a subtree from sorted routes: for whole tables, and for what an insertion hangs into a
//! leaf.

use super::blocks::OutOfBlocks;
use super::layout::{MAX_SKIP, STRIDE};
use super::trie::{Draft, Trie, head, slot, window};
use crate::atomic::Ordering;

/// A route in the writer's terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    /// Left-aligned.
    pub(super) key: u128,
    pub(super) len: u8,
    /// The entry: length and next hop.
    pub(super) word: u32,
}

/// Common leading bits of two left-aligned keys.
#[expect(clippy::cast_possible_truncation, reason = "at most 128")]
fn common_bits(a: u128, b: u128) -> u8 {
    (a ^ b).leading_zeros() as u8
}

impl Trie {
    /// Fills the empty root from sorted leaves.
    pub(super) fn build_root(&mut self, leaves: &[Leaf]) -> Result<(), OutOfBlocks> {
        let root_bits = self.span.root_bits();
        let place = |leaf: &Leaf| slot(window(leaf.key, 0), 0, root_bits);
        let mut rest = leaves;
        while let [leaf, others @ ..] = rest {
            let first = place(leaf);
            if leaf.len < root_bits {
                for word in &self.span.root()[first..first + (1 << (root_bits - leaf.len))] {
                    word.store(leaf.word, Ordering::Relaxed);
                }
                rest = others;
            } else {
                let (group, others) = rest.split_at(rest.partition_point(|other| place(other) == first));
                let inherited = self.span.root()[first].load(Ordering::Relaxed);
                let word = self.build(group, root_bits, inherited)?;
                self.span.root()[first].store(word, Ordering::Release);
                rest = others;
            }
        }
        self.commit();
        Ok(())
    }

    /// The entry of the keys that share their first `at` bits with `leaves`: routes of more than
    /// those bits or of fewer, sorted by key and then length. `inherited` is the entry of keys that
    /// none of them covers.
    pub(super) fn build(&mut self, leaves: &[Leaf], at: u8, inherited: u32) -> Result<u32, OutOfBlocks> {
        let (leaves, inherited) = settle(leaves, at, inherited);
        let ([first, ..], [.., last]) = (leaves, leaves) else {
            return Ok(inherited);
        };
        // All keys here agree up to `event`, and no route ends before it: nothing to decide until
        // then.
        let shortest = leaves.iter().map(|leaf| leaf.len).min().unwrap_or(at);
        let event = common_bits(first.key, last.key).min(shortest);
        let skip = (event - at).min(MAX_SKIP);
        let from = at + skip;
        let expected = head(window(first.key, at), skip);
        let (leaves, covering) = settle(leaves, from, inherited);
        let mut draft = Draft { skip, stride: STRIDE, expected, fallback: inherited, slots: [covering; 1 << STRIDE] };
        self.fill(&mut draft, leaves, from)?;
        self.write(&draft)
    }

    /// Enters sorted leaves, all longer than `from` bits, into a draft whose slots start at bit
    /// `from`.
    fn fill(&mut self, draft: &mut Draft, leaves: &[Leaf], from: u8) -> Result<(), OutOfBlocks> {
        let below = from + draft.stride;
        let mut rest = leaves;
        while let [leaf, others @ ..] = rest {
            let first = slot(window(leaf.key, from), 0, draft.stride);
            if leaf.len < below {
                draft.slots[first..first + (1 << (below - leaf.len))].fill(leaf.word);
                rest = others;
            } else {
                let same = |other: &Leaf| slot(window(other.key, from), 0, draft.stride) == first;
                let (group, others) = rest.split_at(rest.partition_point(same));
                draft.slots[first] = self.build(group, below, draft.slots[first])?;
                rest = others;
            }
        }
        Ok(())
    }
}

/// Takes the leaves of at most `at` bits off the front: they cover all that the others share.
fn settle(mut leaves: &[Leaf], at: u8, mut inherited: u32) -> (&[Leaf], u32) {
    while let [leaf, rest @ ..] = leaves
        && leaf.len <= at
    {
        inherited = leaf.word;
        leaves = rest;
    }
    (leaves, inherited)
}
