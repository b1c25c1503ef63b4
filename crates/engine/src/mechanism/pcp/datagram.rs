//! A request out of its packet, and the response in one of its own.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::checksum::udp_checksum;
use tombolo_wire::{Ipv4Header, Ipv6Header, Protocol, UdpHeader, UdpView, ipv4, ipv6, pcp, udp, write_u16};

use super::respond::Client;
use crate::mechanism::Refusal;
use crate::packet::{ChecksumState, HEADROOM, Offload, Packet, Segmentation};
use crate::parse::{Parsed, Payload};
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// TTL and hop limit of responses.
const HOP_LIMIT: u8 = 64;
/// Bytes of the longest response with its headers.
pub(crate) const LONGEST_DATAGRAM: usize = ipv6::HEADER_LENGTH + udp::HEADER_LENGTH + pcp::LONGEST;

/// True if the packet is sent to a server of PCP.
#[inline]
pub(crate) fn is_request<A>(parsed: &Parsed<A>) -> bool {
    parsed.payload == Payload::Udp && parsed.destination_port == pcp::SERVER_PORT
}

/// The response to the request at hand, from the address that it was sent to, and what is to be counted.
///
/// # Errors
/// [`DropReason::Malformed`], [`DropReason::BadChecksum`], if it gets none.
pub(crate) fn respond_ipv4<'b>(
    client: &Client<'_>,
    parsed: &Parsed<Ipv4Addr>,
    work: &mut Work<'_>,
    buffer: &'b mut [u8; HEADROOM + LONGEST_DATAGRAM],
) -> Result<(Verdict, Packet<'b>), Refusal> {
    let (from, to) = (parsed.destination, parsed.source);
    let sum = |datagram: &[u8]| ipv4::transport_checksum(to, from, Protocol::UDP, datagram);
    let message = message(&work.packet, parsed, sum, IsOptional::Yes)?;
    let mut response = [0; pcp::LONGEST];
    let (verdict, length) = respond(client, &message, work, &mut response)?;
    let length = emit_udp(&mut buffer[HEADROOM + ipv4::HEADER_LENGTH..], parsed, &response[..length], |datagram| {
        ipv4::transport_checksum(from, to, Protocol::UDP, datagram)
    })?;
    let header = Ipv4Header {
        tos: parsed.traffic_class,
        total_length: u16::try_from(ipv4::HEADER_LENGTH + length).map_err(|_| DropReason::Malformed)?,
        identification: 0,
        fragment_word: ipv4::DF,
        ttl: HOP_LIMIT,
        protocol: Protocol::UDP,
        source: from,
        destination: to,
    };
    header.emit(&mut buffer[HEADROOM..]);
    packet(buffer, ipv4::HEADER_LENGTH + length).map(|packet| (verdict, packet))
}

/// As [`respond_ipv4`].
///
/// # Errors
/// As [`respond_ipv4`].
pub(crate) fn respond_ipv6<'b>(
    client: &Client<'_>,
    parsed: &Parsed<Ipv6Addr>,
    work: &mut Work<'_>,
    buffer: &'b mut [u8; HEADROOM + LONGEST_DATAGRAM],
) -> Result<(Verdict, Packet<'b>), Refusal> {
    let (from, to) = (parsed.destination, parsed.source);
    let sum = |datagram: &[u8]| ipv6::transport_checksum(to, from, Protocol::UDP, datagram);
    let message = message(&work.packet, parsed, sum, IsOptional::No)?;
    let mut response = [0; pcp::LONGEST];
    let (verdict, length) = respond(client, &message, work, &mut response)?;
    let length = emit_udp(&mut buffer[HEADROOM + ipv6::HEADER_LENGTH..], parsed, &response[..length], |datagram| {
        ipv6::transport_checksum(from, to, Protocol::UDP, datagram)
    })?;
    let header = Ipv6Header {
        traffic_class: parsed.traffic_class,
        flow_label: 0,
        payload_length: u16::try_from(length).map_err(|_| DropReason::Malformed)?,
        next_header: Protocol::UDP,
        hop_limit: HOP_LIMIT,
        source: from,
        destination: to,
    };
    header.emit(&mut buffer[HEADROOM..]);
    packet(buffer, ipv6::HEADER_LENGTH + length).map(|packet| (verdict, packet))
}

