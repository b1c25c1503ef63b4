//! What is looked up: 32-bit and 128-bit keys in the host's byte order, and the key's state during
//! a walk.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A key that prefixes are matched against: `u32` for IPv4, `u128` for IPv6, most significant bit
/// first.
pub trait Key: Word + Ord + Hash {
    /// Bits in a key.
    const BITS: u8;
    /// The address type of this family.
    type Address: Copy + Debug + Into<std::net::IpAddr>;
    /// The first [`Self::SHORT_BITS`] bits of a key.
    type Short: Word;
    /// Bits of the short form.
    const SHORT_BITS: u8;

    /// The key of an address.
    fn from_address(address: Self::Address) -> Self;
    /// The address of a key.
    fn address(self) -> Self::Address;
    /// The key in the top bits of 128.
    fn left_aligned(self) -> u128;
    /// Inverse of [`Self::left_aligned`].
    fn from_left_aligned(bits: u128) -> Self;
    /// The key's first [`Self::SHORT_BITS`] bits.
    fn short(self) -> Self::Short;
    /// The key with these bits, and zeros after them.
    fn from_short(short: Self::Short) -> Self;
    /// The key's first `bits` bits (1 to 31) as a number.
    fn first(self, bits: u8) -> usize;
    /// The 64 bits after the first `consumed` ones; zeros after the key's end. `consumed` is at
    /// most 191.
    fn window(self, consumed: u32) -> u64;
}

impl Key for u32 {
    const BITS: u8 = 32;
    type Address = Ipv4Addr;
    type Short = u32;
    const SHORT_BITS: u8 = 32;

    fn from_address(address: Ipv4Addr) -> Self {
        address.to_bits()
    }

    fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self)
    }

    fn left_aligned(self) -> u128 {
        u128::from(self) << 96
    }

    fn from_left_aligned(bits: u128) -> Self {
        (bits >> 96) as u32
    }

    fn short(self) -> u32 {
        self
    }

    fn from_short(short: u32) -> Self {
        short
    }

    #[inline]
    fn first(self, bits: u8) -> usize {
        (self >> (32 - u32::from(bits))) as usize
    }

    #[inline]
    fn window(self, consumed: u32) -> u64 {
        // A walk of an IPv4 key consumes less than 64 bits before its last node.
        u64::from(self) << 32 << (consumed & 63)
    }
}

impl Key for u128 {
    const BITS: u8 = 128;
    type Address = Ipv6Addr;
    type Short = u64;
    const SHORT_BITS: u8 = 64;

    fn from_address(address: Ipv6Addr) -> Self {
        address.to_bits()
    }

    fn address(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self)
    }

    fn left_aligned(self) -> u128 {
        self
    }

    fn from_left_aligned(bits: u128) -> Self {
        bits
    }

    fn short(self) -> u64 {
        (self >> 64) as u64
    }

    fn from_short(short: u64) -> Self {
        u128::from(short) << 64
    }

    #[inline]
    fn first(self, bits: u8) -> usize {
        ((self >> 64) as u64 >> (64 - u32::from(bits))) as usize
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    fn window(self, consumed: u32) -> u64 {
        let (first, second) = ((self >> 64) as u64, self as u64);
        // Two shifts of halves: one of 128 bits is several instructions more.
        if consumed < 64 { first << consumed | second >> 1 >> (63 - consumed) } else { second << (consumed & 63) }
    }
}

/// A number that is found by its hash: a key, or the first bits of one.
pub trait Word: Copy + Eq + Default + Debug + Send + Sync + 'static {
    /// The hash of the number together with a prefix length.
    fn spread(self, len: u32) -> u64;
}

/// Multiply-and-fold: one multiplication of 64 to 128 bits (wyhash's mixing step).
fn fold(value: u64, seed: u64) -> u64 {
    let product = u128::from(value ^ 0x9e37_79b9_7f4a_7c15) * u128::from(seed ^ 0xe703_7ed1_a0b4_28db);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

impl Word for u32 {
    fn spread(self, len: u32) -> u64 {
        fold(u64::from(self) << 32 | u64::from(len), 0x8ebc_6af0_9c88_c6e3)
    }
}

impl Word for u64 {
    fn spread(self, len: u32) -> u64 {
        fold(self, u64::from(len) << 32 | 0x1d8e_4e27)
    }
}

impl Word for u128 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
    fn spread(self, len: u32) -> u64 {
        fold((self >> 64) as u64, fold(self as u64, u64::from(len)))
    }
}
