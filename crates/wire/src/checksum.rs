//! The Internet checksum, in full and by difference.
//!
//! Read first: RFC 1071 sections 1 and 2, RFC 1624 section 3 (equation 3), RFC 768 ("Fields"),
//! RFC 8200 section 8.1.
//!
//! The sum of big-endian 16-bit words in one's complement arithmetic is arithmetic modulo 0xffff
//! with two zeros, 0x0000 and 0xffff. [`Sum`] collects, [`Delta`] is the difference of two sums and
//! is what a translation adds to a checksum: it depends only on addresses and ports, so it may be
//! computed once per session or prefix.
//!
//! Invariant of [`Sum`]: the accumulator is congruent to the sum of the words modulo 0xffff, and is
//! zero only if every word was zero. So a sum over data that is not all zero never folds to 0x0000,
//! which is what makes an incremental update equal to a full computation (RFC 1624 section 3).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::{Add, AddAssign, Sub};

use crate::Protocol;

/// A one's complement sum of big-endian 16-bit words that has not been folded yet.
///
/// Up to 2^31 additions of 32 bits fit before the accumulator could overflow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Self = Self(0);

    /// Adds one 16-bit word.
    #[must_use]
    #[inline]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds two 16-bit words, given as one number of 32 bits.
    #[must_use]
    #[inline]
    pub const fn double_word(self, words: u32) -> Self {
        Self(self.0 + words as u64)
    }

    /// Adds an IPv4 address.
    #[must_use]
    #[inline]
    pub const fn ipv4(self, address: Ipv4Addr) -> Self {
        self.double_word(address.to_bits())
    }

    /// Adds an IPv6 address.
    #[must_use]
    #[inline]
    pub const fn ipv6(self, address: Ipv6Addr) -> Self {
        let bits = address.to_bits();
        let (high, low) = ((bits >> 64) as u64, (bits & 0xffff_ffff_ffff_ffff) as u64);
        Self(self.0 + (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff))
    }

    /// Adds bytes that begin at an even offset; an odd last byte is the high half of a word whose
    /// low half is zero.
    ///
    /// Works in native byte order on independent lanes, which compilers turn into vector code, and
    /// swaps once at the end (RFC 1071 section 2 (B)).
    #[must_use]
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut lanes = [0_u64; 8];
        let mut blocks = bytes.chunks_exact(32);
        for block in &mut blocks {
            for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
                *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
            }
        }
        let mut native: u64 = lanes.iter().sum();
        let mut words = blocks.remainder().chunks_exact(4);
        for word in &mut words {
            native += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        let tail = words.remainder();
        if !tail.is_empty() {
            let mut word = [0; 4];
            word[..tail.len()].copy_from_slice(tail);
            native += u64::from(u32::from_ne_bytes(word));
        }
        self.word(u16::from_be(fold(native)))
    }

    /// Adds the pseudo-header of IPv4 (RFC 9293 section 3.1): addresses, protocol, and the length
    /// in bytes of transport header and payload.
    #[must_use]
    #[inline]
    pub const fn pseudo_ipv4(self, source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, length: u32) -> Self {
        self.ipv4(source).ipv4(destination).word(protocol.0 as u16).double_word(length)
    }

    /// Adds the pseudo-header of IPv6 (RFC 8200 section 8.1).
    #[must_use]
    #[inline]
    pub const fn pseudo_ipv6(self, source: Ipv6Addr, destination: Ipv6Addr, protocol: Protocol, length: u32) -> Self {
        self.ipv6(source).ipv6(destination).word(protocol.0 as u16).double_word(length)
    }

    /// The sum in 16 bits: 0x0000 only if nothing but zeros was added.
    #[must_use]
    #[inline]
    pub const fn fold(self) -> u16 {
        fold(self.0)
    }

    /// What a checksum field gets: the complement of the folded sum. For UDP pass it through
    /// [`udp_checksum`].
    #[must_use]
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// True if this is the sum over data that includes a right checksum.
    #[must_use]
    #[inline]
    pub const fn verifies(self) -> bool {
        self.fold() == 0xffff
    }
}

impl Add for Sum {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        // Two folded numbers: sums of sums cannot overflow.
        Self(u64::from(self.fold()) + u64::from(other.fold()))
    }
}

/// `new - old` is the [`Delta`] that turns a checksum over `old` into one over `new`.
impl Sub for Sum {
    type Output = Delta;

    #[inline]
    fn sub(self, old: Self) -> Delta {
        Delta::between(old, self)
    }
}

/// The difference of two sums in one's complement, in 16 bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delta(u16);

