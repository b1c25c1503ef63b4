//! The provider's end of DS-Lite (RFC 6333 sections 6 and 8): a carrier-grade NAT44 whose
//! subscribers come through softwires.
//!
//! The inside endpoint is the address of the B4 with the IPv4 address and port behind it, so that
//! all B4s may use the same private addresses. Whatever B4 of the configured prefixes sends first
//! is admitted; the subscriber is its prefix (RFC 7785). Packets from one subscriber to an address
//! of the pool are hairpinned.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Protocol;

use super::serve::Serve;
use super::shape::Shape;
use crate::description::{Description, Fact};
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::exemptions::Exemptions;
use crate::mapping::networks::Networks;
use crate::mapping::stateless::Claim;
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::napt::{Host, KnownBy, Nat, NextLink, deliver_ipv4, pass_untranslated};
use crate::mechanism::pcp::{Client, LONGEST_DATAGRAM, is_request, respond_ipv4};
use crate::mechanism::tunnel::end::{Emerged, Entrance, SoftwireEnd, receive, screen, screen_outbound, with_whole};
use crate::mechanism::tunnel::softwire::{relay_error, take_step};
use crate::mechanism::tunnel::{Softwire, SoftwireSettings};
use crate::mechanism::{IcmpAnswer, Refusal, slice};
use crate::packet::{HEADROOM, Packet};
use crate::parse::{Parsed, Payload, parse_ipv4};
use crate::routed::{Routed, of_pool, shared_of};
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// An AFTR.
#[derive(Debug, Clone)]
pub struct Aftr {
    /// Its tunnel address.
    pub address: Ipv6Addr,
    /// Where B4s may be (RFC 6333 section 11: ingress filtering). Not empty.
    pub b4s: Networks,
    /// Inner sources that are accepted: private addresses and 192.0.0.0/29 unless configured
    /// otherwise (RFC 6333 section 11).
    pub inside: AddressRanges,
    /// Who reaches which destinations with an address of its own.
    pub untranslated: Untranslated,
    /// Outside addresses, and what subscribers may do.
    pub nat: Nat,
    /// How packets cross the softwires.
    pub softwire: SoftwireSettings,
    /// MTU of the links outside, in bytes.
    pub outside_mtu: u32,
    /// Source of ICMP errors to hosts behind B4s: 192.0.0.1 (RFC 6333 section 6.5).
    pub icmp_source: Ipv4Addr,
    /// Whether a B4 that is not served gets an ICMPv6 error (1/5), at a bounded rate.
    pub tell_unknown: bool,
}

/// Hosts behind B4s that reach some destinations with their own addresses (RFC 6888 REQ-6).
///
/// Packets from such a destination have to find the softwire without a binding, so these hosts are
/// named, and each has its address to itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Untranslated {
    destinations: AddressRanges,
    exempt: Exemptions,
    /// By ascending address: the hosts, and the B4s that they are behind.
    hosts: Vec<(Ipv4Addr, Ipv6Addr)>,
}

impl Untranslated {
    /// `hosts` reach `destinations`, and the ports that are `exempt`, with their own addresses. No address
    /// may be named twice.
    #[must_use]
    pub fn new(destinations: AddressRanges, exempt: Exemptions, mut hosts: Vec<(Ipv4Addr, Ipv6Addr)>) -> Self {
        hosts.sort_unstable();
        Self { destinations, exempt, hosts }
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The B4 of the host with this address.
    fn softwire_of(&self, host: Ipv4Addr) -> Option<Ipv6Addr> {
        let place = self.hosts.binary_search_by_key(&host, |(address, _)| *address).ok()?;
        Some(self.hosts[place].1)
    }

    /// True if the host `inner.source` behind `b4` reaches where `inner` goes as it is.
    fn has(&self, inner: &Parsed<Ipv4Addr>, b4: Ipv6Addr, packet: &Packet<'_>) -> bool {
        self.softwire_of(inner.source) == Some(b4)
            && (self.destinations.contains(inner.destination) || self.exempt.has_destination(inner, packet))
    }
}

impl Serve for Aftr {
    fn shape(&self) -> Shape {
        Shape::PROVIDER.with_softwires()
    }

