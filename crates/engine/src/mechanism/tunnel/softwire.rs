//! Softwires: IPv4 packets inside IPv6 packets, from one end of a tunnel to the other. What
//! DS-Lite, Lightweight 4over6 and MAP-E have in common.
//!
//! Read first: RFC 2473 sections 3, 6, 7 and 8, RFC 6333 sections 5 and 6, RFC 6040 section 4, RFC
//! 2983.
//!
//! ```text
//! | IPv6 40: next header 4 | IPv4 packet |
//! | IPv6 40: next header 44 | Fragment 8: next header 4 | piece of an IPv4 packet |
//! | IPv6 40: next header 60 | Destination Options (encapsulation limit) | IPv4 packet |      received, never sent
//! ```
//!
//! [`encapsulate`] puts a header in front and [`decapsulate`] takes it off; the packet inside keeps
//! every byte, except for the TOS (traffic class and congestion marks cross with it). TTL,
//! addresses and ports are the service's business: [`take_step`] is the forwarding step that an end
//! without address translation does.
//!
//! # Sizes
//! What may not be fragmented and does not fit is refused with the tunnel's MTU, the path's less 40
//! bytes (RFC 2473 section 7.2 (a)). RFC 6333 sections 5.3 and 6.3 can be read so that the outer
//! packet is fragmented instead: [`DontFragment::Override`]. What may be fragmented is encapsulated
//! whole and the outer packet fragmented (RFC 2473 section 7.2 (b), RFC 6333 section 5.3), or, for
//! ends that share their address with others and would give out the same identifications (RFC 7597
//! section 8.3), fragmented inside: [`Fragments::Inner`].
//!
//! A super-packet is cut into its segments, since the kernel takes none inside a tunnel: see
//! `segment`.
//!
//! # TCP
//! Both ends lower the segment size that SYNs announce to what fits the softwire, whichever way
//! they go, if the settings say so: then connections need no path MTU discovery, which so many
//! firewalls break.
//!
//! # Errors from the path
//! An ICMPv6 error comes to the end that sent the packet, not to the host that made it:
//! [`relay_error`] turns it into the ICMPv4 error about the packet inside (RFC 2473 section 8), and
//! [`small_path`] reads in it that the path is smaller than the settings say (RFC 2473 section 6.7).

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{Icmpv6View, Ipv6Header, Protocol, Sum, icmpv6, ipv4, ipv6};

use super::segment::send_segments;
use crate::description::{Description, Fact};
use crate::mechanism::echo::unknown_next_header;
use crate::mechanism::fragment::send_fragments;
use crate::mechanism::identification::IdentificationGenerator;
use crate::mechanism::offload::{complete_checksum, size_on_wire};
use crate::mechanism::reply::{may_answer_ipv4, reply_ipv4};
use crate::mechanism::translate::headers::clamp;
use crate::mechanism::translate::transport::pseudo_icmpv6;
use crate::mechanism::translate::{DSCP, ECN, TrafficClass};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::{Offload, Outbox, Packet, Segmentation};
use crate::parse::{Obstacle, Parsed, parse_ipv4, parse_quoted_ipv4};
use crate::verdict::DropReason;

pub use crate::softwire::{FarEndName, Softwire};

/// Bytes that encapsulation puts in front of a packet.
pub const OVERHEAD: u32 = 40;

/// What becomes of a packet that does not fit the softwire and has DF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DontFragment {
    /// It is refused with an ICMP error that gives the tunnel's MTU (RFC 2473 section 7.2 (a)).
    #[default]
    Obey,
    /// The outer packet is fragmented (RFC 6333 section 5.3, read literally).
    Override,
}

/// Where a packet that does not fit the softwire and has no DF is fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fragments {
    /// Outside: the other end reassembles it (RFC 6333 section 5.3).
    #[default]
    Outer,
    /// Inside: its destination reassembles it (RFC 7597 section 8.3, for relays with an anycast
    /// address).
    Inner,
}

