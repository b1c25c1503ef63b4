//! IPv4-embedded IPv6 addresses: the prefix of a translator and the algorithm that goes with it.
//!
//! Read first: RFC 6052 sections 2.2, 2.3 and 3.1; RFC 8215 section 5.
//!
//! ```text
//! length  octets 0 ................ 8 ................ 15
//!   32    prefix(4)  a b c d        u  suffix
//!   40    prefix(5)    a b c        u  d suffix
//!   48    prefix(6)      a b        u  c d suffix
//!   56    prefix(7)        a        u  b c d suffix
//!   64    prefix(8)                 u  a b c d suffix
//!   96    prefix(12, u within)             a b c d
//! ```
//!
//! `u` (bits 64 to 71) and the suffix are sent as zero; on receipt `u` is removed whatever it says,
//! and the suffix is ignored.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// Bits 64 to 71, the "u" octet.
const U_OCTET: u128 = 0xff << 56;
/// The upper half of an address.
const UPPER: u128 = !0 << 64;

/// A translation prefix ("Pref64::/n") of one of the six legal lengths.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix64 {
    bits: u128,
    /// Bits that must equal `bits`: those of the prefix, and the u octet.
    mask: u128,
    length: u8,
    /// Zero bits behind the IPv4 address, were there no u octet.
    shift: u8,
    /// By how much what lies behind the u octet moves: 8, or 0 where the prefix covers that octet.
    gap: u8,
}

/// Why an IPv6 prefix is not a translation prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix64Error {
    /// The length is not 32, 40, 48, 56, 64 or 96 (RFC 6052 section 2.2).
    Length(u8),
    /// Bits behind the prefix length are set.
    HostBits,
    /// Bits 64 to 71 of a /96 are not zero (RFC 6052 section 2.2).
    UOctet,
    /// 64:ff9b:: with a length other than 96: the well-known prefix exists only as a /96 (RFC 6052
    /// section 2.1).
    WellKnownLength,
    /// Not of the form `2001:db8::/96`.
    Syntax,
}

impl fmt::Display for Prefix64Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "prefix length {length} is not 32, 40, 48, 56, 64 or 96 (RFC 6052 section 2.2)")
            }
            Self::HostBits => f.write_str("bits are set behind the prefix length"),
            Self::UOctet => f.write_str("bits 64 to 71 of a /96 must be zero (RFC 6052 section 2.2)"),
            Self::WellKnownLength => f.write_str("the well-known prefix 64:ff9b::/96 has no other length"),
            Self::Syntax => f.write_str("not an IPv6 prefix such as 64:ff9b::/96"),
        }
    }
}

impl core::error::Error for Prefix64Error {}

impl Prefix64 {
    /// The well-known prefix, 64:ff9b::/96 (RFC 6052 section 2.1).
    pub const WELL_KNOWN: Self = Self { bits: 0x0064_ff9b << 96, mask: !0 << 32, length: 96, shift: 0, gap: 0 };

    /// The prefix of `length` bits that `address` begins.
    ///
    /// # Errors
    /// [`Prefix64Error`] if the length is not legal, host bits are set, a /96 has a non-zero u
    /// octet, or the well-known prefix comes with another length than 96.
    pub const fn new(address: Ipv6Addr, length: u8) -> Result<Self, Prefix64Error> {
        if !matches!(length, 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(Prefix64Error::Length(length));
        }
        let bits = address.to_bits();
        let prefix_mask = !0 << (128 - length);
        if bits & !prefix_mask != 0 {
            return Err(Prefix64Error::HostBits);
        }
        if bits & U_OCTET != 0 {
            return Err(Prefix64Error::UOctet);
        }
        if bits == Self::WELL_KNOWN.bits && length != 96 {
            return Err(Prefix64Error::WellKnownLength);
        }
        let gap = if length == 96 { 0 } else { 8 };
        Ok(Self { bits, mask: prefix_mask, length, shift: 96 - length, gap })
    }

    /// The first address of the prefix.
    #[must_use]
    pub const fn address(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.bits)
    }

    /// The length in bits: 32, 40, 48, 56, 64 or 96.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The IPv6 address that stands for `address`; its suffix is zero.
    #[must_use]
    #[inline]
    pub const fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let contiguous = (address.to_bits() as u128) << self.shift;
        let upper = contiguous & UPPER;
        let lower = (contiguous & !UPPER) >> self.gap;
        Ipv6Addr::from_bits(self.bits | upper | lower)
    }

    /// The IPv4 address that `address` stands for; `None` if it lies outside the prefix. The u octet
    /// is removed whatever it says (RFC 6052 section 2.3), and the suffix is ignored (section 2.2).
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the 32 bits wanted are the lowest after the shift")]
    pub const fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.contains(address) {
            return None;
        }
        let bits = address.to_bits();
        let lower = (bits & !UPPER) << self.gap & !UPPER;
        let contiguous = (bits & UPPER) | lower;
        Some(Ipv4Addr::from_bits((contiguous >> self.shift) as u32))
    }

    /// True if `address` has the prefix.
    #[must_use]
    #[inline]
    pub const fn contains(self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.bits) & self.mask == 0
    }

    /// True for 64:ff9b::/96, for which RFC 6052 section 3.1 has rules of its own. The local-use
    /// prefix 64:ff9b:1::/48 is another one (RFC 8215 section 5).
    #[must_use]
    pub const fn is_well_known(self) -> bool {
        self.length == 96 && self.bits == Self::WELL_KNOWN.bits
    }

    /// True if this prefix may not stand for `address`: the well-known prefix must not represent
    /// addresses that are not global, and packets that use it so must be dropped (RFC 6052 section
    /// 3.1).
    #[must_use]
    pub const fn forbids(self, address: Ipv4Addr) -> bool {
        self.is_well_known() && is_non_global(address)
    }
}

