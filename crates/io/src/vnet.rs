//! The virtio network header in front of each packet of a TUN queue, and its translation to and
//! from [`Offload`].
//!
//! Read first: VIRTIO 1.2, section 5.1.6 (packet transmission); Linux `include/linux/virtio_net.h`.
//!
//! ```text
//! 0      1         2             4           6               8                 10
//! +------+---------+-------------+-----------+---------------+-----------------+----------
//! | flags| gso type| header bytes| gso bytes | checksum start| checksum offset | IP packet
//! +------+---------+-------------+-----------+---------------+-----------------+----------
//! ```
//!
//! All integers are in the byte order of the machine (a TUN device without `TUNSETVNETLE`); offsets
//! count from the first byte of the IP header.
//!
//! Invariant: an [`Offload`] that leaves [`VnetHeader::into_offload`] describes TCP or UDP right
//! behind the IP header (and its extension headers). Partial checksums of anything else, as of a
//! TCP segment inside a tunnel, are completed here, so the engine meets the two kinds only.

use std::mem::{offset_of, size_of};

use tombolo_engine::packet::{ChecksumState, Offload, Segmentation};

/// Bytes of the header. Linux knows longer ones (12 with the count of merged buffers, 24 with
/// tunnel offloads); a TUN device uses nothing behind the tenth byte.
pub const VNET_HEADER_BYTES: usize = 10;

const FLAG_NEEDS_CHECKSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

const TCP_CHECKSUM_OFFSET: u16 = 16;
const UDP_CHECKSUM_OFFSET: u16 = 6;

/// Packets longer than this ask for a short linear part, so that the kernel need not find one
/// contiguous span for all of it (`tun_alloc_skb`: anything below a page is linear anyway).
const CONTIGUOUS_BYTES: usize = 3584;
const LINEAR_BYTES: u16 = 128;

/// `struct virtio_net_hdr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct VnetHeader {
    /// `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`.
    pub gso_type: u8,
    /// Bytes of all headers of a super-packet; a hint for the kernel's memory layout.
    pub header_bytes: u16,
    /// Payload bytes of each segment.
    pub gso_bytes: u16,
    /// Where the checksum's coverage begins.
    pub checksum_start: u16,
    /// Where the checksum field is, from `checksum_start`.
    pub checksum_offset: u16,
}

const _: () = {
    assert!(size_of::<VnetHeader>() == VNET_HEADER_BYTES);
    assert!(offset_of!(VnetHeader, flags) == 0);
    assert!(offset_of!(VnetHeader, gso_type) == 1);
    assert!(offset_of!(VnetHeader, header_bytes) == 2);
    assert!(offset_of!(VnetHeader, gso_bytes) == 4);
    assert!(offset_of!(VnetHeader, checksum_start) == 6);
    assert!(offset_of!(VnetHeader, checksum_offset) == 8);
};

/// A header that uses an offload which was not offered to this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownOffload;

