//! The customer's edge of MAP-T (RFC 7599): IPv4 hosts inside, an IPv6-only network outside.
//!
//! ```text
//! from inside   NAPT into the edge's own ports   then   source: its MAP address
//!                                                       destination: another CE's MAP address by a Forwarding Mapping
//!                                                       Rule, else in the Default Mapping Rule's prefix
//! from outside  the reverse; the source must be in the Default Mapping Rule's prefix, or a CE's MAP address with a port
//!               of that CE
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Prefix64;

use super::map::{MapEdge, check_own, destination_port, is_echo, is_shown_by, refuse, source_port, subscriber_of};
use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::embedding::check_embedding;
use crate::mapping::error_sources::ErrorSources;
use crate::mapping::pool::PortSpace;
use crate::mapping::stateless::Claim;
use crate::mechanism::Refusal;
use crate::mechanism::napt::Nat;
use crate::mechanism::screen::{check_scope, is_illegal_source_ipv4, screen_ipv4, screen_ipv6};
use crate::mechanism::translate::{
    ErrorRewrite, Rewrite, TranslateSettings, Translated, translate_4to6, translate_6to4, translate_error_4to6,
    translate_error_6to4,
};
use crate::parse::{Parsed, Payload};
use crate::routed::Routed;
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A MAP-T customer's edge.
#[derive(Debug, Clone)]
pub struct MapTCe {
    /// Its share of the domain and its NAPT.
    pub edge: MapEdge,
    /// The prefix of the Default Mapping Rule: the IPv4 Internet is seen in it.
    pub dmr: Prefix64,
    /// Drop packets that combine the well-known prefix with an IPv4 address that is not global (RFC
    /// 6052 section 3.1).
    pub well_known_prefix_strict: bool,
    /// Sources of translated ICMPv6 errors whose senders have no IPv4 address (RFC 6791).
    pub error_sources: ErrorSources,
    /// How headers are translated.
    pub translate: TranslateSettings,
}

impl Serve for MapTCe {
    fn kind(&self) -> Option<&'static str> {
        Some("map-t")
    }

    fn shape(&self) -> Shape {
        Shape::CUSTOMER
    }

    fn describe(&self) -> Description {
        self.edge.describe(self.dmr.to_string())
    }

    fn routed(&self) -> Routed {
        // An assigned prefix has its host bits above the 16 of the PSID.
        let host_bits = 32 - self.edge.ce.ipv4().prefix_len();
        let length = if host_bits == 0 { 128 } else { 112 - host_bits };
        let ipv6 = vec![(self.edge.ce.address(), length.max(self.edge.ce.end_user_prefix().prefix_len()))];
        self.edge.routed(ipv6)
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.edge.ce.host_at(destination).is_some()
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, _: &mut Claim) -> bool {
        self.edge.claims_ipv4(destination)
    }

    #[inline]
    fn claims_source(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.edge.claims_source(source, destination)
    }

    fn nat(&self) -> Option<&Nat> {
        self.edge.nat()
    }

    fn nat_mut(&mut self) -> Option<&mut Nat> {
        self.edge.napt.as_mut().map(|nat44| &mut nat44.nat)
    }

    fn pref64(&self) -> Option<Prefix64> {
        Some(self.dmr)
    }

    /// Subscribers whose addresses are inside the Default Mapping Rule's prefix are others.
    fn shows_ipv4_as(&self, address: Ipv6Addr) -> bool {
        is_shown_by(self.dmr, &self.edge.mesh, address)
    }

    /// From a host inside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        if self.edge.keeps(&work.packet, parsed)? {
            return Ok(Verdict::ToHost);
        }
        screen_ipv4(parsed)?;
        if let Some(nat44) = self.edge.hairpin(&work.packet, parsed)? {
            return nat44.serve_inside(parsed, work);
        }
        if parsed.payload == Payload::IcmpError {
            return self.error_from_inside(parsed, work);
        }
        check_scope(parsed.destination).map_err(refuse)?;
        let leaving = self.edge.leave(parsed, work)?;
        // An echo has one identifier, which the NAPT has just given.
        let identifier = leaving.port.filter(|_| is_echo(parsed)).map(|port| port.0);
        let destination =
            self.remote_ipv6(parsed.destination, identifier.or(destination_port(parsed))).map_err(refuse)?;
        work.notes.add("RFC 7599 section 8.1", || format!("{} is {destination}", parsed.destination));
        let to = Rewrite {
            source: self.edge.ce.host_address(leaving.source),
            destination,
            source_port: leaving.port,
            destination_port: None,
        };
        let translated = translate_4to6(&mut work.packet, parsed, &to, &self.translate)?;
        let translated = self.renumber(translated, leaving.source, parsed.destination, work);
        work.forward(translated)
    }

    /// From the IPv6 network.
    #[inline]
    fn serve_ipv6(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv6(parsed)?;
        let own = self.edge.ce.host_at(parsed.destination).ok_or(DropReason::NoBinding)?;
        if parsed.payload == Payload::IcmpError {
            return self.error_from_outside(parsed, own, work);
        }
        let remote = self.remote_ipv4(parsed.source, source_port(parsed)).map_err(refuse)?;
        check_scope(remote).map_err(refuse)?;
        let Some(arriving) = self.edge.arrive(parsed, own, remote, work)? else { return Ok(Verdict::Hold) };
        let to =
            Rewrite { source: remote, destination: arriving.host, source_port: None, destination_port: arriving.port };
        let identifications = &mut work.worker.identifications;
        let translated = translate_6to4(&mut work.packet, parsed, &to, &self.translate, identifications)?;
        work.forward(translated)
    }

    fn deliver(&self, parsed: &Parsed<Ipv4Addr>, inside: &InsideKey, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        self.edge.deliver(parsed, inside, work)
    }
}

