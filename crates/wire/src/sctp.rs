//! SCTP (RFC 9260), as far as a gateway reads it: the common header, and which chunks are there.
//!
//! ```text
//!  0               1               2               3
//! | source port                   | destination port              |
//! | verification tag                                              |
//! | checksum (CRC32c)                                             |
//! | chunk type    | chunk flags   | chunk length                  | value, to a multiple of 4 | next chunk ...
//! ```

use crate::read_u16;

/// Bytes of the common header.
pub const HEADER_LENGTH: usize = 12;
/// Offset of the checksum.
pub const CHECKSUM: usize = 8;

/// Chunk types.
pub mod chunk {
    /// User data.
    pub const DATA: u8 = 0;
    /// Opens an association.
    pub const INIT: u8 = 1;
    /// Its answer.
    pub const INIT_ACK: u8 = 2;
    /// Ends an association at once.
    pub const ABORT: u8 = 6;
    /// Begins to close one.
    pub const SHUTDOWN: u8 = 7;
    /// Its answer.
    pub const SHUTDOWN_ACK: u8 = 8;
    /// The answer's answer.
    pub const SHUTDOWN_COMPLETE: u8 = 14;
    /// User data of interleaved messages (RFC 8260).
    pub const I_DATA: u8 = 64;
}

/// Chunks that are looked at: so many control chunks stand before the first of data at most, or the
/// packet is crafted.
const MOST: usize = 8;

/// The types of the control chunks of `packet`, which stand before those of data (RFC 9260 section
/// 6.10).
pub fn control_chunks(packet: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = packet.get(HEADER_LENGTH..).unwrap_or_default();
    let chunks = core::iter::from_fn(move || {
        let kind = *rest.first()?;
        let length = if rest.len() < 4 { 4 } else { usize::from(read_u16(rest, 2)).max(4) };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(kind)
    });
    chunks.take(MOST).take_while(|kind| !matches!(*kind, chunk::DATA | chunk::I_DATA))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn chunks(of: &[u8]) -> Vec<u8> {
        let packet: Vec<u8> = [0; HEADER_LENGTH].iter().chain(of).copied().collect();
        control_chunks(&packet).collect()
    }

    #[test]
    fn chunks_are_read_up_to_the_data() {
        // SACK of 16 bytes, SHUTDOWN of 8, DATA.
        let mut packet = [0; 28];
        (packet[0], packet[3], packet[16], packet[19]) = (3, 16, 7, 8);
        assert_eq!(chunks(&packet), [3, 7]);
        // A length that is not a multiple of 4 is padded; one behind the end, or of 0, ends no walk early or never.
        assert_eq!(chunks(&[10, 0, 0, 5, 1, 0, 0, 0, 14, 0, 0, 4]), [10, 14]);
        assert_eq!(chunks(&[6, 0, 255, 255]), [6]);
        assert_eq!(chunks(&[9, 0, 0, 0, 11, 0, 0, 4]), [9, 11]);
        assert_eq!(chunks(&[6]), [6]);
        assert_eq!(chunks(&[]), []);
        assert_eq!(chunks(&[3; 400]).len(), 1);
        assert_eq!(chunks(&[5, 0, 0, 4].repeat(100)).len(), MOST);
    }
}
