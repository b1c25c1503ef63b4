//! What MAP-T and MAP-E have in common: which port counts, who is a subscriber, and the customer's
//! edge.
//!
//! Read first: RFC 7597 sections 5 and 8.1, RFC 7599 sections 8 and 9.
//!
//! A packet with ports belongs to the subscriber who owns the port; identifiers of ICMP echoes
//! count as ports. In ICMP errors the packet inside counts. What has no ports belongs to
//! subscribers with whole addresses only.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::{Port, Prefix64};

use super::nat44::Nat44;
use super::serve::Serve;
use crate::description::{Description, Fact};
use crate::mapping::map_domain::{AddressOwner, MapDomain};
use crate::mapping::map_rule::{MapCe, MapRule, Share};
use crate::mechanism::napt::{Arrival, Nat, port_of};
use crate::mechanism::tunnel::end::{receiver, sender};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::routed::{Routed, of_prefix, of_ranges};
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// The port or identifier of the sender, if the packet has one.
#[inline]
pub(crate) fn source_port<A>(parsed: &Parsed<A>) -> Option<u16> {
    parsed.payload.has_ports().then_some(parsed.source_port.0)
}

/// The port or identifier of the receiver, if the packet has one.
#[inline]
pub(crate) fn destination_port<A>(parsed: &Parsed<A>) -> Option<u16> {
    parsed.payload.has_ports().then_some(parsed.destination_port.0)
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
        AddressOwner::Subscriber { rule, share, .. } => {
            Ok(domain.rules().get(rule as usize).map(|rule| Subscriber { rule, share }))
        }
        AddressOwner::Nobody if port.is_none() => Err(DropReason::UnsupportedProtocol),
        AddressOwner::Nobody => Err(DropReason::NoBinding),
        AddressOwner::Outside => Ok(None),
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
/// outer source must be the MAP address of who owns inner source and port, where a subscriber has a
/// prefix with any host of it (RFC 7597 section 6 pads it with zeros, and not everybody does). In
/// an ICMP error the packet that it is about says which port.
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
    let (share, _) = rule.host_at(edge).ok_or(DropReason::UnknownSoftwire)?;
    let owned = sender(packet, inner)?;
    for address in [owned.address, inner.source] {
        match check_own(rule, share, address, owned.port) {
            Err(DropReason::SpoofedSource) => return Err(DropReason::InnerSourceSpoofed),
            result => result?,
        }
    }
    Ok(())
}

/// True if `address` is what the Default Mapping Rule's prefix `dmr` shows an IPv4 host as: it lies
/// in it, and in no longer prefix of a rule, whose subscribers have addresses of their own.
#[inline]
pub(crate) fn is_shown_by(dmr: Prefix64, rules: &MapDomain, address: Ipv6Addr) -> bool {
    let by_rule = rules.rule_of_ipv6(address);
    dmr.contains(address) && by_rule.is_none_or(|(_, rule)| rule.ipv6().prefix_len() < dmr.length())
}

/// True for what has one identifier instead of two ports.
#[inline]
pub(crate) fn is_echo<A>(parsed: &Parsed<A>) -> bool {
    matches!(parsed.payload, Payload::EchoRequest | Payload::EchoReply)
}

/// A subscriber whose source is not its own gets an ICMP error (RFC 7599 section 8.2). So does whoever
/// uses an address that no prefix may stand for: "administratively prohibited", the default of RFC
/// 7915 sections 4.4 and 5.4.
#[inline]
pub(crate) fn refuse(reason: DropReason) -> Refusal {
    match reason {
        DropReason::SpoofedSource => Refusal::with(reason, IcmpAnswer::SourcePolicy),
        DropReason::UnsupportedProtocol => Refusal::with(reason, IcmpAnswer::ProtocolUnreachable),
        DropReason::LinkLocal | DropReason::PrivateInWellKnownPrefix => Refusal::with(reason, IcmpAnswer::Prohibited),
        _ => reason.into(),
    }
}

