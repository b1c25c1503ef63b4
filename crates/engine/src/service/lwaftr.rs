//! The provider's end of Lightweight 4over6 (RFC 7596 section 6): a table of softwires, and no
//! translation.
//!
//! State is a row for each subscriber and nothing for each flow: a packet from outside finds its
//! softwire by address and port, a packet from a softwire has to come from the one that its source
//! belongs to. Packets from one subscriber to another are hairpinned, even within one address.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::{Icmpv4View, Protocol, Sum};

use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::softwire_table::SoftwireTable;
use crate::mapping::stateless::Claim;
use crate::mechanism::tunnel::end::{
    AFTR_IPV4, Emerged, Entrance, SoftwireEnd, receive, receiver, screen, screen_outbound, sender, with_whole,
};
use crate::mechanism::tunnel::softwire::{relay_error, take_step};
use crate::mechanism::tunnel::{Softwire, SoftwireSettings};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::{ChecksumState, Packet};
use crate::parse::{Parsed, Payload};
use crate::routed::{Routed, of_ranges};
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

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
    /// Whether packets from one subscriber to another are hairpinned; otherwise they are dropped.
    pub hairpinning: bool,
    /// Whether a lwB4 whose packet matches no softwire gets an ICMPv6 error (RFC 7596 section 6.2:
    /// 1/5).
    pub tell_unknown: bool,
    /// Whether the sender of a packet that no softwire is for gets an ICMP error (RFC 7596 section
    /// 6.2: ICMPv4 3/1).
    pub tell_unreachable: bool,
    /// Whether ICMP from outside enters softwires at all: errors and echoes (RFC 7596 section 8.1
    /// leaves that to policy). What subscribers send to each other always does.
    pub inbound_icmp: bool,
}

impl Serve for Lwaftr {
    fn shape(&self) -> Shape {
        Shape::PROVIDER.with_softwires()
    }

    fn describe(&self) -> Description {
        self.softwire.describe(&self.addresses).with("ipv4", &self.ipv4).with("softwires", self.table.len())
    }

    fn routed(&self) -> Routed {
        let ipv6 = self.addresses.iter().map(|&address| (address, 128)).collect();
        Routed { ipv6, ipv4: of_ranges(&self.ipv4), ..Routed::default() }
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.addresses.contains(&destination)
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, _: &mut Claim) -> bool {
        self.ipv4.contains(destination)
    }

    /// To a tunnel address.
    #[inline]
    fn serve_ipv6(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        receive(self, &self.softwire, |_| Ok(()), outer, work)
    }

    /// From outside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        // Subscribers' packets come through softwires; from outside only forged ones have such a
        // source.
        if self.ipv4.contains(parsed.source) {
            return Err(DropReason::InnerSourceSpoofed.into());
        }
        screen(parsed)?;
        if parsed.protocol == Protocol::ICMP && !self.inbound_icmp {
            return Err(DropReason::Denied.into());
        }
        self.enter(parsed, work)
    }
}

impl SoftwireEnd for Lwaftr {
    #[inline]
    fn out_of_softwire(&self, came: &Emerged<'_>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        with_whole(came, work, |inner, work| {
            let ends = self.check_source(inner, came.outer, work)?;
            work.notes.add("RFC 7596 section 6.2", || {
                format!("{} port {} belongs to the softwire from {}", inner.source, inner.source_port.0, ends.remote)
            });
            self.outbound(inner, work).or_else(|refusal| {
                let from = work.own.ipv4.unwrap_or(AFTR_IPV4);
                self.entrance(ends).answer(refusal, inner, Some(from), work)
            })
        })
    }

    /// An ICMPv6 error from the path to a lwB4 goes to whoever sent the packet, in a softwire too if
    /// need be.
    fn relay(&self, outer: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let from = work.own.ipv4.unwrap_or(AFTR_IPV4);
        let (_, error) = relay_error(&mut work.packet, outer, from, &mut work.worker.identifications)?;
        work.notes.add("RFC 2473 section 8", || format!("the error goes on to {}", error.destination));
        if self.ipv4.contains(error.destination) {
            return self.enter(&error, work).map_err(Refusal::silence);
        }
        // 192.0.0.1 is never seen outside (RFC 6333 section 5.7).
        if work.own.ipv4.is_none() {
            return Err(DropReason::Untranslatable.into());
        }
        work.forward_whole()
    }
}

impl Lwaftr {
    /// The softwire that the packet came through, if its source belongs to it. A refusal is for the
    /// end of the softwire.
    fn check_source(
        &self,
        inner: &Parsed<Ipv4Addr>,
        outer: &Parsed<Ipv6Addr>,
        work: &Work<'_>,
    ) -> Result<Softwire, Refusal> {
        let sender = sender(&work.packet, inner)?;
        let refuse = |reason| Refusal { reason, answer: self.tell_unknown.then_some(IcmpAnswer::SourcePolicy) };
        let Some(ends) = self.table.find(sender.address, sender.port) else {
            // Of a protocol without ports nobody can tell whose it is. 1/5 would tell a lwB4 that it
            // has no softwire (RFC 7596 section 8.1).
            return Err(match sender.port {
                Some(_) => refuse(DropReason::UnknownSoftwire),
                None => DropReason::UnsupportedProtocol.into(),
            });
        };
        if ends.remote != outer.source || sender.address != inner.source {
            return Err(refuse(DropReason::InnerSourceSpoofed));
        }
        // Not at the end that it was provisioned with.
        if ends.local != outer.destination {
            return Err(DropReason::NotOurs.into());
        }
        Ok(ends)
    }

    /// A packet from a subscriber.
    fn outbound(&self, inner: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_outbound(inner)?;
        if self.ipv4.contains(inner.destination) {
            if !self.hairpinning {
                return Err(DropReason::HairpinningOff.into());
            }
            return self.enter(inner, work);
        }
        take_step(&mut work.packet, inner)?;
        work.forward_whole()
    }

    /// A packet for a subscriber, from wherever.
    fn enter(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        if parsed.payload == Payload::IcmpError {
            check_message(&work.packet, parsed)?;
        }
        let receiver = receiver(&work.packet, parsed)?;
        let ends = self.table.find(receiver.address, receiver.port).ok_or_else(|| self.unreachable(parsed))?;
        self.entrance(ends).check_size(parsed, work)?;
        take_step(&mut work.packet, parsed)?;
        self.entrance(ends).send(parsed, work)
    }

    /// Nobody has the port. Echo requests to identifiers of nobody get no ICMP error: they are scans
    /// (RFC 7596 section 8.1 discards them).
    fn unreachable(&self, parsed: &Parsed<Ipv4Addr>) -> Refusal {
        let is_echo = matches!(parsed.payload, Payload::EchoRequest | Payload::EchoReply);
        let answer = (self.tell_unreachable && !is_echo).then_some(IcmpAnswer::HostUnreachable);
        Refusal { reason: DropReason::NoBinding, answer }
    }

    fn entrance(&self, ends: Softwire) -> Entrance<'_> {
        Entrance { ends, settings: &self.softwire }
    }
}

/// ICMP errors are verified before they are believed (RFC 5508 REQ-3).
fn check_message(packet: &Packet<'_>, parsed: &Parsed<Ipv4Addr>) -> Result<(), DropReason> {
    let message = packet.bytes().get(usize::from(parsed.transport_offset)..).unwrap_or_default();
    let complete = packet.offload.checksum == ChecksumState::Complete;
    let verifies = Icmpv4View::parse(message).is_ok() && (!complete || Sum::ZERO.bytes(message).verifies());
    if verifies { Ok(()) } else { Err(DropReason::BadChecksum) }
}
