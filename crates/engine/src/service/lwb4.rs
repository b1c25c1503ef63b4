//! The customer's end of Lightweight 4over6 (RFC 7596 section 5): a NAT44 inside its own port set,
//! in front of a softwire.
//!
//! Packets of other subscribers of the same address are for the lwAFTR; only what is for this end's
//! own ports is hairpinned here.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::icmpv6::{DESTINATION_UNREACHABLE, unreachable};

use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::pool::PortSpace;
use crate::mapping::stateless::Claim;
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::napt::{Nat, NextLink, deliver_ipv4};
use crate::mechanism::tunnel::end::{
    Emerged, Entrance, SoftwireEnd, check_far_end, check_only_remote, receive, receiver, screen, with_whole,
};
use crate::mechanism::tunnel::softwire::relay_error;
use crate::mechanism::tunnel::{FarEndName, Softwire, SoftwireSettings};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::parse::{Parsed, parse_ipv4};
use crate::routed::{Routed, of_ranges};
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A lwB4.
#[derive(Debug, Clone)]
pub struct Lwb4 {
    /// Who is inside.
    pub inside: AddressRanges,
    /// This end, and the lwAFTR.
    pub ends: Softwire,
    /// The name of the far end, where that is how it is known.
    pub far_end: Option<FarEndName>,
    /// The one public address, with the ports of this end's set, and what hosts inside may do.
    pub nat: Nat,
    /// How packets cross.
    pub softwire: SoftwireSettings,
    /// MTU of the links inside, in bytes.
    pub inside_mtu: u32,
    /// Source of ICMP errors into the softwire.
    pub icmp_source: Ipv4Addr,
    /// Whether the sender of a packet for somebody else's port gets an ICMP error (RFC 7596 section
    /// 5.2: ICMPv4 3/13).
    pub tell_not_ours: bool,
}

impl Serve for Lwb4 {
    fn shape(&self) -> Shape {
        Shape::CUSTOMER.with_softwires()
    }

    fn describe(&self) -> Description {
        let about =
            self.softwire.describe(&[self.ends.local]).with("aftr", self.ends.far_end_in_words(self.far_end.as_ref()));
        self.nat.describe(about.with("inside", &self.inside))
    }

    fn named_end(&self) -> Option<(&FarEndName, Softwire)> {
        self.far_end.as_ref().map(|name| (name, self.ends))
    }

    fn named_end_mut(&mut self) -> Option<(&FarEndName, &mut Softwire)> {
        self.far_end.as_ref().map(|name| (name, &mut self.ends))
    }

    fn routed(&self) -> Routed {
        Routed { ipv6: vec![(self.ends.local, 128)], sources: of_ranges(&self.inside), ..Routed::default() }
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.ends.local == destination
    }

    #[inline]
    fn claims_source(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.inside.contains(source) && !self.inside.contains(destination)
    }

    fn nat(&self) -> Option<&Nat> {
        Some(&self.nat)
    }

    fn nat_mut(&mut self) -> Option<&mut Nat> {
        Some(&mut self.nat)
    }

    /// From inside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen(parsed)?;
        check_far_end(self.ends)?;
        let hairpins = self.is_ours(parsed, work)?;
        // What is hairpinned meets the inside link and never the softwire. It is measured now, as long
        // as its sender can be told (RFC 4787 REQ-13).
        let link = NextLink::of(if hairpins { self.inside_mtu } else { self.entrance().limit(parsed, work) });
        let _whole = self.nat.leave_ipv4(parsed, parsed.source.into(), link, work)?;
        if hairpins {
            let parsed = come_in_again(&mut work.packet)?;
            return self.inbound(&parsed, work).map_err(Refusal::silence);
        }
        self.entrance().send(parsed, work)
    }

    /// To this end's tunnel address.
    #[inline]
    fn serve_ipv6(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        receive(self, &self.softwire, |remote| check_only_remote(self.ends, remote), outer, work)
    }

    fn deliver(&self, parsed: &Parsed<Ipv4Addr>, inside: &InsideKey, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let translated = deliver_ipv4(parsed, inside, NextLink::of(self.inside_mtu), work)?;
        work.forward(translated)
    }

    fn answer_held(&self, refusal: Refusal, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let parsed = parse_ipv4(&mut work.packet)?;
        self.entrance().answer(refusal, &parsed, Some(self.icmp_source), work)
    }
}

impl SoftwireEnd for Lwb4 {
    #[inline]
    fn out_of_softwire(&self, came: &Emerged<'_>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        work.notes.add("RFC 7596 section 5.2", || format!("out of the softwire, for {}", came.inner.destination));
        with_whole(came, work, |inner, work| {
            self.inbound(inner, work)
                .or_else(|refusal| self.entrance().answer(refusal, inner, Some(self.icmp_source), work))
        })
    }

    /// An ICMPv6 error from the path to the lwAFTR goes to the host inside. That the lwAFTR has no
    /// softwire for this end (ICMPv6 1/5 from its address; RFC 7596 section 8.1) is counted apart,
    /// since hosts can do nothing about it.
    fn relay(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let message = work.packet.bytes().get(usize::from(outer.transport_offset)..);
        let refused =
            message.is_some_and(|bytes| bytes.starts_with(&[DESTINATION_UNREACHABLE, unreachable::SOURCE_POLICY]));
        if refused && outer.source != self.ends.remote {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        let identifications = &mut work.worker.identifications;
        let (remote, error) = relay_error(&mut work.packet, outer, self.icmp_source, identifications)?;
        if remote != self.ends.remote {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        work.notes.add("RFC 2473 section 8", || format!("the error goes on to the host behind {}", error.destination));
        let arrived = self.nat.arrive_ipv4(&error, NextLink::of(self.inside_mtu), work).map_err(Refusal::silence)?;
        if let Some((_, translated)) = arrived {
            work.forward(translated)?;
        }
        Ok(if refused { Verdict::Reply(DropReason::SoftwireRefused) } else { Verdict::Forward })
    }
}

impl Lwb4 {
    /// A packet that came out of the softwire, or was hairpinned.
    fn inbound(&self, inner: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen(inner)?;
        if !self.is_ours(inner, work)? {
            let answer = self.tell_not_ours.then_some(IcmpAnswer::Prohibited);
            return Err(Refusal { reason: DropReason::NotOurs, answer });
        }
        match self.nat.arrive_ipv4(inner, NextLink::of(self.inside_mtu), work)? {
            Some((_, translated)) => work.forward(translated),
            None => Ok(Verdict::Hold),
        }
    }

    /// True if the packet is for a port of this end's set, whether or not that is bound.
    fn is_ours(&self, parsed: &Parsed<Ipv4Addr>, work: &Work<'_>) -> Result<bool, DropReason> {
        let pool = &self.nat.pool;
        if !pool.contains(parsed.destination) {
            return Ok(false);
        }
        let port = receiver(&work.packet, parsed)?.port.ok_or(DropReason::UnsupportedProtocol)?;
        // The set is the same for all protocols.
        Ok(pool.ranges().iter().any(|range| range.ports[PortSpace::Icmp as usize].contains(port)))
    }

    fn entrance(&self) -> Entrance<'_> {
        Entrance { ends: self.ends, settings: &self.softwire }
    }
}
