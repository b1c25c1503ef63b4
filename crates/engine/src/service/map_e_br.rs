//! The border relay of MAP-E (RFC 7597): between the domain and the IPv4 Internet, without state.
//!
//! ```text
//! from the domain   out of the softwire; the outer source must be the MAP address of who owns inner source and port
//! from outside      into the softwire of who owns destination and port
//! ```
//!
//! What one CE sends to another by way of the relay goes from softwire to softwire.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::map::{check_sender, describe_relay, routed_to_relay, subscriber_of};
use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::map_domain::MapDomain;
use crate::mapping::stateless::Claim;
use crate::mechanism::Refusal;
use crate::mechanism::tunnel::end::{
    Emerged, Entrance, SoftwireEnd, receive, receiver, screen, screen_outbound, with_whole,
};
use crate::mechanism::tunnel::softwire::{relay_error, take_step};
use crate::mechanism::tunnel::{Softwire, SoftwireSettings};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::routed::Routed;
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

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

impl Serve for MapEBr {
    fn kind(&self) -> Option<&'static str> {
        Some("map-e")
    }

    fn shape(&self) -> Shape {
        Shape::PROVIDER.with_softwires()
    }

    fn describe(&self) -> Description {
        describe_relay(&self.domain, self.address.to_string())
    }

    fn routed(&self) -> Routed {
        routed_to_relay(&self.domain, (self.address, 128))
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.address == destination
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, _: &mut Claim) -> bool {
        self.domain.contains_ipv4(destination)
    }

    /// From the domain.
    #[inline]
    fn serve_ipv6(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        receive(self, &self.softwire, |_| Ok(()), outer, work)
    }

    /// From outside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        // Subscribers' packets come through softwires; from outside only forged ones have such a
        // source.
        if self.domain.contains_ipv4(parsed.source) {
            return Err(DropReason::InnerSourceSpoofed.into());
        }
        self.send_inside(parsed, work)
    }
}

impl SoftwireEnd for MapEBr {
    #[inline]
    fn out_of_softwire(&self, came: &Emerged<'_>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        with_whole(came, work, |inner, work| self.accept(inner, came.outer.source, work))
    }

    /// An ICMPv6 error about a softwire packet goes to its sender in its own protocol (RFC 2473
    /// section 8).
    fn relay(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let from = work.own.ipv4.ok_or(DropReason::Untranslatable)?;
        let (_, error) = relay_error(&mut work.packet, outer, from, &mut work.worker.identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("the error goes on to {}, from {from}", error.destination));
        if self.domain.contains_ipv4(error.destination) {
            return self.send_inside(&error, work).map_err(Refusal::silence);
        }
        work.forward_whole()
    }
}

impl MapEBr {
    /// A whole IPv4 packet from the softwire of the CE at `edge`.
    fn accept(&self, inner: &Parsed<Ipv4Addr>, edge: Ipv6Addr, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        check_sender(&self.domain, &work.packet, inner, edge)?;
        work.notes.add("RFC 7597 section 8.1", || {
            format!("{} and its port are those of {edge}; it sends to {}", inner.source, inner.destination)
        });
        let forwarded = if self.domain.contains_ipv4(inner.destination) {
            self.send_inside(inner, work)
        } else {
            screen_outbound(inner).and_then(|()| take_step(&mut work.packet, inner)).and_then(|()| work.forward_whole())
        };
        forwarded.or_else(|refusal| self.entrance(edge).answer(refusal, inner, work.own.ipv4, work))
    }

    /// Sends a packet to the subscriber that owns its destination and port: of an ICMP error, to
    /// who sent the packet that it is about. It is as it was received if this fails.
    fn send_inside(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen(parsed)?;
        let remote = self.softwire_of(&work.packet, parsed)?;
        let entrance = self.entrance(remote);
        entrance.check_size(parsed, work)?;
        take_step(&mut work.packet, parsed)?;
        entrance.send(parsed, work)
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

    fn entrance(&self, edge: Ipv6Addr) -> Entrance<'_> {
        Entrance { ends: Softwire { local: self.address, remote: edge }, settings: &self.softwire }
    }
}
