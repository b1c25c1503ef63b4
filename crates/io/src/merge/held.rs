//! Segments of one connection that wait for more: one super-packet in the making.
//!
//! Read first: RFC 6864 section 4 (IPv4 identification).
//!
//! ```text
//! room  |<- HEADROOM ->| headers of the first | payload 1 | payload 2 | ... |<- spare ->|
//! ```
//!
//! Each payload is copied once and, unless its checksum is left to the card, read once to verify it.

use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Packet, Segmentation};
use tombolo_wire::{ipv4, ipv6, read_u16, read_u32, tcp, write_u16};

use super::segment::{LAST, Segment};
use crate::queue::BUFFER_BYTES;

/// Bytes of the longest super-packet. Links and tunnels on its way put headers in front of it, and what is
/// longer than 65,536 bytes with them is cut for them in software.
const LONGEST: usize = 65_535 - 128;

/// Offset of the byte with DSCP and ECN in an IPv4 header.
const TOS: usize = 1;
/// Bytes of version, traffic class and flow label in an IPv6 header.
const CLASS_AND_LABEL: usize = 4;
/// Offset of the window in a TCP header.
const WINDOW: usize = 14;
/// Offset of the urgent pointer; options follow.
const URGENT: usize = 18;

/// Packets of a batch by number, a bit each.
pub(super) type Numbers = u64;

/// What became of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// It is held.
    MoreMayFollow,
    /// It is held, and ends the super-packet.
    Last,
    /// It does not belong to it.
    Not,
}

/// A super-packet in the making.
#[derive(Debug)]
pub(super) struct Held {
    room: Box<[u8]>,
    length: usize,
    shape: Segment,
    /// Payload bytes of the first segment.
    size: u16,
    segments: u16,
    checksum: ChecksumState,
    /// The packets that the segments came of.
    numbers: Numbers,
}

impl Held {
    /// Room for one.
    pub(super) fn room() -> Box<[u8]> {
        vec![0; BUFFER_BYTES].into_boxed_slice()
    }

