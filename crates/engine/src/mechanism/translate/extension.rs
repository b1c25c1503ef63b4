//! Extensions of ICMP messages: where they are, and how they move to a message of the other
//! protocol.
//!
//! Read first: RFC 4884 sections 3, 4, 5 and 7; RFC 5837 section 4; RFC 6791 section 3.
//!
//! ```text
//! | ICMP header 8, length attribute L | embedded packet, padded with zeros to L units, >= 128 | extension
//! extension: | version 2, 0 | checksum | object: | length | class, type | data ... |
//! ```
//!
//! The unit of L is 4 bytes in ICMPv4 and 8 in ICMPv6; L is zero if there is no extension. The
//! content of an extension is opaque, and its checksum covers nothing else.

use std::net::Ipv6Addr;

use tombolo_wire::{Sum, read_u16, write_u16};

/// An embedded packet in front of an extension is padded to at least this many bytes (RFC 4884
/// section 3).
const MINIMUM_EMBEDDED: usize = 128;
/// Header of an extension.
const HEADER_LENGTH: usize = 4;
/// Interface information object with an IPv6 address: object header 4, AFI 2, reserved 2, address
/// 16.
const NODE_OBJECT_LENGTH: usize = 24;
/// Class of the interface information object (RFC 5837 section 4).
const CLASS_INTERFACE: u8 = 2;
/// Incoming IP interface (role 0), address included (bit 5).
const TYPE_INCOMING_ADDRESS: u8 = 0x04;
/// Address family number of IPv6.
const AFI_IPV6: u16 = 2;

/// Splits the body of an ICMP error, `length` being its length attribute and `unit` that
/// attribute's unit in bytes, into what holds the embedded packet and the extension. A length that
/// leads out of the body counts as none.
pub(super) fn split_body(body: &[u8], length: u8, unit: usize) -> (&[u8], &[u8]) {
    match usize::from(length) * unit {
        0 => (body, &[]),
        embedded => body.split_at_checked(embedded).unwrap_or((body, &[])),
    }
}

/// How the body of an error is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the embedded packet that stay.
    pub(super) embedded: usize,
    /// Bytes of the embedded packet with padding: where the extension begins.
    pub(super) padded: usize,
    /// The length attribute.
    pub(super) length: u8,
    /// Bytes of the extension that stay: all or none.
    pub(super) extension: usize,
}

/// Lays out `room` bytes: the embedded packet is cut before the extension is given up, down to 128
/// bytes.
#[expect(clippy::cast_possible_truncation, reason = "room is at most 1232 bytes in units of 8, or 548 in units of 4")]
pub(super) fn lay_out(room: usize, embedded: usize, extension: usize, unit: usize) -> Layout {
    let room_for_embedded = room.saturating_sub(extension) & !(unit - 1);
    if extension == 0 || room_for_embedded < MINIMUM_EMBEDDED {
        let embedded = embedded.min(room);
        return Layout { embedded, padded: embedded, length: 0, extension: 0 };
    }
    let embedded = embedded.min(room_for_embedded);
    let padded = embedded.next_multiple_of(unit).max(MINIMUM_EMBEDDED);
    Layout { embedded, padded, length: (padded / unit) as u8, extension }
}

/// Bytes that [`append_node`] needs behind an extension of `length` bytes.
pub(super) const fn node_length(length: usize) -> usize {
    if length == 0 { HEADER_LENGTH + NODE_OBJECT_LENGTH } else { NODE_OBJECT_LENGTH }
}

/// Adds the address of the node that sent an ICMPv6 error to the extension of the ICMPv4 error that
/// it becomes, since the source address of that cannot say (RFC 6791 section 3). `extension` holds
/// `length` bytes of an extension, or none, and [`node_length`] bytes more.
pub(super) fn append_node(extension: &mut [u8], length: usize, node: Ipv6Addr) {
    let mut at = length;
    if length == 0 {
        extension[..HEADER_LENGTH].copy_from_slice(&[0x20, 0, 0, 0]);
        at = HEADER_LENGTH;
    }
    let object = &mut extension[at..at + NODE_OBJECT_LENGTH];
    object[..4].copy_from_slice(&[0, 24, CLASS_INTERFACE, TYPE_INCOMING_ADDRESS]);
    write_u16(object, 4, AFI_IPV6);
    write_u16(object, 6, 0);
    object[8..].copy_from_slice(&node.octets());
    // A sender may leave the checksum out, as zero (RFC 4884 section 7); then it stays out.
    if length == 0 || read_u16(extension, 2) != 0 {
        write_u16(extension, 2, 0);
        let checksum = Sum::ZERO.bytes(&extension[..at + NODE_OBJECT_LENGTH]).checksum();
        write_u16(extension, 2, checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_found_by_the_length_attribute() {
        let body = [7; 140];
        assert_eq!(split_body(&body, 32, 4).1.len(), 12);
        assert_eq!(split_body(&body, 16, 8).0.len(), 128);
        assert_eq!(split_body(&body, 0, 8), (&body[..], &[][..]));
        assert_eq!(split_body(&body, 255, 8), (&body[..], &[][..]));
    }

    #[test]
    fn the_embedded_packet_gives_way_first_and_then_the_extension() {
        // ICMPv4: 576 - 28.
        assert_eq!(lay_out(548, 528, 40, 4), Layout { embedded: 508, padded: 508, length: 127, extension: 40 });
        assert_eq!(lay_out(548, 128, 420, 4), Layout { embedded: 128, padded: 128, length: 32, extension: 420 });
        assert_eq!(lay_out(548, 128, 421, 4), Layout { embedded: 128, padded: 128, length: 0, extension: 0 });
        // ICMPv6: 1280 - 48.
        assert_eq!(lay_out(1232, 500, 1104, 8), Layout { embedded: 128, padded: 128, length: 16, extension: 1104 });
        assert_eq!(lay_out(1232, 500, 1105, 8), Layout { embedded: 500, padded: 500, length: 0, extension: 0 });
    }

    #[test]
    fn a_short_embedded_packet_is_padded_to_128() {
        assert_eq!(lay_out(1232, 60, 8, 8), Layout { embedded: 60, padded: 128, length: 16, extension: 8 });
        assert_eq!(lay_out(1232, 149, 8, 8), Layout { embedded: 149, padded: 152, length: 19, extension: 8 });
    }

    #[test]
    fn a_node_is_appended_with_a_right_checksum() {
        let mut extension = [0; 28 + 24];
        append_node(&mut extension, 0, Ipv6Addr::LOCALHOST);
        assert!(Sum::ZERO.bytes(&extension[..28]).verifies());
        append_node(&mut extension, 28, Ipv6Addr::UNSPECIFIED);
        assert!(Sum::ZERO.bytes(&extension).verifies());
        assert_eq!(extension[28..34], [0, 24, 2, 4, 0, 2]);
    }
}
