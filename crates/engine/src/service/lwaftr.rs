//! The provider's end of Lightweight 4over6 (RFC 7596 section 6): a table of softwires, and no
//! translation.
//!
//! State is a row for each subscriber and nothing for each flow: a packet from outside finds its
//! softwire by address and port, a packet from a softwire has to come from the one that its source
//! belongs to. Packets from one subscriber to another turn round ("hairpin"), even within one
//! address.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{Icmpv4View, Sum};

use crate::engine::Work;
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::softwire_table::SoftwireTable;
use crate::mechanism::softwire::{relay_error, take_step};
use crate::mechanism::{IcmpAnswer, Refusal, Softwire, SoftwireSettings, decapsulate};
use crate::packet::{ChecksumState, Outbox, Packet};
use crate::parse::{Parsed, Payload};
use crate::service::softwires::{AFTR_IPV4, Arrived, answer, arrive, receiver, screen, send, sender, with_whole};
use crate::verdict::{DropReason, Verdict};

/// A lwAFTR.
#[derive(Debug, Clone)]
pub struct Lwaftr {
    /// Its tunnel addresses.
    pub addresses: Vec<Ipv6Addr>,
    /// The subscribers' IPv4 addresses, whether or not a softwire has them now: what is routed
    /// here.
    pub ipv4: AddressRanges,
    /// The softwires.
    pub table: SoftwireTable,
    /// How packets cross them.
    pub softwire: SoftwireSettings,
    /// Whether packets from one subscriber to another turn round; otherwise they are dropped.
    pub hairpinning: bool,
    /// Whether a lwB4 whose packet matches no softwire is told so (RFC 7596 section 6.2: ICMPv6
    /// 1/5).
    pub tell_unknown: bool,
    /// Whether the sender of a packet that no softwire is for is told so (RFC 7596 section 6.2:
    /// ICMPv4 3/1).
    pub tell_unreachable: bool,
}

impl Lwaftr {
    /// A packet to a tunnel address.
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
            Arrived::Error => return self.relay(packet, outer, work, outbox),
            Arrived::Packet => {}
        }
        let inner = decapsulate(packet, outer, &self.softwire)?;
        with_whole(packet, &inner, outer, work, |packet, inner, work| {
            let ends = self.check_source(packet, inner, outer)?;
            work.notes.add("RFC 7596 section 6.2", || {
                format!("{} port {} belongs to the softwire from {}", inner.source, inner.source_port.0, ends.remote)
            });
            self.outbound(packet, inner, work, outbox).or_else(|refusal| {
                let from = work.own.ipv4.unwrap_or(AFTR_IPV4);
                answer(refusal, packet, inner, from, (ends, &self.softwire), work, outbox).map_err(Refusal::silence)
            })
        })
    }

    /// The softwire that the packet came through, if its source belongs to it. A refusal is for the
    /// end of the softwire.
    fn check_source(
        &self,
        packet: &Packet<'_>,
        inner: &Parsed<Ipv4Addr>,
        outer: &Parsed<Ipv6Addr>,
    ) -> Result<Softwire, Refusal> {
        let sender = sender(packet, inner)?;
        let told = |reason| Refusal { reason, answer: self.tell_unknown.then_some(IcmpAnswer::SourcePolicy) };
        let ends = self.table.find(sender.address, sender.port).ok_or_else(|| told(DropReason::UnknownSoftwire))?;
        if ends.remote != outer.source || sender.address != inner.source {
            return Err(told(DropReason::InnerSourceSpoofed));
        }
        // Not at the end that it was provisioned with.
        if ends.local != outer.destination {
            return Err(DropReason::NotOurs.into());
        }
        Ok(ends)
    }

    /// A packet from a subscriber.
    fn outbound(
        &self,
        packet: &mut Packet<'_>,
        inner: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        screen(inner)?;
        if self.ipv4.contains(inner.destination) {
            if !self.hairpinning {
                return Err(DropReason::HairpinningOff.into());
            }
            return self.enter(packet, inner, work, outbox);
        }
        take_step(packet, inner)?;
        outbox.send(packet);
        Ok(Verdict::Forward)
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
        screen(parsed)?;
        self.enter(packet, parsed, work, outbox)
    }

    /// A packet for a subscriber, from wherever.
    fn enter(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        if parsed.payload == Payload::IcmpError {
            check_message(packet, parsed)?;
        }
        let receiver = receiver(packet, parsed)?;
        let ends = self.table.find(receiver.address, receiver.port).ok_or_else(|| self.unreachable(parsed))?;
        self.softwire.check_size(packet, parsed)?;
        take_step(packet, parsed)?;
        send(packet, parsed, ends, &self.softwire, work, outbox)
    }

    /// Nobody has the port. Echo requests to identifiers of nobody are not answered: they are scans
    /// (RFC 7596 section 8.1 discards them).
    fn unreachable(&self, parsed: &Parsed<Ipv4Addr>) -> Refusal {
        let is_echo = matches!(parsed.payload, Payload::EchoRequest | Payload::EchoReply);
        let answer = (self.tell_unreachable && !is_echo).then_some(IcmpAnswer::HostUnreachable);
        Refusal { reason: DropReason::NoBinding, answer }
    }

    /// An error from the path to a lwB4 is told to whoever sent the packet, in a softwire too if
    /// need be.
    fn relay(
        &self,
        packet: &mut Packet<'_>,
        outer: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let from = work.own.ipv4.unwrap_or(AFTR_IPV4);
        let (_, error) = relay_error(packet, outer, from, work.identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("the error is told to {}", error.destination));
        if self.ipv4.contains(error.destination) {
            return self.enter(packet, &error, work, outbox).map_err(Refusal::silence);
        }
        outbox.send(packet);
        Ok(Verdict::Forward)
    }
}

/// Errors are verified before they are believed (RFC 5508 REQ-3).
fn check_message(packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<(), DropReason> {
    let message = packet.bytes().get(usize::from(parsed.transport_offset)..).unwrap_or_default();
    let complete = packet.offload.checksum == ChecksumState::Complete;
    let verifies = Icmpv4View::parse(message).is_ok() && (!complete || Sum::ZERO.bytes(message).verifies());
    if verifies { Ok(()) } else { Err(DropReason::BadChecksum) }
}
