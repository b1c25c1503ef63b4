//! One lookup: the root, then a line a node.

use std::sync::atomic::Ordering;

use super::blocks::{Node, Span};
use super::key::{Cursor, Key};
use super::layout::{MAX_DEPTH, NONE, is_node};

/// True if this processor has the instructions that the fast walk is compiled for.
pub(super) fn has_bit_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("popcnt")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The entry that a key leads to. `fast` is what [`has_bit_instructions`] said.
#[inline]
pub(super) fn find<K: Key>(span: &Span, fast: bool, key: K) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if fast {
        // SAFETY: `fast` says that this processor has the features of the function.
        return unsafe { walk_with_bit_instructions(span, key) };
    }
    let _ = fast;
    walk(span, key)
}

/// The entry that a key leads to.
#[inline(always)]
pub(super) fn walk<K: Key>(span: &Span, key: K) -> u32 {
    let word = span.root()[key.first(span.root_bits())].load(Ordering::Acquire);
    if is_node(word) { descend(span, word, key.cursor(span.root_bits())) } else { word }
}

/// The entry that the rest of a key leads to from a node.
#[inline(always)]
fn descend<C: Cursor>(span: &Span, mut word: u32, mut cursor: C) -> u32 {
    for _ in 0..MAX_DEPTH {
        let Some(node) = span.node(word) else {
            return NONE;
        };
        (word, cursor) = step(node, cursor);
        if !is_node(word) {
            return word;
        }
    }
    NONE
}

/// The entry that a node has for the rest of a key, and what is left of the key after it.
///
/// Without branches: a mispredicted one costs more than the node.
#[inline(always)]
pub(super) fn step<C: Cursor>(node: &Node, cursor: C) -> (u32, C) {
    let (bitmap, expected) = (node.bitmap.load(Ordering::Relaxed), node.expected.load(Ordering::Relaxed));
    let meta = node.meta.load(Ordering::Relaxed);
    let (skip, rest) = (meta & 63, meta >> 8 & 63);
    let window = cursor.window();
    let slot = (window << skip) >> rest;
    let run = (bitmap << (!slot & 63)).count_ones() as usize;
    let strays = (window ^ expected) & !(u64::MAX >> skip) != 0;
    // Entry 0 is the fallback. The index is at most 64, so the check of the array's bounds goes.
    let word = node.entries[if strays { 0 } else { run }].load(Ordering::Acquire);
    (word, cursor.advance(skip + 64 - rest))
}

/// [`walk`] with the bit instructions of x86-64-v3, which the baseline lacks. 100,000 random routes, IPv4:
/// see `docs/performance.md`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,bmi1,bmi2")]
pub(super) fn walk_with_bit_instructions<K: Key>(span: &Span, key: K) -> u32 {
    walk(span, key)
}
