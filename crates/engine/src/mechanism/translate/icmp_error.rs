//! ICMP errors: the message and the packet inside it, from one protocol to the other.
//!
//! Read first: RFC 7915 sections 4.2, 4.3, 5.2 and 5.3; RFC 4884 section 5; RFC 6791.
//!
//! ```text
//! | IPv4 | ICMP 8 | IPv4 of the packet in error | transport, maybe cut | (padding, extension)
//! | IPv6 | ICMPv6 8 | IPv6 (Fragment) ...       | transport, maybe cut | (padding, extension)
//! ```
//!
//! Errors are rare and short, so the result is built in a buffer on the stack and copied
//! back. The checksum of the message is verified first and computed anew at the end, or a damaged
//! error would become a right one. The packet inside is translated like any other, but its hop
//! limit and its size were somebody else's business, and its length fields keep describing the
//! original.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{
    FragmentHeader, Icmpv4View, Icmpv6View, Ipv4Header, Ipv6Header, Protocol, Sum, ipv4, ipv6, write_u16,
};

use super::extension::{Layout, append_node, lay_out, node_length, split_body};
use super::headers::{LARGEST_WITHOUT_DF, fragment_fields_6to4, protocol_4to6, protocol_6to4};
use super::icmp::{IcmpTarget, map_error_4to6, map_error_6to4};
use super::mtu::{GROWTH, GROWTH_OF_FRAGMENT};
use super::settings::{Rewrite, TranslateSettings};
use super::transport::{self, Change, pseudo_icmpv6};
use crate::mechanism::identification::IdentificationGenerator;
use crate::packet::{ChecksumState, Offload, Packet};
use crate::parse::{Obstacle, Parsed, Payload};
use crate::verdict::DropReason;

const ICMP: usize = tombolo_wire::icmpv4::HEADER_LENGTH;
/// An ICMPv6 error is never larger (RFC 4443 section 2.4 (c)).
const LARGEST_V6: usize = ipv6::MINIMUM_MTU as usize;
/// An ICMPv4 error should not be larger (RFC 1812 section 4.3.2.3).
const LARGEST_V4: usize = 576;

/// What an ICMP error gets: addresses of its own, and everything that the packet inside it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorRewrite<A> {
    /// New source address.
    pub source: A,
    /// New destination address.
    pub destination: A,
    /// Addresses and ports of the embedded packet, in its own sense of source and destination.
    pub embedded: Rewrite<A>,
    /// 6to4: the address of the router that sent the error, to be added as an extension if it has
    /// no IPv4 address of its own and `source` is that of a pool (RFC 6791 section 3). RFC 5837
    /// wants the address family of the packet in error; RFC 6791 asks for this all the same, so it
    /// is optional.
    pub node: Option<Ipv6Addr>,
}

impl<A> ErrorRewrite<A> {
    /// True if other nodes use the source as well: it stands for a node that has none of its own,
    /// or the host that the packet inside was for had to be told by the port.
    const fn shares_source(&self) -> bool {
        self.node.is_some() || self.embedded.destination_port.is_some()
    }
}