/// The operator's choices for softwires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftwireSettings {
    /// MTU of the IPv6 path between the ends, in bytes. At least 1280.
    pub ipv6_mtu: u32,
    /// Hop limit of the packets sent (RFC 2473 section 6.3).
    pub hop_limit: u8,
    /// Traffic class of the packets sent. `Copy`: DSCP and congestion are copied both ways (RFC
    /// 6333 section 7.1, RFC 2983's uniform model). `Force`: the DSCP of this octet (the pipe
    /// model); a packet that leaves the softwire keeps its own. Congestion marks cross in either
    /// case (RFC 6040).
    pub traffic_class: TrafficClass,
    /// What becomes of packets with DF that do not fit.
    pub dont_fragment: DontFragment,
    /// Where those without are fragmented.
    pub fragments: Fragments,
    /// Largest TCP segment that a SYN may announce through the softwire, either way, in bytes;
    /// `None` leaves what hosts agree on, and path MTU discovery finds out that it does not fit.
    pub largest_segment: Option<u16>,
}

impl Default for SoftwireSettings {
    fn default() -> Self {
        Self {
            ipv6_mtu: 1500,
            hop_limit: 64,
            traffic_class: TrafficClass::Copy,
            dont_fragment: DontFragment::Obey,
            fragments: Fragments::Outer,
            largest_segment: None,
        }
    }
}

impl SoftwireSettings {
    /// Bytes of the largest IPv4 packet that crosses the softwire in one packet.
    #[must_use]
    #[inline]
    pub fn mtu(&self) -> u32 {
        self.path_mtu() - OVERHEAD
    }

    /// The same settings for a path whose MTU is known, if that is less.
    #[must_use]
    #[inline]
    pub fn over(mut self, path_mtu: Option<u32>) -> Self {
        self.ipv6_mtu = self.ipv6_mtu.min(path_mtu.unwrap_or(u32::MAX));
        self
    }

    /// What is to be known of softwires that end at `addresses`.
    pub(crate) fn describe(&self, addresses: &[Ipv6Addr]) -> Description {
        Description::default().with("addresses", Fact::texts(addresses)).with("mtu", self.mtu())
    }

    /// MTU of the path between the ends, in bytes.
    #[must_use]
    pub fn path_mtu(&self) -> u32 {
        self.ipv6_mtu.max(ipv6::MINIMUM_MTU.into())
    }

    /// True if a packet has to fit the softwire as it is. The rest is encapsulated whole, or
    /// fragmented.
    #[inline]
    pub(super) fn must_fit(&self, parsed: &Parsed<Ipv4Addr>) -> bool {
        parsed.dont_fragment && self.dont_fragment == DontFragment::Obey
    }

    /// Bytes that a packet may have to enter the softwire: those of its MTU, or as many as there
    /// are.
    #[must_use]
    #[inline]
    pub fn limit(&self, parsed: &Parsed<Ipv4Addr>) -> u32 {
        if self.must_fit(parsed) { self.mtu() } else { u32::MAX }
    }

