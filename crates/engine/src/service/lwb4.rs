//! The customer's end of Lightweight 4over6 (RFC 7596 section 5): a NAT44 inside its own port set,
//! in front of a softwire.
//!
//! Packets of other subscribers of the same address are for the lwAFTR; only what is for this end's
//! own ports turns round here ("hairpin").

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::engine::Work;
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::pool::{Pool, PortSpace};
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::napt::Policy;
use crate::mechanism::softwire::relay_error;
use crate::mechanism::{IcmpAnswer, Refusal, Softwire, SoftwireSettings, decapsulate};
use crate::packet::{Outbox, Packet};
use crate::parse::Parsed;
use crate::plan::StaticBinding;
use crate::service::napt44::Napt44;
use crate::service::softwires::{Arrived, answer, arrive, receiver, screen, send, with_whole};
use crate::verdict::{DropReason, Verdict};

/// A lwB4.
#[derive(Debug, Clone)]
pub struct Lwb4 {
    /// Who is inside.
    pub inside: AddressRanges,
    /// This end, and the lwAFTR.
    pub ends: Softwire,
    /// The one public address, with the ports of this end's set.
    pub pool: Pool,
    /// What hosts inside may do.
    pub policy: Policy,
    /// How packets cross.
    pub softwire: SoftwireSettings,
    /// MTU of the links inside, in bytes.
    pub inside_mtu: u32,
    /// Source of ICMP errors into the softwire.
    pub icmp_source: Ipv4Addr,
    /// Whether the sender of a packet for somebody else's port is told so (RFC 7596 section 5.2:
    /// ICMPv4 3/13).
    pub tell_not_ours: bool,
    /// Bindings that are always there.
    pub static_bindings: Vec<StaticBinding>,
}

impl Lwb4 {
    /// True if a packet with these addresses is from inside and is to be translated.
    #[must_use]
    #[inline]
    pub fn is_from_inside(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.inside.contains(source) && !self.inside.contains(destination)
    }

    /// A packet from inside.
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
        if self.is_ours(packet, parsed)? {
            let _ = self.napt(number).outbound(packet, parsed, Ipv6Addr::UNSPECIFIED, u32::MAX, work)?;
            return self.come_in_again(number, packet, work, outbox);
        }
        let limit = self.softwire.limit(parsed);
        let _ = self.napt(number).outbound(packet, parsed, Ipv6Addr::UNSPECIFIED, limit, work)?;
        send(packet, parsed, self.ends, &self.softwire, work, outbox)
    }

    /// A packet to this end's tunnel address.
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
            Arrived::Error => return self.relay(number, packet, outer, work, outbox),
            Arrived::Packet => {}
        }
        if outer.source != self.ends.remote {
            return Err(DropReason::UnknownSoftwire.into());
        }
        let inner = decapsulate(packet, outer, &self.softwire)?;
        work.notes.add("RFC 7596 section 5.2", || format!("out of the softwire, for {}", inner.destination));
        with_whole(packet, &inner, outer, work, |packet, inner, work| {
            self.inbound(number, packet, inner, work, outbox).or_else(|refusal| {
                let way = (self.ends, &self.softwire);
                answer(refusal, packet, inner, self.icmp_source, way, work, outbox).map_err(Refusal::silence)
            })
        })
    }

    /// A packet that came out of the softwire, or turned round.
    fn inbound(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        inner: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen(inner)?;
        if !self.is_ours(packet, inner)? {
            let answer = self.tell_not_ours.then_some(IcmpAnswer::Prohibited);
            return Err(Refusal { reason: DropReason::NotOurs, answer });
        }
        let (_, translated) = self.napt(number).inbound(packet, inner, self.inside_mtu, work)?;
        translated.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// True if the packet is for a port of this end's set, whether or not that is bound.
    fn is_ours(&self, packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<bool, DropReason> {
        if !self.pool.contains(parsed.destination) {
            return Ok(false);
        }
        let port = receiver(packet, parsed)?.port.ok_or(DropReason::UnsupportedProtocol)?;
        // The set is the same for all protocols.
        Ok(self.pool.ranges().iter().any(|range| range.ports[PortSpace::Icmp as usize].contains(port)))
    }

    fn come_in_again(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let parsed = come_in_again(packet)?;
        self.inbound(number, packet, &parsed, work, outbox).map_err(Refusal::silence)
    }

    /// An error from the path to the lwAFTR is told to the host inside. That the lwAFTR has no
    /// softwire for this end (ICMPv6 1/5 from its address; RFC 7596 section 8.1) is counted apart,
    /// since hosts can do nothing about it.
    fn relay(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        use tombolo_wire::icmpv6::{DESTINATION_UNREACHABLE, unreachable};
        let refused = packet
            .bytes()
            .get(usize::from(outer.transport_offset)..)
            .is_some_and(|message| message.starts_with(&[DESTINATION_UNREACHABLE, unreachable::SOURCE_POLICY]));
        if refused && outer.source != self.ends.remote {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let (remote, error) = relay_error(packet, outer, self.icmp_source, work.identifications)?;
        if remote != self.ends.remote {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        work.notes.add("RFC 2473 section 8", || format!("the error is told to the host behind {}", error.destination));
        let (_, translated) =
            self.napt(number).inbound(packet, &error, self.inside_mtu, work).map_err(Refusal::silence)?;
        translated.send(packet, outbox)?;
        Ok(if refused { Verdict::Reply(DropReason::SoftwireRefused) } else { Verdict::Forward })
    }

    fn napt(&self, number: u8) -> Napt44<'_> {
        Napt44 { number, pool: &self.pool, policy: &self.policy }
    }
}
