//! Hairpinning: what one subscriber sends to another goes out of the gateway and in again.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{ipv4, ipv6};

use super::offload::size_on_wire;
use super::{IcmpAnswer, Refusal};
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

/// Asks whether an IPv6 packet that is hairpinned, and so becomes IPv6 again, fits the link inside of
/// `ipv6_mtu` bytes. To be asked while it still can be quoted to its sender: [`come_in_again`] is too
/// late. What may be fragmented fits.
///
/// # Errors
/// [`Refusal`]: too big (RFC 4787 REQ-13, RFC 7915 section 4.1).
pub(crate) fn check_size(packet: &Packet<'_>, parsed: &Parsed<Ipv6Addr>, ipv6_mtu: u32) -> Result<(), Refusal> {
    // A fragment is IPv4 without DF in between.
    if !parsed.dont_fragment || parsed.fragment.is_some() {
        return Ok(());
    }
    let transport = packet.bytes().get(usize::from(parsed.transport_offset)..).unwrap_or_default();
    let size = size_on_wire(packet.offload.segmentation, ipv6::HEADER_LENGTH, transport);
    let mtu = ipv6_mtu.max(ipv6::MINIMUM_MTU.into());
    if size <= mtu as usize {
        return Ok(());
    }
    Err(Refusal::with(DropReason::TooBig, IcmpAnswer::TooBig { mtu }))
}
