//! Work that was left to the network card, done here because the packet changes in a way that the
//! card cannot know.

use tombolo_wire::checksum::udp_checksum;
use tombolo_wire::{Protocol, Sum, read_u16, tcp, udp, write_u16};

use crate::packet::{ChecksumState, Offload, Packet, Segmentation};
use crate::parse::{Parsed, Payload};
use crate::verdict::DropReason;

/// Computes a transport checksum that was left to the card. Does nothing if it is complete.
///
/// # Errors
/// [`DropReason::Malformed`] if the checksum field lies outside the packet.
pub fn complete_checksum(packet: &mut Packet<'_>, protocol: Protocol) -> Result<(), DropReason> {
    let ChecksumState::Partial { start, offset } = packet.offload.checksum else {
        return Ok(());
    };
    let (start, offset) = (usize::from(start), usize::from(offset));
    let transport = packet.bytes_mut().get_mut(start..).ok_or(DropReason::Malformed)?;
    if offset + 2 > transport.len() {
        return Err(DropReason::Malformed);
    }
    // The field holds the sum of the pseudo-header, so it is summed where it stands.
    let checksum = Sum::ZERO.bytes(transport).checksum();
    let checksum = if protocol == Protocol::UDP { udp_checksum(checksum) } else { checksum };
    write_u16(transport, offset, checksum);
    packet.offload.checksum = ChecksumState::Complete;
    Ok(())
}

/// What was left to the card must agree with the headers, since transformations rely on it.
pub(crate) fn reconcile_offload<A>(packet: &mut Packet<'_>, parsed: &Parsed<A>) -> Result<(), DropReason> {
    let expected = match parsed.payload {
        _ if packet.offload == Offload::default() => return Ok(()),
        Payload::Tcp if !parsed.is_piece() => Some(tcp::CHECKSUM),
        Payload::Udp if !parsed.is_piece() => Some(udp::CHECKSUM),
        _ => None,
    };
    let is_partial = match packet.offload.checksum {
        ChecksumState::Complete => false,
        ChecksumState::Partial { start, offset } => {
            start == parsed.transport_offset && Some(usize::from(offset)) == expected
        }
    };
    match (packet.offload.segmentation, parsed.payload) {
        (Segmentation::None, _) if is_partial => Ok(()),
        (Segmentation::None, _) => complete_checksum(packet, parsed.protocol),
        (Segmentation::Tcp { size: 1.., .. }, Payload::Tcp) | (Segmentation::Udp { size: 1.. }, Payload::Udp)
            if is_partial =>
        {
            Ok(())
        }
        _ => Err(DropReason::Malformed),
    }
}

/// Bytes of the largest packet that will stand on the wire: of a super-packet that is one segment.
/// `ip_header` is the length of the IP header that the packet has or will have, `transport` its
/// transport header and payload.
#[must_use]
#[inline]
pub fn size_on_wire(segmentation: Segmentation, ip_header: usize, transport: &[u8]) -> usize {
    let whole = ip_header + transport.len();
    match segmentation {
        Segmentation::None => whole,
        Segmentation::Tcp { size, .. } => whole.min(ip_header + tcp_header_length(transport) + usize::from(size)),
        Segmentation::Udp { size } => whole.min(ip_header + tombolo_wire::udp::HEADER_LENGTH + usize::from(size)),
    }
}

/// Length of the TCP header in `transport`, as it says.
#[must_use]
pub fn tcp_header_length(transport: &[u8]) -> usize {
    transport
        .get(tombolo_wire::tcp::DATA_OFFSET)
        .map_or(tombolo_wire::tcp::HEADER_LENGTH, |&byte| usize::from(byte >> 4) * 4)
}

/// Segments in a super-packet of `payload` bytes behind its transport header; 1 for an ordinary
/// packet.
#[must_use]
pub fn segment_count(segmentation: Segmentation, payload: usize) -> usize {
    match segmentation.size() {
        Some(size) if size > 0 => payload.div_ceil(usize::from(size)).max(1),
        _ => 1,
    }
}

/// Checksum field of a partial checksum as it stands, for tests and assertions.
#[must_use]
pub fn partial_field(packet: &Packet<'_>) -> Option<u16> {
    let ChecksumState::Partial { start, offset } = packet.offload.checksum else {
        return None;
    };
    let at = usize::from(start) + usize::from(offset);
    (at + 2 <= packet.len()).then(|| read_u16(packet.bytes(), at))
}
