//! What is looked up: 32-bit and 128-bit keys in the host's byte order, and the key's state during a walk.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::exact::{ExactRoutes, Ipv4Routes, Ipv6Routes};

/// A key that prefixes are matched against: `u32` for IPv4, `u128` for IPv6, most significant bit first.
pub trait Key: Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    /// Bits in a key.
    const BITS: u8;
    /// The address type of this family.
    type Address: Copy + Debug + Into<std::net::IpAddr>;
    /// The exact-match store of this family's routes.
    type Routes: ExactRoutes<Self>;
    /// The rest of a key during a walk.
    type Cursor: Cursor;

    /// The key of an address.
    fn from_address(address: Self::Address) -> Self;
    /// The address of a key.
    fn address(self) -> Self::Address;
    /// The key in the top bits of 128.
    fn left_aligned(self) -> u128;
    /// Inverse of [`Self::left_aligned`].
    fn from_left_aligned(bits: u128) -> Self;
    /// The key's first `bits` bits (1 to 31) as a number.
    fn first(self, bits: u8) -> usize;
    /// The key without its first `bits` bits (less than [`Self::BITS`]).
    fn cursor(self, bits: u8) -> Self::Cursor;
}

/// A key without the bits consumed so far.
pub trait Cursor: Copy + Default {
    /// The next 64 bits, zeros after the key's end.
    fn window(self) -> u64;
    /// Consumes `bits` bits, at most 64.
    #[must_use]
    fn advance(self, bits: u32) -> Self;
}

impl Key for u32 {
    const BITS: u8 = 32;
    type Address = Ipv4Addr;
    type Routes = Ipv4Routes;
    type Cursor = u64;

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

    #[inline]
    fn first(self, bits: u8) -> usize {
        (self >> (32 - u32::from(bits))) as usize
    }

    #[inline]
    fn cursor(self, bits: u8) -> u64 {
        u64::from(self) << (32 + u32::from(bits))
    }
}

impl Cursor for u64 {
    #[inline]
    fn window(self) -> u64 {
        self
    }

    #[inline]
    fn advance(self, bits: u32) -> Self {
        // An IPv4 walk consumes at most 14 + 6 bits in one step, never 64.
        self << (bits & 63)
    }
}

impl Key for u128 {
    const BITS: u8 = 128;
    type Address = Ipv6Addr;
    type Routes = Ipv6Routes;
    type Cursor = u128;

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

    #[inline]
    fn first(self, bits: u8) -> usize {
        ((self >> 64) as u64 >> (64 - u32::from(bits))) as usize
    }

    #[inline]
    fn cursor(self, bits: u8) -> u128 {
        self << bits
    }
}

impl Cursor for u128 {
    #[inline]
    fn window(self) -> u64 {
        (self >> 64) as u64
    }

    #[inline]
    fn advance(self, bits: u32) -> Self {
        self << (bits & 127)
    }
}
