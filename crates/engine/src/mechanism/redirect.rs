//! Packets that another node of the cluster is to serve: sent there in an IPv6 header, and taken out
//! there.
//!
//! Read first: RFC 2473 section 3, RFC 6040 section 4, RFC 6438 (flow labels of tunnels).
//!
//! ```text
//! | IPv6 40: locator:: -> locator::1 or ::2 of the other, next header 4 or 41 | packet as it came |
//! | IPv6 40: B4        -> locator::a or ::b of the other                      | rest as it came   |
//! ```
//!
//! Packets of services with bindings go to the node that has them (`slice`). Those of services without come
//! anywhere. Routers spread the packets of a flow by its ports, though, and a fragment has none: so fragments
//! of one datagram may come to different nodes. Services that need the ports have them meet: each node sends a
//! fragment to the one that all reckon from what the fragments have in common. Two hops at most, and no state.
//!
//! A packet of a softwire has a header already, whose destination no checksum inside covers. So it is
//! given another destination, and the node there puts the softwire's end back: 40 bytes less on the way, where
//! the operator says that only nodes can send there.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{Ipv6Header, Protocol, ipv4, ipv6};

use super::Refusal;
use super::tunnel::segment::send_segments;
use super::tunnel::softwire::congestion;
use crate::cluster::{Cluster, Hops, Means, Standing, flow_number};
use crate::packet::{Offload, Outbox, Packet};
use crate::parse::{Fragment, Parsed};
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// Hop limit of redirected packets.
const HOP_LIMIT: u8 = 64;
/// Bits of a flow label.
const FLOW_LABEL: u32 = 0xf_ffff;

/// Where a packet is to be redirected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Redirection {
    /// The number of the node.
    node: u8,
    source: Ipv6Addr,
    locator: Ipv6Addr,
    /// How often it has been redirected when it comes there.
    hops: Hops,
    flow_label: u32,
}

impl Redirection {
    /// To this node, of the packet of a flow with this number. `None` if there is no such node.
    pub(crate) fn new(cluster: &Cluster, node: u8, hops: Hops, flow: u64) -> Option<Self> {
        let locator = cluster.nodes().get(usize::from(node))?.locator;
        let flow_label = u32::try_from(flow >> 32).unwrap_or(0) & FLOW_LABEL;
        Some(Self { node, source: cluster.locator(), locator, hops, flow_label })
    }
}

/// The other node that the fragments of this one's datagram meet at, if there is one.
#[inline]
pub(crate) fn meeting_ipv4(parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Option<Redirection> {
    let (source, destination) = (parsed.source.to_bits().into(), parsed.destination.to_bits().into());
    meeting(work.standing?, source, destination, parsed.fragment?, work)
}

/// As [`meeting_ipv4`].
#[inline]
pub(crate) fn meeting_ipv6(parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Option<Redirection> {
    meeting(work.standing?, parsed.source.to_bits(), parsed.destination.to_bits(), parsed.fragment?, work)
}

/// As [`meeting_ipv4`], for a fragment that came out of the softwire from `softwire`.
pub(crate) fn meeting_inner(parsed: &Parsed<Ipv4Addr>, softwire: Ipv6Addr, work: &mut Work<'_>) -> Option<Redirection> {
    let inner = u128::from(parsed.source.to_bits()) << 32 | u128::from(parsed.destination.to_bits());
    meeting(work.standing?, softwire.to_bits(), inner, parsed.fragment?, work)
}

fn meeting(
    Standing { cluster, hops }: Standing<'_>,
    source: u128,
    destination: u128,
    fragment: Fragment,
    work: &mut Work<'_>,
) -> Option<Redirection> {
    let hops = hops.next()?;
    let number = flow_number(source, destination, fragment.identification);
    let home = cluster.home_of(number);
    if home == cluster.own() {
        return None;
    }
    let node = cluster.nodes().get(home)?;
    work.notes.add("", || format!("the fragments of this datagram meet at node {}", node.name));
    Redirection::new(cluster, u8::try_from(home).ok()?, hops, number)
}

/// Sends the packet at hand to another node; a super-packet in its segments.
///
/// # Errors
/// [`DropReason::Malformed`], [`DropReason::NoHeadroom`], and what [`Outbox::send`] says.
pub(crate) fn send<A>(to: Redirection, parsed: &Parsed<A>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
    let Work { packet, outbox, .. } = work;
    send_segments(packet, parsed, &mut Entry { to, outbox: &mut **outbox })?;
    Ok(Verdict::Redirect(to.node))
}

/// The way to another node: puts a header in front of whatever is sent to it.
struct Entry<'a> {
    to: Redirection,
    outbox: &'a mut dyn Outbox,
}

impl Outbox for Entry<'_> {
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        let Redirection { node: _, source, locator, hops, flow_label } = self.to;
        let (next_header, traffic_class) = class_of(packet)?;
        let payload_length = u16::try_from(packet.len()).map_err(|_| DropReason::Malformed)?;
        packet.prepend(ipv6::HEADER_LENGTH)?;
        packet.offload = Offload::default();
        let outer = Ipv6Header {
            traffic_class,
            flow_label,
            payload_length,
            next_header,
            hop_limit: HOP_LIMIT,
            source,
            destination: hops.address(locator, Means::Header).ok_or(DropReason::RedirectLoop)?,
        };
        outer.emit(packet.bytes_mut());
        self.outbox.send(packet)
    }
}