/// Translates an ICMPv4 error in place. `embedded` is the packet in it, from [`Parsed::embedded`].
///
/// # Errors
/// [`DropReason::IcmpUntranslatable`], [`DropReason::BadChecksum`],
/// [`DropReason::FragmentUntranslatable`], [`DropReason::IcmpErrorUnusable`] for an error about an
/// error, [`DropReason::NoHeadroom`].
pub fn translate_error_4to6(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    embedded: &Parsed<Ipv4Addr>,
    to: &ErrorRewrite<Ipv6Addr>,
    settings: &TranslateSettings,
) -> Result<(), DropReason> {
    let message = message_of(packet, parsed, embedded)?;
    let view = Icmpv4View::parse(message).map_err(|_| DropReason::Malformed)?;
    let target = map_error_4to6(view.kind(), view.code(), view.rest_of_header(), embedded.length, settings)?;
    if packet.offload.checksum == ChecksumState::Complete && !Sum::ZERO.bytes(message).verifies() {
        return Err(DropReason::BadChecksum);
    }
    let (region, extension) = split_body(view.body(), length_attribute_v4(view), 4);

    let mut out = [0; LARGEST_V6];
    let body = ipv6::HEADER_LENGTH + ICMP;
    let present = embed_ipv6(&mut out[body..], region, embedded, &to.embedded, settings)?;
    let extension = if target.may_carry_extension { extension } else { &[] };
    let layout = lay_out(LARGEST_V6 - body, present, extension.len(), 8);
    let end = finish_body(&mut out, body, layout, extension);

    write_icmp_header(&mut out[ipv6::HEADER_LENGTH..], target, target.rest | u32::from(layout.length) << 24);
    let header = Ipv6Header {
        traffic_class: settings.traffic_class_4to6.apply(parsed.traffic_class),
        flow_label: 0,
        payload_length: narrow(end - ipv6::HEADER_LENGTH)?,
        next_header: Protocol::ICMPV6,
        hop_limit: parsed.hop_limit.saturating_sub(1),
        source: to.source,
        destination: to.destination,
    };
    header.emit(&mut out);
    let message = &mut out[ipv6::HEADER_LENGTH..end];
    let checksum = ipv6::transport_checksum(to.source, to.destination, Protocol::ICMPV6, message);
    write_u16(message, tombolo_wire::icmpv6::CHECKSUM, checksum);
    replace_packet(packet, &out[..end])
}

/// Translates an ICMPv6 error in place. `embedded` is the packet in it, from [`Parsed::embedded`].
///
/// # Errors
/// As [`translate_error_4to6`].
pub fn translate_error_6to4(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    embedded: &Parsed<Ipv6Addr>,
    to: &ErrorRewrite<Ipv4Addr>,
    settings: &TranslateSettings,
    identifications: &mut IdentificationGenerator,
) -> Result<(), DropReason> {
    let message = message_of(packet, parsed, embedded)?;
    let view = Icmpv6View::parse(message).map_err(|_| DropReason::Malformed)?;
    let growth = if embedded.fragment.is_some() { GROWTH_OF_FRAGMENT } else { GROWTH };
    let target = map_error_6to4(view.kind(), view.code(), view.rest_of_header(), growth, settings)?;
    let pseudo = pseudo_icmpv6(Sum::ZERO.ipv6(parsed.source).ipv6(parsed.destination), parsed.transport_length());
    if packet.offload.checksum == ChecksumState::Complete && !pseudo.bytes(message).verifies() {
        return Err(DropReason::BadChecksum);
    }
    let (region, extension) = split_body(view.body(), length_attribute_v6(view), 8);

    let mut out = [0; LARGEST_V4];
    let body = ipv4::HEADER_LENGTH + ICMP;
    let present = embed_ipv4(&mut out[body..], region, embedded, &to.embedded, settings)?;
    let node = to.node.filter(|_| target.may_carry_extension);
    let appended = node.map_or(0, |_| node_length(extension.len()));
    let layout = lay_out(LARGEST_V4 - body, present, extension.len() + appended, 4);
    let end = finish_body(&mut out, body, layout, extension);
    if let Some(node) = node.filter(|_| layout.extension > 0) {
        append_node(&mut out[body + layout.padded..end], extension.len(), node);
    }

    write_icmp_header(&mut out[ipv4::HEADER_LENGTH..], target, target.rest | u32::from(layout.length) << 16);
    // As of any packet (RFC 7915 section 5.1.1); a shared source gets new ones (RFC 6864 section
    // 5.3.1).
    let identification = match parsed.fragment {
        Some(fragment) if !to.shares_source() => fragment_fields_6to4(fragment).0,
        _ => identifications.next(to.source, to.destination, 1),
    };
    let header = Ipv4Header {
        tos: settings.traffic_class_6to4.apply(parsed.traffic_class),
        total_length: narrow(end)?,
        identification,
        fragment_word: 0,
        ttl: parsed.hop_limit.saturating_sub(1),
        protocol: Protocol::ICMP,
        source: to.source,
        destination: to.destination,
    };
    header.emit(&mut out);
    let message = &mut out[ipv4::HEADER_LENGTH..end];
    let checksum = Sum::ZERO.bytes(message).checksum();
    write_u16(message, tombolo_wire::icmpv4::CHECKSUM, checksum);
    replace_packet(packet, &out[..end])
}

