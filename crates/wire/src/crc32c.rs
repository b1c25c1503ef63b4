//! CRC32c, as SCTP has it: what a packet's becomes when its first word changes.
//!
//! Read first: RFC 9260 section 6.8 and appendix A.
//!
//! A CRC is linear: that of two packets of one length differs by the CRC, begun with zeros, of what
//! they differ in. If that is the first word alone, the rest of it are zeros, and `n` bytes of zeros
//! multiply by `x^(8n)`. So ports change without a look at the payload, and a wrong checksum stays
//! wrong.
//!
//! Bits are reflected as in RFC 9260: bit 31 of a number is the coefficient of `x^0`.

use crate::{read_u32, write_u32};

/// The polynomial 0x1edc6f41, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The number one.
const ONE: u32 = 1 << 31;

/// `x^(8 * 2^k)` modulo the polynomial, for lengths of up to 16 bits.
const POWERS: [u32; 16] = {
    let mut powers = [ONE >> 8; 16];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = product(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// The checksum of an SCTP packet, whose own field is zero, as it stands there.
#[must_use]
pub fn of(packet: &[u8]) -> [u8; 4] {
    let divide = |register: u32| register >> 1 ^ if register & 1 != 0 { POLYNOMIAL } else { 0 };
    let register = packet
        .iter()
        .fold(u32::MAX, |register, byte| (0..8).fold(register ^ u32::from(*byte), |register, _| divide(register)));
    (!register).to_le_bytes()
}

/// Writes what the checksum `field` of an SCTP packet of `length` bytes becomes if the word at its
/// beginning, its ports, goes from `old` to `new`.
pub fn update(field: &mut [u8], old: u32, new: u32, length: u16) {
    // The checksum stands in the order of bytes in which the first bit is the lowest.
    let change = advance((old ^ new).swap_bytes(), length).swap_bytes();
    let checksum = read_u32(field, 0) ^ change;
    write_u32(field, 0, checksum);
}

/// `remainder` times `x^(8 * bytes)`.
fn advance(remainder: u32, bytes: u16) -> u32 {
    let powers = POWERS.iter().enumerate().filter(|(k, _)| bytes >> k & 1 != 0);
    powers.fold(remainder, |remainder, (_, power)| product(remainder, *power))
}

const fn product(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = b >> 1 ^ if b & 1 != 0 { POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// RFC 9260 appendix A, bit by bit, over the whole packet.
    fn in_full(packet: &[u8]) -> [u8; 4] {
        let mut register = u32::MAX;
        for byte in packet {
            register ^= u32::from(*byte);
            for _ in 0..8 {
                register = if register & 1 == 1 { register >> 1 ^ 0x82f6_3b78 } else { register >> 1 };
            }
        }
        (!register).to_le_bytes()
    }

    #[test]
    fn the_reference_is_crc32c() {
        // The check value of the catalogue of CRCs, and RFC 3720 appendix B.4: 32 bytes of zeros.
        assert_eq!(in_full(b"123456789"), 0xe306_9283_u32.to_le_bytes());
        assert_eq!(in_full(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    }

    #[test]
    fn changed_by_difference_it_is_what_it_is_in_full() {
        for length in (12..=80).chain([1000, 1280, 1499, 32_767, 65_515]) {
            let mut packet: Vec<u8> = (0..length).map(|n: u32| n.wrapping_mul(151).to_le_bytes()[1]).collect();
            packet[8..12].fill(0);
            let mut field = in_full(&packet);
            assert_eq!(of(&packet), field);
            let old = read_u32(&packet, 0);
            for new in [old, 0, u32::MAX, 0xd903_0050, old ^ 1] {
                packet[..4].copy_from_slice(&new.to_be_bytes());
                let mut changed = field;
                update(&mut changed, old, new, u16::try_from(length).unwrap());
                assert_eq!(changed, in_full(&packet), "{length} bytes, {new:08x}");
            }
            field[0] ^= 1;
            let mut wrong = field;
            update(&mut wrong, old, 7, u16::try_from(length).unwrap());
            packet[..4].copy_from_slice(&7_u32.to_be_bytes());
            let right = in_full(&packet);
            assert_eq!(vec![wrong[0] ^ 1, wrong[1], wrong[2], wrong[3]], right, "a wrong one stays wrong by as much");
        }
    }
}