    /// A super-packet of one segment.
    pub(super) fn begin(mut room: Box<[u8]>, packet: &Packet<'_>, shape: Segment, number: Numbers) -> Self {
        let bytes = packet.bytes();
        room[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        // No IP packet has a longer payload.
        let size = u16::try_from(bytes.len() - shape.headers).unwrap_or(u16::MAX);
        let checksum = packet.offload.checksum;
        Self { room, length: bytes.len(), shape, size, segments: 1, checksum, numbers: number }
    }

    /// Addresses and ports, as they stand in the packets.
    pub(super) fn flow(&self) -> &[u8] {
        self.shape.flow(self.bytes())
    }

    /// The packets that its segments came of.
    pub(super) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Its room, for another one.
    pub(super) fn into_room(self) -> Box<[u8]> {
        self.room
    }

    fn bytes(&self) -> &[u8] {
        &self.room[HEADROOM..HEADROOM + self.length]
    }

    /// Adds a segment of the same flow, if it is what comes next.
    pub(super) fn add(&mut self, packet: &Packet<'_>, segment: Segment, number: Numbers) -> Added {
        let bytes = packet.bytes();
        if segment != self.shape || !self.is_next(bytes) || !self.may_merge(packet) {
            return Added::Not;
        }
        let payload = &bytes[segment.headers..];
        let end = HEADROOM + self.length;
        self.room[end..end + payload.len()].copy_from_slice(payload);
        self.length += payload.len();
        self.segments += 1;
        self.numbers |= number;
        self.room[HEADROOM + segment.ip + tcp::FLAGS] |= bytes[segment.ip + tcp::FLAGS] & LAST;
        let is_full = self.length + usize::from(self.size) > LONGEST;
        let is_short = payload.len() < usize::from(self.size);
        if is_full || is_short || segment.is_last(bytes) { Added::Last } else { Added::MoreMayFollow }
    }

    /// True if a packet with headers of the same lengths is what whoever cuts the super-packet would make of the
    /// next segment.
    fn is_next(&self, bytes: &[u8]) -> bool {
        let Segment { ip, headers } = self.shape;
        let first = self.bytes();
        let payload = bytes.len() - headers;
        let is_same_ip = if self.shape.is_ipv4() {
            // Linux counts the identification up, whether the packets may be fragmented or not.
            let identification = read_u16(first, ipv4::IDENTIFICATION).wrapping_add(self.segments);
            let ttl_and_df = ipv4::FRAGMENT_OFFSET..ipv4::PROTOCOL;
            first[TOS] == bytes[TOS]
                && read_u16(bytes, ipv4::IDENTIFICATION) == identification
                && first[ttl_and_df.clone()] == bytes[ttl_and_df]
        } else {
            first[..CLASS_AND_LABEL] == bytes[..CLASS_AND_LABEL] && first[ipv6::HOP_LIMIT] == bytes[ipv6::HOP_LIMIT]
        };
        let (old, new) = (&first[ip..headers], &bytes[ip..headers]);
        // Nothing is held behind PSH and FIN, so that the first has neither of them.
        let expected_flags = old[tcp::FLAGS] | new[tcp::FLAGS] & LAST;
        let sequence = u32::try_from(self.length - headers).unwrap_or(u32::MAX);
        is_same_ip
            && payload <= usize::from(self.size)
            && self.length + payload <= LONGEST
            && read_u32(new, tcp::SEQUENCE) == read_u32(old, tcp::SEQUENCE).wrapping_add(sequence)
            && new[tcp::FLAGS] == expected_flags
            && old[tcp::ACKNOWLEDGEMENT..tcp::FLAGS] == new[tcp::ACKNOWLEDGEMENT..tcp::FLAGS]
            && old[WINDOW..tcp::CHECKSUM] == new[WINDOW..tcp::CHECKSUM]
            && old[URGENT..] == new[URGENT..]
    }

    /// True if the checksums of the packet are right, and those of the first segment. That one is looked at when
    /// there is a second: most are alone.
    fn may_merge(&self, packet: &Packet<'_>) -> bool {
        let first_is_right = self.segments > 1 || self.shape.has_expected_checksums(self.bytes(), self.checksum);
        first_is_right && self.shape.has_expected_checksums(packet.bytes(), packet.offload.checksum)
    }

    /// What is to be sent: the segment as it came if it is alone, or a super-packet.
    pub(super) fn close(&mut self) -> Packet<'_> {
        let offload = if self.segments > 1 {
            self.write_headers()
        } else {
            Offload { segmentation: Segmentation::None, checksum: self.checksum }
        };
        // It is not longer than its room, which has the headroom.
        Packet::new(&mut self.room, HEADROOM, self.length, offload).unwrap_or_default()
    }

    /// Writes lengths and checksums for all segments together.
    #[expect(clippy::cast_possible_truncation, reason = "a super-packet is at most LONGEST bytes long")]
    fn write_headers(&mut self) -> Offload {
        let (shape, length) = (self.shape, self.length);
        let pseudo_header = shape.pseudo_header(self.bytes(), length - shape.ip).fold();
        let bytes = &mut self.room[HEADROOM..HEADROOM + length];
        let (total, payload) = (length as u16, (length - shape.ip) as u16);
        if shape.is_ipv4() {
            write_u16(bytes, ipv4::TOTAL_LENGTH, total);
            ipv4::write_checksum(bytes);
        } else {
            write_u16(bytes, ipv6::PAYLOAD_LENGTH, payload);
        }
        write_u16(bytes, shape.ip + tcp::CHECKSUM, pseudo_header);
        let start = shape.ip as u16;
        Offload {
            segmentation: Segmentation::Tcp { size: self.size, ecn: false },
            checksum: ChecksumState::Partial { start, offset: tcp::CHECKSUM as u16 },
        }
    }
}
