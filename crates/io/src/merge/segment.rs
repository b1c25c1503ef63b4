//! Which packets may be merged, and where their parts are.
//!
//! Read first: RFC 9293 section 3.1, RFC 3168 section 6.1.2 (CWR).
//!
//! ```text
//! 0                 ip                  headers
//! | IPv4 or IPv6    | TCP with options  | payload
//!       |<---- flow ---->| addresses and ports lie side by side in either
//! ```

use std::ops::Range;

use tombolo_engine::packet::{ChecksumState, Packet, Segmentation};
use tombolo_wire::{Protocol, Sum, TcpFlags, ipv4, ipv6, read_u16, tcp};

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Class {
    /// It may leave with those before it.
    Segment(Segment),
    /// It leaves as it is, behind what is held of its connection. Where in it stand addresses and ports, or
    /// the addresses alone if the ports cannot be told.
    InOrder(Range<usize>),
    /// It leaves as it is, and belongs to no connection of TCP.
    Apart,
}

/// A segment with payload, without options of IP, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Bytes of the IP header.
    pub(super) ip: usize,
    /// Bytes of the IP header and the TCP header.
    pub(super) headers: usize,
}

/// Addresses of IPv4, and of IPv6.
const ADDRESSES: [Range<usize>; 2] = [ipv4::SOURCE..ipv4::HEADER_LENGTH, ipv6::SOURCE..ipv6::HEADER_LENGTH];
/// Both ports.
const PORTS: usize = 4;
/// IPv4, and a header of 20 bytes.
const NO_OPTIONS: u8 = 0x45;

/// What ends a super-packet: it stands in its last segment alone.
pub(super) const LAST: u8 = TcpFlags::PSH.0 | TcpFlags::FIN.0;
/// CWR would stand in the first segment alone, and by Accurate ECN it is a number.
const MERGEABLE: u8 = TcpFlags::ACK.0 | TcpFlags::ECE.0 | LAST;

pub(super) fn classify(packet: &Packet<'_>) -> Class {
    let bytes = packet.bytes();
    match bytes.first().map(|first| first >> 4) {
        Some(4) if bytes.len() >= ipv4::HEADER_LENGTH => classify_ipv4(packet),
        Some(6) if bytes.len() >= ipv6::HEADER_LENGTH => classify_ipv6(packet),
        _ => Class::Apart,
    }
}

fn classify_ipv4(packet: &Packet<'_>) -> Class {
    let bytes = packet.bytes();
    if bytes[ipv4::PROTOCOL] != Protocol::TCP.0 {
        return Class::Apart;
    }
    let is_fragment = read_u16(bytes, ipv4::FRAGMENT_OFFSET) & (ipv4::MF | ipv4::OFFSET_MASK) != 0;
    let is_whole = usize::from(ipv4::read_total_length(bytes)) == bytes.len();
    if bytes[0] != NO_OPTIONS || is_fragment || !is_whole {
        return Class::InOrder(ADDRESSES[0].clone());
    }
    classify_tcp(packet, ipv4::HEADER_LENGTH, &ADDRESSES[0])
}

fn classify_ipv6(packet: &Packet<'_>) -> Class {
    let bytes = packet.bytes();
    match Protocol(bytes[ipv6::NEXT_HEADER]) {
        Protocol::TCP => {}
        Protocol::UDP | Protocol::ICMPV6 | Protocol::IPV4 => return Class::Apart,
        // It may stand behind extension headers.
        _ => return Class::InOrder(ADDRESSES[1].clone()),
    }
    if usize::from(read_u16(bytes, ipv6::PAYLOAD_LENGTH)) != bytes.len() - ipv6::HEADER_LENGTH {
        return Class::InOrder(ADDRESSES[1].clone());
    }
    classify_tcp(packet, ipv6::HEADER_LENGTH, &ADDRESSES[1])
}

fn classify_tcp(packet: &Packet<'_>, ip: usize, addresses: &Range<usize>) -> Class {
    let Some(header) = packet.bytes()[ip..].first_chunk::<{ tcp::HEADER_LENGTH }>() else {
        return Class::InOrder(addresses.clone());
    };
    let in_order = Class::InOrder(addresses.start..addresses.end + PORTS);
    let length = usize::from(header[tcp::DATA_OFFSET] >> 4) * 4;
    let flags = header[tcp::FLAGS];
    let is_mergeable = flags & !MERGEABLE == 0 && flags & TcpFlags::ACK.0 != 0;
    let has_payload = length >= tcp::HEADER_LENGTH && ip + length < packet.len();
    let checksum_is_told = match packet.offload.checksum {
        ChecksumState::Complete => true,
        ChecksumState::Partial { start, offset } => usize::from(start) == ip && usize::from(offset) == tcp::CHECKSUM,
    };
    if !is_mergeable || !has_payload || !checksum_is_told || packet.offload.segmentation != Segmentation::None {
        return in_order;
    }
    Class::Segment(Segment { ip, headers: ip + length })
}

impl Segment {
    /// Addresses and ports, as they stand in the packet.
    pub(super) fn flow(self, bytes: &[u8]) -> &[u8] {
        let addresses = &ADDRESSES[usize::from(self.ip == ipv6::HEADER_LENGTH)];
        &bytes[addresses.start..addresses.end + PORTS]
    }

    pub(super) fn is_ipv4(self) -> bool {
        self.ip == ipv4::HEADER_LENGTH
    }

    /// True if no other segment may follow it in a super-packet.
    pub(super) fn is_last(self, bytes: &[u8]) -> bool {
        bytes[self.ip + tcp::FLAGS] & LAST != 0
    }

    /// True if the checksums are those that whoever cuts a super-packet computes: a damaged segment must
    /// not be repaired. One's complement has two zeros, so a checksum of zero can be written
    /// in two ways; Linux writes either, and so such a segment leaves alone.
    pub(super) fn has_expected_checksums(self, bytes: &[u8], state: ChecksumState) -> bool {
        const AMBIGUOUS: [u16; 2] = [0, 0xffff];

        let (ip, transport) = bytes.split_at(self.ip);
        let header_is_right =
            !self.is_ipv4() || Sum::ZERO.bytes(ip).verifies() && read_u16(ip, ipv4::CHECKSUM) != 0xffff;
        let transport_is_right = state != ChecksumState::Complete
            || !AMBIGUOUS.contains(&read_u16(transport, tcp::CHECKSUM))
                && self.pseudo_header(bytes, transport.len()).bytes(transport).verifies();
        header_is_right && transport_is_right
    }

    /// The sum of the pseudo-header of a segment whose transport is `length` bytes long.
    pub(super) fn pseudo_header(self, bytes: &[u8], length: usize) -> Sum {
        let addresses = &ADDRESSES[usize::from(!self.is_ipv4())];
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Sum::ZERO.bytes(&bytes[addresses.clone()]).word(Protocol::TCP.0.into()).double_word(length)
    }
}