/// Sends the packet at hand, which came to the end of softwires, to that end at another node, by another
/// destination.
///
/// # Errors
/// [`DropReason::Malformed`], and what [`Outbox::send`] says.
pub(crate) fn send_softwire(to: Redirection, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
    let end = to.hops.address(to.locator, Means::Destination).ok_or(DropReason::RedirectLoop)?;
    readdress(&mut work.packet, end)?;
    work.outbox.send(&mut work.packet)?;
    Ok(Verdict::Redirect(to.node))
}

/// Gives a packet that came so, and is for the end of softwires, this destination.
///
/// # Errors
/// [`DropReason::Malformed`].
pub(crate) fn readdress(packet: &mut Packet<'_>, end: Ipv6Addr) -> Result<(), DropReason> {
    let destination = packet.bytes_mut().get_mut(ipv6::DESTINATION..ipv6::HEADER_LENGTH);
    destination.ok_or(DropReason::Malformed)?.copy_from_slice(&end.octets());
    Ok(())
}

/// Takes out what another node has redirected in a header more: which node.
///
/// # Errors
/// [`DropReason::RedirectRefused`] of everything else, [`DropReason::CongestionNotEct`],
/// [`DropReason::Malformed`].
pub(crate) fn take_out(
    cluster: &Cluster,
    packet: &mut Packet<'_>,
    outer: &Parsed<Ipv6Addr>,
) -> Result<usize, DropReason> {
    let node = cluster.node_at(outer.source).filter(|&node| node != cluster.own());
    let is_whole = outer.obstacle.is_none() && !outer.is_piece();
    let (Some(node), true) = (node, is_whole) else {
        return Err(DropReason::RedirectRefused);
    };
    if outer.protocol != Protocol::IPV4 && outer.protocol != Protocol::IPV6 {
        return Err(DropReason::RedirectRefused);
    }
    packet.strip(outer.transport_offset.into());
    packet.offload = Offload::default();
    let (protocol, class) = class_of(packet)?;
    if protocol != outer.protocol {
        return Err(DropReason::Malformed);
    }
    let marked = class & !0b11 | congestion(outer.traffic_class, class).ok_or(DropReason::CongestionNotEct)?;
    if marked != class {
        set_class(packet.bytes_mut(), marked);
    }
    Ok(node)
}

/// What a packet is to the one that it is put into, and its traffic class.
fn class_of(packet: &Packet<'_>) -> Result<(Protocol, u8), DropReason> {
    match *packet.bytes() {
        [first, second, ..] if first >> 4 == 4 && packet.len() >= ipv4::HEADER_LENGTH => Ok((Protocol::IPV4, second)),
        [first, second, ..] if first >> 4 == 6 => Ok((Protocol::IPV6, first << 4 | second >> 4)),
        _ => Err(DropReason::Malformed),
    }
}

fn set_class(header: &mut [u8], class: u8) {
    if header[0] >> 4 == 4 {
        header[1] = class;
        ipv4::write_checksum(header);
    } else {
        header[0] = 0x60 | class >> 4;
        header[1] = class << 4 | header[1] & 0xf;
    }
}
