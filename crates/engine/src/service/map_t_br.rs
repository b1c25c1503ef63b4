//! The border relay of MAP-T (RFC 7599): between the domain and the IPv4 Internet, without state.
//!
//! ```text
//! from the domain   source: a CE's MAP address, wholly checked, port its own   ->  the CE's IPv4 address
//!                   destination: in the Default Mapping Rule's prefix          ->  the IPv4 address in it (RFC 6052)
//! from outside      destination and port                                       ->  the MAP address of who owns them
//!                   source                                                     ->  in the Default Mapping Rule's prefix
//! ```
//!
//! What one CE sends to another by way of the BR is hairpinned, with one decrement of the hop
//! limit in total.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::Prefix64;

use super::map::{
    check_own, describe_relay, destination_port, is_shown_by, refuse, routed_to_relay, source_port, subscriber_of,
};
use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::embedding::check_embedding;
use crate::mapping::error_sources::ErrorSources;
use crate::mapping::map_domain::MapDomain;
use crate::mapping::stateless::Claim;
use crate::mechanism::Refusal;
use crate::mechanism::hairpin::{Origin, check_size, come_in_again};
use crate::mechanism::screen::{check_scope, is_illegal_destination_ipv4, screen_ipv4, screen_ipv6};
use crate::mechanism::translate::{
    ErrorRewrite, Rewrite, TranslateSettings, translate_4to6, translate_6to4, translate_error_4to6,
    translate_error_6to4,
};
use crate::parse::{Parsed, Payload};
use crate::routed::Routed;
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A MAP-T border relay.
#[derive(Debug, Clone)]
pub struct MapTBr {
    /// The domain's rules.
    pub domain: MapDomain,
    /// The prefix of the Default Mapping Rule: the domain sees the IPv4 Internet in it.
    pub dmr: Prefix64,
    /// Drop packets that combine the well-known prefix with an IPv4 address that is not global (RFC
    /// 6052 section 3.1).
    pub well_known_prefix_strict: bool,
    /// Sources of translated ICMPv6 errors whose senders have no IPv4 address (RFC 6791).
    pub error_sources: ErrorSources,
    /// How headers are translated.
    pub translate: TranslateSettings,
}

impl Serve for MapTBr {
    fn kind(&self) -> Option<&'static str> {
        Some("map-t")
    }

    fn shape(&self) -> Shape {
        Shape::PROVIDER
    }

    fn describe(&self) -> Description {
        describe_relay(&self.domain, self.dmr.to_string())
    }

    fn routed(&self) -> Routed {
        routed_to_relay(&self.domain, (self.dmr.address(), self.dmr.length()))
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.dmr.contains(destination)
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, _: &mut Claim) -> bool {
        self.domain.contains_ipv4(destination)
    }

    fn pref64(&self) -> Option<Prefix64> {
        Some(self.dmr)
    }

    /// Subscribers whose addresses are inside the Default Mapping Rule's prefix are others.
    fn shows_ipv4_as(&self, address: Ipv6Addr) -> bool {
        is_shown_by(self.dmr, &self.domain, address)
    }

    /// From the domain.
    #[inline]
    fn serve_ipv6(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv6(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.error_from_domain(parsed, work);
        }
        let (rule, share, source) =
            self.domain.host_at(parsed.source).ok_or_else(|| refuse(DropReason::SpoofedSource))?;
        check_own(rule, share, source, source_port(parsed)).map_err(refuse)?;
        let destination = self.outside_address(parsed.destination).map_err(refuse)?;
        work.notes.add("RFC 7599 section 8.2", || {
            format!(
                "{} is {source} with PSID {:#x} by rule {rule}; it sends to {destination}",
                parsed.source, share.psid
            )
        });
        let to = Rewrite::addresses(source, destination);
        if self.domain.contains_ipv4(destination) {
            work.notes.add("RFC 7597 section 8.1", || "another subscriber's: the packet is hairpinned".into());
            check_size(&work.packet, parsed, self.translate.ipv6_mtu)?;
            let unlimited = self.translate.without_ipv4_limit();
            let _whole = translate_6to4(&mut work.packet, parsed, &to, &unlimited, &mut work.worker.identifications)?;
            return self.hairpin(parsed.largest_piece, work);
        }
        let identifications = &mut work.worker.identifications;
        let translated = translate_6to4(&mut work.packet, parsed, &to, &self.translate, identifications)?;
        work.forward(translated)
    }

    /// From outside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        self.to_domain(parsed, Origin::Network, work)
    }
}

