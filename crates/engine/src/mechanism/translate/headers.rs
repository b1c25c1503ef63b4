//! IPv4 to IPv6 and back: the headers of whole packets and fragments, in place.
//!
//! Read first: RFC 7915 sections 4.1 and 5.1, then 1.4 and 4 on sizes.
//!
//! ```text
//! 4to6:  | IPv4 20..60 | transport ...      ->   | IPv6 40 | (Fragment 8) | transport ...
//! 6to4:  | IPv6 40 | extensions | transport ...   ->             | IPv4 20 | transport ...
//! ```
//!
//! The head moves, the payload stays. Super-packets (GSO) are translated whole and keep their
//! segmentation; sizes are judged by the segments they will become. Partial checksums stay partial.
//!
//! Not here: which packets may be translated ([`screen`](crate::mechanism::screen)), and ICMP
//! errors.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{FragmentHeader, Ipv4Header, Ipv6Header, Protocol, Sum, TcpFlags, ipv4, ipv6};

use super::mtu::clamp_segment_size;
use super::settings::{Rewrite, TranslateSettings, UdpZeroChecksum};
use super::transport::{self, Change};
use crate::mechanism::identification::IdentificationGenerator;
use crate::mechanism::offload::{complete_checksum, segment_count, size_on_wire, tcp_header_length};
use crate::mechanism::{IcmpAnswer, Refusal, fragment};
use crate::packet::{ChecksumState, Outbox, Packet, Segmentation};
use crate::parse::{Fragment, Parsed, Payload};
use crate::verdict::DropReason;

/// Bytes that IPv6 needs more than IPv4, headers without options or extensions.
const HEADER_DIFFERENCE: u32 = 20;
/// Bytes in front of the payload of an IPv6 fragment.
const FRAGMENT_HEADERS: u32 = 48;
/// Largest IPv4 packet that leaves without DF when its IPv6 original was whole (RFC 7915 section
/// 5.1).
pub(super) const LARGEST_WITHOUT_DF: usize = 1260;

/// How a translated packet is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Translated {
    /// As it is.
    Whole,
    /// In fragments of at most `limit` bytes.
    Fragments {
        /// Bytes of the largest fragment, IP header included.
        limit: u32,
        /// Identification for IPv6 fragments; IPv4 packets have theirs in the header.
        identification: u32,
    },
}

impl Translated {
    /// Sends the packet, in fragments if it has to be.
    ///
    /// # Errors
    /// As [`fragment::send_fragments`] and [`Outbox::send`].
    #[inline]
    pub fn send<O: Outbox + ?Sized>(self, packet: &mut Packet<'_>, outbox: &mut O) -> Result<(), DropReason> {
        match self {
            Self::Whole => outbox.send(packet),
            Self::Fragments { limit, identification } => {
                fragment::send_fragments(packet, limit, identification, outbox)
            }
        }
    }
}

/// Translates an IPv4 packet, `parsed` from it, to IPv6 in place. The packet is ruined if the
/// result is an error other than [`DropReason::TooBig`] and [`DropReason::UdpChecksumZero`].
///
/// # Errors
/// [`Refusal`]: too big with DF set (RFC 7915 section 4.1), ICMP that is no echo or is a fragment, UDP without checksum
/// where settings or fragmentation forbid it.
#[inline]
pub fn translate_4to6(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    to: &Rewrite<Ipv6Addr>,
    settings: &TranslateSettings,
) -> Result<Translated, Refusal> {
    let piece = parsed.fragment.filter(|fragment| fragment.is_piece());
    let header_length = if piece.is_some() { 48 } else { ipv6::HEADER_LENGTH };
    let translated = fit_4to6(packet, parsed, header_length, settings)?;

    let change = Change {
        old_addresses: Sum::ZERO.ipv4(parsed.source).ipv4(parsed.destination),
        new_addresses: Sum::ZERO.ipv6(to.source).ipv6(to.destination),
        source_port: to.source_port,
        destination_port: to.destination_port,
    };
    rewrite_payload(packet, parsed, &change, settings.udp_zero_4to6, Direction::To6).map_err(refuse)?;
    clamp(packet, parsed, settings.largest_segment);
    replace_header(packet, parsed.transport_offset, header_length)?;
    emit_ipv6(packet, parsed, to, settings, piece);
    Ok(translated)
}

