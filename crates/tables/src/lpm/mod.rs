//! Longest-prefix match for IPv4 and IPv6 in one flat array.
//!
//! A poptrie-class trie (Asai and Ohara, "Poptrie", SIGCOMM 2015) with three changes: a node and
//! its entries share one block, so that a level costs one cache line instead of two; a node may
//! skip bits that all its routes share, so that a lone IPv6 route costs one node and not a chain of
//! them; and an entry is replaced by one store, so that routes change under running readers.
//!
//! Cost of a lookup: one load from the root array (a direct table over the first 16 to 18 bits),
//! then one cache line a node, typically none or one for IPv4, one to four for IPv6.
//!
//! # Locking
//! One writer ([`Lpm`]); any number of readers ([`Reader`]) that never wait and never write what
//! another reader reads. Replaced blocks are reused only when no pinned reader can still see them
//! ([`epoch`]). Each key's answer changes at one instant, the store of the one word that holds it;
//! a change that covers many keys (a short prefix) is not one instant for all of them.
//!
//! # Bytes
//! The span is an array of 32-bit words of the host's byte order. Words 0 to 15 are the header: 0
//! magic ([`layout::MAGIC`]), 1 key bits (32 or 128), 2 root bits, 3 length of the span in units of
//! 4 words. From word 16: the root, 2^(root bits) entries. Then the blocks, each of whole units, on
//! a unit's boundary:
//!
//! ```text
//! word   0       1        2       3         4                  5          6 ...
//!      +-------+--------+-------+---------+------------------+----------+---------+---
//!      | bitmap, 64 bit | expected, 64 bit| skip | 64-stride | fallback | entry 0 | entry 1 ...
//!      |                |                 | size | 0         |          |         |
//!      +-------+--------+-------+---------+------------------+----------+---------+---
//! ```
//!
//! A reader at a node has the key shifted left by the bits consumed so far; its top 64 bits are the
//! window.
//! * If the window's first `skip` bits differ from those of `expected`, the answer is `fallback`.
//! * Else the `stride` (1 to 6) bits after them are the slot, and the entry is number
//!   `popcount(bitmap & (2 << slot) - 1) - 1`: bit i of the bitmap is set where slot i's entry
//!   differs from slot i-1's; bit 0 is always set. `skip + stride` bits are then consumed.
//! * Word 4: byte 0 (lowest) the skip (0 to 58), byte 1 is 64 - stride, byte 2 the block's units.
//!
//! An entry is 0: no route; below 2^31: a route, prefix length + 1 in the top byte, next hop in the
//! lower 24 bits; from 3 * 2^30: a node, its unit (words / 4) in the lower 30 bits.
//!
//! # Memory
//! Bounded by the span given; [`Lpm::memory`] reports it. The exact routes, needed to find what a
//! removed route uncovers, live in a hash table of the writer (`exact`): 8 bytes a route for
//! IPv4, 12 for IPv6 (20 when longer than /64), plus the hash table's empty slots.

pub mod batch;
mod blocks;
mod build;
pub mod epoch;
mod exact;
mod frozen;
pub mod key;
pub mod layout;
pub mod model;
pub mod prefix;
mod reader;
mod table;
mod trie;
mod update;
mod walk;

#[cfg(test)]
mod numbers;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "numbers below a bound")]
mod tests;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "numbers below a bound, halves of notes")]
mod torture;

pub use frozen::Frozen;
pub use key::Key;
pub use prefix::{LpmError, NextHop, Prefix, Route};
pub use reader::{Match, Pinned, Reader};
pub use table::{Lpm, MemoryReport, Shape};