/// What is to be known of a border relay at `relay`: a prefix of MAP-T, an address of MAP-E.
pub(crate) fn describe_relay(domain: &MapDomain, relay: String) -> Description {
    Description::default().with("role", "br").with("relay", relay).with("rules", Fact::texts(domain.rules()))
}

/// What a border relay has routed to it: `ipv6`, and the IPv4 prefixes of all rules.
pub(crate) fn routed_to_relay(domain: &MapDomain, ipv6: (Ipv6Addr, u8)) -> Routed {
    let mut ipv4: Vec<_> = domain.rules().iter().map(|rule| of_prefix(rule.ipv4())).collect();
    ipv4.sort_unstable();
    ipv4.dedup();
    Routed { ipv6: vec![ipv6], ipv4, ..Routed::default() }
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

/// Whom a packet from outside is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arriving {
    pub(crate) host: Ipv4Addr,
    /// The port that it gets, if there is a NAPT.
    pub(crate) port: Option<Port>,
}

impl From<InsideKey> for Arriving {
    fn from(inside: InsideKey) -> Self {
        Self { host: inside.ipv4.into(), port: Some(port_of(&inside)) }
    }
}

impl MapEdge {
    /// True if an IPv4 packet is from a host inside and this edge's to carry.
    #[must_use]
    #[inline]
    pub fn claims_source(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.napt.as_ref().is_some_and(|napt| napt.claims_source(source, destination))
    }

    /// True if IPv4 packets to `destination` may be this edge's to carry, whoever sends them: without
    /// NAPT all but those to its own address. Of a shared address the other ports are other
    /// subscribers' (RFC 7597 section 5.1): which port it is, `keeps` asks.
    #[must_use]
    #[inline]
    pub fn claims_ipv4(&self, destination: Ipv4Addr) -> bool {
        let is_shared = self.ce.rule().division().is_shared();
        self.napt.is_none() && (is_shared || !self.ce.ipv4().contains(destination.to_bits()))
    }

