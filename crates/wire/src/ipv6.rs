//! IPv6 and its extension headers (RFC 8200 sections 3 and 4).
//!
//! ```text
//! 0                          4                6             7           8           24               40
//! | 6, class 8, flow label 20 | payload length | next header | hop limit | source 16 | destination 16 |
//!
//! Fragment header (8 bytes): | next header | 0 | offset 13, 0 0, M | identification 4 |
//! Hop-by-Hop, Routing, Destination Options: | next header | length / 8 - 1 | ... ; Routing: | . . type | left |
//! ```

use core::net::Ipv6Addr;

use crate::field::read_u128;
use crate::{ParseError, Protocol, Sum, read_u16, read_u32, write_u16, write_u32};

/// Bytes of the fixed header.
pub const HEADER_LENGTH: usize = 40;
/// Bytes of a Fragment header.
pub const FRAGMENT_HEADER_LENGTH: usize = 8;
/// Offset of the payload length.
pub const PAYLOAD_LENGTH: usize = 4;
/// Offset of the next header number.
pub const NEXT_HEADER: usize = 6;
/// Offset of the hop limit.
pub const HOP_LIMIT: usize = 7;
/// Offset of the source address.
pub const SOURCE: usize = 8;
/// Offset of the destination address.
pub const DESTINATION: usize = 24;
/// Every IPv6 link carries packets of this many bytes (RFC 8200 section 5).
pub const MINIMUM_MTU: u16 = 1280;

/// A packet with a whole fixed header.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6View<'a> {
    header: &'a [u8; HEADER_LENGTH],
    packet: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// The packet that begins `bytes`; bytes behind its payload length are not part of it.
    /// Jumbograms (RFC 2675) are not supported: a payload length of zero is taken at its word.
    ///
    /// # Errors
    /// [`ParseError`] if the version is not 6, or `bytes` ends before the header or the payload
    /// does.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = Self::parse_header(bytes)?;
        let packet = bytes.get(..HEADER_LENGTH + usize::from(view.payload_length())).ok_or(ParseError::Truncated)?;
        Ok(Self { packet, ..view })
    }

    /// Like [`parse`](Self::parse), but the payload length may say more than there is, as in the
    /// packet inside an ICMP error.
    ///
    /// # Errors
    /// [`ParseError`] if the version is not 6 or the fixed header is cut.
    #[inline]
    pub fn parse_header(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = bytes.first_chunk().ok_or(ParseError::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(ParseError::Version);
        }
        Ok(Self { header, packet: bytes })
    }

    /// Traffic class: DSCP and ECN.
    #[must_use]
    #[inline]
    pub const fn traffic_class(self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }

    /// Flow label, 20 bits.
    #[must_use]
    #[inline]
    pub const fn flow_label(self) -> u32 {
        u32::from_be_bytes([0, self.header[1] & 0x0f, self.header[2], self.header[3]])
    }

    /// Bytes behind the fixed header, as the header says.
    #[must_use]
    #[inline]
    pub const fn payload_length(self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// What follows the fixed header.
    #[must_use]
    #[inline]
    pub const fn next_header(self) -> Protocol {
        Protocol(self.header[NEXT_HEADER])
    }

    /// Hop limit.
    #[must_use]
    #[inline]
    pub const fn hop_limit(self) -> u8 {
        self.header[HOP_LIMIT]
    }

    /// Source address.
    #[must_use]
    #[inline]
    pub fn source(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(read_u128(self.header, SOURCE))
    }

    /// Destination address.
    #[must_use]
    #[inline]
    pub fn destination(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(read_u128(self.header, DESTINATION))
    }

    /// What follows the fixed header, as far as it is there.
    #[must_use]
    #[inline]
    pub fn payload(self) -> &'a [u8] {
        &self.packet[HEADER_LENGTH..]
    }

    /// Walks the extension headers.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if the packet ends within one.
    #[inline]
    pub fn upper_layer(self) -> Result<UpperLayer, ParseError> {
        let protocol = self.next_header();
        if protocol.is_skippable() || protocol == Protocol::IPV6_FRAGMENT {
            return walk_extension_headers(self.packet, protocol);
        }
        Ok(UpperLayer::directly_behind_the_fixed_header(protocol))
    }
}

/// What an IPv6 packet carries behind its extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperLayer {
    /// The first header that is not Hop-by-Hop, Routing, Destination Options or Fragment. With
    /// `header_after_fragment`: the extension header that follows the Fragment header.
    pub protocol: Protocol,
    /// Offset of the byte that names it, from the start of the packet.
    pub named_at: usize,
    /// Where it begins, in bytes from the start of the packet. In a non-first fragment: where the
    /// piece of the datagram begins.
    pub offset: usize,
    /// The Fragment header, if there is one.
    pub fragment: Option<FragmentHeader>,
    /// Offset of the segments-left byte of the first Routing header in which it is not zero, in
    /// bytes from the start of the packet.
    pub segments_left: Option<usize>,
    /// An extension header other than ESP follows the Fragment header (RFC 7915 section 5.1.1).
    pub header_after_fragment: bool,
}

