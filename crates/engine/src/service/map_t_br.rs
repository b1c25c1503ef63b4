//! The border relay of MAP-T (RFC 7599): between the domain and the IPv4 Internet, without state.
//!
//! ```text
//! from the domain   source: a CE's MAP address, wholly checked, port its own   ->  the CE's IPv4 address
//!                   destination: in the Default Mapping Rule's prefix          ->  the IPv4 address in it (RFC 6052)
//! from outside      destination and port                                       ->  the MAP address of who owns them
//!                   source                                                     ->  in the Default Mapping Rule's prefix
//! ```
//!
//! What one CE sends to another by way of the BR turns round here, with one decrement of the hop
//! limit in total.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::Prefix64;

use crate::engine::Work;
use crate::mapping::map_domain::MapDomain;
use crate::mapping::map_rule::Share;
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::screen::{is_illegal_destination_ipv4, screen_ipv4, screen_ipv6};
use crate::mechanism::{
    ErrorRewrite, Refusal, Rewrite, TranslateSettings, Translated, translate_4to6, translate_6to4,
    translate_error_4to6, translate_error_6to4,
};
use crate::packet::{Outbox, Packet};
use crate::parse::{Parsed, Payload};
use crate::plan::Routed;
use crate::service::map::{check_own, destination_port, source_port, subscriber_of, tell_spoofer};
use crate::service::siit::{Arrival, ErrorSources, first_and_last};
use crate::verdict::{DropReason, Verdict};

/// A MAP-T border relay.
#[derive(Debug, Clone)]
pub struct MapTBr {
    /// The domain's rules.
    pub domain: MapDomain,
    /// The prefix of the Default Mapping Rule: the domain sees the IPv4 Internet in it.
    pub dmr: Prefix64,
    /// Sources of translated ICMPv6 errors whose senders have no IPv4 address (RFC 6791).
    pub error_sources: ErrorSources,
    /// How headers are translated.
    pub translate: TranslateSettings,
}

impl MapTBr {
    /// Where packets of this service are addressed to.
    #[must_use]
    pub fn routed(&self) -> Routed {
        let mut ipv4: Vec<_> = self.domain.rules().iter().map(|rule| first_and_last(rule.ipv4())).collect();
        ipv4.sort_unstable();
        ipv4.dedup();
        Routed { ipv6: vec![(self.dmr.address(), self.dmr.length())], ipv4, ..Routed::default() }
    }

    /// A packet from the domain.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn inside(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen_ipv6(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.inside_error(packet, parsed, work, outbox);
        }
        let (rule, share, source) =
            self.domain.host_at(parsed.source).ok_or_else(|| tell_spoofer(DropReason::SpoofedSource))?;
        check_own(rule, share, source, source_port(parsed)).map_err(tell_spoofer)?;
        let destination = self.outside_address(parsed.destination)?;
        work.notes.add("RFC 7599 section 8.2", || {
            format!(
                "{} is {source} with PSID {:#x} by rule {rule}; it sends to {destination}",
                parsed.source, share.psid
            )
        });
        let to = Rewrite::addresses(source, destination);
        if self.domain.contains_ipv4(destination) {
            work.notes.add("RFC 7597 section 8.1", || "another subscriber's: the packet turns round here".into());
            let unlimited = TranslateSettings { ipv4_mtu: u32::MAX, ..self.translate };
            let translated = translate_6to4(packet, parsed, &to, &unlimited, work.identifications)?;
            debug_assert!(matches!(translated, Translated::Whole));
            return self.turn_round(packet, work, outbox);
        }
        translate_6to4(packet, parsed, &to, &self.translate, work.identifications)?.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// An ICMPv6 error from the domain, about a packet that was translated here.
    fn inside_error(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        let (rule, share, receiver) = self.domain.host_at(about.destination).ok_or(DropReason::IcmpErrorUnusable)?;
        check_own(rule, share, receiver, destination_port(&about)).map_err(|_| DropReason::IcmpErrorUnusable)?;
        let destination = self.outside_address(parsed.destination)?;
        let sender = self.dmr.extract(about.source).ok_or(DropReason::IcmpErrorUnusable)?;
        let source = match self.domain.host_at(parsed.source) {
            Some((.., host)) => host,
            None => self.error_sources.pick(work.random).or(work.own.ipv4).ok_or(DropReason::Untranslatable)?,
        };
        let embedded = Rewrite::addresses(sender, receiver);
        let to = ErrorRewrite { source, destination, embedded, node: None };
        translate_error_6to4(packet, parsed, &about, &to, &self.translate, work.identifications)?;
        if self.domain.contains_ipv4(destination) {
            return self.turn_round(packet, work, outbox);
        }
        outbox.send(packet);
        Ok(Verdict::Forward)
    }

    /// The IPv4 address in a destination inside the Default Mapping Rule's prefix.
    fn outside_address(&self, destination: Ipv6Addr) -> Result<Ipv4Addr, DropReason> {
        let address = self.dmr.extract(destination).ok_or(DropReason::Untranslatable)?;
        if is_illegal_destination_ipv4(address) {
            return Err(DropReason::IllegalDestination);
        }
        Ok(address)
    }

    /// A packet for the domain: from outside, or turned round.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn outside(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        arrival: Arrival,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen_ipv4(parsed)?;
        // Subscribers' packets come from the domain; from outside only forged ones have such a
        // source.
        if arrival == Arrival::FromNetwork && self.domain.contains_ipv4(parsed.source) {
            return Err(DropReason::SpoofedSource.into());
        }
        if parsed.payload == Payload::IcmpError {
            return self.outside_error(packet, parsed, outbox);
        }
        let destination = self.inside_address(parsed.destination, destination_port(parsed))?;
        work.notes.add("RFC 7599 section 8.3", || format!("it belongs to {destination}"));
        let to = Rewrite::addresses(self.dmr.embed(parsed.source), destination);
        translate_4to6(packet, parsed, &to, &self.translate)?.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// An ICMPv4 error, about a packet that left the domain here. The port of the packet inside
    /// says whose it was.
    fn outside_error(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        if about.source != parsed.destination {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let sender = self.inside_address(about.source, source_port(&about)).map_err(|_| DropReason::NoSession)?;
        let to = ErrorRewrite {
            source: self.dmr.embed(parsed.source),
            destination: sender,
            embedded: Rewrite::addresses(sender, self.dmr.embed(about.destination)),
            node: None,
        };
        translate_error_4to6(packet, parsed, &about, &to, &self.translate)?;
        outbox.send(packet);
        Ok(Verdict::Forward)
    }

    /// The IPv6 address of the subscriber's host that has `port` of `address`.
    #[inline]
    fn inside_address(&self, address: Ipv4Addr, port: Option<u16>) -> Result<Ipv6Addr, DropReason> {
        let subscriber = subscriber_of(&self.domain, address, port)?.ok_or(DropReason::NoBinding)?;
        let share: Share = subscriber.share;
        Ok(subscriber.rule.host_address(share, address))
    }

    /// From one subscriber to another: what has just become IPv4 comes in again.
    fn turn_round(
        &self,
        packet: &mut Packet<'_>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let parsed = come_in_again(packet)?;
        self.outside(packet, &parsed, Arrival::TurnedRound, work, outbox).map_err(Refusal::silence)
    }
}