    /// True if a packet from inside is for the edge's own address and port, where there is no NAPT:
    /// a host inside has them, and the packet does not leave.
    ///
    /// # Errors
    /// [`DropReason::IcmpErrorUnusable`] and the like for packets that do not tell their port.
    #[inline]
    pub(crate) fn keeps(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<bool, DropReason> {
        if self.napt.is_some() || !self.ce.ipv4().contains(parsed.destination.to_bits()) {
            return Ok(false);
        }
        let port = receiver(packet, parsed)?.port;
        Ok(port.is_some_and(|port| self.ce.owns(parsed.destination, port)))
    }

    /// What is to be known of an edge whose relay is `relay`: a prefix of MAP-T, an address of MAP-E.
    pub(crate) fn describe(&self, relay: String) -> Description {
        let ce = &self.ce;
        let edge = Description::default()
            .with("end_user_prefix", ce.end_user_prefix().to_string())
            .with("map_address", ce.address().to_string())
            .with("ipv4", ce.ipv4().to_string())
            .with("psid", u32::from(ce.share().psid))
            .with("ports", ce.ports().map(|range| range.len()).sum::<usize>())
            .with("port_ranges", ce.ports().count())
            .with("forwarding_rules", self.mesh.rules().len())
            .with("napt", self.napt.is_some());
        Description::default().with("role", "ce").with("relay", relay).with("edge", edge)
    }

    /// Its NAT, if it has one.
    #[must_use]
    pub fn nat(&self) -> Option<&Nat> {
        self.napt.as_ref().map(|nat44| &nat44.nat)
    }

    /// Where packets of this edge are addressed to, `ipv6` on the outer side.
    pub(crate) fn routed(&self, ipv6: Vec<(Ipv6Addr, u8)>) -> Routed {
        match &self.napt {
            Some(nat44) => Routed { ipv6, sources: of_ranges(&nat44.inside), ..Routed::default() },
            // The default route, as of a CLAT; the host's own addresses and their networks go
            // before.
            None => Routed { ipv6, ipv4: vec![(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST)], ..Routed::default() },
        }
    }

    /// The NAPT, if a packet from inside is hairpinned in it: it is for the edge's own address and
    /// ports. Other ports of that address are other subscribers'.
    ///
    /// # Errors
    /// [`DropReason::IcmpErrorUnusable`] and the like for packets that do not tell their port.
    #[inline]
    pub(crate) fn hairpin(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<Option<&Nat44>, DropReason> {
        let Some(nat44) = self.napt.as_ref().filter(|napt| napt.nat.pool.contains(parsed.destination)) else {
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
    /// As [`Nat::leave`]; without NAPT as [`check_own`].
    #[inline]
    pub(crate) fn leave(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Leaving, Refusal> {
        let Some(nat) = self.nat() else {
            let (rule, share) = (self.ce.rule(), self.ce.share());
            check_own(rule, share, parsed.source, source_port(parsed)).map_err(refuse)?;
            return Ok(Leaving { source: parsed.source, port: None });
        };
        let outside = nat.leave(parsed, parsed.source.into(), parsed.destination, work)?;
        Ok(Leaving { source: outside.address, port: Some(outside.port) })
    }

    /// The inside endpoint that a packet from `remote` to `address` is for; `None` for a SYN that
    /// waits.
    ///
    /// # Errors
    /// As [`Nat::arrive`]; without NAPT [`DropReason::NoBinding`] for what is not the edge's own.
    #[inline]
    pub(crate) fn arrive<A>(
        &self,
        parsed: &Parsed<A>,
        address: Ipv4Addr,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Option<Arriving>, Refusal> {
        let Some(nat) = self.nat() else {
            return match check_own(self.ce.rule(), self.ce.share(), address, destination_port(parsed)) {
                Ok(()) => Ok(Some(Arriving { host: address, port: None })),
                Err(DropReason::SpoofedSource) => Err(DropReason::NoBinding.into()),
                Err(reason) => Err(reason.into()),
            };
        };
        Ok(match nat.arrive(parsed, address, remote, work).map_err(Refusal::silence)? {
            Arrival::At(inside) => Some(inside.into()),
            Arrival::Held => None,
        })
    }

    /// For an ICMP error from inside about packet `about`, which came in: where that packet was
    /// addressed to outside.
    ///
    /// # Errors
    /// [`DropReason::NoSession`], [`DropReason::IcmpErrorUnusable`].
    pub(crate) fn error_leaves(&self, about: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Leaving, Refusal> {
        let Some(nat) = self.nat() else {
            check_own(self.ce.rule(), self.ce.share(), about.destination, destination_port(about))
                .map_err(|_| DropReason::NoSession)?;
            return Ok(Leaving { source: about.destination, port: None });
        };
        let outside = nat.error_leaves(about, about.destination.into(), about.source, work)?;
        Ok(Leaving { source: outside.address, port: Some(outside.port) })
    }

    /// For an ICMP error from outside about packet `about`, which left from `address` for `remote`:
    /// who sent it inside.
    ///
    /// # Errors
    /// [`DropReason::NoSession`], [`DropReason::IcmpErrorUnusable`].
    pub(crate) fn error_arrives<A>(
        &self,
        about: &Parsed<A>,
        address: Ipv4Addr,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Arriving, Refusal> {
        let Some(nat) = self.nat() else {
            check_own(self.ce.rule(), self.ce.share(), address, source_port(about))
                .map_err(|_| DropReason::NoSession)?;
            return Ok(Arriving { host: address, port: None });
        };
        Ok(nat.error_arrives(about, address, remote, work)?.into())
    }

    /// Sends the IPv4 packet at hand to the host with the endpoint `inside`, as [`Serve::deliver`].
    ///
    /// # Errors
    /// The reason why it is not sent.
    pub(crate) fn deliver(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        inside: &InsideKey,
        work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        let nat44 = self.napt.as_ref().ok_or(DropReason::NoBinding)?;
        nat44.deliver(parsed, inside, work)
    }
}