/// Whether a datagram may come without a checksum: with IPv4 alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsOptional {
    Yes,
    No,
}

/// What the datagram at hand carries. One byte more than a message may have is enough to see that it is too
/// long.
fn message<A>(
    packet: &Packet<'_>,
    parsed: &Parsed<A>,
    sum: impl Fn(&[u8]) -> u16,
    without: IsOptional,
) -> Result<Message, DropReason> {
    if parsed.is_piece() || packet.offload.segmentation != Segmentation::None {
        return Err(DropReason::Malformed);
    }
    let datagram = packet.bytes().get(usize::from(parsed.transport_offset)..).ok_or(DropReason::Malformed)?;
    let length = usize::from(UdpView::parse(datagram).map_err(|_| DropReason::Malformed)?.length());
    let datagram = datagram.get(..length).ok_or(DropReason::Malformed)?;
    let view = UdpView::parse(datagram).map_err(|_| DropReason::Malformed)?;
    let is_checked = match (packet.offload.checksum, view.checksum(), without) {
        // A host on this machine has sent it: nothing has been damaged on any link.
        (ChecksumState::Partial { .. }, ..) | (_, 0, IsOptional::Yes) => true,
        (_, 0, IsOptional::No) => false,
        // What is summed with its checksum gives none.
        _ => sum(datagram) == 0,
    };
    if !is_checked {
        return Err(DropReason::BadChecksum);
    }
    let mut message = Message { bytes: [0; pcp::LONGEST + 4], length: 0 };
    message.length = view.payload().len().min(message.bytes.len());
    message.bytes[..message.length].copy_from_slice(&view.payload()[..message.length]);
    Ok(message)
}

/// A message, copied out of its packet.
struct Message {
    bytes: [u8; pcp::LONGEST + 4],
    length: usize,
}

fn respond(
    client: &Client<'_>,
    message: &Message,
    work: &mut Work<'_>,
    response: &mut [u8; pcp::LONGEST],
) -> Result<(Verdict, usize), DropReason> {
    let (answered, length) =
        client.respond(&message.bytes[..message.length], work, response).ok_or(DropReason::Malformed)?;
    work.notes.add("RFC 6887", || {
        let opcode = answered.opcode.map_or("other", pcp::Opcode::name);
        format!("a request of PCP, {opcode}: {}", answered.code.name())
    });
    Ok((Verdict::Pcp(answered), length))
}

/// Writes the datagram back to the sender of `parsed`; says how many bytes it is.
fn emit_udp<A>(
    bytes: &mut [u8],
    parsed: &Parsed<A>,
    message: &[u8],
    sum: impl Fn(&[u8]) -> u16,
) -> Result<usize, DropReason> {
    let length = udp::HEADER_LENGTH + message.len();
    let datagram = bytes.get_mut(..length).ok_or(DropReason::NoHeadroom)?;
    let header = UdpHeader {
        source_port: parsed.destination_port,
        destination_port: parsed.source_port,
        length: u16::try_from(length).map_err(|_| DropReason::Malformed)?,
        checksum: 0,
    };
    header.emit(datagram);
    datagram[udp::HEADER_LENGTH..].copy_from_slice(message);
    let checksum = udp_checksum(sum(datagram));
    write_u16(datagram, udp::CHECKSUM, checksum);
    Ok(length)
}

fn packet(buffer: &mut [u8], length: usize) -> Result<Packet<'_>, Refusal> {
    Packet::new(buffer, HEADROOM, length, Offload::default()).ok_or(Refusal::from(DropReason::NoHeadroom))
}