/// The ICMP message in a packet, if it is whole and about something that can be translated.
pub(crate) fn message_of<'p, A>(
    packet: &'p Packet<'_>,
    parsed: &Parsed<A>,
    embedded: &Parsed<A>,
) -> Result<&'p [u8], DropReason> {
    if parsed.payload != Payload::IcmpError {
        return Err(DropReason::IcmpUntranslatable);
    }
    if parsed.is_piece() {
        return Err(DropReason::FragmentUntranslatable);
    }
    let is_icmp = matches!(embedded.protocol, Protocol::ICMP | Protocol::ICMPV6);
    // The first piece of an echo tells what it is. This translator may have cut it.
    let is_echo = matches!(embedded.payload, Payload::EchoRequest | Payload::EchoReply);
    let is_ipv6_header = embedded.protocol.is_skippable() || embedded.protocol == Protocol::IPV6_FRAGMENT;
    // One level only (RFC 7915 sections 4.3 and 5.3). No packet with such headers was sent by this
    // translator.
    if is_icmp && !is_echo
        || is_ipv6_header
        || matches!(embedded.obstacle, Some(Obstacle::HeaderAfterFragment | Obstacle::SegmentsLeft { .. }))
    {
        return Err(DropReason::IcmpErrorUnusable);
    }
    packet.bytes().get(usize::from(parsed.transport_offset)..).ok_or(DropReason::Malformed)
}

/// ICMPv4 has the length attribute in byte 5 of three errors.
fn length_attribute_v4(view: Icmpv4View<'_>) -> u8 {
    use tombolo_wire::icmpv4::{DESTINATION_UNREACHABLE, PARAMETER_PROBLEM, TIME_EXCEEDED};
    match view.kind() {
        DESTINATION_UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM => view.rest_of_header().to_be_bytes()[1],
        _ => 0,
    }
}

/// ICMPv6 has the length attribute in byte 4 of two errors.
fn length_attribute_v6(view: Icmpv6View<'_>) -> u8 {
    use tombolo_wire::icmpv6::{DESTINATION_UNREACHABLE, TIME_EXCEEDED};
    match view.kind() {
        DESTINATION_UNREACHABLE | TIME_EXCEEDED => view.rest_of_header().to_be_bytes()[0],
        _ => 0,
    }
}

/// Writes the embedded packet as IPv6; returns how many bytes of it there are.
fn embed_ipv6(
    out: &mut [u8],
    region: &[u8],
    embedded: &Parsed<Ipv4Addr>,
    to: &Rewrite<Ipv6Addr>,
    settings: &TranslateSettings,
) -> Result<usize, DropReason> {
    let piece = embedded.fragment.filter(|fragment| fragment.is_piece());
    let header_length = ipv6::HEADER_LENGTH + if piece.is_some() { ipv6::FRAGMENT_HEADER_LENGTH } else { 0 };
    let change = Change {
        old_addresses: Sum::ZERO.ipv4(embedded.source).ipv4(embedded.destination),
        new_addresses: Sum::ZERO.ipv6(to.source).ipv6(to.destination),
        source_port: to.source_port,
        destination_port: to.destination_port,
    };
    let present = copy_transport(
        &mut out[header_length..],
        region,
        embedded,
        |transport| {
            transport::rewrite_echo_4to6(transport, &change, embedded.transport_length());
        },
        &change,
    );
    let protocol = protocol_4to6(embedded.protocol);
    let header = Ipv6Header {
        traffic_class: settings.traffic_class_4to6.apply(embedded.traffic_class),
        flow_label: 0,
        payload_length: narrow(embedded.transport_length() as usize + header_length - ipv6::HEADER_LENGTH)?,
        next_header: if piece.is_some() { Protocol::IPV6_FRAGMENT } else { protocol },
        hop_limit: embedded.hop_limit,
        source: to.source,
        destination: to.destination,
    };
    header.emit(out);
    if let Some(fragment) = piece {
        let header = FragmentHeader {
            header_offset: ipv6::HEADER_LENGTH,
            next_header: protocol,
            offset: fragment.offset,
            more: fragment.more,
            identification: fragment.identification,
        };
        header.emit(out);
    }
    Ok(header_length + present)
}

