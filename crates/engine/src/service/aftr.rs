//! The provider's end of DS-Lite (RFC 6333 sections 6 and 8): a carrier-grade NAT44 whose
//! subscribers come through softwires.
//!
//! The inside endpoint is the address of the B4 with the IPv4 address and port behind it, so that
//! all B4s may use the same private addresses. Whatever B4 of the configured prefixes sends first
//! is admitted; the subscriber is its prefix (RFC 7785). Packets from one subscriber to an address
//! of the pool turn round ("hairpin").

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::engine::Work;
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::pool::Pool;
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::napt::Policy;
use crate::mechanism::softwire::relay_error;
use crate::mechanism::{IcmpAnswer, Refusal, Softwire, SoftwireSettings, decapsulate};
use crate::packet::{Outbox, Packet};
use crate::parse::Parsed;
use crate::service::napt44::Napt44;
use crate::service::softwires::{Arrived, answer, arrive, screen, send, with_whole};
use crate::verdict::{DropReason, Verdict};
use tombolo_tables::lpm::Prefix;

/// An AFTR.
#[derive(Debug, Clone)]
pub struct Aftr {
    /// Its tunnel address.
    pub address: Ipv6Addr,
    /// Where B4s may be (RFC 6333 section 11: ingress filtering). Not empty.
    pub b4s: Vec<Prefix<u128>>,
    /// Inner sources that are accepted: private addresses and 192.0.0.0/29 unless configured
    /// otherwise (RFC 6333 section 11).
    pub inside: AddressRanges,
    /// Outside addresses.
    pub pool: Pool,
    /// What subscribers may do.
    pub policy: Policy,
    /// How packets cross the softwires.
    pub softwire: SoftwireSettings,
    /// MTU of the links outside, in bytes.
    pub outside_mtu: u32,
    /// Source of ICMP errors to hosts behind B4s: 192.0.0.1 (RFC 6333 section 6.5).
    pub icmp_source: Ipv4Addr,
    /// Whether a B4 that is not served is told so, at a bounded rate (ICMPv6 1/5).
    pub tell_unknown: bool,
}

impl Aftr {
    /// A packet to the tunnel address.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn inside(
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
        if !self.b4s.iter().any(|prefix| prefix.contains(outer.source.to_bits())) {
            let answer = self.tell_unknown.then_some(IcmpAnswer::SourcePolicy);
            return Err(Refusal { reason: DropReason::UnknownSoftwire, answer });
        }
        let inner = decapsulate(packet, outer, &self.softwire)?;
        work.notes.add("RFC 6333 section 6.1", || format!("out of the softwire from {}", outer.source));
        if !self.inside.contains(inner.source) {
            return Err(DropReason::InnerSourceSpoofed.into());
        }
        with_whole(packet, &inner, outer, work, |packet, inner, work| {
            let ends = Softwire { local: self.address, remote: outer.source };
            self.outbound(number, packet, inner, outer.source, work, outbox).or_else(|refusal| {
                answer(refusal, packet, inner, self.icmp_source, (ends, &self.softwire), work, outbox)
                    .map_err(Refusal::silence)
            })
        })
    }

    /// A packet from the host `inner.source` behind `b4`.
    fn outbound(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        inner: &Parsed<Ipv4Addr>,
        b4: Ipv6Addr,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen(inner)?;
        if self.pool.contains(inner.destination) {
            // It never meets the outside link, so that link's MTU is no limit.
            let _ = self.napt(number).outbound(packet, inner, b4, u32::MAX, work)?;
            return self.come_in_again(number, packet, work, outbox);
        }
        self.napt(number).outbound(packet, inner, b4, self.outside_mtu, work)?.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// A packet from outside.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn outside(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen(parsed)?;
        self.softwire.check_size(packet, parsed)?;
        let (inside, _) = self.napt(number).inbound(packet, parsed, u32::MAX, work)?;
        let ends = Softwire { local: self.address, remote: inside.ipv6.into() };
        send(packet, parsed, ends, &self.softwire, work, outbox)
    }

    /// A packet that has its outside source and is for the pool comes in as if from outside.
    fn come_in_again(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let parsed = come_in_again(packet)?;
        self.outside(number, packet, &parsed, work, outbox).map_err(Refusal::silence)
    }

    /// An error from the path to a B4, about a packet to a host behind it, is told to the remote
    /// like an error from that host's side.
    fn relay(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let (b4, error) = relay_error(packet, outer, self.icmp_source, work.identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("the error is told to {}", error.destination));
        self.outbound(number, packet, &error, b4, work, outbox).map_err(Refusal::silence)
    }

    fn napt(&self, number: u8) -> Napt44<'_> {
        Napt44 { number, pool: &self.pool, policy: &self.policy }
    }
}
