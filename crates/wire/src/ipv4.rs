//! IPv4 (RFC 791 section 3.1).
//!
//! ```text
//! 0        1        2                 4                 6                 8      9        10        12
//! | 4  IHL | TOS    | total length    | identification  | . DF MF offset  | TTL  | proto  | checksum | source 4 |
//! 16              20
//! | destination 4 | options, IHL * 4 - 20 bytes | payload
//! ```

use core::net::Ipv4Addr;

use crate::options::Options;
use crate::{ParseError, Protocol, Sum, read_u16, read_u32, write_u16, write_u32};

/// Bytes of a header without options.
pub const HEADER_LENGTH: usize = 20;
/// "Don't fragment", in the word at [`FRAGMENT_OFFSET`].
pub const DF: u16 = 0x4000;
/// "More fragments", in the word at [`FRAGMENT_OFFSET`].
pub const MF: u16 = 0x2000;
/// The fragment offset in units of 8 bytes, in the word at [`FRAGMENT_OFFSET`].
pub const OFFSET_MASK: u16 = 0x1fff;
/// Offset of the total length.
pub const TOTAL_LENGTH: usize = 2;
/// Offset of the identification.
pub const IDENTIFICATION: usize = 4;
/// Offset of the word with flags and fragment offset.
pub const FRAGMENT_OFFSET: usize = 6;
/// Offset of the time to live.
pub const TTL: usize = 8;
/// Offset of the protocol.
pub const PROTOCOL: usize = 9;
/// Offset of the header checksum.
pub const CHECKSUM: usize = 10;
/// Offset of the source address.
pub const SOURCE: usize = 12;
/// Offset of the destination address.
pub const DESTINATION: usize = 16;
/// Loose source route option (RFC 791).
pub const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
/// Strict source route option (RFC 791).
pub const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;

