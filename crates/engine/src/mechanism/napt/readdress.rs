//! Other addresses and ports for an IPv4 packet, in place: what a NAT44 does to it.
//!
//! Read first: RFC 3022 section 4, RFC 5508 section 4 (errors), RFC 6864 section 5.3.1
//! (identification), RFC 1812 section 5.3.1 (TTL).
//!
//! ```text
//! | IPv4 20..60 (options stay) | transport ...            ->   the same bytes, with other addresses, ports, checksums
//! | IPv4 | ICMP 8 | IPv4 of the packet in error | transport, maybe cut | (padding, extension)
//! ```
//!
//! Nothing moves and no payload is read: checksums change by difference, partial ones stay partial,
//! and super-packets (GSO) keep their segmentation. Only an ICMP error is summed whole, since its
//! checksum has to be verified first.

use std::net::Ipv4Addr;

use tombolo_wire::{Ipv4View, Protocol, Sum, icmpv4, ipv4, write_u16, write_u32};

use crate::mechanism::identification::IdentificationGenerator;
use crate::mechanism::offload::{complete_checksum, segment_count, size_on_wire};
use crate::mechanism::translate::headers::{clamp, shrink_or_fragment};
use crate::mechanism::translate::icmp_error::message_of;
use crate::mechanism::translate::transport::{self, Change};
use crate::mechanism::translate::{ErrorRewrite, Rewrite, Translated, UdpZeroChecksum};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::verdict::DropReason;

/// What the identification of a packet becomes.
#[derive(Debug)]
pub enum Identification<'a> {
    /// It stays: the packet's new source is one host, as its old one was.
    Keep,
    /// A new one for packets that are or may yet become fragments, because the packet's new source
    /// is shared by hosts that know nothing of each other's numbers (RFC 6864 section 5.3.1, RFC
    /// 7857 section 10).
    Renew(&'a mut IdentificationGenerator),
}

/// The next link, and what may be announced for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLink {
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Largest TCP segment that a SYN may announce, in bytes. `None` leaves the announcement.
    pub largest_segment: Option<u16>,
}

impl NextLink {
    /// A link of `mtu` bytes. Segments are as large as the hosts agree on.
    #[must_use]
    pub const fn of(mtu: u32) -> Self {
        Self { mtu, largest_segment: None }
    }

    /// No link at all: what has hairpinned has yet to meet one.
    pub const NONE: Self = Self::of(u32::MAX);
}

/// Gives `packet`, `parsed` from it, the addresses and ports of `to`, for a link. The TTL loses
/// one. The packet is unchanged if the result is [`DropReason::TooBig`].
///
/// # Errors
/// [`Refusal`]: too big with DF set (RFC 4787 REQ-13), or ICMP that is no echo.
#[inline]
pub fn readdress(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    to: &Rewrite<Ipv4Addr>,
    link: NextLink,
    identification: Identification<'_>,
) -> Result<Translated, Refusal> {
    let translated = fit(packet, parsed, link.mtu)?;
    let change = change_of(parsed, to);
    let state = packet.offload.checksum;
    let transport = &mut packet.bytes_mut()[usize::from(parsed.transport_offset)..];
    match parsed.payload {
        Payload::Tcp => transport::rewrite_tcp(transport, &change, state),
        Payload::Udp => transport::rewrite_udp(transport, &change, state, UdpZeroChecksum::Forward, true)?,
        Payload::EchoRequest | Payload::EchoReply => transport::rewrite_identifier(transport, &change),
        Payload::Sctp => transport::rewrite_sctp(transport, &change, Some(parsed.transport_length())),
        Payload::Dccp => transport::rewrite_dccp(transport, &change),
        Payload::UdpLite => transport::rewrite_udp_lite(transport, &change),
        // ESP and GRE know nothing of addresses.
        Payload::Other => {}
        Payload::IcmpError | Payload::IcmpOther | Payload::Piece => return Err(DropReason::IcmpUntranslatable.into()),
    }
    clamp(packet, parsed, link.largest_segment);
    write_header(packet, parsed, to.source, to.destination, identification);
    Ok(translated)
}

