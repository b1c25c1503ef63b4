//! What MAP-T and MAP-E have in common: which port counts, who is a subscriber, and the customer's
//! edge.
//!
//! Read first: RFC 7597 sections 5 and 8.1, RFC 7599 sections 8 and 9.
//!
//! A packet with ports belongs to the subscriber who owns the port; identifiers of ICMP echoes
//! count as ports. In ICMP errors the packet inside counts. What has no ports belongs to
//! subscribers with whole addresses only.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::Port;

use crate::engine::{Random, Work};
use crate::mapping::map_domain::{MapDomain, Owner};
use crate::mapping::map_rule::{MapCe, MapRule, Share};
use crate::mechanism::napt::{Endpoint, Napt};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::plan::Routed;
use crate::service::nat44::Nat44;
use crate::service::softwires::{receiver, sender};
use crate::service::stateful::{inside_key, napt, no_state_inside, space_of, space_of_embedded};
use crate::verdict::DropReason;

/// The port or identifier of the sender, if the packet has one.
#[inline]
pub(crate) fn source_port<A>(parsed: &Parsed<A>) -> Option<u16> {
    has_ports(parsed).then_some(parsed.source_port.0)
}

/// The port or identifier of the receiver, if the packet has one.
#[inline]
pub(crate) fn destination_port<A>(parsed: &Parsed<A>) -> Option<u16> {
    has_ports(parsed).then_some(parsed.destination_port.0)
}

#[inline]
fn has_ports<A>(parsed: &Parsed<A>) -> bool {
    matches!(parsed.payload, Payload::Tcp | Payload::Udp | Payload::EchoRequest | Payload::EchoReply)
}

/// A subscriber as somebody else sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subscriber<'a> {
    pub(crate) rule: &'a MapRule,
    pub(crate) share: Share,
}

/// The subscriber that has `port` of `address`; `None` if the address is not in the domain.
///
/// # Errors
/// [`DropReason::NoBinding`] for a port of nobody, [`DropReason::UnsupportedProtocol`] for a shared
/// address and a packet without ports.
#[inline]
pub(crate) fn subscriber_of(
    domain: &MapDomain,
    address: Ipv4Addr,
    port: Option<u16>,
) -> Result<Option<Subscriber<'_>>, DropReason> {
    match domain.owner_of(address, port) {
        Owner::Subscriber { rule, share, .. } => {
            Ok(domain.rules().get(rule as usize).map(|rule| Subscriber { rule, share }))
        }
        Owner::Nobody if port.is_none() => Err(DropReason::UnsupportedProtocol),
        Owner::Nobody => Err(DropReason::NoBinding),
        Owner::Outside => Ok(None),
    }
}

/// Whether what a subscriber sends is from an address and a port of its own.
///
/// # Errors
/// [`DropReason::SpoofedSource`], or [`DropReason::UnsupportedProtocol`] for a shared address and a
/// packet without ports.
#[inline]
pub(crate) fn check_own(rule: &MapRule, share: Share, address: Ipv4Addr, port: Option<u16>) -> Result<(), DropReason> {
    match port {
        None if rule.division().is_shared() => Err(DropReason::UnsupportedProtocol),
        port if rule.owns(share, address, port.unwrap_or(0)) => Ok(()),
        _ => Err(DropReason::SpoofedSource),
    }
}

/// Whether a packet that came out of the softwire of `edge` is that subscriber's to send: the whole
/// outer source must be the MAP address of who owns inner source and port. In an ICMP error the
/// packet that it is about says which port.
///
/// # Errors
/// [`DropReason::UnknownSoftwire`], [`DropReason::InnerSourceSpoofed`].
pub(crate) fn check_sender(
    domain: &MapDomain,
    packet: &Packet<'_>,
    inner: &Parsed<Ipv4Addr>,
    edge: Ipv6Addr,
) -> Result<(), DropReason> {
    let (_, rule) = domain.rule_of_ipv6(edge).ok_or(DropReason::UnknownSoftwire)?;
    let share = rule.share_at(edge).ok_or(DropReason::UnknownSoftwire)?;
    let owned = sender(packet, inner)?;
    for address in [owned.address, inner.source] {
        match check_own(rule, share, address, owned.port) {
            Err(DropReason::SpoofedSource) => return Err(DropReason::InnerSourceSpoofed),
            result => result?,
        }
    }
    Ok(())
}

