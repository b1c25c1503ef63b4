//! ICMP errors that the gateway originates.
//!
//! Read first: RFC 4443 sections 2.4 and 3, RFC 1812 section 4.3, RFC 1122 section 3.2.2, RFC 7915
//! sections 4.4 and 5.4.
//!
//! The error takes the place of the packet it is about, in the same buffer: that packet's bytes
//! stay where they are and headers are put in front.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{Ipv4Header, Ipv6Header, Protocol, Sum, icmpv4, icmpv6, ipv4, ipv6, write_u16, write_u32};

use super::identification::IdentificationGenerator;
use super::refusal::IcmpAnswer;
use super::screen::{is_illegal_source_ipv4, is_illegal_source_ipv6};
use crate::packet::{Offload, Packet};
use crate::parse::{Obstacle, Parsed, Payload};
use crate::verdict::DropReason;

const ICMP: usize = icmpv4::HEADER_LENGTH;
/// TTL and hop limit of what the gateway sends.
const HOP_LIMIT: u8 = 64;
/// Precedence of ICMPv4 errors: internetwork control (RFC 1812 section 4.3.2.5).
const TOS: u8 = 0xc0;

/// Type, code and bytes 4 to 7 of the ICMPv4 error that says `answer`.
#[must_use]
pub fn answer_ipv4(answer: IcmpAnswer) -> (u8, u8, u32) {
    use icmpv4::{DESTINATION_UNREACHABLE, PARAMETER_PROBLEM, TIME_EXCEEDED, unreachable};
    match answer {
        IcmpAnswer::TimeExceeded => (TIME_EXCEEDED, 0, 0),
        IcmpAnswer::ReassemblyTimeExceeded => (TIME_EXCEEDED, icmpv4::REASSEMBLY_TIME_EXCEEDED, 0),
        IcmpAnswer::TooBig { mtu } => {
            (DESTINATION_UNREACHABLE, unreachable::FRAGMENTATION_NEEDED, mtu.min(u32::from(u16::MAX)))
        }
        IcmpAnswer::HostUnreachable => (DESTINATION_UNREACHABLE, unreachable::HOST, 0),
        IcmpAnswer::PortUnreachable => (DESTINATION_UNREACHABLE, unreachable::PORT, 0),
        IcmpAnswer::ProtocolUnreachable | IcmpAnswer::UnknownNextHeader { .. } => {
            (DESTINATION_UNREACHABLE, unreachable::PROTOCOL, 0)
        }
        IcmpAnswer::Prohibited | IcmpAnswer::SourcePolicy => (DESTINATION_UNREACHABLE, unreachable::PROHIBITED, 0),
        IcmpAnswer::SourceRouteFailed => (DESTINATION_UNREACHABLE, unreachable::SOURCE_ROUTE_FAILED, 0),
        IcmpAnswer::ParameterProblem { pointer } => (PARAMETER_PROBLEM, 0, u32::from(pointer.min(255)) << 24),
    }
}

/// Type, code and bytes 4 to 7 of the ICMPv6 error that says `answer`.
#[must_use]
pub fn answer_ipv6(answer: IcmpAnswer) -> (u8, u8, u32) {
    use icmpv6::{DESTINATION_UNREACHABLE, PACKET_TOO_BIG, PARAMETER_PROBLEM, TIME_EXCEEDED, parameter, unreachable};
    match answer {
        IcmpAnswer::TimeExceeded => (TIME_EXCEEDED, 0, 0),
        IcmpAnswer::ReassemblyTimeExceeded => (TIME_EXCEEDED, icmpv6::REASSEMBLY_TIME_EXCEEDED, 0),
        IcmpAnswer::TooBig { mtu } => (PACKET_TOO_BIG, 0, mtu.max(u32::from(ipv6::MINIMUM_MTU))),
        IcmpAnswer::HostUnreachable => (DESTINATION_UNREACHABLE, unreachable::ADDRESS, 0),
        IcmpAnswer::PortUnreachable | IcmpAnswer::ProtocolUnreachable => {
            (DESTINATION_UNREACHABLE, unreachable::PORT, 0)
        }
        IcmpAnswer::Prohibited | IcmpAnswer::SourceRouteFailed => (DESTINATION_UNREACHABLE, unreachable::PROHIBITED, 0),
        IcmpAnswer::SourcePolicy => (DESTINATION_UNREACHABLE, unreachable::SOURCE_POLICY, 0),
        IcmpAnswer::ParameterProblem { pointer } => (PARAMETER_PROBLEM, parameter::HEADER_FIELD, u32::from(pointer)),
        IcmpAnswer::UnknownNextHeader { pointer } => (PARAMETER_PROBLEM, parameter::NEXT_HEADER, u32::from(pointer)),
    }
}

