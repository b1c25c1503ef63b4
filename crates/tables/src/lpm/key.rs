//! What is looked up: 32-bit and 128-bit keys in the host's byte order, and the key's state during
//! a walk.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::exact::{ExactRoutes, Ipv4Routes, Ipv6Routes};

/// A key that prefixes are matched against: `u32` for IPv4, `u128` for IPv6, most significant bit
/// first.
pub trait Key: Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    /// Bits in a key.
    const BITS: u8;
    /// The address type of this family.
    type Address: Copy + Debug + Into<std::net::IpAddr>;
    /// The exact-match store of this family's routes.
    type Routes: ExactRoutes<Self>;

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
    /// The 64 bits after the first `consumed` ones; zeros after the key's end. `consumed` is at
    /// most 191.
    fn window(self, consumed: u32) -> u64;
}

impl Key for u32 {
    const BITS: u8 = 32;
    type Address = Ipv4Addr;
    type Routes = Ipv4Routes;

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
    fn window(self, consumed: u32) -> u64 {
        // A walk of an IPv4 key consumes less than 64 bits before its last node.
        u64::from(self) << 32 << (consumed & 63)
    }
}

impl Key for u128 {
    const BITS: u8 = 128;
    type Address = Ipv6Addr;
    type Routes = Ipv6Routes;

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
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    fn window(self, consumed: u32) -> u64 {
        let (first, second) = ((self >> 64) as u64, self as u64);
        // Two shifts of halves: one of 128 bits is several instructions more.
        if consumed < 64 { first << consumed | second >> 1 >> (63 - consumed) } else { second << (consumed & 63) }
    }
}
