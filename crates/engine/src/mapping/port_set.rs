//! Port sets: the ports of an address that belong to one of several subscribers who share it.
//!
//! Read first: RFC 7597 section 5.1 and appendix B; RFC 7598 section 4.5 for the parameters as
//! DHCPv6 gives them.
//!
//! ```text
//! port  | A: offset_bits | PSID: psid_bits | j: the rest, m bits |     RFC 7597 calls them a, k and m
//! ```
//!
//! With offset bits, the block A = 0 belongs to nobody: it holds the well-known ports. A set then
//! is one range of 2^m ports in each other block.

use std::ops::RangeInclusive;

/// How the ports of an address are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortDivision {
    offset_bits: u8,
    psid_bits: u8,
}

/// More than 15 offset bits, or more bits in total than a port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyBits;

/// Whose a port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortOwner {
    /// The subscriber with this PSID.
    Psid(u16),
    /// The one subscriber that the address has: it is not shared.
    Everything,
    /// Nobody: it lies in the block A = 0.
    Nobody,
}

impl PortDivision {
    /// A division by `offset_bits` (RFC 7597's a, usually 6, at most 15) and `psid_bits` (k).
    ///
    /// # Errors
    /// [`TooManyBits`] if they are more than 16 together.
    pub const fn new(offset_bits: u8, psid_bits: u8) -> Result<Self, TooManyBits> {
        if offset_bits <= 15 && psid_bits <= 16 && offset_bits + psid_bits <= 16 {
            Ok(Self { offset_bits, psid_bits })
        } else {
            Err(TooManyBits)
        }
    }

    /// Bits in front of the PSID (RFC 7597's a).
    #[must_use]
    pub const fn offset_bits(self) -> u8 {
        self.offset_bits
    }

    /// Bits of the PSID (k).
    #[must_use]
    pub const fn psid_bits(self) -> u8 {
        self.psid_bits
    }

    /// Bits of a port behind the PSID (RFC 7597's m).
    const fn low_bits(self) -> u32 {
        16 - self.offset_bits as u32 - self.psid_bits as u32
    }

    /// True if an address has several subscribers.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.psid_bits > 0
    }

    /// How many subscribers share an address.
    #[must_use]
    pub const fn sets(self) -> u32 {
        1 << self.psid_bits
    }

    /// Whose `port` is.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to at most 16 bits")]
    pub const fn owner(self, port: u16) -> PortOwner {
        if self.psid_bits == 0 {
            return PortOwner::Everything;
        }
        let port = port as u32;
        if self.offset_bits > 0 && port >> (16 - self.offset_bits) == 0 {
            return PortOwner::Nobody;
        }
        PortOwner::Psid((port >> self.low_bits() & (self.sets() - 1)) as u16)
    }

    /// The ranges of the set `psid`, ascending; none if there is no such set. An address that is
    /// not shared is one range of all ports.
    #[expect(clippy::cast_possible_truncation, reason = "every term has at most 16 bits")]
    pub fn ranges(self, psid: u16) -> impl Iterator<Item = RangeInclusive<u16>> {
        let shared = self.psid_bits > 0;
        let exists = u32::from(psid) < self.sets();
        let blocks = match (exists, shared, self.offset_bits) {
            (false, ..) => 0..0,
            (true, false, _) | (true, true, 0) => 0..1,
            (true, true, bits) => 1..1_u32 << bits,
        };
        let low_bits = if shared { self.low_bits() } else { 16 };
        blocks.map(move |block| {
            let first = block << (16 - u32::from(self.offset_bits)) | u32::from(psid) << low_bits;
            let first = if shared { first } else { 0 };
            first as u16..=(first + ((1 << low_bits) - 1)) as u16
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_one_owner_and_every_set_has_the_ports_it_owns() {
        for (offset_bits, psid_bits) in
            [(0, 0), (6, 0), (0, 1), (0, 16), (15, 0), (15, 1), (6, 8), (4, 4), (6, 10), (1, 15), (3, 2)]
        {
            let division = PortDivision::new(offset_bits, psid_bits).unwrap();
            let mut seen = vec![0_u32; 65536];
            for psid in 0..division.sets() {
                let psid = u16::try_from(psid).unwrap();
                for port in division.ranges(psid).flatten() {
                    seen[usize::from(port)] += 1;
                    let owner = if psid_bits == 0 { PortOwner::Everything } else { PortOwner::Psid(psid) };
                    assert_eq!(division.owner(port), owner, "{offset_bits} {psid_bits} {port}");
                }
            }
            for port in 0..=u16::MAX {
                let owned = u32::from(division.owner(port) != PortOwner::Nobody);
                assert_eq!(seen[usize::from(port)], owned, "{offset_bits} {psid_bits} {port}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_a_port_is_refused() {
        assert_eq!(PortDivision::new(6, 11), Err(TooManyBits));
        assert_eq!(PortDivision::new(16, 0), Err(TooManyBits));
        assert_eq!(PortDivision::new(255, 255), Err(TooManyBits));
        assert_eq!(PortDivision::new(0, 4).unwrap().ranges(16).count(), 0);
    }
}