    fn describe(&self) -> Description {
        let about = self
            .softwire
            .describe(&[self.address])
            .with("b4s", Fact::texts(self.b4s.prefixes()))
            .with("inside", &self.inside)
            .with("untranslated_hosts", self.untranslated.hosts.len());
        self.nat.describe(about)
    }

    fn routed(&self) -> Routed {
        let mut ipv4 = of_pool(&self.nat.pool);
        ipv4.extend(self.untranslated.hosts.iter().map(|(host, _)| (*host, *host)));
        Routed { ipv6: vec![(self.address, 128)], ipv4, shared: shared_of(&self.nat), ..Routed::default() }
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.address == destination
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, _: &mut Claim) -> bool {
        self.nat.pool.contains(destination) || self.untranslated.softwire_of(destination).is_some()
    }

    fn has_inside(&self, inside: &InsideKey) -> bool {
        self.b4s.contains(inside.ipv6.into()) && self.inside.contains(inside.ipv4.into())
    }

    fn nat(&self) -> Option<&Nat> {
        Some(&self.nat)
    }

    fn nat_mut(&mut self) -> Option<&mut Nat> {
        Some(&mut self.nat)
    }

    fn hosts_known_by(&self) -> KnownBy {
        KnownBy::Softwire
    }

    /// The B4, whatever host behind it: what is for this end itself any node answers.
    fn host_of_ipv6(&self, outer: &Parsed<Ipv6Addr>, packet: &Packet<'_>) -> Option<Host> {
        match outer.payload {
            Payload::IcmpError => Some(outer.embedded(packet).ok()?.destination.into()),
            _ if outer.protocol == Protocol::IPV4 => Some(outer.source.into()),
            _ => None,
        }
    }

    fn softwire_end(&self) -> Option<Ipv6Addr> {
        Some(self.address)
    }

    fn admits(&self, outer: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
        if outer.protocol == Protocol::IPV4 { self.check_b4(outer.source) } else { Ok(()) }
    }

    /// To the tunnel address.
    #[inline]
    fn serve_ipv6(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        receive(self, &self.softwire, |remote| self.check_b4(remote), outer, work)
    }

    /// From outside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen(parsed)?;
        self.softwire.check_size(&work.packet, parsed)?;
        if let Some(b4) = self.untranslated.softwire_of(parsed.destination) {
            return self.to_untranslated(parsed, b4, work);
        }
        match self.nat.arrive_ipv4(parsed, NextLink::NONE, work)? {
            Some((inside, _)) => self.entrance(inside.ipv6.into()).send(parsed, work),
            None => Ok(Verdict::Hold),
        }
    }

    fn deliver(&self, parsed: &Parsed<Ipv4Addr>, inside: &InsideKey, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let _whole = deliver_ipv4(parsed, inside, NextLink::NONE, work)?;
        self.entrance(inside.ipv6.into()).send(parsed, work)
    }
}

impl SoftwireEnd for Aftr {
    #[inline]
    fn out_of_softwire(&self, came: &Emerged<'_>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        work.notes.add("RFC 6333 section 6.1", || format!("out of the softwire from {}", came.outer.source));
        if !self.inside.contains(came.inner.source) {
            return Err(DropReason::InnerSourceSpoofed.into());
        }
        with_whole(came, work, |inner, work| {
            let entrance = self.entrance(came.outer.source);
            let result = if self.is_request(inner, work) {
                let address = inner.source;
                let host = Host { ipv6: came.outer.source, ipv4: address };
                let client = Client { nat: &self.nat, host, address: address.into(), prefix: None };
                let mut buffer = [0; HEADROOM + LONGEST_DATAGRAM];
                let (verdict, response) = respond_ipv4(&client, inner, work, &mut buffer)?;
                let mut work = work.on(response);
                let response = parse_ipv4(&mut work.packet)?;
                entrance.send(&response, &mut work).map(|_| verdict)
            } else if inner.destination == self.icmp_source {
                work.notes.add("RFC 6333 section 5.7", || format!("{} is this end of the softwire", inner.destination));
                entrance.answer_echo(inner, work)
            } else {
                self.outbound(inner, came.outer.source, work)
            };
            result.or_else(|refusal| entrance.answer(refusal, inner, Some(self.icmp_source), work))
        })
    }

