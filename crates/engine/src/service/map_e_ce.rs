//! The customer's edge of MAP-E (RFC 7597): IPv4 hosts inside, an IPv6-only network outside.
//!
//! ```text
//! from inside   NAPT into the edge's own ports   then   into the softwire of another CE by a Forwarding Mapping Rule,
//!                                                       else of the border relay
//! from outside  out of the softwire of the relay, or of a CE that owns inner source and port; then the NAPT
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::read_u16;

use crate::engine::Work;
use crate::mechanism::softwire::{relay_error, take_step};
use crate::mechanism::{Refusal, Softwire, SoftwireSettings, decapsulate};
use crate::packet::{Outbox, Packet};
use crate::parse::Parsed;
use crate::plan::Routed;
use crate::service::map::{MapEdge, check_own, check_sender, is_echo, subscriber_of, tell_spoofer};
use crate::service::napt44::Napt44;
use crate::service::softwires::{Arrived, answer, arrive, receiver, screen, send, sender, with_whole};
use crate::verdict::{DropReason, Verdict};

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

impl MapECe {
    /// Where packets of this service are addressed to.
    #[must_use]
    pub fn routed(&self) -> Routed {
        self.edge.routed(vec![(self.edge.ce.address(), 128)])
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
        screen(parsed)?;
        if let Some(nat44) = self.edge.hairpin(packet, parsed)? {
            return nat44.inside(number, packet, parsed, work, outbox);
        }
        // Whom an error is for, its packet tells before the NAPT changes it.
        let remote = if is_echo(parsed) { None } else { Some(self.remote_of(packet, parsed)?) };
        self.leave(number, packet, parsed, work)?;
        let remote = match remote {
            Some(remote) => remote,
            None => self.remote_of_echo(packet, parsed)?,
        };
        send(packet, parsed, self.softwire_to(remote), &self.softwire, work, outbox)
    }

    /// Gives a packet from inside its source, if it fits the softwire.
    fn leave(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
    ) -> Result<(), Refusal> {
        let Some(nat44) = &self.edge.napt else {
            let owned = sender(packet, parsed)?;
            check_own(self.edge.ce.rule(), self.edge.ce.share(), owned.address, owned.port).map_err(tell_spoofer)?;
            self.softwire.check_size(packet, parsed)?;
            return take_step(packet, parsed);
        };
        let limit = self.softwire.limit(parsed);
        let napt = Napt44 { number, pool: &nat44.pool, policy: &nat44.policy };
        let _ = napt.outbound(packet, parsed, Ipv6Addr::UNSPECIFIED, limit, work)?;
        Ok(())
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

    fn softwire_to(&self, remote: Ipv6Addr) -> Softwire {
        Softwire { local: self.edge.ce.address(), remote }
    }

    /// A packet from the IPv6 network.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn outside(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        match arrive(packet, outer, &self.softwire, work, outbox)? {
            Arrived::Answered(verdict) => return Ok(verdict),
            Arrived::Error => return self.relay_error(number, packet, outer, work, outbox),
            Arrived::Packet => {}
        }
        let inner = decapsulate(packet, outer, &self.softwire)?;
        with_whole(packet, &inner, outer, work, |packet, inner, work| {
            // The relay's packets are anybody's, another CE's must be its own.
            if outer.source != self.relay {
                check_sender(&self.edge.mesh, packet, inner, outer.source)?;
            }
            let delivered = self.to_host(number, packet, inner, work, outbox);
            let Some(from) = work.own.ipv4 else { return delivered.map_err(Refusal::silence) };
            let way = (self.softwire_to(outer.source), &self.softwire);
            delivered
                .or_else(|refusal| answer(refusal, packet, inner, from, way, work, outbox).map_err(Refusal::silence))
        })
    }

    /// Hands a packet to the host inside that it is for.
    fn to_host(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        inner: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen(inner)?;
        let owned = receiver(packet, inner)?;
        match check_own(self.edge.ce.rule(), self.edge.ce.share(), owned.address, owned.port) {
            Err(DropReason::SpoofedSource) => return Err(DropReason::NotOurs.into()),
            result => result?,
        }
        let Some(nat44) = &self.edge.napt else {
            take_step(packet, inner)?;
            outbox.send(packet);
            return Ok(Verdict::Forward);
        };
        let napt = Napt44 { number, pool: &nat44.pool, policy: &nat44.policy };
        let (_, translated) = napt.inbound(packet, inner, nat44.inside_mtu, work)?;
        translated.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// An ICMPv6 error about a softwire packet: the host that sent it is told in its own protocol
    /// (RFC 2473 section 8).
    fn relay_error(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let from = work.own.ipv4.ok_or(DropReason::Untranslatable)?;
        let (_, error) = relay_error(packet, outer, from, work.identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("{} is told, from {from}", error.destination));
        self.to_host(number, packet, &error, work, outbox).map_err(Refusal::silence)
    }
}
