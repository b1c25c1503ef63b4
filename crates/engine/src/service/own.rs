//! Packets to the gateway's own addresses, where no interface of the host has them
//! ([`AnsweredBy::Gateway`]): echo requests are answered, everything else is refused.
//!
//! Read first: RFC 1122 section 3.2.2.6, RFC 4443 section 4.2.
//!
//! [`AnsweredBy::Gateway`]: crate::plan::AnsweredBy::Gateway

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{Ipv4Header, Ipv6Header, Protocol, Sum, icmpv4, icmpv6, ipv4, ipv6, write_u16};

use crate::mechanism::offload::complete_checksum;
use crate::mechanism::screen::{is_illegal_source_ipv4, is_illegal_source_ipv6};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::{Outbox, Packet};
use crate::parse::{Parsed, Payload};
use crate::verdict::{DropReason, Verdict};

const HOP_LIMIT: u8 = 64;

/// An IPv4 packet to the gateway.
///
/// # Errors
/// [`Refusal`] of everything but whole echo requests.
pub(crate) fn receive_ipv4(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    outbox: &mut impl Outbox,
) -> Result<Verdict, Refusal> {
    if is_illegal_source_ipv4(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    check(parsed)?;
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
    outbox.send(packet);
    Ok(Verdict::Forward)
}

/// An IPv6 packet to the gateway.
///
/// # Errors
/// As [`receive_ipv4`].
pub(crate) fn receive_ipv6(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    outbox: &mut impl Outbox,
) -> Result<Verdict, Refusal> {
    if is_illegal_source_ipv6(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    check(parsed)?;
    complete_checksum(packet, Protocol::ICMPV6)?;
    packet.strip(parsed.transport_offset.into());
    let length = u16::try_from(packet.len()).map_err(|_| DropReason::Malformed)?;
    let message = packet.bytes_mut();
    message[0] = icmpv6::ECHO_REPLY;
    write_u16(message, icmpv6::CHECKSUM, 0);
    let checksum = ipv6::transport_checksum(parsed.destination, parsed.source, Protocol::ICMPV6, message);
    write_u16(message, icmpv6::CHECKSUM, checksum);
    packet.prepend(ipv6::HEADER_LENGTH)?;
    let header = Ipv6Header {
        traffic_class: parsed.traffic_class,
        flow_label: 0,
        payload_length: length,
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: parsed.destination,
        destination: parsed.source,
    };
    header.emit(packet.bytes_mut());
    outbox.send(packet);
    Ok(Verdict::Forward)
}

/// Nothing but whole echo requests is for the gateway.
fn check<A>(parsed: &Parsed<A>) -> Result<(), Refusal> {
    match parsed.payload {
        _ if parsed.is_piece() => Err(DropReason::FragmentUntranslatable.into()),
        Payload::EchoRequest => Ok(()),
        Payload::Tcp | Payload::Udp => Err(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::PortUnreachable)),
        Payload::Other => Err(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::ProtocolUnreachable)),
        Payload::EchoReply | Payload::IcmpError | Payload::IcmpOther | Payload::Piece => {
            Err(DropReason::IcmpUntranslatable.into())
        }
    }
}
