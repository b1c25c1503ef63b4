//! Packets to the gateway's own addresses, where no interface of the host has them: echo requests
//! are answered, everything else is refused.
//!
//! Read first: RFC 1122 section 3.2.2.6, RFC 4443 section 4.2.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::checksum::{Delta, update};
use tombolo_wire::{Ipv4Header, Ipv6Header, Ipv6View, Protocol, Sum, icmpv4, icmpv6, ipv4, ipv6, read_u16, write_u16};

use super::offload::complete_checksum;
use super::screen::{is_illegal_source_ipv4, is_illegal_source_ipv6};
use super::{IcmpAnswer, Refusal};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// TTL and hop limit of echo replies.
const HOP_LIMIT: u8 = 64;

/// An IPv4 packet to the gateway.
///
/// # Errors
/// [`Refusal`] of everything but whole echo requests, and what [`Outbox::send`](crate::packet::Outbox::send)
/// says.
pub(crate) fn receive_ipv4(parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
    answer_echo_ipv4(&mut work.packet, parsed)?;
    work.outbox.send(&mut work.packet)?;
    Ok(Verdict::EchoReply)
}

/// Turns an ICMPv4 echo request into its reply, as the host that it is addressed to would (RFC 1122
/// section 3.2.2.6). Options do not come back.
///
/// # Errors
/// As [`receive_ipv4`]. The packet is as before if there is an answer.
pub(crate) fn answer_echo_ipv4(packet: &mut Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<(), Refusal> {
    if is_illegal_source_ipv4(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    check(parsed, IcmpAnswer::ProtocolUnreachable)?;
    complete_checksum(packet, Protocol::ICMP)?;
    let message = parsed.transport_offset.into();
    packet.strip(message);
    let bytes = packet.bytes_mut();
    bytes[0] = icmpv4::ECHO_REPLY;
    write_u16(bytes, icmpv4::CHECKSUM, 0);
    let checksum = Sum::ZERO.bytes(bytes).checksum();
    write_u16(bytes, icmpv4::CHECKSUM, checksum);
    packet.prepend(ipv4::HEADER_LENGTH)?;
    let header = Ipv4Header {
        tos: parsed.traffic_class,
        total_length: u16::try_from(packet.len()).map_err(|_| DropReason::Malformed)?,
        identification: 0,
        fragment_word: ipv4::DF,
        ttl: HOP_LIMIT,
        protocol: Protocol::ICMP,
        source: parsed.destination,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    Ok(())
}

/// An IPv6 packet to the gateway.
///
/// # Errors
/// As [`receive_ipv4`].
pub(crate) fn receive_ipv6(parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
    if is_illegal_source_ipv6(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    check(parsed, unknown_next_header(&work.packet))?;
    complete_checksum(&mut work.packet, Protocol::ICMPV6)?;
    answer_echo_ipv6(&mut work.packet, parsed)?;
    work.outbox.send(&mut work.packet)?;
    Ok(Verdict::EchoReply)
}

/// Turns an ICMPv6 echo request into its reply, as the host that it is addressed to would (RFC 4443
/// section 4.2). Extension headers do not come back.
///
/// # Errors
/// [`DropReason::IcmpUntranslatable`] for anything else, [`DropReason::IllegalSource`] if nobody
/// could hear the reply, [`DropReason::NoHeadroom`]. The packet is as before.
pub fn answer_echo_ipv6(packet: &mut Packet<'_>, parsed: &Parsed<Ipv6Addr>) -> Result<(), DropReason> {
    if parsed.payload != Payload::EchoRequest || parsed.is_piece() || parsed.obstacle.is_some() {
        return Err(DropReason::IcmpUntranslatable);
    }
    if is_illegal_source_ipv6(parsed.source) {
        return Err(DropReason::IllegalSource);
    }
    let payload_length = u16::try_from(parsed.transport_length()).map_err(|_| DropReason::Malformed)?;
    packet.strip(parsed.transport_offset.into());
    packet.prepend(ipv6::HEADER_LENGTH)?;
    let message = &mut packet.bytes_mut()[ipv6::HEADER_LENGTH..];
    let old = read_u16(message, 0);
    message[0] = icmpv6::ECHO_REPLY;
    // The addresses change places, which their sum does not feel.
    let checksum = update(read_u16(message, icmpv6::CHECKSUM), Delta::of_word(old, read_u16(message, 0)));
    write_u16(message, icmpv6::CHECKSUM, checksum);
    let header = Ipv6Header {
        traffic_class: parsed.traffic_class,
        flow_label: 0,
        payload_length,
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: parsed.destination,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    Ok(())
}

/// What a node says of a next header that it does not know (RFC 8200 section 4).
pub(crate) fn unknown_next_header(packet: &Packet<'_>) -> IcmpAnswer {
    let upper = Ipv6View::parse(packet.bytes()).and_then(Ipv6View::upper_layer);
    let at = upper.map_or(ipv6::NEXT_HEADER, |upper| upper.named_at);
    IcmpAnswer::UnknownNextHeader { pointer: u16::try_from(at).unwrap_or(u16::MAX) }
}

/// Nothing but whole echo requests is for the gateway; `unknown` is the answer to other transports.
/// What the gateway knows but does not follow, and what holds nothing (RFC 8200 section 4.7), gets
/// none.
fn check<A>(parsed: &Parsed<A>, unknown: IcmpAnswer) -> Result<(), Refusal> {
    match parsed.payload {
        _ if parsed.is_piece() => Err(DropReason::FragmentUntranslatable.into()),
        Payload::Other if parsed.obstacle.is_some() || parsed.protocol == Protocol::NO_NEXT_HEADER => {
            Err(DropReason::UnsupportedProtocol.into())
        }
        Payload::EchoRequest => Ok(()),
        Payload::Tcp | Payload::Udp => Err(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::PortUnreachable)),
        Payload::Sctp | Payload::Dccp | Payload::UdpLite | Payload::Other => {
            Err(Refusal::with(DropReason::UnsupportedProtocol, unknown))
        }
        Payload::EchoReply | Payload::IcmpError | Payload::IcmpOther | Payload::Piece => {
            Err(DropReason::IcmpUntranslatable.into())
        }
    }
}