    /// An ICMPv6 error from the path to a B4, about a packet to a host behind it, goes to the
    /// remote like an error from that host's side.
    fn relay(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let identifications = &mut work.worker.identifications;
        let (b4, error) = relay_error(&mut work.packet, outer, self.icmp_source, identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("the error goes on to {}", error.destination));
        self.outbound(&error, b4, work).map_err(Refusal::silence)
    }
}

impl Aftr {
    #[inline]
    fn check_b4(&self, remote: Ipv6Addr) -> Result<(), Refusal> {
        if !self.b4s.contains(remote) {
            let answer = self.tell_unknown.then_some(IcmpAnswer::SourcePolicy);
            return Err(Refusal { reason: DropReason::UnknownSoftwire, answer });
        }
        Ok(())
    }

    /// True if a packet from inside a softwire asks for a port: of this end, or of any server (RFC 7723).
    fn is_request(&self, inner: &Parsed<Ipv4Addr>, work: &Work<'_>) -> bool {
        is_request(inner)
            && self.nat.policy.pcp.is_some()
            && (inner.destination == self.icmp_source || work.pcp.ipv4.contains(&inner.destination))
    }

    /// A packet from the host `inner.source` behind `b4`.
    fn outbound(&self, inner: &Parsed<Ipv4Addr>, b4: Ipv6Addr, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_outbound(inner)?;
        if self.untranslated.has(inner, b4, &work.packet) {
            return pass_untranslated(inner, work);
        }
        let hairpins = self.nat.hairpins(inner, work)?;
        // What is hairpinned meets a softwire and never the outside link. It is measured now, as long
        // as its sender can be told (RFC 2473 section 7.2 (a)).
        let link = NextLink::of(if hairpins { self.softwire.limit(inner) } else { self.outside_mtu });
        let translated = self.nat.leave_ipv4(inner, Host { ipv6: b4, ipv4: inner.source }, link, work)?;
        if hairpins { self.hairpin(work) } else { work.forward(translated) }
    }

    /// A packet to a host behind `b4` that has an address of its own. An ICMP error may come from any
    /// router on the way.
    fn to_untranslated(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        b4: Ipv6Addr,
        work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        let remote = match parsed.payload {
            Payload::IcmpError => parsed.embedded(&work.packet)?.destination,
            _ => parsed.source,
        };
        let Untranslated { destinations, exempt, .. } = &self.untranslated;
        if !destinations.contains(remote) && !exempt.has_source(parsed, &work.packet) {
            return Err(DropReason::NoBinding.into());
        }
        take_step(&mut work.packet, parsed)?;
        self.entrance(b4).send(parsed, work)
    }

    /// A packet that has its outside source and is for the pool comes in as if from outside.
    fn hairpin(&self, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let parsed = come_in_again(&mut work.packet)?;
        if let Some(verdict) = slice::hairpin_elsewhere(&self.nat, &parsed, work).map_err(Refusal::silence)? {
            return Ok(verdict);
        }
        self.serve_ipv4(Side::Outside, &parsed, work).map_err(Refusal::silence)
    }

    fn entrance(&self, b4: Ipv6Addr) -> Entrance<'_> {
        Entrance { ends: Softwire { local: self.address, remote: b4 }, settings: &self.softwire }
    }
}