impl MapTBr {
    /// An ICMPv6 error from the domain, about a packet that was translated here.
    fn error_from_domain(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(&work.packet)?;
        let (rule, share, receiver) = self.domain.host_near(about.destination).ok_or(DropReason::IcmpErrorUnusable)?;
        check_own(rule, share, receiver, destination_port(&about)).map_err(|_| DropReason::IcmpErrorUnusable)?;
        let destination = self.outside_address(parsed.destination)?;
        let sender = self.dmr.extract(about.source).ok_or(DropReason::IcmpErrorUnusable)?;
        let source = match self.domain.host_at(parsed.source) {
            Some((.., host)) => host,
            None => {
                self.error_sources.pick(&mut work.worker.random).or(work.own.ipv4).ok_or(DropReason::Untranslatable)?
            }
        };
        let embedded = Rewrite::addresses(sender, receiver);
        let to = ErrorRewrite { source, destination, embedded, node: None };
        translate_error_6to4(&mut work.packet, parsed, &about, &to, &self.translate, &mut work.worker.identifications)?;
        if self.domain.contains_ipv4(destination) {
            return self.hairpin(0, work);
        }
        work.forward_whole()
    }

    /// The IPv4 address in a destination inside the Default Mapping Rule's prefix.
    fn outside_address(&self, destination: Ipv6Addr) -> Result<Ipv4Addr, DropReason> {
        let address = self.dmr.extract(destination).ok_or(DropReason::Untranslatable)?;
        check_embedding(self.dmr, self.well_known_prefix_strict, address)?;
        check_scope(address)?;
        if is_illegal_destination_ipv4(address) {
            return Err(DropReason::IllegalDestination);
        }
        Ok(address)
    }

    /// A packet for the domain: from outside, or hairpinned.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    fn to_domain(&self, parsed: &Parsed<Ipv4Addr>, origin: Origin, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv4(parsed)?;
        // Subscribers' packets come from the domain; from outside only forged ones have such a
        // source.
        if origin == Origin::Network && self.domain.contains_ipv4(parsed.source) {
            return Err(DropReason::SpoofedSource.into());
        }
        if parsed.payload == Payload::IcmpError {
            return self.error_to_domain(parsed, work);
        }
        check_scope(parsed.source)?;
        let source = self.shown(parsed.source).map_err(refuse)?;
        let destination = self.inside_address(parsed.destination, destination_port(parsed))?;
        work.notes.add("RFC 7599 section 8.3", || format!("it belongs to {destination}"));
        let to = Rewrite::addresses(source, destination);
        let translated = translate_4to6(&mut work.packet, parsed, &to, &self.translate)?;
        work.forward(translated)
    }

    /// An ICMPv4 error, about a packet that left the domain here. The port of the packet inside
    /// says whose it was. A router whose address the prefix may not stand for (private, loopback)
    /// may yet know the path MTU: its error is sent from the relay's own address (RFC 7915 section
    /// 4.1).
    fn error_to_domain(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(&work.packet)?;
        if about.source != parsed.destination {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let sender = self.inside_address(about.source, source_port(&about)).map_err(|_| DropReason::NoSession)?;
        let source = self.shown(parsed.source).or_else(|reason| work.own.ipv6.ok_or(reason))?;
        let to = ErrorRewrite {
            source,
            destination: sender,
            embedded: Rewrite::addresses(sender, self.dmr.embed(about.destination)),
            node: None,
        };
        translate_error_4to6(&mut work.packet, parsed, &about, &to, &self.translate)?;
        work.forward_whole()
    }

    /// The IPv6 address that a host outside is shown as.
    #[inline]
    fn shown(&self, address: Ipv4Addr) -> Result<Ipv6Addr, DropReason> {
        check_embedding(self.dmr, self.well_known_prefix_strict, address)?;
        Ok(self.dmr.embed(address))
    }

    /// The IPv6 address of the subscriber's host that has `port` of `address`.
    #[inline]
    fn inside_address(&self, address: Ipv4Addr, port: Option<u16>) -> Result<Ipv6Addr, DropReason> {
        let subscriber = subscriber_of(&self.domain, address, port)?.ok_or(DropReason::NoBinding)?;
        Ok(subscriber.rule.host_address(subscriber.share, address))
    }

    /// From one subscriber to another: what has just become IPv4 comes in again.
    fn hairpin(&self, largest_piece: u16, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let parsed = Parsed { largest_piece, ..come_in_again(&mut work.packet)? };
        self.to_domain(&parsed, Origin::Hairpin, work).map_err(Refusal::silence)
    }
}
