//! The words of the span: constants and the entry word. [`super`] draws them; the reader
//! in the kernel (`lpm.h`) has them from here.

tombolo_records::constants! {
    /// Words of the header; the root follows.
    pub const HEADER_WORDS: usize as LPM_HEADER_WORDS = 16;
    /// Words in a unit, the grain of blocks: 16 bytes. Of 32 bytes, a million IPv4 routes took 24.7 and
    /// not 23.9 bytes each.
    pub const UNIT_WORDS: usize as LPM_UNIT_WORDS = 4;
    /// The most nodes that a walk passes: a walk that is longer reads a damaged table. Each node
    /// consumes a bit at least.
    pub const MAX_DEPTH: usize as LPM_MAX_DEPTH = 128;
    /// Entries from this value on lead to a node.
    pub const NODE: u32 as LPM_NODE = 0xc000_0000;
    /// The entry of keys that no route covers.
    pub const NONE: u32 as LPM_NONE = 0;
    /// Word of a block that holds the fallback.
    pub const FALLBACK: usize as LPM_FALLBACK = 5;
    /// Words of a cache line.
    pub const LINE_WORDS: usize as LPM_LINE_WORDS = 16;
    /// Word of the header with the bits that the root decides on.
    pub const HEADER_ROOT_BITS: usize as LPM_HEADER_ROOT_BITS = 2;
}

/// Word 0 of the span: "LPM1" read as a big-endian number.
pub const MAGIC: u32 = 0x4c50_4d31;
/// Words before the first entry of a block; the last of them is the fallback.
pub const NODE_WORDS: usize = 6;
/// Bits of the key that one node decides on, at most.
pub const STRIDE: u8 = 6;
/// Bits that a node may skip, at most: skip and stride fit the 64-bit window.
pub const MAX_SKIP: u8 = 58;
/// Units of the largest block: 6 + 64 words.
pub const MAX_UNITS: usize = 18;

/// The entry of a route of `len` bits to `next_hop`.
#[must_use]
pub const fn route(len: u8, next_hop: u32) -> u32 {
    ((len as u32 + 1) << 24) | next_hop
}

/// The entry that leads to the block at `unit`.
#[must_use]
pub const fn node(unit: u32) -> u32 {
    NODE | unit
}

/// True if the entry leads to a node.
#[must_use]
pub const fn is_node(word: u32) -> bool {
    word >= NODE
}

/// The unit that a node's entry leads to.
#[must_use]
pub const fn unit(word: u32) -> u32 {
    word & !NODE
}

/// True if the entry is of no route or of a route of at most `len` bits: a route of `len` bits
/// replaces it.
#[must_use]
pub const fn yields_to(word: u32, len: u8) -> bool {
    (word >> 24) <= len as u32 + 1
}

/// True if the entry is of a route of exactly `len` bits.
#[must_use]
pub const fn has_len(word: u32, len: u8) -> bool {
    (word >> 24) == len as u32 + 1
}