impl UpperLayer {
    const fn directly_behind_the_fixed_header(protocol: Protocol) -> Self {
        Self {
            protocol,
            named_at: NEXT_HEADER,
            offset: HEADER_LENGTH,
            fragment: None,
            segments_left: None,
            header_after_fragment: false,
        }
    }
}

/// Stops behind a Fragment header: in a non-first fragment no header follows it, and in a first one
/// an extension header there makes the packet untranslatable. Every step moves at least eight bytes
/// on.
fn walk_extension_headers(packet: &[u8], first: Protocol) -> Result<UpperLayer, ParseError> {
    let mut upper = UpperLayer::directly_behind_the_fixed_header(first);
    while upper.protocol.is_skippable() {
        let &[next, eighths, _, left, ..] = packet.get(upper.offset..).unwrap_or_default() else {
            return Err(ParseError::Truncated);
        };
        if upper.protocol == Protocol::ROUTING && left != 0 && upper.segments_left.is_none() {
            upper.segments_left = Some(upper.offset + 3);
        }
        upper.named_at = upper.offset;
        upper.offset += (usize::from(eighths) + 1) * 8;
        upper.protocol = Protocol(next);
    }
    if upper.offset > packet.len() {
        return Err(ParseError::Truncated);
    }
    if upper.protocol == Protocol::IPV6_FRAGMENT {
        let header = FragmentHeader::parse(packet, upper.offset)?;
        upper.named_at = upper.offset;
        upper.offset += FRAGMENT_HEADER_LENGTH;
        upper.protocol = header.next_header;
        upper.fragment = Some(header);
        upper.header_after_fragment = header.next_header.is_extension_header();
    }
    Ok(upper)
}

/// A Fragment header (RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Where it stands, in bytes from the start of the packet.
    pub header_offset: usize,
    /// What the datagram begins with, behind its per-fragment headers.
    pub next_header: Protocol,
    /// Place of the payload in the datagram, in units of 8 bytes.
    pub offset: u16,
    /// This is not the last fragment.
    pub more: bool,
    /// Identification of the datagram.
    pub identification: u32,
}

impl FragmentHeader {
    /// The header at `header_offset` bytes into `packet`.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if the packet ends within it.
    pub fn parse(packet: &[u8], header_offset: usize) -> Result<Self, ParseError> {
        let header = packet.get(header_offset..header_offset + FRAGMENT_HEADER_LENGTH).ok_or(ParseError::Truncated)?;
        let word = read_u16(header, 2);
        Ok(Self {
            header_offset,
            next_header: Protocol(header[0]),
            offset: word >> 3,
            more: word & 1 != 0,
            identification: read_u32(header, 4),
        })
    }

    /// Writes the 8 bytes of the header at `header_offset`.
    ///
    /// # Panics
    /// If `packet` ends before.
    pub fn emit(&self, packet: &mut [u8]) {
        let header = &mut packet[self.header_offset..self.header_offset + FRAGMENT_HEADER_LENGTH];
        header[0] = self.next_header.0;
        header[1] = 0;
        write_u16(header, 2, self.offset << 3 | u16::from(self.more));
        write_u32(header, 4, self.identification);
    }

    /// True for a "fragment" that is a whole datagram (RFC 6946).
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// The fields of the fixed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind the fixed header.
    pub payload_length: u16,
    /// What follows the fixed header.
    pub next_header: Protocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6Header {
    /// The fields of the packet that begins `bytes`.
    ///
    /// # Errors
    /// As [`Ipv6View::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Ipv6View::parse(bytes).map(Self::from)
    }

    /// Writes the 40 bytes of the header.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let header = &mut bytes[..HEADER_LENGTH];
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        header[..4].copy_from_slice(&first.to_be_bytes());
        write_u16(header, PAYLOAD_LENGTH, self.payload_length);
        header[NEXT_HEADER] = self.next_header.0;
        header[HOP_LIMIT] = self.hop_limit;
        header[SOURCE..DESTINATION].copy_from_slice(&self.source.octets());
        header[DESTINATION..].copy_from_slice(&self.destination.octets());
    }
}

impl From<Ipv6View<'_>> for Ipv6Header {
    fn from(view: Ipv6View<'_>) -> Self {
        Self {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_length: view.payload_length(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            source: view.source(),
            destination: view.destination(),
        }
    }
}

