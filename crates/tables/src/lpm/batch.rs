//! Lookups in groups: the memory accesses of many walks overlap.
//!
//! All walks of a group take one step, then those that are not done take the next. The list of
//! walks that go on is kept without branches, so that the processor need not guess how deep each
//! key goes.

use super::blocks::Span;
use super::key::Key;
use super::layout::{MAX_DEPTH, NONE, is_node};
use super::walk::step;
use crate::atomic::Ordering;

/// Keys in a group.
pub const GROUP: usize = 32;

/// Looks up at most [`GROUP`] keys; `words` is as long as `keys`.
#[inline(always)]
pub(super) fn walk_group<K: Key>(span: &Span, keys: &[K], words: &mut [u32]) {
    let (root, root_bits) = (span.root(), span.root_bits());
    let mut consumed = [u32::from(root_bits); GROUP];
    let mut pending = [0u8; GROUP];
    let mut count = 0;
    for (lane, (key, word)) in (0u8..).zip(keys.iter().zip(words.iter_mut())).take(GROUP) {
        *word = root[key.first(root_bits)].load(Ordering::Acquire);
        pending[count % GROUP] = lane;
        count += usize::from(is_node(*word));
    }
    for &lane in &pending[..count] {
        span.prefetch(words[usize::from(lane)]);
    }
    for _ in 0..MAX_DEPTH {
        if count == 0 {
            return;
        }
        let mut left = 0;
        for index in 0..count {
            let lane = pending[index];
            let place = usize::from(lane) % GROUP;
            let Some(node) = span.node(words[place]) else {
                words[place] = NONE;
                continue;
            };
            let (word, more) = step(node, keys[place].window(consumed[place]));
            words[place] = word;
            consumed[place] += more;
            pending[left] = lane;
            if is_node(word) {
                span.prefetch(word);
            }
            left += usize::from(is_node(word));
        }
        count = left;
    }
    for &lane in &pending[..count] {
        words[usize::from(lane)] = NONE;
    }
}

/// [`walk_group`] with the bit instructions of x86-64-v3.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt,bmi1,bmi2")]
pub(super) fn walk_group_with_bit_instructions<K: Key>(span: &Span, keys: &[K], words: &mut [u32]) {
    walk_group(span, keys, words);
}
