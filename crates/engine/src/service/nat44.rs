//! Stateful NAT44, up to carrier grade (RFC 4787, RFC 5382, RFC 5508, RFC 6888, RFC 7857).
//!
//! Both sides are IPv4, so addresses say which side a packet is from: from inside if its source is
//! inside and its destination is not, from outside if its destination is in the pool. The
//! subscriber is the inside address. A packet from inside to an address of the pool is hairpinned
//! (RFC 4787 REQ-9): it gets its outside source and comes in again as if from outside, with one
//! decrement of the TTL in total.

use std::net::Ipv4Addr;

use tombolo_tables::binding::InsideKey;

use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::exemptions::Exemptions;
use crate::mapping::stateless::Claim;
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::napt::{Host, Nat, NextLink, deliver_ipv4, pass_untranslated};
use crate::mechanism::screen::screen_ipv4;
use crate::mechanism::{Refusal, slice};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::routed::{Routed, of_pool, of_ranges, shared_of};
use crate::side::Side;
use crate::verdict::Verdict;
use crate::work::Work;

/// A stateful NAT44.
#[derive(Debug, Clone)]
pub struct Nat44 {
    /// Who is inside.
    pub inside: AddressRanges,
    /// Destinations that inside hosts reach with their own addresses (RFC 6888 REQ-6).
    pub untranslated: AddressRanges,
    /// Ports of destinations that they reach so.
    pub exempt: Exemptions,
    /// Outside addresses, none of them inside, and what subscribers may do.
    pub nat: Nat,
    /// MTU of the links inside, in bytes.
    pub inside_mtu: u32,
    /// MTU of the links outside, in bytes.
    pub outside_mtu: u32,
    /// Largest TCP segment that a SYN may announce, in bytes; larger announcements are lowered to
    /// it. `None` leaves them.
    pub largest_segment: Option<u16>,
}

impl Serve for Nat44 {
    fn shape(&self) -> Shape {
        Shape::PROVIDER
    }

    fn describe(&self) -> Description {
        self.nat.describe(Description::default().with("inside", &self.inside))
    }

    fn routed(&self) -> Routed {
        Routed {
            ipv4: of_pool(&self.nat.pool),
            shared: shared_of(&self.nat),
            sources: of_ranges(&self.inside),
            exempt: of_ranges(&self.untranslated),
            returns: !self.exempt.is_empty(),
            ..Routed::default()
        }
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, _: &mut Claim) -> bool {
        self.nat.pool.contains(destination)
    }

    #[inline]
    fn claims_source(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.inside.contains(source) && !self.inside.contains(destination) && !self.untranslated.contains(destination)
    }

    fn nat(&self) -> Option<&Nat> {
        Some(&self.nat)
    }

    fn nat_mut(&mut self) -> Option<&mut Nat> {
        Some(&mut self.nat)
    }

    fn host_of_ipv4(&self, parsed: &Parsed<Ipv4Addr>, packet: &Packet<'_>) -> Option<Host> {
        match parsed.payload {
            Payload::IcmpError => Some(parsed.embedded(packet).ok()?.destination.into()),
            _ => Some(parsed.source.into()),
        }
    }

    #[inline]
    fn serve_ipv4(&self, side: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        match side {
            Side::Inside => self.serve_inside(parsed, work),
            Side::Outside => self.serve_outside(parsed, work),
        }
    }

    fn deliver(&self, parsed: &Parsed<Ipv4Addr>, inside: &InsideKey, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let translated = deliver_ipv4(parsed, inside, self.link(self.inside_mtu), work)?;
        work.forward(translated)
    }
}

impl Nat44 {
    /// A packet from inside.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    #[inline]
    pub(crate) fn serve_inside(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv4(parsed)?;
        if self.exempt.has_destination(parsed, &work.packet) {
            return pass_untranslated(parsed, work);
        }
        let hairpins = self.nat.hairpins(parsed, work)?;
        // What is hairpinned meets the inside link and never the outside one. It is measured now, as
        // long as its sender can be told (RFC 4787 REQ-13).
        let link = self.link(if hairpins { self.inside_mtu } else { self.outside_mtu });
        let translated = self.nat.leave_ipv4(parsed, parsed.source.into(), link, work)?;
        if hairpins { self.hairpin(work) } else { work.forward(translated) }
    }

    #[inline]
    fn serve_outside(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv4(parsed)?;
        match self.nat.arrive_ipv4(parsed, self.link(self.inside_mtu), work)? {
            Some((_, translated)) => work.forward(translated),
            None => Ok(Verdict::Hold),
        }
    }

    /// A packet that has its outside source and is for the pool comes in as if from outside.
    fn hairpin(&self, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let parsed = come_in_again(&mut work.packet)?;
        if let Some(verdict) = slice::hairpin_elsewhere(&self.nat, &parsed, work).map_err(Refusal::silence)? {
            return Ok(verdict);
        }
        self.serve_outside(&parsed, work).map_err(Refusal::silence)
    }

    const fn link(&self, mtu: u32) -> NextLink {
        NextLink { mtu, largest_segment: self.largest_segment }
    }
}