/// May an IPv4 packet be answered with an error at all? Not an ICMP error, not a fragment other
/// than the first, not what was sent to many, by nobody or by a host that is on another link (RFC 1122 section 3.2.2, RFC 1812 section
/// 4.3.2.7).
#[must_use]
pub fn may_answer_ipv4(parsed: &Parsed<Ipv4Addr>) -> bool {
    parsed.payload != Payload::IcmpError
        && parsed.payload != Payload::Piece
        && !is_illegal_source_ipv4(parsed.source)
        && !is_illegal_source_ipv4(parsed.destination)
        && !parsed.source.is_link_local()
}

/// May an IPv6 packet be answered with an error at all? Not an ICMPv6 error or redirect, not what was
/// sent by nobody, and what was sent to many only with "packet too big" (RFC 4443 section 2.4 (e)).
/// Of the fragments of a datagram one answer is enough, to the first; but what is wrong with a
/// fragment itself is told about that one (RFC 8200 section 4.5).
#[must_use]
pub fn may_answer_ipv6(packet: &Packet<'_>, parsed: &Parsed<Ipv6Addr>, answer: IcmpAnswer) -> bool {
    let is_redirect = parsed.payload == Payload::IcmpOther
        && packet.bytes().get(usize::from(parsed.transport_offset)) == Some(&icmpv6::REDIRECT);
    let is_too_big = matches!(answer, IcmpAnswer::TooBig { .. });
    parsed.payload != Payload::IcmpError
        && (parsed.payload != Payload::Piece || matches!(parsed.obstacle, Some(Obstacle::BadPiece { .. })))
        && !is_redirect
        && !is_illegal_source_ipv6(parsed.source)
        && (is_too_big || !parsed.destination.is_multicast())
}

/// Turns an IPv4 packet into the error about it, from `from`, which is an address of the gateway.
/// The packet must be as it was received. The error has at most 576 bytes (RFC 1812 section
/// 4.3.2.3).
///
/// # Errors
/// [`DropReason::NoHeadroom`].
pub fn reply_ipv4(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    from: Ipv4Addr,
    answer: IcmpAnswer,
    identifications: &mut IdentificationGenerator,
) -> Result<(), DropReason> {
    const LARGEST: usize = 576;
    prepend_error(packet, ipv4::HEADER_LENGTH, LARGEST, answer_ipv4(answer))?;
    let message = &mut packet.bytes_mut()[ipv4::HEADER_LENGTH..];
    let checksum = Sum::ZERO.bytes(message).checksum();
    write_u16(message, icmpv4::CHECKSUM, checksum);
    let header = Ipv4Header {
        tos: TOS,
        total_length: u16::try_from(packet.len()).map_err(|_| DropReason::Malformed)?,
        identification: identifications.next(from, parsed.source, 1),
        fragment_word: 0,
        ttl: HOP_LIMIT,
        protocol: Protocol::ICMP,
        source: from,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    Ok(())
}

/// Turns an IPv6 packet into the error about it, from `from`, which is an address of the gateway.
/// The packet must be as it was received. The error has at most 1280 bytes (RFC 4443 section 2.4
/// (c)).
///
/// # Errors
/// [`DropReason::NoHeadroom`].
pub fn reply_ipv6(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    from: Ipv6Addr,
    answer: IcmpAnswer,
) -> Result<(), DropReason> {
    prepend_error(packet, ipv6::HEADER_LENGTH, ipv6::MINIMUM_MTU.into(), answer_ipv6(answer))?;
    let message = &mut packet.bytes_mut()[ipv6::HEADER_LENGTH..];
    let length = u16::try_from(message.len()).map_err(|_| DropReason::Malformed)?;
    let checksum = ipv6::transport_checksum(from, parsed.source, Protocol::ICMPV6, message);
    write_u16(message, icmpv6::CHECKSUM, checksum);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: length,
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: from,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    Ok(())
}

/// Cuts the packet to what may be quoted, and puts room for an IP header and the ICMP header in
/// front.
fn prepend_error(
    packet: &mut Packet<'_>,
    ip_header: usize,
    largest: usize,
    (kind, code, rest): (u8, u8, u32),
) -> Result<(), DropReason> {
    packet.truncate(largest - ip_header - ICMP);
    packet.prepend(ip_header + ICMP)?;
    packet.offload = Offload::default();
    let header = &mut packet.bytes_mut()[ip_header..ip_header + ICMP];
    header[0] = kind;
    header[1] = code;
    write_u16(header, icmpv4::CHECKSUM, 0);
    write_u32(header, 4, rest);
    Ok(())
}