/// Writes the embedded packet as IPv4; returns how many bytes of it there are.
fn embed_ipv4(
    out: &mut [u8],
    region: &[u8],
    embedded: &Parsed<Ipv6Addr>,
    to: &Rewrite<Ipv4Addr>,
    settings: &TranslateSettings,
) -> Result<usize, DropReason> {
    let change = Change {
        old_addresses: Sum::ZERO.ipv6(embedded.source).ipv6(embedded.destination),
        new_addresses: Sum::ZERO.ipv4(to.source).ipv4(to.destination),
        source_port: to.source_port,
        destination_port: to.destination_port,
    };
    let present = copy_transport(
        &mut out[ipv4::HEADER_LENGTH..],
        region,
        embedded,
        |transport| {
            transport::rewrite_echo_6to4(transport, &change, embedded.transport_length());
        },
        &change,
    );
    let total_length = ipv4::HEADER_LENGTH + embedded.transport_length() as usize;
    let (identification, fragment_word) = match embedded.fragment {
        Some(fragment) => fragment_fields_6to4(fragment),
        // Which identification the packet had is not remembered.
        None => (0, if total_length <= LARGEST_WITHOUT_DF { 0 } else { ipv4::DF }),
    };
    let header = Ipv4Header {
        tos: settings.traffic_class_6to4.apply(embedded.traffic_class),
        total_length: narrow(total_length)?,
        identification,
        fragment_word,
        ttl: embedded.hop_limit,
        protocol: protocol_6to4(embedded.protocol),
        source: to.source,
        destination: to.destination,
    };
    header.emit(out);
    Ok(ipv4::HEADER_LENGTH + present)
}

/// Copies as much of the embedded packet's transport as there is and fits, and rewrites it; returns
/// the bytes copied. The checksum of an echo of which this is the first piece cannot be right in the
/// other protocol: ICMPv6 sums up the length of the whole, which no piece knows. What pads the packet in front of an extension is not part of it.
fn copy_transport<A>(
    out: &mut [u8],
    region: &[u8],
    embedded: &Parsed<A>,
    rewrite_echo: impl FnOnce(&mut [u8]),
    change: &Change,
) -> usize {
    let inside = &region[..region.len().min(embedded.length as usize)];
    let transport = inside.get(usize::from(embedded.transport_offset)..).unwrap_or_default();
    let size = transport.len().min(out.len());
    let out = &mut out[..size];
    out.copy_from_slice(&transport[..size]);
    // Not even ports are there if the length attribute says less than the embedded packet was
    // parsed from.
    if size < ICMP {
        return size;
    }
    match embedded.payload {
        Payload::EchoRequest | Payload::EchoReply => rewrite_echo(out),
        _ => transport::rewrite_quoted(out, embedded, change),
    }
    size
}

/// Cuts, pads and puts the extension behind the embedded packet that begins at `body`; returns the
/// end of the message.
fn finish_body(out: &mut [u8], body: usize, layout: Layout, extension: &[u8]) -> usize {
    out[body + layout.embedded..].fill(0);
    let at = body + layout.padded;
    if layout.extension > 0 {
        out[at..at + extension.len()].copy_from_slice(extension);
    }
    at + layout.extension
}

fn write_icmp_header(out: &mut [u8], target: IcmpTarget, rest: u32) {
    out[0] = target.kind;
    out[1] = target.code;
    write_u16(out, 2, 0);
    tombolo_wire::write_u32(out, 4, rest);
}

fn narrow(length: usize) -> Result<u16, DropReason> {
    u16::try_from(length).map_err(|_| DropReason::IcmpErrorUnusable)
}

/// Puts `bytes` in the place of a packet, growing it at the head first, and at its end by what is
/// not there.
pub(super) fn replace_packet(packet: &mut Packet<'_>, bytes: &[u8]) -> Result<(), DropReason> {
    let growth = bytes.len().saturating_sub(packet.len());
    packet.prepend(growth.min(packet.room_in_front()))?;
    packet.resize(bytes.len())?;
    packet.bytes_mut().copy_from_slice(bytes);
    packet.offload = Offload::default();
    Ok(())
}