/// A packet with a whole header.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4View<'a> {
    header: &'a [u8; HEADER_LENGTH],
    packet: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// The packet that begins `bytes`; bytes behind its total length are not part of it.
    ///
    /// # Errors
    /// [`ParseError`] if the version is not 4, the header is cut or its length below 20, or the
    /// total length smaller than the header or larger than `bytes`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = Self::parse_header(bytes)?;
        let total = usize::from(view.total_length());
        if total < view.header_length() {
            return Err(ParseError::Length);
        }
        let packet = bytes.get(..total).ok_or(ParseError::Truncated)?;
        Ok(Self { packet, ..view })
    }

    /// Like [`parse`](Self::parse), but the total length may say more than there is, as in the
    /// packet inside an ICMP error.
    ///
    /// # Errors
    /// [`ParseError`] if the version is not 4, the header is cut, or its length below 20.
    #[inline]
    pub fn parse_header(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = bytes.first_chunk().ok_or(ParseError::Truncated)?;
        let view = Self { header, packet: bytes };
        if header[0] >> 4 != 4 {
            return Err(ParseError::Version);
        }
        if view.header_length() < HEADER_LENGTH {
            return Err(ParseError::Length);
        }
        if view.header_length() > bytes.len() {
            return Err(ParseError::Truncated);
        }
        Ok(view)
    }

    /// Bytes of the header with its options: 20 to 60.
    #[must_use]
    #[inline]
    pub const fn header_length(self) -> usize {
        (self.header[0] & 0x0f) as usize * 4
    }

    /// Type of service: DSCP and ECN.
    #[must_use]
    #[inline]
    pub const fn tos(self) -> u8 {
        self.header[1]
    }

    /// Bytes of the packet, header included, as the header says.
    #[must_use]
    #[inline]
    pub const fn total_length(self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Identification of the datagram.
    #[must_use]
    #[inline]
    pub const fn identification(self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The word of flags and fragment offset: [`DF`], [`MF`], [`OFFSET_MASK`].
    #[must_use]
    #[inline]
    pub const fn fragment_word(self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// True if the packet may not be fragmented.
    #[must_use]
    #[inline]
    pub const fn dont_fragment(self) -> bool {
        self.fragment_word() & DF != 0
    }

    /// True if this is not the last fragment.
    #[must_use]
    #[inline]
    pub const fn more_fragments(self) -> bool {
        self.fragment_word() & MF != 0
    }

    /// Place of the payload in the datagram, in units of 8 bytes.
    #[must_use]
    #[inline]
    pub const fn fragment_offset(self) -> u16 {
        self.fragment_word() & OFFSET_MASK
    }

    /// True if the packet is a piece of a datagram.
    #[must_use]
    #[inline]
    pub const fn is_fragment(self) -> bool {
        self.fragment_word() & (MF | OFFSET_MASK) != 0
    }

    /// Time to live.
    #[must_use]
    #[inline]
    pub const fn ttl(self) -> u8 {
        self.header[TTL]
    }

    /// What follows the header.
    #[must_use]
    #[inline]
    pub const fn protocol(self) -> Protocol {
        Protocol(self.header[PROTOCOL])
    }

    /// The header checksum.
    #[must_use]
    #[inline]
    pub const fn checksum(self) -> u16 {
        u16::from_be_bytes([self.header[10], self.header[11]])
    }

    /// True if the header checksum is right.
    #[must_use]
    #[inline]
    pub fn checksum_verifies(self) -> bool {
        let sum = sum_fixed_header(self.header);
        sum.bytes(self.option_bytes()).verifies()
    }

    /// Source address.
    #[must_use]
    #[inline]
    pub fn source(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(read_u32(self.header, SOURCE))
    }

    /// Destination address.
    #[must_use]
    #[inline]
    pub fn destination(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(read_u32(self.header, DESTINATION))
    }

    /// The option area: 0 to 40 bytes.
    #[must_use]
    #[inline]
    pub fn option_bytes(self) -> &'a [u8] {
        &self.packet[HEADER_LENGTH..self.header_length()]
    }

    /// The options.
    #[must_use]
    pub fn options(self) -> Options<'a> {
        Options::new(self.option_bytes())
    }

    /// What follows the header, as far as it is there.
    #[must_use]
    #[inline]
    pub fn payload(self) -> &'a [u8] {
        &self.packet[self.header_length()..]
    }
}

/// Sum of the 20 bytes of a header without options.
#[inline]
fn sum_fixed_header(header: &[u8; HEADER_LENGTH]) -> Sum {
    Sum::ZERO
        .double_word(read_u32(header, 0))
        .double_word(read_u32(header, 4))
        .double_word(read_u32(header, 8))
        .double_word(read_u32(header, 12))
        .double_word(read_u32(header, 16))
}

/// The fields of a header without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes of the packet, header included.
    pub total_length: u16,
    /// Identification of the datagram.
    pub identification: u16,
    /// Flags and fragment offset: [`DF`], [`MF`], [`OFFSET_MASK`].
    pub fragment_word: u16,
    /// Time to live.
    pub ttl: u8,
    /// What follows the header.
    pub protocol: Protocol,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Ipv4Header {
    /// The fields of the packet that begins `bytes`; options are passed over.
    ///
    /// # Errors
    /// As [`Ipv4View::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ipv4View::parse(bytes).map(Self::from)
    }

    /// Writes the 20 bytes of the header, with its checksum.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let mut header = [0; HEADER_LENGTH];
        header[0] = 0x45;
        header[1] = self.tos;
        write_u16(&mut header, TOTAL_LENGTH, self.total_length);
        write_u16(&mut header, IDENTIFICATION, self.identification);
        write_u16(&mut header, FRAGMENT_OFFSET, self.fragment_word);
        header[TTL] = self.ttl;
        header[PROTOCOL] = self.protocol.0;
        write_u32(&mut header, SOURCE, self.source.to_bits());
        write_u32(&mut header, DESTINATION, self.destination.to_bits());
        let checksum = sum_fixed_header(&header).checksum();
        write_u16(&mut header, CHECKSUM, checksum);
        bytes[..HEADER_LENGTH].copy_from_slice(&header);
    }
}