    /// Asks whether a packet may enter the softwire by its size. To be asked while it is as it was
    /// received, so that it can be quoted.
    ///
    /// # Errors
    /// [`Refusal`]: too big with DF set.
    #[inline]
    pub fn check_size(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<(), Refusal> {
        if !self.must_fit(parsed) {
            return Ok(());
        }
        let header = usize::from(parsed.transport_offset);
        let transport = packet.bytes().get(header..).unwrap_or_default();
        if size_on_wire(packet.offload.segmentation, header, transport) <= self.mtu() as usize {
            return Ok(());
        }
        Err(Refusal::with(DropReason::TooBig, IcmpAnswer::TooBig { mtu: self.mtu() }))
    }

    /// Traffic class of the outer header around a packet with this TOS.
    #[inline]
    const fn outer_class(&self, tos: u8) -> u8 {
        self.traffic_class.apply(tos)
    }

    /// TOS of a packet that leaves the softwire; `None` if it has to be dropped (RFC 6040 section
    /// 4.2).
    const fn inner_class(&self, outer: u8, inner: u8) -> Option<u8> {
        let Some(ecn) = congestion(outer, inner) else { return None };
        let dscp = match self.traffic_class {
            TrafficClass::Copy => outer & DSCP,
            TrafficClass::Force(_) => inner & DSCP,
        };
        Some(dscp | ecn)
    }
}

/// Congestion marks of a packet that leaves a tunnel; `None` if it has to be dropped (RFC 6040 section
/// 4.2).
pub(crate) const fn congestion(outer: u8, inner: u8) -> Option<u8> {
    match (inner & ECN, outer & ECN) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// The forwarding step of an end that does not translate addresses: one less in the TTL (RFC 2473
/// section 3.1, RFC 1812 section 5.3.1).
///
/// # Errors
/// [`Refusal`] if the TTL runs out. The packet is as before.
#[inline]
pub fn take_step(packet: &mut Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<(), Refusal> {
    if parsed.hop_limit <= 1 {
        return Err(Refusal::with(DropReason::HopLimit, IcmpAnswer::TimeExceeded));
    }
    let header = packet.bytes_mut();
    header[ipv4::TTL] = parsed.hop_limit - 1;
    ipv4::write_checksum(header);
    Ok(())
}

/// Sends `packet`, an IPv4 packet that is complete but for checksums left to the card, through the
/// softwire between `ends`. `parsed` tells its shape; addresses, ports and TTL may have changed
/// since. `identification` is that of outer fragments, if they are needed; it should be random (RFC
/// 7739).
///
/// The caller has asked [`SoftwireSettings::check_size`] while it still could quote the packet.
///
/// # Errors
/// [`DropReason::Malformed`] for offloads that do not fit the packet, [`DropReason::NoHeadroom`], and
/// what [`Outbox::send`] says.
#[inline]
pub fn encapsulate<O: Outbox + ?Sized>(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv4Addr>,
    ends: Softwire,
    settings: &SoftwireSettings,
    identification: u32,
    outbox: &mut O,
) -> Result<(), DropReason> {
    clamp(packet, parsed, settings.largest_segment);
    let mut entry = Entry { ends, settings, identification, outbox };
    if packet.offload.segmentation == Segmentation::None {
        complete_checksum(packet, parsed.protocol)?;
        entry.send(packet)
    } else {
        send_segments(packet, parsed, &mut entry)
    }
}

/// The entry of a softwire: encapsulates whatever is sent to it.
struct Entry<'a, O: ?Sized> {
    ends: Softwire,
    settings: &'a SoftwireSettings,
    identification: u32,
    outbox: &'a mut O,
}

impl<O: Outbox + ?Sized> Outbox for Entry<'_, O> {
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        let mtu = self.settings.mtu();
        let header = packet.bytes().first_chunk::<{ ipv4::HEADER_LENGTH }>().ok_or(DropReason::Malformed)?;
        let (tos, has_df) = (header[1], header[ipv4::FRAGMENT_OFFSET] & 0x40 != 0);
        if self.settings.fragments == Fragments::Inner && !has_df && packet.len() > mtu as usize {
            // Comes back here piece by piece, each of which fits.
            return send_fragments(packet, mtu, 0, self);
        }
        let payload_length = u16::try_from(packet.len()).map_err(|_| DropReason::Malformed)?;
        packet.prepend(ipv6::HEADER_LENGTH)?;
        packet.offload = Offload::default();
        let outer = Ipv6Header {
            traffic_class: self.settings.outer_class(tos),
            flow_label: 0,
            payload_length,
            next_header: Protocol::IPV4,
            hop_limit: self.settings.hop_limit,
            source: self.ends.local,
            destination: self.ends.remote,
        };
        outer.emit(packet.bytes_mut());
        let identification = self.identification;
        self.identification = identification.wrapping_add(1);
        send_fragments(packet, self.settings.path_mtu(), identification, self.outbox)
    }
}