/// Decides by the size that the packet will have.
#[inline]
fn fit_4to6(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    header_length: usize,
    settings: &TranslateSettings,
) -> Result<Translated, Refusal> {
    let transport = &packet.bytes()[usize::from(parsed.transport_offset)..];
    let size = size_on_wire(packet.offload.segmentation, header_length, transport) as u64;
    let next_hop = settings.ipv6_mtu.max(ipv6::MINIMUM_MTU.into());
    if parsed.dont_fragment {
        if size <= u64::from(next_hop) {
            return Ok(Translated::Whole);
        }
        // RFC 7915 forgets the Fragment header; a fragment that was told M - 20 would be too big
        // again.
        let fragment_header = if parsed.is_piece() { 8 } else { 0 };
        let mtu = next_hop - HEADER_DIFFERENCE - fragment_header;
        return Err(Refusal::with(DropReason::TooBig, IcmpAnswer::TooBig { mtu }));
    }
    let limit = next_hop.min(largest_without_df(parsed, settings));
    if size <= u64::from(limit) {
        return Ok(Translated::Whole);
    }
    let identification = parsed.fragment.map_or(0, |fragment| fragment.identification);
    Ok(shrink_or_fragment(packet, parsed.transport_offset, header_length, limit, identification))
}

/// Bytes of the largest IPv6 packet or fragment that an IPv4 packet without DF may become. A datagram that came in fragments
/// and was reassembled here becomes fragments that are no larger: its sender may have heard that the path takes no more.
#[inline]
fn largest_without_df(parsed: &Parsed<Ipv4Addr>, settings: &TranslateSettings) -> u32 {
    let as_it_came = match parsed.largest_piece {
        0 => u32::MAX,
        payload => FRAGMENT_HEADERS + u32::from(payload),
    };
    settings.lowest_ipv6_mtu.min(as_it_came).max(ipv6::MINIMUM_MTU.into())
}