/// True for what has one identifier instead of two ports.
#[inline]
pub(crate) fn is_echo<A>(parsed: &Parsed<A>) -> bool {
    matches!(parsed.payload, Payload::EchoRequest | Payload::EchoReply)
}

/// The subscriber is told that its source is not its own (RFC 7599 section 8.2).
#[inline]
pub(crate) fn tell_spoofer(reason: DropReason) -> Refusal {
    match reason {
        DropReason::SpoofedSource => Refusal::with(reason, IcmpAnswer::SourcePolicy),
        DropReason::UnsupportedProtocol => Refusal::with(reason, IcmpAnswer::ProtocolUnreachable),
        _ => reason.into(),
    }
}

/// A customer's edge: its share of the domain, the NAPT in front of it, and the subscribers that it
/// reaches directly.
#[derive(Debug, Clone)]
pub struct MapEdge {
    /// Its Basic Mapping Rule and what follows from it.
    pub ce: MapCe,
    /// NAPT for hosts inside, on the edge's own address and ports. Without it the hosts have the
    /// IPv4 addresses and keep to the ports themselves, or somebody in front of the edge does it
    /// for them.
    pub napt: Option<Nat44>,
    /// Forwarding Mapping Rules: subscribers that are reached without going through the BR
    /// ("mesh"). Empty in a hub-and-spoke domain.
    pub mesh: MapDomain,
}

/// What a packet from inside leaves from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    pub(crate) source: Ipv4Addr,
    /// The port that it gets, if NAPT gives one.
    pub(crate) port: Option<Port>,
}

impl MapEdge {
    /// True if an IPv4 packet is from a host inside and this edge's to carry.
    #[must_use]
    #[inline]
    pub fn is_from_inside(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.napt.as_ref().is_some_and(|napt| napt.is_from_inside(source, destination))
    }

    /// True if IPv4 packets to `destination` are this edge's to carry, whoever sends them: without
    /// NAPT all but those to its own address.
    #[must_use]
    #[inline]
    pub fn claims_ipv4(&self, destination: Ipv4Addr) -> bool {
        self.napt.is_none() && !self.ce.ipv4().contains(destination.to_bits())
    }

    /// Where packets of this edge are addressed to, `ipv6` on the outer side.
    pub(crate) fn routed(&self, ipv6: Vec<(Ipv6Addr, u8)>) -> Routed {
        match &self.napt {
            Some(nat44) => {
                let sources = nat44.inside.ranges().iter().map(|range| (*range.start(), *range.end())).collect();
                Routed { ipv6, sources, ..Routed::default() }
            }
            // The default route, as of a CLAT; the host's own addresses and their networks go
            // before.
            None => Routed { ipv6, ipv4: vec![(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST)], ..Routed::default() },
        }
    }