impl VnetHeader {
    /// The header in its ten bytes.
    #[must_use]
    pub fn parse(bytes: [u8; VNET_HEADER_BYTES]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = bytes;
        Self {
            flags,
            gso_type,
            header_bytes: u16::from_ne_bytes([h0, h1]),
            gso_bytes: u16::from_ne_bytes([g0, g1]),
            checksum_start: u16::from_ne_bytes([s0, s1]),
            checksum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// What the kernel left to be done on `packet` (which begins with its IP header).
    ///
    /// A partial checksum that is not that of TCP or UDP right behind the IP header is completed in
    /// `packet`.
    ///
    /// # Errors
    /// [`UnknownOffload`] if the segmentation is unknown, or offsets point out of the packet, or a
    /// super-packet is neither TCP nor UDP behind its first IP header.
    pub fn into_offload(self, packet: &mut [u8]) -> Result<Offload, UnknownOffload> {
        if self.flags & FLAG_NEEDS_CHECKSUM == 0 && self.gso_type == GSO_NONE {
            return Ok(Offload::default());
        }
        let size = self.gso_bytes;
        let segmentation = match self.gso_type & !GSO_ECN {
            GSO_NONE => Segmentation::None,
            GSO_TCP4 | GSO_TCP6 if size > 0 => Segmentation::Tcp { size, ecn: self.gso_type & GSO_ECN != 0 },
            GSO_UDP if size > 0 => Segmentation::Udp { size },
            _ => return Err(UnknownOffload),
        };
        let checksum = if self.flags & FLAG_NEEDS_CHECKSUM == 0 {
            ChecksumState::Complete
        } else if self.covers_first_transport(packet) {
            ChecksumState::Partial { start: self.checksum_start, offset: self.checksum_offset }
        } else if segmentation == Segmentation::None {
            complete(packet, self.checksum_start, self.checksum_offset).ok_or(UnknownOffload)?;
            ChecksumState::Complete
        } else {
            return Err(UnknownOffload);
        };
        Ok(Offload { segmentation, checksum })
    }

    /// True if the partial checksum is the one of TCP or UDP behind the first IP header.
    fn covers_first_transport(self, packet: &[u8]) -> bool {
        let Some((protocol, start)) = transport(packet) else {
            return false;
        };
        let offset = match protocol {
            PROTOCOL_TCP => TCP_CHECKSUM_OFFSET,
            PROTOCOL_UDP => UDP_CHECKSUM_OFFSET,
            _ => return false,
        };
        start == usize::from(self.checksum_start)
            && offset == self.checksum_offset
            && start + usize::from(offset) + 2 <= packet.len()
    }

    /// The header that says what the kernel has still to do on `packet`.
    #[must_use]
    pub fn from_offload(offload: Offload, packet: &[u8]) -> Self {
        let mut header = Self::default();
        if let ChecksumState::Partial { start, offset } = offload.checksum {
            header.flags = FLAG_NEEDS_CHECKSUM;
            header.checksum_start = start;
            header.checksum_offset = offset;
        }
        if let Some(size) = offload.segmentation.size() {
            header.gso_type = gso_type(offload.segmentation, packet);
            header.gso_bytes = size;
            header.header_bytes = header_bytes(offload, packet);
        } else if packet.len() > CONTIGUOUS_BYTES {
            header.header_bytes = LINEAR_BYTES;
        }
        header
    }

    /// The ten bytes of the header.
    #[must_use]
    pub fn emit(self) -> [u8; VNET_HEADER_BYTES] {
        let [h0, h1] = self.header_bytes.to_ne_bytes();
        let [g0, g1] = self.gso_bytes.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}

fn gso_type(segmentation: Segmentation, packet: &[u8]) -> u8 {
    let is_ipv6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
    match segmentation {
        Segmentation::None => GSO_NONE,
        Segmentation::Udp { .. } => GSO_UDP,
        Segmentation::Tcp { ecn, .. } => (if is_ipv6 { GSO_TCP6 } else { GSO_TCP4 }) | if ecn { GSO_ECN } else { 0 },
    }
}

/// Bytes of the IP and transport headers of a super-packet. Zero, which the kernel takes as "all of
/// it", if they cannot be told.
fn header_bytes(offload: Offload, packet: &[u8]) -> u16 {
    let start = match offload.checksum {
        ChecksumState::Partial { start, .. } => usize::from(start),
        ChecksumState::Complete => match transport(packet) {
            Some((_, start)) => start,
            None => return 0,
        },
    };
    let transport_bytes = match offload.segmentation {
        Segmentation::Tcp { .. } => match packet.get(start + 12) {
            Some(byte) => usize::from(byte >> 4) * 4,
            None => return 0,
        },
        _ => 8,
    };
    u16::try_from((start + transport_bytes).min(packet.len())).unwrap_or(0)
}

/// Protocol number of the upper layer and the offset of its header; `None` if the packet ends
/// before it.
fn transport(packet: &[u8]) -> Option<(u8, usize)> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION_OPTIONS: u8 = 60;

    match packet.first()? >> 4 {
        4 => Some((*packet.get(9)?, usize::from(packet[0] & 0xf) * 4)),
        6 => {
            let (mut next, mut offset) = (*packet.get(6)?, 40);
            while let HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS = next {
                let extension = packet.get(offset..offset + 2)?;
                next = extension[0];
                offset += (usize::from(extension[1]) + 1) * 8;
            }
            Some((next, offset))
        }
        _ => None,
    }
}

/// Completes a partial Internet checksum in place. A result of zero is written as all ones, as
/// Linux does for every protocol (`skb_checksum_help`): UDP needs it, the others take it for the
/// same number.
fn complete(packet: &mut [u8], start: u16, offset: u16) -> Option<()> {
    let covered = packet.get_mut(usize::from(start)..)?;
    let offset = usize::from(offset);
    covered.get(offset..offset + 2)?;
    let mut sum: u32 = 0;
    for word in covered.chunks(2) {
        sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let field = match !sum & 0xffff {
        0 => [0xff, 0xff],
        checksum => [checksum.to_be_bytes()[2], checksum.to_be_bytes()[3]],
    };
    covered[offset..offset + 2].copy_from_slice(&field);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header (20 bytes) with this protocol, in front of `rest`.
    fn ipv4(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        packet.extend_from_slice(rest);
        packet
    }

    /// An IPv6 header (40 bytes) with this next header, in front of `rest`.
    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        packet.extend_from_slice(&[0x20; 32]);
        packet.extend_from_slice(rest);
        packet
    }

    /// A TCP header of 32 bytes (data offset 8) and `payload` bytes.
    fn tcp(payload: usize) -> Vec<u8> {
        let mut segment = vec![0; 32 + payload];
        segment[12] = 0x80;
        segment
    }

    const PARTIAL_TCP4: ChecksumState = ChecksumState::Partial { start: 20, offset: 16 };

    #[test]
    fn parse_and_emit_are_inverse_and_native_endian() {
        let header = VnetHeader {
            flags: 1,
            gso_type: 0x81,
            header_bytes: 52,
            gso_bytes: 1448,
            checksum_start: 20,
            checksum_offset: 16,
        };
        let bytes = header.emit();
        assert_eq!(bytes[0..2], [1, 0x81]);
        assert_eq!(bytes[4..6], 1448u16.to_ne_bytes());
        assert_eq!(VnetHeader::parse(bytes), header);
    }

    #[test]
    fn a_plain_packet_has_an_all_zero_header() {
        let header = VnetHeader::from_offload(Offload::default(), &ipv4(17, &[0; 8]));
        assert_eq!(header.emit(), [0; 10]);
        assert_eq!(header.into_offload(&mut ipv4(17, &[0; 8])), Ok(Offload::default()));
    }

    #[test]
    fn a_tcp_super_packet_keeps_its_type_with_the_ip_version() {
        let offload = Offload { segmentation: Segmentation::Tcp { size: 1448, ecn: true }, checksum: PARTIAL_TCP4 };
        let header = VnetHeader::from_offload(offload, &ipv4(6, &tcp(9000)));
        assert_eq!((header.flags, header.gso_type), (1, 0x81));
        assert_eq!((header.header_bytes, header.gso_bytes), (52, 1448));
        assert_eq!(header.into_offload(&mut ipv4(6, &tcp(9000))), Ok(offload));

        let offload = Offload {
            segmentation: Segmentation::Tcp { size: 1428, ecn: false },
            checksum: ChecksumState::Partial { start: 40, offset: 16 },
        };
        let header = VnetHeader::from_offload(offload, &ipv6(6, &tcp(9000)));
        assert_eq!((header.gso_type, header.header_bytes), (4, 72));
        assert_eq!(header.into_offload(&mut ipv6(6, &tcp(9000))), Ok(offload));
    }

    #[test]
    fn udp_segmentation_has_one_type_for_both_ip_versions() {
        let offload = Offload {
            segmentation: Segmentation::Udp { size: 1200 },
            checksum: ChecksumState::Partial { start: 40, offset: 6 },
        };
        let header = VnetHeader::from_offload(offload, &ipv6(17, &[0; 5000]));
        assert_eq!((header.gso_type, header.header_bytes, header.gso_bytes), (5, 48, 1200));
        assert_eq!(header.into_offload(&mut ipv6(17, &[0; 5000])), Ok(offload));
    }

    #[test]
    fn a_partial_checksum_behind_extension_headers_stays_partial() {
        let mut rest = vec![17, 0, 1, 4, 0, 0, 0, 0];
        rest.extend_from_slice(&[0; 12]);
        let header = VnetHeader { flags: 1, checksum_start: 48, checksum_offset: 6, ..VnetHeader::default() };
        let offload = header.into_offload(&mut ipv6(60, &rest)).unwrap();
        assert_eq!(offload.checksum, ChecksumState::Partial { start: 48, offset: 6 });
    }

    #[test]
    fn a_partial_checksum_of_another_protocol_is_completed() {
        // ICMPv6 echo request: the field holds the sum of a pseudo-header, here 0x1234.
        let mut packet = ipv6(58, &[128, 0, 0x12, 0x34, 0xab, 0xcd, 0, 1, 0xff]);
        let header = VnetHeader { flags: 1, checksum_start: 40, checksum_offset: 2, ..VnetHeader::default() };
        assert_eq!(header.into_offload(&mut packet), Ok(Offload::default()));
        // 0x8000 + 0x1234 + 0xabcd + 0x0001 + 0xff00 = 0x23d02 -> 0x3d04, complemented.
        assert_eq!(packet[42..44], 0xc2fbu16.to_be_bytes());
    }

    #[test]
    fn a_partial_checksum_inside_a_tunnel_is_completed() {
        let inner = ipv4(17, &[0, 1, 0, 2, 0, 8, 0xff, 0xff]);
        let mut packet = ipv6(4, &inner);
        let header = VnetHeader { flags: 1, checksum_start: 60, checksum_offset: 6, ..VnetHeader::default() };
        assert_eq!(header.into_offload(&mut packet), Ok(Offload::default()));
        // 1 + 2 + 8 + 0xffff = 0x1000a -> 0x000b, complemented.
        assert_eq!(packet[66..68], [0xff, 0xf4]);
    }

    #[test]
    fn a_completed_checksum_of_zero_is_written_as_all_ones() {
        let mut packet = ipv4(1, &[0xff, 0xfe, 0, 1]);
        assert_eq!(complete(&mut packet, 20, 2), Some(()));
        assert_eq!(packet[22..24], [0xff, 0xff]);
    }

    #[test]
    fn a_header_that_contradicts_the_packet_is_refused() {
        let outside = VnetHeader { flags: 1, checksum_start: 27, checksum_offset: 6, ..VnetHeader::default() };
        assert_eq!(outside.into_offload(&mut ipv4(1, &[0; 8])), Err(UnknownOffload));
        let unknown = VnetHeader { gso_type: 3, gso_bytes: 1000, ..VnetHeader::default() };
        assert_eq!(unknown.into_offload(&mut ipv4(17, &[0; 8])), Err(UnknownOffload));
        let endless = VnetHeader { gso_type: 1, gso_bytes: 0, ..VnetHeader::default() };
        assert_eq!(endless.into_offload(&mut ipv4(6, &tcp(0))), Err(UnknownOffload));
        let tunnelled = VnetHeader {
            flags: 1,
            gso_type: 1,
            gso_bytes: 1000,
            checksum_start: 60,
            checksum_offset: 16,
            ..VnetHeader::default()
        };
        assert_eq!(tunnelled.into_offload(&mut ipv6(4, &ipv4(6, &tcp(2000)))), Err(UnknownOffload));
    }

    #[test]
    fn no_header_and_no_packet_makes_the_conversion_fail_hard() {
        for length in 0..64 {
            for byte in [0x00, 0x45, 0x4f, 0x60, 0xff] {
                let mut packet = vec![byte; length];
                for gso_type in [0, 1, 4, 5, 0x81, 7] {
                    let header = VnetHeader {
                        flags: 1,
                        gso_type,
                        gso_bytes: 1,
                        checksum_start: u16::from(byte),
                        checksum_offset: 60,
                        ..VnetHeader::default()
                    };
                    if let Ok(offload) = header.into_offload(&mut packet) {
                        let _ = VnetHeader::from_offload(offload, &packet);
                    }
                }
            }
        }
    }
}