/// A TCP super-packet may be cut into smaller segments than its sender asked for. Datagrams may
/// not; theirs are cut first, and then fragmented.
pub(crate) fn shrink_or_fragment(
    packet: &mut Packet<'_>,
    transport_offset: u16,
    header_length: usize,
    limit: u32,
    identification: u32,
) -> Translated {
    let transport = &packet.bytes()[usize::from(transport_offset)..];
    let room = (limit as usize).saturating_sub(header_length + tcp_header_length(transport));
    match &mut packet.offload.segmentation {
        Segmentation::Tcp { size, .. } if room > 0 => {
            *size = (*size).min(u16::try_from(room).unwrap_or(u16::MAX));
            Translated::Whole
        }
        _ => Translated::Fragments { limit, identification },
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an IPv4 payload has at most 65515 bytes, a Fragment header 8")]
fn emit_ipv6(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    to: &Rewrite<Ipv6Addr>,
    settings: &TranslateSettings,
    piece: Option<Fragment>,
) {
    let payload_length = (packet.len() - ipv6::HEADER_LENGTH) as u16;
    let protocol = protocol_4to6(parsed.protocol);
    let header = Ipv6Header {
        traffic_class: settings.traffic_class_4to6.apply(parsed.traffic_class),
        flow_label: 0,
        payload_length,
        next_header: if piece.is_some() { Protocol::IPV6_FRAGMENT } else { protocol },
        hop_limit: parsed.hop_limit.saturating_sub(1),
        source: to.source,
        destination: to.destination,
    };
    header.emit(packet.bytes_mut());
    if let Some(Fragment { identification, offset, more }) = piece {
        let header =
            FragmentHeader { header_offset: ipv6::HEADER_LENGTH, next_header: protocol, offset, more, identification };
        header.emit(packet.bytes_mut());
    }
}

/// ICMP gets its other number, everything else keeps its own (RFC 7915 section 4.1).
#[must_use]
#[inline]
pub(super) const fn protocol_4to6(protocol: Protocol) -> Protocol {
    match protocol {
        Protocol::ICMP => Protocol::ICMPV6,
        other => other,
    }
}

/// Translates an IPv6 packet, `parsed` from it, to IPv4 in place. The packet is ruined if the
/// result is an error other than [`DropReason::TooBig`] and [`DropReason::UdpChecksumZero`].
///
/// # Errors
/// [`Refusal`]: too big for the IPv4 link (RFC 7915 section 5.1.1), ICMPv6 that is no echo or is a fragment, UDP without
/// checksum where settings forbid it.
#[inline]
pub fn translate_6to4(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    to: &Rewrite<Ipv4Addr>,
    settings: &TranslateSettings,
    identifications: &mut IdentificationGenerator,
) -> Result<Translated, Refusal> {
    let size = size_6to4(packet, parsed);
    let translated = fit_6to4(packet, parsed, size, settings)?;

    let change = Change {
        old_addresses: Sum::ZERO.ipv6(parsed.source).ipv6(parsed.destination),
        new_addresses: Sum::ZERO.ipv4(to.source).ipv4(to.destination),
        source_port: to.source_port,
        destination_port: to.destination_port,
    };
    rewrite_payload(packet, parsed, &change, settings.udp_zero_6to4, Direction::To4).map_err(refuse)?;
    clamp(packet, parsed, settings.largest_segment);
    // A source that gets a port of its own is shared by hosts that know nothing of each other's
    // identifications: it gets new ones (RFC 6864 section 5.3.1).
    let is_shared = to.source_port.is_some();
    let (identification, fragment_word) = match parsed.fragment {
        Some(fragment) if !is_shared || fragment.is_piece() => fragment_fields_6to4(fragment),
        fragment => {
            let segments = segment_count(packet.offload.segmentation, packet.len());
            let segments = u16::try_from(segments).unwrap_or(u16::MAX);
            let identification = identifications.next(to.source, to.destination, segments);
            let may_be_fragmented = fragment.is_some() || size <= LARGEST_WITHOUT_DF;
            (identification, if may_be_fragmented { 0 } else { ipv4::DF })
        }
    };
    replace_header(packet, parsed.transport_offset, ipv4::HEADER_LENGTH)?;
    let header = Ipv4Header {
        tos: settings.traffic_class_6to4.apply(parsed.traffic_class),
        total_length: u16::try_from(packet.len()).map_err(|_| DropReason::TooBig)?,
        identification,
        fragment_word,
        ttl: parsed.hop_limit.saturating_sub(1),
        protocol: protocol_6to4(parsed.protocol),
        source: to.source,
        destination: to.destination,
    };
    header.emit(packet.bytes_mut());
    Ok(translated)
}

/// Bytes that the IPv4 packet will have, or the largest segment of it.
#[inline]
fn size_6to4(packet: &Packet<'_>, parsed: &Parsed<Ipv6Addr>) -> usize {
    let transport = &packet.bytes()[usize::from(parsed.transport_offset)..];
    size_on_wire(packet.offload.segmentation, ipv4::HEADER_LENGTH, transport)
}

/// An IPv6 packet of up to 1280 bytes has to get through; a larger one has a sender that can make
/// it smaller, though never smaller than 1280 (RFC 7915 sections 1.4 and 5.1.1, RFC 8021). A
/// datagram that came in fragments and was reassembled here may leave in fragments, whatever its
/// size.
#[inline]
fn fit_6to4(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    size: usize,
    settings: &TranslateSettings,
) -> Result<Translated, Refusal> {
    let next_hop = settings.ipv4_mtu;
    let whole = packet.len() - usize::from(parsed.transport_offset) + ipv4::HEADER_LENGTH;
    if size <= next_hop as usize && whole <= usize::from(u16::MAX) {
        return Ok(Translated::Whole);
    }
    let removed = usize::from(parsed.transport_offset) - ipv4::HEADER_LENGTH;
    let may_fragment = !parsed.dont_fragment || size + removed <= usize::from(ipv6::MINIMUM_MTU);
    if may_fragment && whole <= usize::from(u16::MAX) {
        return Ok(shrink_or_fragment(packet, parsed.transport_offset, ipv4::HEADER_LENGTH, next_hop, 0));
    }
    let mtu = (next_hop + HEADER_DIFFERENCE).max(ipv6::MINIMUM_MTU.into());
    Err(Refusal::with(DropReason::TooBig, IcmpAnswer::TooBig { mtu }))
}

/// A Fragment header, even that of an atomic fragment, clears DF and gives the lower half of its
/// identification (RFC 7915 section 5.1.1), unless the new source is shared.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the RFC wants the low-order 16 bits")]
pub(super) const fn fragment_fields_6to4(fragment: Fragment) -> (u16, u16) {
    let more = if fragment.more { ipv4::MF } else { 0 };
    (fragment.identification as u16, fragment.offset | more)
}

/// The reverse of [`protocol_4to6`].
#[must_use]
#[inline]
pub(super) const fn protocol_6to4(protocol: Protocol) -> Protocol {
    match protocol {
        Protocol::ICMPV6 => Protocol::ICMP,
        other => other,
    }
}

/// A datagram without checksum is refused with "administratively prohibited" (RFC 7915 sections 4.4
/// and 4.5): it is as it was received.
fn refuse(reason: DropReason) -> Refusal {
    match reason {
        DropReason::UdpChecksumZero => Refusal::with(reason, IcmpAnswer::Prohibited),
        _ => reason.into(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    To6,
    To4,
}

/// Brings the transport header in line with the new addresses and ports.
#[inline]
fn rewrite_payload<A>(
    packet: &mut Packet<'_>,
    parsed: &Parsed<A>,
    change: &Change,
    zero: UdpZeroChecksum,
    direction: Direction,
) -> Result<(), DropReason> {
    if matches!(parsed.protocol, Protocol::ICMP | Protocol::ICMPV6) {
        return rewrite_icmp(packet, parsed, change, direction);
    }
    let state = packet.offload.checksum;
    let whole = !parsed.is_piece();
    let transport = &mut packet.bytes_mut()[usize::from(parsed.transport_offset)..];
    match parsed.payload {
        Payload::Tcp => transport::rewrite_tcp(transport, change, state),
        Payload::Udp => transport::rewrite_udp(transport, change, state, zero, whole)?,
        Payload::Sctp => transport::rewrite_sctp(transport, change, whole.then(|| parsed.transport_length())),
        Payload::Dccp => transport::rewrite_dccp(transport, change),
        Payload::UdpLite => transport::rewrite_udp_lite(transport, change),
        _ => {}
    }
    Ok(())
}

/// Lowers the segment size that a SYN announces, if it has to be lowered. The IP header is still
/// the one that came.
#[inline]
pub(crate) fn clamp<A>(packet: &mut Packet<'_>, parsed: &Parsed<A>, largest: Option<u16>) {
    if let Some(largest) = largest
        && parsed.tcp_flags.contains(TcpFlags::SYN)
        && parsed.payload == Payload::Tcp
    {
        let state = packet.offload.checksum;
        clamp_segment_size(&mut packet.bytes_mut()[usize::from(parsed.transport_offset)..], largest, state);
    }
}

fn rewrite_icmp<A>(
    packet: &mut Packet<'_>,
    parsed: &Parsed<A>,
    change: &Change,
    direction: Direction,
) -> Result<(), DropReason> {
    if parsed.is_piece() {
        // The checksum of ICMPv6 covers the length of the whole message, which no fragment knows
        // (RFC 7915 section 1.2).
        return Err(DropReason::FragmentUntranslatable);
    }
    if !matches!(parsed.payload, Payload::EchoRequest | Payload::EchoReply) {
        return Err(DropReason::IcmpUntranslatable);
    }
    complete_checksum(packet, parsed.protocol)?;
    let length = parsed.transport_length();
    let transport = &mut packet.bytes_mut()[usize::from(parsed.transport_offset)..];
    match direction {
        Direction::To6 => transport::rewrite_echo_4to6(transport, change, length),
        Direction::To4 => transport::rewrite_echo_6to4(transport, change, length),
    }
    Ok(())
}

/// Takes `old` bytes of headers away and makes room for `new`; the start of a partial checksum
/// moves with them.
#[inline]
fn replace_header(packet: &mut Packet<'_>, old: u16, new: usize) -> Result<(), DropReason> {
    if let ChecksumState::Partial { start, .. } = &mut packet.offload.checksum {
        let moved = (usize::from(*start) + new).checked_sub(usize::from(old)).ok_or(DropReason::Malformed)?;
        *start = u16::try_from(moved).map_err(|_| DropReason::Malformed)?;
    }
    packet.strip(old.into());
    packet.prepend(new)
}