/// Takes the IPv4 packet out of `packet`, an IPv6 packet for this end that is no fragment (the
/// caller has reassembled it), and parses it. `outer` was parsed from it. Whether its source may
/// use the softwire, and whether the packet inside is its own, is for the caller to ask;
/// [`put_back`] restores the packet if an ICMP error is to quote it.
///
/// # Errors
/// [`Refusal`]: [`DropReason::NotIpv4Inside`], [`DropReason::TunnelInTunnel`], [`DropReason::RoutingHeader`],
/// [`DropReason::HeaderAfterFragment`], [`DropReason::FragmentUntranslatable`],
/// [`DropReason::CongestionNotEct`], and what [`parse_ipv4`] says.
#[inline]
pub fn decapsulate(
    packet: &mut Packet<'_>,
    outer: &Parsed<Ipv6Addr>,
    settings: &SoftwireSettings,
) -> Result<Parsed<Ipv4Addr>, Refusal> {
    check_outer(packet, outer)?;
    let offset = usize::from(outer.transport_offset);
    if packet.bytes().get(offset).is_none_or(|first| first >> 4 != 4) {
        return Err(DropReason::NotIpv4Inside.into());
    }
    packet.strip(offset);
    packet.offload = Offload::default();
    let mut parsed = parse_ipv4(packet)?;
    let class = settings.inner_class(outer.traffic_class, parsed.traffic_class).ok_or(DropReason::CongestionNotEct)?;
    if class != parsed.traffic_class {
        parsed.traffic_class = class;
        let header = packet.bytes_mut();
        header[1] = class;
        ipv4::write_checksum(header);
    }
    clamp(packet, &parsed, settings.largest_segment);
    Ok(parsed)
}

/// Asks whether the headers lead to an IPv4 packet.
fn check_outer(packet: &Packet<'_>, outer: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
    match outer.obstacle {
        Some(Obstacle::SegmentsLeft { offset }) => {
            return Err(Refusal::with(DropReason::RoutingHeader, IcmpAnswer::ParameterProblem { pointer: offset }));
        }
        Some(_) => return Err(DropReason::HeaderAfterFragment.into()),
        None if outer.is_piece() => return Err(DropReason::FragmentUntranslatable.into()),
        None => {}
    }
    match outer.protocol {
        Protocol::IPV4 => Ok(()),
        Protocol::IPV6 => Err(DropReason::TunnelInTunnel.into()),
        Protocol::NO_NEXT_HEADER => Err(DropReason::NotIpv4Inside.into()),
        Protocol::TCP | Protocol::UDP => Err(Refusal::with(DropReason::NotIpv4Inside, IcmpAnswer::PortUnreachable)),
        _ => Err(Refusal::with(DropReason::NotIpv4Inside, unknown_next_header(packet))),
    }
}

/// Puts the outer headers back in front of a packet that was taken out of the softwire and has not
/// left its place, so that `outer` describes it again and an ICMP error can quote it.
///
/// # Errors
/// [`DropReason::NoHeadroom`] if it was never in a softwire.
pub fn put_back(packet: &mut Packet<'_>, outer: &Parsed<Ipv6Addr>) -> Result<(), DropReason> {
    packet.prepend(outer.transport_offset.into())
}

/// Turns `packet`, an ICMPv6 error about a packet that this end sent through a softwire, into the
/// ICMPv4 error, from `from`, about the packet inside (RFC 2473 section 8). The result is as if it
/// had been received from inside the softwire; where it goes is for the caller to decide by the
/// packet it is about. Gives the other end of the softwire along with it.
///
/// "Packet too big" tells the path's MTU less the bytes of the tunnel headers, and only for a
/// packet with DF: others are fragmented here, and their senders can do nothing about it.
/// That fragments were lost (3/1) is nobody's concern: the datagram is, and its host sends it again.
/// Everything else becomes "host unreachable".
///
/// # Errors
/// [`DropReason::BadChecksum`]; [`DropReason::IcmpErrorUnusable`] if the error is not about a
/// packet of this end, too little of the packet inside is there, or no error may be sent about it;
/// [`DropReason::TooBig`] for a packet without DF.
pub fn relay_error(
    packet: &mut Packet<'_>,
    parsed: &Parsed<Ipv6Addr>,
    from: Ipv4Addr,
    identifications: &mut IdentificationGenerator,
) -> Result<(Ipv6Addr, Parsed<Ipv4Addr>), DropReason> {
    let Told { kind, code, rest, outer, inner, at } = open_error(packet, parsed)?;
    let answer = match kind {
        icmpv6::TIME_EXCEEDED if code == icmpv6::REASSEMBLY_TIME_EXCEEDED => {
            return Err(DropReason::IcmpErrorUnusable);
        }
        icmpv6::PACKET_TOO_BIG => too_big(rest, &outer, &inner)?,
        _ => IcmpAnswer::HostUnreachable,
    };
    if !may_answer_ipv4(&inner) {
        return Err(DropReason::IcmpErrorUnusable);
    }
    packet.strip(at);
    packet.offload = Offload::default();
    reply_ipv4(packet, &inner, from, answer, identifications)?;
    Ok((outer.destination, parse_ipv4(packet)?))
}