impl MapTCe {
    /// Fragments get an identification that is one of the edge's ports: as they have no ports
    /// themselves, nothing else keeps the numbers of subscribers who share an address apart (RFC
    /// 7599 section 10, RFC 6864).
    fn renumber(
        &self,
        translated: Translated,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Translated {
        let Translated::Fragments { limit, .. } = translated else { return translated };
        let Some(range) = self.edge.nat().and_then(|nat| nat.pool.ranges().first()) else {
            return translated;
        };
        let ports = &range.ports[PortSpace::Udp as usize];
        let number = u32::from(work.worker.identifications.next(source, destination, 1));
        let identification = number.checked_rem(ports.len()).and_then(|index| ports.nth(index));
        Translated::Fragments { limit, identification: identification.unwrap_or_default().into() }
    }

    /// An ICMPv4 error from inside, about a packet that came in.
    fn error_from_inside(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(&work.packet)?;
        if about.source != parsed.destination {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let remote = self.remote_ipv6(about.source, source_port(&about)).map_err(|_| DropReason::IcmpErrorUnusable)?;
        let leaving = self.edge.error_leaves(&about, work)?;
        let own = self.edge.ce.host_address(leaving.source);
        let to = ErrorRewrite {
            source: own,
            destination: remote,
            embedded: Rewrite { source: remote, destination: own, source_port: None, destination_port: leaving.port },
            node: None,
        };
        translate_error_4to6(&mut work.packet, parsed, &about, &to, &self.translate)?;
        work.forward_whole()
    }

    /// The IPv6 address for a remote IPv4 address: a subscriber's by the Forwarding Mapping Rules,
    /// else embedded.
    #[inline]
    fn remote_ipv6(&self, address: Ipv4Addr, port: Option<u16>) -> Result<Ipv6Addr, DropReason> {
        if let Some(found) = subscriber_of(&self.edge.mesh, address, port)? {
            return Ok(found.rule.host_address(found.share, address));
        }
        check_embedding(self.dmr, self.well_known_prefix_strict, address)?;
        Ok(self.dmr.embed(address))
    }

    /// An ICMPv6 error from the network, about a packet that left here.
    fn error_from_outside(
        &self,
        parsed: &Parsed<Ipv6Addr>,
        own: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(&work.packet)?;
        if about.source != parsed.destination {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let remote =
            self.remote_ipv4(about.destination, destination_port(&about)).map_err(|_| DropReason::IcmpErrorUnusable)?;
        let arriving = self.edge.error_arrives(&about, own, remote, work)?;
        let (host, port) = (arriving.host, arriving.port);
        let source = match self.remote_ipv4(parsed.source, destination_port(&about)) {
            Ok(known) => known,
            Err(DropReason::PrivateInWellKnownPrefix) => return Err(DropReason::PrivateInWellKnownPrefix.into()),
            Err(_) => {
                let lent = self.error_sources.pick(&mut work.worker.random);
                lent.or(work.own.ipv4).ok_or(DropReason::Untranslatable)?
            }
        };
        let to = ErrorRewrite {
            source,
            destination: host,
            embedded: Rewrite { source: host, destination: remote, source_port: port, destination_port: None },
            node: None,
        };
        translate_error_6to4(&mut work.packet, parsed, &about, &to, &self.translate, &mut work.worker.identifications)?;
        work.forward_whole()
    }

    /// The IPv4 address for a remote IPv6 address: of the prefixes of the Forwarding Mapping Rules
    /// and of the Default Mapping Rule the longest counts. A subscriber must use a port of its own.
    fn remote_ipv4(&self, address: Ipv6Addr, port: Option<u16>) -> Result<Ipv4Addr, DropReason> {
        let embedded = self.dmr.extract(address);
        let by_rule = self.edge.mesh.rule_of_ipv6(address).map(|(_, rule)| rule);
        match (embedded, by_rule) {
            (Some(remote), rule) if rule.is_none_or(|rule| rule.ipv6().prefix_len() < self.dmr.length()) => {
                check_embedding(self.dmr, self.well_known_prefix_strict, remote)?;
                if is_illegal_source_ipv4(remote) { Err(DropReason::IllegalSource) } else { Ok(remote) }
            }
            (_, Some(rule)) => {
                let (share, remote) = rule.host_at(address).ok_or(DropReason::SpoofedSource)?;
                check_own(rule, share, remote, port)?;
                Ok(remote)
            }
            _ => Err(DropReason::SpoofedSource),
        }
    }
}
