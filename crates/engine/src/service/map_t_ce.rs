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

use tombolo_wire::Prefix64;

use crate::engine::Work;
use crate::mapping::pool::PortSpace;
use crate::mechanism::screen::{is_illegal_source_ipv4, screen_ipv4, screen_ipv6};
use crate::mechanism::{
    ErrorRewrite, Refusal, Rewrite, TranslateSettings, Translated, translate_4to6, translate_6to4,
    translate_error_4to6, translate_error_6to4,
};
use crate::packet::{Outbox, Packet};
use crate::parse::{Parsed, Payload};
use crate::plan::Routed;
use crate::service::map::{MapEdge, check_own, destination_port, is_echo, source_port, subscriber_of, tell_spoofer};
use crate::service::siit::ErrorSources;
use crate::verdict::{DropReason, Verdict};

/// A MAP-T customer's edge.
#[derive(Debug, Clone)]
pub struct MapTCe {
    /// Its share of the domain and its NAPT.
    pub edge: MapEdge,
    /// The prefix of the Default Mapping Rule: the IPv4 Internet is seen in it.
    pub dmr: Prefix64,
    /// Sources of translated ICMPv6 errors whose senders have no IPv4 address (RFC 6791).
    pub error_sources: ErrorSources,
    /// How headers are translated.
    pub translate: TranslateSettings,
}

impl MapTCe {
    /// True if an IPv6 packet to `destination` is this edge's.
    #[must_use]
    #[inline]
    pub fn claims_ipv6(&self, destination: Ipv6Addr) -> bool {
        self.edge.ce.host_at(destination).is_some()
    }

    /// Where packets of this service are addressed to.
    #[must_use]
    pub fn routed(&self) -> Routed {
        // An assigned prefix has its host bits above the 16 of the PSID.
        let host_bits = 32 - self.edge.ce.ipv4().prefix_len();
        let length = if host_bits == 0 { 128 } else { 112 - host_bits };
        let ipv6 = vec![(self.edge.ce.address(), length.max(self.edge.ce.end_user_prefix().prefix_len()))];
        self.edge.routed(ipv6)
    }

    /// A packet from a host inside.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn inside(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen_ipv4(parsed)?;
        if let Some(nat44) = self.edge.hairpin(packet, parsed)? {
            return nat44.inside(number, packet, parsed, work, outbox);
        }
        if parsed.payload == Payload::IcmpError {
            return self.inside_error(number, packet, parsed, work, outbox);
        }
        let leaving = self.edge.leave(number, parsed, work)?;
        // An echo has one identifier, which the NAPT has just given.
        let identifier = leaving.port.filter(|_| is_echo(parsed)).map(|port| port.0);
        let destination = self.remote_ipv6(parsed.destination, identifier.or(destination_port(parsed)))?;
        work.notes.add("RFC 7599 section 8.1", || format!("{} is {destination}", parsed.destination));
        let to = Rewrite {
            source: self.edge.ce.host_address(leaving.source),
            destination,
            source_port: leaving.port,
            destination_port: None,
        };
        let translated = translate_4to6(packet, parsed, &to, &self.translate)?;
        self.renumber(translated, leaving.source, parsed.destination, work).send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

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
        let Some(range) = self.edge.napt.as_ref().and_then(|napt| napt.pool.ranges().first()) else {
            return translated;
        };
        let ports = &range.ports[PortSpace::Udp as usize];
        let number = u32::from(work.identifications.next(source, destination, 1));
        let identification = number.checked_rem(ports.len()).and_then(|index| ports.nth(index));
        Translated::Fragments { limit, identification: identification.unwrap_or_default().into() }
    }

    /// An ICMPv4 error from inside, about a packet that came in.
    fn inside_error(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        if about.source != parsed.destination {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let remote = self.remote_ipv6(about.source, source_port(&about)).map_err(|_| DropReason::IcmpErrorUnusable)?;
        let leaving = self.edge.error_leaves(number, &about, work)?;
        let own = self.edge.ce.host_address(leaving.source);
        let to = ErrorRewrite {
            source: own,
            destination: remote,
            embedded: Rewrite { source: remote, destination: own, source_port: None, destination_port: leaving.port },
            node: None,
        };
        translate_error_4to6(packet, parsed, &about, &to, &self.translate)?;
        outbox.send(packet);
        Ok(Verdict::Forward)
    }

    /// The IPv6 address for a remote IPv4 address: a subscriber's by the Forwarding Mapping Rules,
    /// else embedded.
    #[inline]
    fn remote_ipv6(&self, address: Ipv4Addr, port: Option<u16>) -> Result<Ipv6Addr, DropReason> {
        let subscriber = subscriber_of(&self.edge.mesh, address, port)?;
        Ok(subscriber.map_or_else(|| self.dmr.embed(address), |found| found.rule.host_address(found.share, address)))
    }

    /// A packet from the IPv6 network.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn outside(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen_ipv6(parsed)?;
        let own = self.edge.ce.host_at(parsed.destination).ok_or(DropReason::NoBinding)?;
        if parsed.payload == Payload::IcmpError {
            return self.outside_error(number, packet, parsed, own, work, outbox);
        }
        let remote = self.remote_ipv4(parsed.source, source_port(parsed)).map_err(tell_spoofer)?;
        let (host, port) = self.edge.arrive(number, parsed, own, remote, work)?;
        let to = Rewrite { source: remote, destination: host, source_port: None, destination_port: port };
        translate_6to4(packet, parsed, &to, &self.translate, work.identifications)?.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// An ICMPv6 error from the network, about a packet that left here.
    fn outside_error(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        own: Ipv4Addr,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        if about.source != parsed.destination {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let remote =
            self.remote_ipv4(about.destination, destination_port(&about)).map_err(|_| DropReason::IcmpErrorUnusable)?;
        let (host, port) = self.edge.error_arrives(number, &about, own, remote, work)?;
        let known = self.remote_ipv4(parsed.source, destination_port(&about)).ok();
        let source = known.or_else(|| self.error_sources.pick(work.random)).or(work.own.ipv4);
        let to = ErrorRewrite {
            source: source.ok_or(DropReason::Untranslatable)?,
            destination: host,
            embedded: Rewrite { source: host, destination: remote, source_port: port, destination_port: None },
            node: None,
        };
        translate_error_6to4(packet, parsed, &about, &to, &self.translate, work.identifications)?;
        outbox.send(packet);
        Ok(Verdict::Forward)
    }

    /// The IPv4 address for a remote IPv6 address: of the prefixes of the Forwarding Mapping Rules
    /// and of the Default Mapping Rule the longest counts. A subscriber must use a port of its own.
    fn remote_ipv4(&self, address: Ipv6Addr, port: Option<u16>) -> Result<Ipv4Addr, DropReason> {
        let embedded = self.dmr.extract(address);
        let by_rule = self.edge.mesh.rule_of_ipv6(address).map(|(_, rule)| rule);
        match (embedded, by_rule) {
            (Some(remote), rule) if rule.is_none_or(|rule| rule.ipv6().prefix_len() < self.dmr.length()) => {
                if is_illegal_source_ipv4(remote) {
                    Err(DropReason::IllegalSource)
                } else {
                    Ok(remote)
                }
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