/// An ICMPv6 error about a packet that this end sent through a softwire.
struct Told {
    kind: u8,
    code: u8,
    rest: u32,
    /// The packet that it is about, and the one in that, which begins at `at` in the error.
    outer: Parsed<Ipv6Addr>,
    inner: Parsed<Ipv4Addr>,
    at: usize,
}

fn open_error(packet: &mut Packet<'_>, parsed: &Parsed<Ipv6Addr>) -> Result<Told, DropReason> {
    complete_checksum(packet, Protocol::ICMPV6)?;
    let message = packet.bytes().get(usize::from(parsed.transport_offset)..).ok_or(DropReason::Malformed)?;
    let view = Icmpv6View::parse(message).map_err(|_| DropReason::Malformed)?;
    let pseudo = pseudo_icmpv6(Sum::ZERO.ipv6(parsed.source).ipv6(parsed.destination), parsed.transport_length());
    if parsed.is_piece() || !pseudo.bytes(message).verifies() {
        return Err(DropReason::BadChecksum);
    }
    let (kind, code, rest) = (view.kind(), view.code(), view.rest_of_header());
    let outer = parsed.embedded(packet)?;
    let is_first = outer.fragment.is_none_or(|fragment| fragment.offset == 0);
    if outer.source != parsed.destination || outer.protocol != Protocol::IPV4 || !is_first {
        return Err(DropReason::IcmpErrorUnusable);
    }
    let at = usize::from(parsed.transport_offset) + icmpv6::HEADER_LENGTH + usize::from(outer.transport_offset);
    let inner = parse_quoted_ipv4(packet.bytes().get(at..).unwrap_or_default())?;
    Ok(Told { kind, code, rest, outer, inner, at })
}

/// The far end of a softwire, and the MTU of the path there, if `packet` is a "packet too big" about a
/// packet that this end sent through it. It stays as it is.
pub fn small_path(packet: &mut Packet<'_>, parsed: &Parsed<Ipv6Addr>) -> Option<(Ipv6Addr, u32)> {
    let told = open_error(packet, parsed).ok()?;
    let is_possible = told.kind == icmpv6::PACKET_TOO_BIG && told.rest >= u32::from(ipv6::MINIMUM_MTU);
    is_possible.then_some((told.outer.destination, told.rest))
}

/// RFC 2473 section 8.3: the MTU less the tunnel headers. Less than 1280 no path has (RFC 8200
/// section 5); whoever says so wants something else (RFC 8021).
fn too_big(mtu: u32, outer: &Parsed<Ipv6Addr>, inner: &Parsed<Ipv4Addr>) -> Result<IcmpAnswer, DropReason> {
    if mtu < u32::from(ipv6::MINIMUM_MTU) {
        return Err(DropReason::IcmpErrorUnusable);
    }
    if !inner.dont_fragment {
        return Err(DropReason::TooBig);
    }
    let mtu = mtu.saturating_sub(outer.transport_offset.into());
    // No IPv4 link has less (RFC 791); what leads there is crafted.
    if mtu < 68 { Err(DropReason::IcmpErrorUnusable) } else { Ok(IcmpAnswer::TooBig { mtu }) }
}