impl Delta {
    /// No difference.
    pub const ZERO: Self = Self(0);

    /// What is to be added when data with the sum `old` is replaced by data with the sum `new`.
    #[must_use]
    #[inline]
    pub const fn between(old: Sum, new: Sum) -> Self {
        Self(fold(new.fold() as u64 + !old.fold() as u64))
    }

    /// The difference of one 16-bit word.
    #[must_use]
    #[inline]
    pub const fn of_word(old: u16, new: u16) -> Self {
        Self(fold(new as u64 + !old as u64))
    }

    /// The delta that undoes this one.
    #[must_use]
    #[inline]
    pub const fn inverse(self) -> Self {
        Self(!self.0)
    }

    /// A delta from its 16 bits, for records that store it.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The 16 bits; 0x0000 and 0xffff mean the same.
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// True if it changes nothing (checksum-neutral).
    #[must_use]
    pub const fn is_neutral(self) -> bool {
        self.0 == 0 || self.0 == 0xffff
    }
}

/// Deltas are equal if they change every checksum alike: 0x0000 equals 0xffff.
impl PartialEq for Delta {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.is_neutral() && other.is_neutral()
    }
}

impl Eq for Delta {}

impl Add for Delta {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(fold(u64::from(self.0) + u64::from(other.0)))
    }
}

impl AddAssign for Delta {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The new content of a checksum field: `HC' = ~(~HC + ~m + m')` (RFC 1624 section 3, equation 3).
#[must_use]
#[inline]
pub const fn update(checksum: u16, delta: Delta) -> u16 {
    !fold(!checksum as u64 + delta.0 as u64)
}

/// The new content of a field that holds a plain folded sum, as in a packet whose checksum is left
/// to the network card.
#[must_use]
#[inline]
pub const fn update_sum(sum: u16, delta: Delta) -> u16 {
    fold(sum as u64 + delta.0 as u64)
}

/// UDP sends 0xffff in place of a computed zero, for zero means "no checksum" (RFC 768; RFC 8200
/// section 8.1).
#[must_use]
#[inline]
pub const fn udp_checksum(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Folds with end-around carry. Keeps zero and only zero at zero.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the carries have been folded in: 16 bits are left")]
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        let sum = Sum::ZERO.bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!((sum.fold(), sum.checksum()), (0xddf2, 0x220d));
    }

    #[test]
    fn the_example_of_rfc_1624_updates_to_zero_not_to_ffff() {
        assert_eq!(update(0xdd2f, Delta::of_word(0x5555, 0x3285)), 0x0000);
    }

    #[test]
    fn a_computed_zero_of_udp_becomes_ffff() {
        assert_eq!((udp_checksum(0), udp_checksum(1)), (0xffff, 1));
    }

    #[test]
    fn folding_the_largest_accumulator_loses_no_carry() {
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0xffff_ffff_0000_0001), 1);
        assert_eq!(fold(0x1_fffe_ffff), 0xffff);
    }

    proptest! {
        #[test]
        fn the_fast_sum_equals_the_naive_one(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(Sum::ZERO.bytes(&bytes).fold(), naive(&bytes));
        }

        #[test]
        fn incremental_equals_full(
            bytes in prop::collection::vec(any::<u8>(), 2..80),
            replacement in prop::collection::vec(any::<u8>(), 80),
            cut in 0_usize..80,
        ) {
            // One word that is never replaced and never zero, as every pseudo-header has.
            let mut old: Vec<u8> = [0x00, 0x11].into_iter().chain(bytes).collect();
            old.truncate(old.len() & !1);
            let before = Sum::ZERO.bytes(&old);
            let mut new = old.clone();
            let cut = (cut & !1).max(2).min(new.len());
            let tail = new.len() - cut;
            new[cut..].copy_from_slice(&replacement[..tail]);
            let delta = Sum::ZERO.bytes(&new[cut..]) - Sum::ZERO.bytes(&old[cut..]);
            prop_assert_eq!(update(before.checksum(), delta), Sum::ZERO.bytes(&new).checksum());
            prop_assert_eq!(update(update(before.checksum(), delta), delta.inverse()), before.checksum());
        }

        #[test]
        fn addresses_sum_like_their_bytes(v4 in any::<u32>(), v6 in any::<u128>()) {
            prop_assert_eq!(Sum::ZERO.ipv4(Ipv4Addr::from_bits(v4)).fold(), naive(&v4.to_be_bytes()));
            prop_assert_eq!(Sum::ZERO.ipv6(Ipv6Addr::from_bits(v6)).fold(), naive(&v6.to_be_bytes()));
        }
    }
}
