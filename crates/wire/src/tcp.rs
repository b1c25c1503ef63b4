//! TCP (RFC 9293 section 3.1).
//!
//! ```text
//! 0             2                  4          8                 12             13      14       16         18
//! | source port | destination port | sequence | acknowledgement | offset, res. | flags | window | checksum | urgent |
//! 20
//! | options, offset * 4 - 20 bytes | payload
//! ```

use crate::options::Options;
use crate::{ParseError, Port, read_u16, read_u32, write_u16, write_u32};

/// Bytes of a header without options.
pub const HEADER_LENGTH: usize = 20;
/// Offset of the sequence number.
pub const SEQUENCE: usize = 4;
/// Offset of the acknowledgement number.
pub const ACKNOWLEDGEMENT: usize = 8;
/// Offset of the byte that holds the header length in its upper half.
pub const DATA_OFFSET: usize = 12;
/// Offset of the flags.
pub const FLAGS: usize = 13;
/// Offset of the checksum.
pub const CHECKSUM: usize = 16;
/// Kind of the maximum segment size option (4 bytes in all).
pub const OPTION_MSS: u8 = 2;

/// The flags of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent field counts.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// True if all flags of `other` are set.
    #[must_use]
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A segment with a whole header.
#[derive(Debug, Clone, Copy)]
pub struct TcpView<'a> {
    segment: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// The segment in `segment`.
    ///
    /// # Errors
    /// [`ParseError`] if the header is cut or its length below 20.
    #[inline]
    pub fn parse(segment: &'a [u8]) -> Result<Self, ParseError> {
        if segment.len() < HEADER_LENGTH {
            return Err(ParseError::Truncated);
        }
        let view = Self { segment };
        if view.header_length() < HEADER_LENGTH {
            return Err(ParseError::Length);
        }
        if view.header_length() > segment.len() {
            return Err(ParseError::Truncated);
        }
        Ok(view)
    }

    /// Source port.
    #[must_use]
    pub fn source_port(self) -> Port {
        Port(read_u16(self.segment, 0))
    }

    /// Destination port.
    #[must_use]
    pub fn destination_port(self) -> Port {
        Port(read_u16(self.segment, 2))
    }

    /// Sequence number.
    #[must_use]
    pub fn sequence(self) -> u32 {
        read_u32(self.segment, SEQUENCE)
    }

    /// Acknowledgement number.
    #[must_use]
    pub fn acknowledgement(self) -> u32 {
        read_u32(self.segment, ACKNOWLEDGEMENT)
    }

    /// Bytes of the header with its options: 20 to 60.
    #[must_use]
    #[inline]
    pub fn header_length(self) -> usize {
        usize::from(self.segment[DATA_OFFSET] >> 4) * 4
    }

    /// The flags.
    #[must_use]
    pub fn flags(self) -> TcpFlags {
        TcpFlags(self.segment[FLAGS])
    }

    /// Receive window, not scaled.
    #[must_use]
    pub fn window(self) -> u16 {
        read_u16(self.segment, 14)
    }

    /// The checksum.
    #[must_use]
    pub fn checksum(self) -> u16 {
        read_u16(self.segment, CHECKSUM)
    }

    /// The options.
    #[must_use]
    pub fn options(self) -> Options<'a> {
        Options::new(&self.segment[HEADER_LENGTH..self.header_length()])
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        &self.segment[self.header_length()..]
    }
}

/// The fields of a header without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpHeader {
    /// Source port.
    pub source_port: Port,
    /// Destination port.
    pub destination_port: Port,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// The flags.
    pub flags: TcpFlags,
    /// Receive window, not scaled.
    pub window: u16,
    /// The checksum.
    pub checksum: u16,
}

impl TcpHeader {
    /// The fields of the segment in `segment`; options are passed over.
    ///
    /// # Errors
    /// As [`TcpView::parse`].
    pub fn parse(segment: &[u8]) -> Result<Self, ParseError> {
        let view = TcpView::parse(segment)?;
        Ok(Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            sequence: view.sequence(),
            acknowledgement: view.acknowledgement(),
            flags: view.flags(),
            window: view.window(),
            checksum: view.checksum(),
        })
    }

    /// Writes the 20 bytes of the header.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    pub fn emit(&self, bytes: &mut [u8]) {
        write_u16(bytes, 0, self.source_port.0);
        write_u16(bytes, 2, self.destination_port.0);
        write_u32(bytes, 4, self.sequence);
        write_u32(bytes, 8, self.acknowledgement);
        bytes[DATA_OFFSET] = 0x50;
        bytes[FLAGS] = self.flags.0;
        write_u16(bytes, 14, self.window);
        write_u16(bytes, CHECKSUM, self.checksum);
        write_u16(bytes, 18, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips() {
        let header = TcpHeader {
            source_port: Port(40000),
            destination_port: Port(80),
            sequence: 0x0102_0304,
            acknowledgement: 0xf1f2_f3f4,
            flags: TcpFlags::SYN | TcpFlags::ACK,
            window: 65535,
            checksum: 0x1234,
        };
        let mut bytes = [0xff; 20];
        header.emit(&mut bytes);
        assert_eq!(TcpHeader::parse(&bytes), Ok(header));
        assert!(header.flags.contains(TcpFlags::SYN) && !header.flags.contains(TcpFlags::RST));
    }

    #[test]
    fn a_header_length_outside_the_segment_is_refused() {
        let mut segment = [0; 20];
        segment[DATA_OFFSET] = 0x40;
        assert_eq!(TcpHeader::parse(&segment), Err(ParseError::Length));
        segment[DATA_OFFSET] = 0x60;
        assert_eq!(TcpHeader::parse(&segment), Err(ParseError::Truncated));
        assert_eq!(TcpHeader::parse(&segment[..19]), Err(ParseError::Truncated));
    }
}
