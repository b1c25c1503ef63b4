//! What may not be translated, whatever the mapping says. To be asked before any state is made for
//! a packet.
//!
//! Read first: RFC 7915 sections 4.1 and 5.1 (before and behind the field tables), RFC 1812 section
//! 5.3.7.
//!
//! The packet inside an ICMP error is not screened: its hop limit has run its course.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::Protocol;

use super::{IcmpAnswer, Refusal};
use crate::parse::{Obstacle, Parsed, Payload};
use crate::verdict::DropReason;

/// Asks whether an IPv4 packet may be translated.
///
/// # Errors
/// [`Refusal`] for illegal addresses, a source route that is not used up, a TTL that runs out here,
/// and protocol numbers that would become IPv6 headers the translator did not write.
#[inline]
pub fn screen_ipv4(parsed: &Parsed<Ipv4Addr>) -> Result<(), Refusal> {
    // The source of an error is translated all the same, for traceroute (RFC 7915 section 4.1).
    if is_illegal_source_ipv4(parsed.source) && parsed.payload != Payload::IcmpError {
        return Err(DropReason::IllegalSource.into());
    }
    if is_illegal_destination_ipv4(parsed.destination) {
        return Err(DropReason::IllegalDestination.into());
    }
    if parsed.obstacle == Some(Obstacle::SourceRoute) {
        return Err(Refusal::with(DropReason::SourceRoute, IcmpAnswer::SourceRouteFailed));
    }
    // RFC 7915 copies unknown protocol numbers. These are not unknown to IPv6: they would smuggle
    // extension headers and ICMPv6 messages past whoever filters them on the IPv4 side.
    let protocol = parsed.protocol;
    if protocol == Protocol::IGMP {
        return Err(DropReason::UnsupportedProtocol.into());
    }
    if protocol.is_skippable() || protocol == Protocol::IPV6_FRAGMENT || protocol == Protocol::ICMPV6 {
        return Err(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::ProtocolUnreachable));
    }
    check_hop_limit(parsed.hop_limit)
}

/// Asks whether an IPv6 packet may be translated.
///
/// # Errors
/// [`Refusal`] for illegal addresses, a Routing header with segments left, an extension header
/// behind a Fragment header, a hop limit that runs out here, and ICMP for IPv4 inside IPv6.
#[inline]
pub fn screen_ipv6(parsed: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
    if is_illegal_source_ipv6(parsed.source) {
        return Err(DropReason::IllegalSource.into());
    }
    if parsed.destination.is_multicast() || parsed.destination.is_unspecified() || parsed.destination.is_loopback() {
        return Err(DropReason::IllegalDestination.into());
    }
    check_obstacle(parsed)?;
    if parsed.protocol == Protocol::ICMP {
        return Err(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::ProtocolUnreachable));
    }
    check_hop_limit(parsed.hop_limit)
}

/// Asks whether the headers of an IPv6 packet, or of a piece of one, lead to what can be translated.
/// Of pieces that wait for the others it has to be asked before: a reassembled datagram
/// shows no extension headers any more.
///
/// # Errors
/// [`Refusal`] for a Routing header with segments left and an extension header behind a Fragment
/// header (RFC 7915 sections 5.1, 5.1.1); silent for a piece that fits no datagram.
#[inline]
pub fn check_obstacle(parsed: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
    match parsed.obstacle {
        Some(Obstacle::SegmentsLeft { offset }) => {
            Err(Refusal::with(DropReason::RoutingHeader, IcmpAnswer::ParameterProblem { pointer: offset }))
        }
        // Its sender is told by whom it was addressed to.
        Some(Obstacle::BadPiece { .. }) => Err(DropReason::FragmentInvalid.into()),
        Some(_) => Err(Refusal::with(DropReason::HeaderAfterFragment, IcmpAnswer::Prohibited)),
        None => Ok(()),
    }
}

/// As [`check_obstacle`], at the packet's own destination: the sender of a piece that fits no datagram
/// is told (RFC 8200 section 4.5).
///
/// # Errors
/// As [`check_obstacle`].
#[inline]
pub(crate) fn check_obstacle_at_end(parsed: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
    match parsed.obstacle {
        Some(Obstacle::BadPiece { offset }) => {
            Err(Refusal::with(DropReason::FragmentInvalid, IcmpAnswer::ParameterProblem { pointer: offset }))
        }
        _ => check_obstacle(parsed),
    }
}

#[inline]
fn check_hop_limit(hop_limit: u8) -> Result<(), Refusal> {
    if hop_limit <= 1 { Err(Refusal::with(DropReason::HopLimit, IcmpAnswer::TimeExceeded)) } else { Ok(()) }
}

/// 0/8, 127/8, multicast and class E with limited broadcast.
#[must_use]
#[inline]
pub fn is_illegal_source_ipv4(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first == 0 || first == 127 || first >= 224
}

/// 0/8, 127/8, and what is not unicast: RFC 7915 covers unicast only.
#[must_use]
#[inline]
pub fn is_illegal_destination_ipv4(address: Ipv4Addr) -> bool {
    is_illegal_source_ipv4(address)
}

/// Asks whether an IPv4 address may stand for a host on the other side of a router: a link-local one
/// may not (RFC 3927 section 7). An explicit mapping is the operator's word that it does.
///
/// # Errors
/// [`DropReason::LinkLocal`].
#[inline]
pub fn check_scope(address: Ipv4Addr) -> Result<(), DropReason> {
    if address.is_link_local() { Err(DropReason::LinkLocal) } else { Ok(()) }
}

/// Multicast, link-local, and ::/96 with the unspecified and the loopback address, and IPv4-mapped
/// addresses.
#[must_use]
#[inline]
pub fn is_illegal_source_ipv6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    address.is_multicast() || address.is_unicast_link_local() || bits >> 32 == 0 || bits >> 32 == 0xffff
}