/// The IPv4 prefixes (address, length) that the well-known prefix must not represent: RFC 1918 and
/// RFC 5735 section 3, to which RFC 6052 section 3.1 points, and 100.64.0.0/10, which is younger
/// than that list and no more global (RFC 6598). 192.88.99.0/24 is in RFC 5735's list though it is
/// global.
pub const NON_GLOBAL: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// True if `address` is in [`NON_GLOBAL`].
#[must_use]
#[inline]
pub const fn is_non_global(address: Ipv4Addr) -> bool {
    // Asked for every packet: nearly all addresses are out after their first octet.
    let first = address.octets()[0];
    BEGINS_NON_GLOBAL[(first >> 6) as usize] >> (first & 63) & 1 != 0 && is_listed(address)
}

/// First octets of the prefixes in [`NON_GLOBAL`], a bit each.
const BEGINS_NON_GLOBAL: [u64; 4] = {
    let mut bits = [0; 4];
    let mut index = 0;
    while index < NON_GLOBAL.len() {
        let (prefix, length) = NON_GLOBAL[index];
        let mut octet = prefix.octets()[0] as usize;
        let count = if length >= 8 { 1 } else { 1 << (8 - length) };
        let end = octet + count;
        while octet < end {
            bits[octet / 64] |= 1 << (octet % 64);
            octet += 1;
        }
        index += 1;
    }
    bits
};

const fn is_listed(address: Ipv4Addr) -> bool {
    let mut index = 0;
    while index < NON_GLOBAL.len() {
        let (prefix, length) = NON_GLOBAL[index];
        if (address.to_bits() ^ prefix.to_bits()) >> (32 - length) == 0 {
            return true;
        }
        index += 1;
    }
    false
}

impl FromStr for Prefix64 {
    type Err = Prefix64Error;

    fn from_str(text: &str) -> Result<Self, Prefix64Error> {
        let (address, length) = text.split_once('/').ok_or(Prefix64Error::Syntax)?;
        let address = address.parse().map_err(|_| Prefix64Error::Syntax)?;
        let length = length.parse().map_err(|_| Prefix64Error::Syntax)?;
        Self::new(address, length)
    }
}

impl fmt::Display for Prefix64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.length)
    }
}

impl fmt::Debug for Prefix64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix64({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn text_round_trips() {
        let prefix: Prefix64 = "2001:db8:122:300::/56".parse().unwrap();
        assert_eq!(prefix.to_string(), "2001:db8:122:300::/56");
        assert_eq!("2001:db8::".parse::<Prefix64>(), Err(Prefix64Error::Syntax));
        assert_eq!("64:ff9b::/96".parse(), Ok(Prefix64::WELL_KNOWN));
    }

    #[test]
    fn a_u_octet_that_is_not_zero_is_removed_all_the_same() {
        let prefix: Prefix64 = "2001:db8::/32".parse().unwrap();
        let expected = Some(Ipv4Addr::new(192, 0, 2, 33));
        assert_eq!(prefix.extract("2001:db8:c000:221:5500::".parse().unwrap()), expected);
    }

    #[test]
    fn the_quick_look_at_the_first_octet_agrees_with_the_list() {
        for first in 0..=255 {
            for second in 0..=255 {
                for third in [0, 2, 99, 100, 113] {
                    let address = Ipv4Addr::new(first, second, third, 1);
                    assert_eq!(is_non_global(address), is_listed(address), "{address}");
                }
            }
        }
    }

    #[test]
    fn only_the_well_known_prefix_forbids_private_addresses() {
        let private = Ipv4Addr::new(10, 1, 2, 3);
        assert!(Prefix64::WELL_KNOWN.forbids(private));
        let local_use: Prefix64 = "64:ff9b:1::/96".parse().unwrap();
        assert!(!local_use.forbids(private));
    }

    proptest! {
        #[test]
        fn extract_undoes_embed_and_ignores_the_suffix(
            bits in any::<u128>(), suffix in any::<u128>(), v4 in any::<u32>(),
            length in prop::sample::select(&[32_u8, 40, 48, 56, 64, 96]),
        ) {
            let address = Ipv6Addr::from_bits(bits & (!0 << (128 - length)) & !U_OCTET);
            let prefix = Prefix64::new(address, length).unwrap();
            let v4 = Ipv4Addr::from_bits(v4);
            let v6 = prefix.embed(v4);
            prop_assert_eq!(prefix.extract(v6), Some(v4));
            prop_assert_eq!(v6.octets()[8], 0);
            if length < 96 {
                let u_octet = Ipv6Addr::from_bits(v6.to_bits() ^ bits & U_OCTET);
                prop_assert_eq!(prefix.extract(u_octet), Some(v4));
            }
            let used = if length == 96 { 128 } else { u32::from(length) + 40 };
            let suffix = if used == 128 { 0 } else { suffix & (!0 >> used) };
            prop_assert_eq!(prefix.extract(Ipv6Addr::from_bits(v6.to_bits() | suffix)), Some(v4));
        }
    }
}
