//! The customer's edge of MAP-E (RFC 7597): IPv4 hosts inside, an IPv6-only network outside.
//!
//! ```text
//! from inside   NAPT into the edge's own ports   then   into the softwire of another CE by a Forwarding Mapping Rule,
//!                                                       else of the border relay
//! from outside  out of the softwire of the relay, or of a CE that owns inner source and port; then the NAPT
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::read_u16;

use super::map::{MapEdge, check_own, check_sender, is_echo, refuse, subscriber_of};
use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::stateless::Claim;
use crate::mechanism::Refusal;
use crate::mechanism::napt::{Nat, NextLink};
use crate::mechanism::tunnel::end::{Emerged, Entrance, SoftwireEnd, receive, receiver, screen, sender, with_whole};
use crate::mechanism::tunnel::softwire::{relay_error, take_step};
use crate::mechanism::tunnel::{Softwire, SoftwireSettings};
use crate::packet::Packet;
use crate::parse::{Parsed, parse_ipv4};
use crate::routed::Routed;
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A MAP-E customer's edge.
#[derive(Debug, Clone)]
pub struct MapECe {
    /// Its share of the domain and its NAPT.
    pub edge: MapEdge,
    /// The border relay.
    pub relay: Ipv6Addr,
    /// How packets are encapsulated.
    pub softwire: SoftwireSettings,
}

impl Serve for MapECe {
    fn kind(&self) -> Option<&'static str> {
        Some("map-e")
    }

    fn shape(&self) -> Shape {
        Shape::CUSTOMER.with_softwires()
    }

    fn describe(&self) -> Description {
        self.edge.describe(self.relay.to_string())
    }

    fn routed(&self) -> Routed {
        self.edge.routed(vec![(self.edge.ce.address(), 128)])
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.edge.ce.address() == destination
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

    /// From a host inside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        if self.edge.keeps(&work.packet, parsed)? {
            return Ok(Verdict::ToHost);
        }
        screen(parsed)?;
        if let Some(nat44) = self.edge.hairpin(&work.packet, parsed)? {
            return nat44.serve_inside(parsed, work);
        }
        // The embedded packet names the recipient of an ICMP error; it is read before the NAPT
        // rewrites it. An echo gets its identifier from the NAPT.
        let remote = if is_echo(parsed) { None } else { Some(self.remote_of(&work.packet, parsed)?) };
        let entrance = self.entrance(remote.unwrap_or(self.relay));
        self.leave(parsed, entrance, work)?;
        let remote = match remote {
            Some(remote) => remote,
            None => self.remote_of_echo(&work.packet, parsed)?,
        };
        self.entrance(remote).send(parsed, work)
    }

    /// From the IPv6 network.
    #[inline]
    fn serve_ipv6(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        receive(self, &self.softwire, |_| Ok(()), outer, work)
    }

    fn deliver(&self, parsed: &Parsed<Ipv4Addr>, inside: &InsideKey, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        self.edge.deliver(parsed, inside, work)
    }

    fn answer_held(&self, refusal: Refusal, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let parsed = parse_ipv4(&mut work.packet)?;
        let remote = self.subscriber_or_relay(parsed.source, Some(parsed.source_port.0))?;
        self.entrance(remote).answer(refusal, &parsed, work.own.ipv4, work)
    }
}

impl SoftwireEnd for MapECe {
    #[inline]
    fn out_of_softwire(&self, came: &Emerged<'_>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        with_whole(came, work, |inner, work| {
            // The relay's packets are anybody's, another CE's must be its own.
            if came.outer.source != self.relay {
                check_sender(&self.edge.mesh, &work.packet, inner, came.outer.source)?;
            }
            self.to_host(inner, work)
                .or_else(|refusal| self.entrance(came.outer.source).answer(refusal, inner, work.own.ipv4, work))
        })
    }

    /// An ICMPv6 error about a softwire packet goes to the host that sent it, in its own protocol
    /// (RFC 2473 section 8).
    fn relay(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let from = work.own.ipv4.ok_or(DropReason::Untranslatable)?;
        let (_, error) = relay_error(&mut work.packet, outer, from, &mut work.worker.identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("the error goes on to {}, from {from}", error.destination));
        self.to_host(&error, work).map_err(Refusal::silence)
    }
}

impl MapECe {
    /// Gives a packet from inside its source, if it fits the softwire that `entrance` leads into.
    fn leave(&self, parsed: &Parsed<Ipv4Addr>, entrance: Entrance<'_>, work: &mut Work<'_>) -> Result<(), Refusal> {
        let Some(nat) = self.edge.nat() else {
            let owned = sender(&work.packet, parsed)?;
            check_own(self.edge.ce.rule(), self.edge.ce.share(), owned.address, owned.port).map_err(refuse)?;
            entrance.check_size(parsed, work)?;
            return take_step(&mut work.packet, parsed);
        };
        let link = NextLink::of(entrance.limit(parsed, work));
        let _whole = nat.leave_ipv4(parsed, parsed.source.into(), link, work)?;
        Ok(())
    }

    /// Hands a packet to the host inside that it is for.
    fn to_host(&self, inner: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen(inner)?;
        let owned = receiver(&work.packet, inner)?;
        match check_own(self.edge.ce.rule(), self.edge.ce.share(), owned.address, owned.port) {
            Err(DropReason::SpoofedSource) => return Err(DropReason::NotOurs.into()),
            result => result?,
        }
        let Some(nat44) = &self.edge.napt else {
            take_step(&mut work.packet, inner)?;
            return work.forward_whole();
        };
        match nat44.nat.arrive_ipv4(inner, NextLink::of(nat44.inside_mtu), work)? {
            Some((_, translated)) => work.forward(translated),
            None => Ok(Verdict::Hold),
        }
    }

    fn entrance(&self, remote: Ipv6Addr) -> Entrance<'_> {
        Entrance { ends: Softwire { local: self.edge.ce.address(), remote }, settings: &self.softwire }
    }

    /// The other end of the softwire for a packet: another CE by the Forwarding Mapping Rules, else
    /// the relay.
    fn remote_of(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<Ipv6Addr, DropReason> {
        let owned = receiver(packet, parsed)?;
        self.subscriber_or_relay(owned.address, owned.port)
    }

    /// As [`remote_of`](Self::remote_of), for an echo that the NAPT has given its identifier.
    fn remote_of_echo(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<Ipv6Addr, DropReason> {
        let message = packet.bytes().get(usize::from(parsed.transport_offset)..).unwrap_or_default();
        if message.len() < 6 {
            return Err(DropReason::Malformed);
        }
        self.subscriber_or_relay(parsed.destination, Some(read_u16(message, 4)))
    }

    fn subscriber_or_relay(&self, address: Ipv4Addr, port: Option<u16>) -> Result<Ipv6Addr, DropReason> {
        let subscriber = subscriber_of(&self.edge.mesh, address, port)?;
        Ok(subscriber.map_or(self.relay, |found| found.rule.map_address(found.share)))
    }
}
