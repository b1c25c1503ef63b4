//! The customer's end of DS-Lite (RFC 6333 section 5): hosts with private IPv4 addresses on an
//! IPv6-only access.
//!
//! No translation and no state: what the hosts inside send goes into the softwire, and what comes
//! out of it goes to them. The AFTR translates.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::engine::Work;
use crate::mapping::address_ranges::AddressRanges;
use crate::mechanism::softwire::{relay_error, take_step};
use crate::mechanism::{Refusal, Softwire, SoftwireSettings, decapsulate};
use crate::packet::{Outbox, Packet};
use crate::parse::Parsed;
use crate::service::softwires::{Arrived, answer, arrive, screen, send};
use crate::verdict::{DropReason, Verdict};

/// A B4.
#[derive(Debug, Clone)]
pub struct B4 {
    /// Who is inside.
    pub inside: AddressRanges,
    /// This end, and the AFTR.
    pub ends: Softwire,
    /// How packets cross.
    pub softwire: SoftwireSettings,
    /// Source of ICMP errors: 192.0.0.2 (RFC 6333 section 5.7).
    pub icmp_source: Ipv4Addr,
}

impl B4 {
    /// True if a packet with these addresses is for the softwire.
    #[must_use]
    #[inline]
    pub fn is_from_inside(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.inside.contains(source) && !self.inside.contains(destination)
    }

    /// A packet from inside. Fragments pass one by one.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn inside(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen(parsed)?;
        self.softwire.check_size(packet, parsed)?;
        take_step(packet, parsed)?;
        send(packet, parsed, self.ends, &self.softwire, work, outbox)
    }

    /// A packet to this end's tunnel address.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn outside(
        &self,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        match arrive(packet, outer, &self.softwire, work, outbox)? {
            Arrived::Answered(verdict) => return Ok(verdict),
            Arrived::Error => return self.relay(packet, outer, work, outbox),
            Arrived::Packet => {}
        }
        if outer.source != self.ends.remote {
            return Err(DropReason::UnknownSoftwire.into());
        }
        let inner = decapsulate(packet, outer, &self.softwire)?;
        work.notes.add("RFC 6333 section 5.1", || format!("out of the softwire, for {}", inner.destination));
        if !self.inside.contains(inner.destination) {
            return Err(DropReason::NotOurs.into());
        }
        let forwarded = screen(&inner).and_then(|()| take_step(packet, &inner));
        if let Err(refusal) = forwarded {
            let way = (self.ends, &self.softwire);
            return answer(refusal, packet, &inner, self.icmp_source, way, work, outbox);
        }
        outbox.send(packet);
        Ok(Verdict::Forward)
    }

    /// An error from the path to the AFTR is told to the host inside.
    fn relay(
        &self,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let (remote, error) = relay_error(packet, outer, self.icmp_source, work.identifications)?;
        if remote != self.ends.remote || !self.inside.contains(error.destination) {
            return Err(DropReason::IcmpErrorUnusable.into());
        }
        work.notes.add("RFC 2473 section 8", || format!("the error is told to {}", error.destination));
        outbox.send(packet);
        Ok(Verdict::Forward)
    }
}
