//! Hairpinning: what one subscriber sends to another goes out of the gateway and in again.

use std::net::Ipv4Addr;

use tombolo_wire::ipv4;

use crate::packet::Packet;
use crate::parse::{Parsed, parse_ipv4};
use crate::verdict::DropReason;

/// How a packet came to the IPv4 side of a translator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From the IPv4 network.
    Network,
    /// It was IPv6 a moment ago, and is hairpinned.
    Hairpin,
}

/// Reads what has just left as an IPv4 packet, to come in again. Its hop is given back, since the
/// way in takes one: one decrement in total (RFC 7757 section 4.2.2).
///
/// The packet is not as it was received any more, so no ICMP error can quote it.
///
/// # Errors
/// As [`parse_ipv4`].
pub(crate) fn come_in_again(packet: &mut Packet<'_>) -> Result<Parsed<Ipv4Addr>, DropReason> {
    let header = packet.bytes_mut();
    header[ipv4::TTL] = header[ipv4::TTL].saturating_add(1);
    ipv4::write_checksum(header);
    parse_ipv4(packet)
}