    /// The NAPT, if a packet from inside has to turn round in it ("hairpin"): it is for the edge's
    /// own address and ports. Other ports of that address are other subscribers'.
    ///
    /// # Errors
    /// [`DropReason::IcmpErrorUnusable`] and the like for packets that do not tell their port.
    #[inline]
    pub(crate) fn hairpin(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<Option<&Nat44>, DropReason> {
        let Some(nat44) = self.napt.as_ref().filter(|napt| napt.pool.contains(parsed.destination)) else {
            return Ok(None);
        };
        let port = receiver(packet, parsed)?.port;
        // An echo's identifier is not the edge's before the NAPT has seen it.
        let is_own = is_echo(parsed) || port.is_none_or(|port| self.ce.owns(parsed.destination, port));
        Ok(is_own.then_some(nat44))
    }

    /// The source of a packet from inside, with state made for it where there is a NAPT.
    ///
    /// # Errors
    /// As [`Napt::outbound`]; without NAPT as [`check_own`].
    #[inline]
    pub(crate) fn leave(&self, number: u8, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Leaving, Refusal> {
        let Some(nat44) = &self.napt else {
            let (rule, share) = (self.ce.rule(), self.ce.share());
            check_own(rule, share, parsed.source, source_port(parsed)).map_err(tell_spoofer)?;
            return Ok(Leaving { source: parsed.source, port: None });
        };
        let (space, event) = space_of(parsed)?;
        let remote = Endpoint { address: parsed.destination, port: parsed.destination_port };
        let inside = inside_key(number, space, parsed.source.into(), parsed.source_port);
        let outside = engaged(number, nat44, work).outbound(&inside, space, remote, event).map_err(no_state_inside)?;
        work.notes.add("RFC 7597 section 8.1", || {
            let (source, port) = (parsed.source, parsed.source_port.0);
            format!("{source} port {port} has port {} of {}", outside.port.0, outside.address)
        });
        Ok(Leaving { source: outside.address, port: Some(outside.port) })
    }

    /// The inside endpoint that a packet from `remote` to port `port` of `address` is for.
    ///
    /// # Errors
    /// As [`Napt::inbound`]; without NAPT [`DropReason::NoBinding`] for what is not the edge's own.
    #[inline]
    pub(crate) fn arrive<A>(
        &self,
        number: u8,
        parsed: &Parsed<A>,
        address: Ipv4Addr,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<(Ipv4Addr, Option<Port>), Refusal> {
        let Some(nat44) = &self.napt else {
            return match check_own(self.ce.rule(), self.ce.share(), address, destination_port(parsed)) {
                Ok(()) => Ok((address, None)),
                Err(DropReason::SpoofedSource) => Err(DropReason::NoBinding.into()),
                Err(reason) => Err(reason.into()),
            };
        };
        let (space, event) = space_of(parsed).map_err(Refusal::silence)?;
        let remote = Endpoint { address: remote, port: parsed.source_port };
        let outside = Endpoint { address, port: parsed.destination_port };
        let inside = engaged(number, nat44, work).inbound(outside, space, remote, event)?;
        let (host, port) = (Ipv4Addr::from(inside.ipv4), Port(u16::from_be_bytes(inside.port)));
        work.notes.add("RFC 7597 section 8.1", || {
            format!("port {} of {address} is {host}'s port {}", parsed.destination_port.0, port.0)
        });
        Ok((host, Some(port)))
    }

    /// For an ICMP error from inside about packet `about`, which came in: where that packet was
    /// addressed to outside.
    ///
    /// # Errors
    /// [`DropReason::NoSession`], [`DropReason::IcmpErrorUnusable`].
    pub(crate) fn error_leaves(
        &self,
        number: u8,
        about: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
    ) -> Result<Leaving, Refusal> {
        let Some(nat44) = &self.napt else {
            check_own(self.ce.rule(), self.ce.share(), about.destination, destination_port(about))
                .map_err(|_| DropReason::NoSession)?;
            return Ok(Leaving { source: about.destination, port: None });
        };
        let space = space_of_embedded(about)?;
        let remote = Endpoint { address: about.source, port: about.source_port };
        let inside = inside_key(number, space, about.destination.into(), about.destination_port);
        let napt = engaged(number, nat44, work);
        let outside = napt.outbound_error(&inside, space, remote).ok_or(DropReason::NoSession)?;
        Ok(Leaving { source: outside.address, port: Some(outside.port) })
    }

    /// For an ICMP error from outside about packet `about`, which left from `address` for `remote`:
    /// who sent it inside.
    ///
    /// # Errors
    /// [`DropReason::NoSession`], [`DropReason::IcmpErrorUnusable`].
    pub(crate) fn error_arrives<A>(
        &self,
        number: u8,
        about: &Parsed<A>,
        address: Ipv4Addr,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<(Ipv4Addr, Option<Port>), Refusal> {
        let Some(nat44) = &self.napt else {
            check_own(self.ce.rule(), self.ce.share(), address, source_port(about))
                .map_err(|_| DropReason::NoSession)?;
            return Ok((address, None));
        };
        let space = space_of_embedded(about)?;
        let remote = Endpoint { address: remote, port: about.destination_port };
        let outside = Endpoint { address, port: about.source_port };
        let napt = engaged(number, nat44, work);
        let inside = napt.inbound_error(outside, space, remote).ok_or(DropReason::NoSession)?;
        Ok((inside.ipv4.into(), Some(Port(u16::from_be_bytes(inside.port)))))
    }
}

fn engaged<'a>(number: u8, nat44: &'a Nat44, work: &'a mut Work<'_>) -> Napt<'a, Random> {
    napt(number, &nat44.pool, &nat44.policy, work)
}
