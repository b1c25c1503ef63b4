//! The border relay of MAP-E (RFC 7597): between the domain and the IPv4 Internet, without state.
//!
//! ```text
//! from the domain   out of the softwire; the outer source must be the MAP address of who owns inner source and port
//! from outside      into the softwire of who owns destination and port
//! ```
//!
//! What one CE sends to another by way of the relay goes from softwire to softwire.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::engine::Work;
use crate::mapping::map_domain::MapDomain;
use crate::mechanism::softwire::{relay_error, take_step};
use crate::mechanism::{Refusal, Softwire, SoftwireSettings, decapsulate};
use crate::packet::{Outbox, Packet};
use crate::parse::{Parsed, Payload};
use crate::plan::Routed;
use crate::service::map::{check_sender, subscriber_of};
use crate::service::siit::first_and_last;
use crate::service::softwires::{Arrived, answer, arrive, receiver, screen, send, with_whole};
use crate::verdict::{DropReason, Verdict};

/// A MAP-E border relay.
#[derive(Debug, Clone)]
pub struct MapEBr {
    /// The domain's rules.
    pub domain: MapDomain,
    /// Its address: where the softwires of the domain end. Several relays may have the same one
    /// (anycast).
    pub address: Ipv6Addr,
    /// How packets are encapsulated.
    pub softwire: SoftwireSettings,
}

impl MapEBr {
    /// Where packets of this service are addressed to.
    #[must_use]
    pub fn routed(&self) -> Routed {
        let mut ipv4: Vec<_> = self.domain.rules().iter().map(|rule| first_and_last(rule.ipv4())).collect();
        ipv4.sort_unstable();
        ipv4.dedup();
        Routed { ipv6: vec![(self.address, 128)], ipv4, ..Routed::default() }
    }

    /// A packet from the domain.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn inside(
        &self,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        match arrive(packet, outer, &self.softwire, work, outbox)? {
            Arrived::Answered(verdict) => return Ok(verdict),
            Arrived::Error => return self.relay_error(packet, outer, work, outbox),
            Arrived::Packet => {}
        }
        let inner = decapsulate(packet, outer, &self.softwire)?;
        with_whole(packet, &inner, outer, work, |packet, inner, work| {
            self.out_of_softwire(packet, inner, outer.source, work, outbox)
        })
    }

    /// A whole IPv4 packet from the softwire of the CE at `edge`.
    fn out_of_softwire(
        &self,
        packet: &mut Packet<'_>,
        inner: &Parsed<Ipv4Addr>,
        edge: Ipv6Addr,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        check_sender(&self.domain, packet, inner, edge)?;
        work.notes.add("RFC 7597 section 8.1", || {
            format!("{} and its port are those of {edge}; it sends to {}", inner.source, inner.destination)
        });
        let forwarded = if self.domain.contains_ipv4(inner.destination) {
            self.send_inside(packet, inner, work, outbox)
        } else {
            screen(inner).and_then(|()| take_step(packet, inner)).map(|()| {
                outbox.send(packet);
                Verdict::Forward
            })
        };
        let Some(from) = work.own.ipv4 else { return forwarded.map_err(Refusal::silence) };
        let way = (Softwire { local: self.address, remote: edge }, &self.softwire);
        forwarded.or_else(|refusal| answer(refusal, packet, inner, from, way, work, outbox).map_err(Refusal::silence))
    }

    /// A packet from outside.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn outside(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        // Subscribers' packets come through softwires; from outside only forged ones have such a
        // source.
        if self.domain.contains_ipv4(parsed.source) {
            return Err(DropReason::InnerSourceSpoofed.into());
        }
        self.send_inside(packet, parsed, work, outbox)
    }

    /// Sends a packet to the subscriber that owns its destination and port: of an ICMP error, to
    /// who sent the packet that it is about. It is as it was received if this fails.
    fn send_inside(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen(parsed)?;
        let remote = self.softwire_of(packet, parsed)?;
        self.softwire.check_size(packet, parsed)?;
        take_step(packet, parsed)?;
        send(packet, parsed, Softwire { local: self.address, remote }, &self.softwire, work, outbox)
    }

    /// The MAP address of the subscriber that a packet is for.
    fn softwire_of(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<Ipv6Addr, DropReason> {
        let owned = receiver(packet, parsed)?;
        let found = subscriber_of(&self.domain, owned.address, owned.port);
        let found = match parsed.payload {
            Payload::IcmpError => found.map_err(|_| DropReason::NoSession)?,
            _ => found?,
        };
        let subscriber = found.ok_or(DropReason::NoBinding)?;
        Ok(subscriber.rule.map_address(subscriber.share))
    }

    /// An ICMPv6 error about a softwire packet: its sender is told in its own protocol (RFC 2473
    /// section 8).
    fn relay_error(
        &self,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let from = work.own.ipv4.ok_or(DropReason::Untranslatable)?;
        let (_, error) = relay_error(packet, outer, from, work.identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("{} is told, from {from}", error.destination));
        if self.domain.contains_ipv4(error.destination) {
            return self.send_inside(packet, &error, work, outbox).map_err(Refusal::silence);
        }
        outbox.send(packet);
        Ok(Verdict::Forward)
    }
}