impl From<Ipv4View<'_>> for Ipv4Header {
    fn from(view: Ipv4View<'_>) -> Self {
        Self {
            tos: view.tos(),
            total_length: view.total_length(),
            identification: view.identification(),
            fragment_word: view.fragment_word(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            source: view.source(),
            destination: view.destination(),
        }
    }
}

/// Computes the header checksum anew and writes it, for a header of any length.
///
/// # Panics
/// If `packet` ends before the header does.
pub fn write_checksum(packet: &mut [u8]) {
    let length = usize::from(packet[0] & 0x0f) * 4;
    write_u16(packet, CHECKSUM, 0);
    let checksum = Sum::ZERO.bytes(&packet[..length]).checksum();
    write_u16(packet, CHECKSUM, checksum);
}

/// The checksum of TCP, UDP or UDP-Lite over `transport` (header with a zero checksum field, and
/// payload).
#[must_use]
pub fn transport_checksum(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, transport: &[u8]) -> u16 {
    let length = u32::try_from(transport.len()).unwrap_or(u32::MAX);
    Sum::ZERO.pseudo_ipv4(source, destination, protocol, length).bytes(transport).checksum()
}

/// Total length of the packet that begins with `header` bytes.
///
/// # Panics
/// If fewer than 4 bytes are given.
#[must_use]
pub fn read_total_length(header: &[u8]) -> u16 {
    read_u16(header, TOTAL_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 24] = [
        0x46, 0xb8, 0x00, 0x18, 0x12, 0x34, 0x60, 0x05, 0x40, 0x11, 0x00, 0x00, 192, 0, 2, 33, 198, 51, 100, 2, 1, 1,
        1, 0,
    ];

    #[test]
    fn every_field_is_read_from_its_place() {
        let view = Ipv4View::parse(&PACKET).unwrap();
        assert_eq!((view.header_length(), view.tos(), view.total_length()), (24, 0xb8, 24));
        assert_eq!((view.identification(), view.fragment_offset()), (0x1234, 5));
        assert!(view.dont_fragment() && view.more_fragments() && view.is_fragment());
        assert_eq!((view.ttl(), view.protocol()), (64, Protocol::UDP));
        assert_eq!(view.source(), Ipv4Addr::new(192, 0, 2, 33));
        assert_eq!(view.destination(), Ipv4Addr::new(198, 51, 100, 2));
        assert_eq!(view.option_bytes(), [1, 1, 1, 0]);
        assert!(view.payload().is_empty());
    }

    #[test]
    fn the_checksum_covers_the_options() {
        let mut packet = PACKET;
        write_checksum(&mut packet);
        assert!(Ipv4View::parse(&packet).unwrap().checksum_verifies());
        packet[21] = 7;
        assert!(!Ipv4View::parse(&packet).unwrap().checksum_verifies());
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let with = |index: usize, value: u8| {
            let mut packet = PACKET;
            packet[index] = value;
            Ipv4View::parse(&packet).map(|_| ())
        };
        assert_eq!(with(0, 0x66), Err(ParseError::Version));
        assert_eq!(with(0, 0x44), Err(ParseError::Length));
        assert_eq!(with(0, 0x47), Err(ParseError::Truncated));
        assert_eq!(with(3, 23), Err(ParseError::Length));
        assert_eq!(with(3, 25), Err(ParseError::Truncated));
        assert!(Ipv4View::parse_header(&PACKET).is_ok());
    }

    #[test]
    fn an_emitted_header_parses_to_the_same_fields_and_verifies() {
        let header = Ipv4Header { total_length: 20, ..Ipv4Header::parse(&PACKET).unwrap() };
        let mut bytes = [0; 20];
        header.emit(&mut bytes);
        assert!(Ipv4View::parse(&bytes).unwrap().checksum_verifies());
        assert_eq!(Ipv4Header::parse(&bytes), Ok(header));
    }
}