/// The checksum of TCP, UDP or ICMPv6 over `transport` (header with a zero checksum field, and
/// payload).
#[must_use]
pub fn transport_checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: Protocol, transport: &[u8]) -> u16 {
    let length = u32::try_from(transport.len()).unwrap_or(u32::MAX);
    Sum::ZERO.pseudo_ipv6(source, destination, protocol, length).bytes(transport).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn packet(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
        let header = Ipv6Header {
            traffic_class: 0xb8,
            flow_label: 0x12345,
            payload_length: u16::try_from(payload.len()).unwrap(),
            next_header,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            destination: "64:ff9b::c000:221".parse().unwrap(),
        };
        let mut bytes = Vec::from([0; HEADER_LENGTH]);
        header.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        assert_eq!(Ipv6Header::parse(&bytes), Ok(header));
        bytes
    }

    fn walk(next_header: Protocol, payload: &[u8]) -> Result<UpperLayer, ParseError> {
        Ipv6View::parse(&packet(next_header, payload)).unwrap().upper_layer()
    }

    #[test]
    fn a_transport_directly_behind_the_fixed_header_is_at_40() {
        let upper = walk(Protocol::TCP, &[]).unwrap();
        assert_eq!((upper.protocol, upper.offset, upper.fragment), (Protocol::TCP, 40, None));
    }

    #[test]
    fn hop_by_hop_routing_and_destination_options_are_skipped() {
        let mut payload = [0; 8 + 16 + 8];
        payload[0] = Protocol::DESTINATION_OPTIONS.0;
        payload[8..10].copy_from_slice(&[Protocol::ROUTING.0, 1]);
        payload[24] = Protocol::UDP.0;
        let upper = walk(Protocol::HOP_BY_HOP, &payload).unwrap();
        assert_eq!((upper.protocol, upper.offset, upper.segments_left), (Protocol::UDP, 72, None));
    }

    #[test]
    fn segments_left_is_found_at_43_or_behind_what_precedes() {
        let routing = [Protocol::TCP.0, 0, 0, 2, 0, 0, 0, 0];
        assert_eq!(walk(Protocol::ROUTING, &routing).unwrap().segments_left, Some(43));
        let mut payload = [0; 16];
        payload[0] = Protocol::ROUTING.0;
        payload[8..].copy_from_slice(&routing);
        assert_eq!(walk(Protocol::HOP_BY_HOP, &payload).unwrap().segments_left, Some(51));
    }

    #[test]
    fn a_fragment_header_is_read_and_ends_the_walk() {
        let fragment = [Protocol::UDP.0, 0, 0x05, 0xa9, 0x80, 0, 0, 1];
        let upper = walk(Protocol::IPV6_FRAGMENT, &fragment).unwrap();
        let header = upper.fragment.unwrap();
        assert_eq!((header.offset, header.more, header.identification), (181, true, 0x8000_0001));
        assert_eq!((upper.protocol, upper.offset, upper.header_after_fragment), (Protocol::UDP, 48, false));
        let mut bytes = [0xff; 48];
        header.emit(&mut bytes);
        assert_eq!(bytes[40..], fragment);
    }

    #[test]
    fn an_extension_header_behind_a_fragment_header_is_reported_but_esp_is_not() {
        let behind = |next: Protocol| walk(Protocol::IPV6_FRAGMENT, &[next.0, 0, 0, 1, 0, 0, 0, 1]).unwrap();
        assert!(behind(Protocol::HOP_BY_HOP).header_after_fragment);
        assert!(behind(Protocol::AH).header_after_fragment);
        assert!(!behind(Protocol::ESP).header_after_fragment);
    }

    #[test]
    fn no_next_header_is_a_protocol_like_any_other() {
        assert_eq!(walk(Protocol::NO_NEXT_HEADER, &[]).unwrap().protocol, Protocol::NO_NEXT_HEADER);
    }

    #[test]
    fn an_extension_header_that_leads_out_of_the_packet_is_refused() {
        assert_eq!(walk(Protocol::HOP_BY_HOP, &[6, 1, 0, 0, 0, 0, 0, 0]), Err(ParseError::Truncated));
        assert_eq!(walk(Protocol::HOP_BY_HOP, &[6, 0]), Err(ParseError::Truncated));
        assert_eq!(walk(Protocol::IPV6_FRAGMENT, &[6, 0, 0, 0, 0, 0, 0]), Err(ParseError::Truncated));
    }

    proptest! {
        #[test]
        fn the_walk_ends_inside_the_packet(
            first in any::<u8>(), payload in prop::collection::vec(prop::sample::select(&[0_u8, 1, 6, 43, 44, 60, 255]), 0..200),
        ) {
            if let Ok(upper) = walk(Protocol(first), &payload) {
                prop_assert!(upper.offset >= 40 && upper.offset <= 40 + payload.len());
            }
        }
    }
}
