//! The customer's end of DS-Lite (RFC 6333 section 5): hosts with private IPv4 addresses on an
//! IPv6-only access.
//!
//! No translation and no state: what the hosts inside send goes into the softwire, and what comes
//! out of it goes to them. The AFTR translates.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::stateless::Claim;
use crate::mechanism::Refusal;
use crate::mechanism::tunnel::end::{
    Emerged, Entrance, SoftwireEnd, check_far_end, check_only_remote, receive, screen,
};
use crate::mechanism::tunnel::softwire::{relay_error, take_step};
use crate::mechanism::tunnel::{FarEndName, Softwire, SoftwireSettings};
use crate::parse::Parsed;
use crate::routed::{Routed, of_ranges};
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A B4.
#[derive(Debug, Clone)]
pub struct B4 {
    /// Who is inside.
    pub inside: AddressRanges,
    /// This end, and the AFTR.
    pub ends: Softwire,
    /// The name of the far end, where that is how it is known.
    pub far_end: Option<FarEndName>,
    /// How packets cross.
    pub softwire: SoftwireSettings,
    /// Source of ICMP errors: 192.0.0.2 (RFC 6333 section 5.7).
    pub icmp_source: Ipv4Addr,
}

impl Serve for B4 {
    fn shape(&self) -> Shape {
        Shape::CUSTOMER.with_softwires().with_ipv4_fragments()
    }

    fn describe(&self) -> Description {
        self.softwire
            .describe(&[self.ends.local])
            .with("aftr", self.ends.far_end_in_words(self.far_end.as_ref()))
            .with("inside", &self.inside)
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

    fn icmp_source(&self) -> Option<Ipv4Addr> {
        Some(self.icmp_source)
    }

    /// From inside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen(parsed)?;
        check_far_end(self.ends)?;
        self.entrance().check_size(parsed, work)?;
        take_step(&mut work.packet, parsed)?;
        self.entrance().send(parsed, work)
    }

    /// To this end's tunnel address.
    #[inline]
    fn serve_ipv6(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        receive(self, &self.softwire, |remote| check_only_remote(self.ends, remote), outer, work)
    }
}

impl SoftwireEnd for B4 {
    #[inline]
    fn out_of_softwire(&self, came: &Emerged<'_>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        work.notes.add("RFC 6333 section 5.1", || format!("out of the softwire, for {}", came.inner.destination));
        if !self.inside.contains(came.inner.destination) {
            return Err(DropReason::NotOurs.into());
        }
        match screen(&came.inner).and_then(|()| take_step(&mut work.packet, &came.inner)) {
            Ok(()) => work.forward_whole(),
            Err(refusal) => self.entrance().answer(refusal, &came.inner, Some(self.icmp_source), work),
        }
    }

    /// An ICMPv6 error from the path to the AFTR goes to the host inside.
    fn relay(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let identifications = &mut work.worker.identifications;
        let (remote, error) = relay_error(&mut work.packet, outer, self.icmp_source, identifications)?;
        if remote != self.ends.remote || !self.inside.contains(error.destination) {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        work.notes.add("RFC 2473 section 8", || format!("the error goes on to {}", error.destination));
        work.forward_whole()
    }
}

impl B4 {
    fn entrance(&self) -> Entrance<'_> {
        Entrance { ends: self.ends, settings: &self.softwire }
    }
}