/// Gives an ICMP error, and the packet inside it, the addresses and ports of `to`. `about` is the
/// packet inside, from [`Parsed::embedded`]. Type, code, extensions and whatever else the message
/// carries stay.
///
/// # Errors
/// [`Refusal`]: [`DropReason::BadChecksum`] of the message or of the header inside (RFC 5508 REQ-3),
/// [`DropReason::IcmpErrorUnusable`] for an error about an error, and as [`readdress`].
pub fn readdress_error(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    about: &Parsed<Ipv4Addr>,
    to: &ErrorRewrite<Ipv4Addr>,
    mtu: u32,
    identification: Identification<'_>,
) -> Result<Translated, Refusal> {
    complete_checksum(packet, Protocol::ICMP)?;
    let message = message_of(packet, parsed, about)?;
    if !Sum::ZERO.bytes(message).verifies() {
        return Err(DropReason::BadChecksum.into());
    }
    let quoted =
        Ipv4View::parse_header(&message[icmpv4::HEADER_LENGTH..]).map_err(|_| DropReason::IcmpErrorUnusable)?;
    if !quoted.checksum_verifies() {
        return Err(DropReason::BadChecksum.into());
    }
    let translated = fit(packet, parsed, mtu)?;
    let message = &mut packet.bytes_mut()[usize::from(parsed.transport_offset)..];
    readdress_quoted(&mut message[icmpv4::HEADER_LENGTH..], about, &to.embedded);
    write_u16(message, icmpv4::CHECKSUM, 0);
    let checksum = Sum::ZERO.bytes(message).checksum();
    write_u16(message, icmpv4::CHECKSUM, checksum);
    write_header(packet, parsed, to.source, to.destination, identification);
    Ok(translated)
}

/// Rewrites the packet in an error, of which only the beginning may be there. Its TTL and lengths
/// were somebody else's business.
fn readdress_quoted(quoted: &mut [u8], about: &Parsed<Ipv4Addr>, to: &Rewrite<Ipv4Addr>) {
    let change = change_of(about, to);
    let transport = &mut quoted[usize::from(about.transport_offset)..];
    match about.payload {
        Payload::EchoRequest | Payload::EchoReply => transport::rewrite_identifier(transport, &change),
        _ => transport::rewrite_quoted(transport, about, &change),
    }
    write_u32(quoted, ipv4::SOURCE, to.source.to_bits());
    write_u32(quoted, ipv4::DESTINATION, to.destination.to_bits());
    ipv4::write_checksum(quoted);
}

fn change_of(parsed: &Parsed<Ipv4Addr>, to: &Rewrite<Ipv4Addr>) -> Change {
    Change {
        old_addresses: Sum::ZERO.ipv4(parsed.source).ipv4(parsed.destination),
        new_addresses: Sum::ZERO.ipv4(to.source).ipv4(to.destination),
        source_port: to.source_port,
        destination_port: to.destination_port,
    }
}

/// Decides by the size that the packet has: a packet does not grow here, but the next link may be
/// narrower.
#[inline]
fn fit(packet: &mut Packet<'_>, parsed: &Parsed<Ipv4Addr>, mtu: u32) -> Result<Translated, Refusal> {
    let header_length = usize::from(parsed.transport_offset);
    let transport = &packet.bytes()[header_length..];
    if size_on_wire(packet.offload.segmentation, header_length, transport) <= mtu as usize {
        return Ok(Translated::Whole);
    }
    if parsed.dont_fragment {
        return Err(Refusal::with(DropReason::TooBig, IcmpAnswer::TooBig { mtu }));
    }
    Ok(shrink_or_fragment(packet, parsed.transport_offset, header_length, mtu, 0))
}

#[inline]
fn write_header(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    identification: Identification<'_>,
) {
    // A packet with DF is atomic, and its identification means nothing (RFC 6864 section 4.1).
    let renewed = match identification {
        Identification::Renew(generator) if !parsed.dont_fragment => {
            let segments = segment_count(packet.offload.segmentation, packet.len());
            Some(generator.next(source, destination, u16::try_from(segments).unwrap_or(u16::MAX)))
        }
        _ => None,
    };
    let header = packet.bytes_mut();
    if let Some(identification) = renewed {
        write_u16(header, ipv4::IDENTIFICATION, identification);
    }
    header[ipv4::TTL] = header[ipv4::TTL].saturating_sub(1);
    write_u32(header, ipv4::SOURCE, source.to_bits());
    write_u32(header, ipv4::DESTINATION, destination.to_bits());
    ipv4::write_checksum(header);
}
