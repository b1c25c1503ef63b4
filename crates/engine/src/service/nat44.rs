//! Stateful NAT44, up to carrier grade (RFC 4787, RFC 5382, RFC 5508, RFC 6888, RFC 7857).
//!
//! Both sides are IPv4, so a packet is told by its addresses: from inside if its source is inside
//! and its destination is not, from outside if its destination is in the pool. The subscriber is
//! the inside address. A packet from inside to an address of the pool turns round ("hairpin", RFC
//! 4787 REQ-9): it gets its outside source and comes in again as if from outside, with one
//! decrement of the TTL in total.

use std::net::Ipv4Addr;

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Port;

use crate::engine::{Random, Work};
use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::pool::Pool;
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::held;
use crate::mechanism::napt::{Endpoint, Napt, Policy};
use crate::mechanism::screen::screen_ipv4;
use crate::mechanism::{ErrorRewrite, Identification, NextLink, Refusal, Rewrite, readdress, readdress_error};
use crate::packet::{Outbox, Packet};
use crate::parse::{Parsed, Payload, parse_ipv4};
use crate::plan::StaticBinding;
use crate::service::stateful::{self, inside_key, no_state_inside, space_of, space_of_embedded};
use crate::verdict::{DropReason, Verdict};

/// A stateful NAT44.
#[derive(Debug, Clone)]
pub struct Nat44 {
    /// Who is inside.
    pub inside: AddressRanges,
    /// Destinations that inside hosts reach with their own addresses (RFC 6888 REQ-6).
    pub untranslated: AddressRanges,
    /// Outside addresses; none of them is inside.
    pub pool: Pool,
    /// What subscribers may do.
    pub policy: Policy,
    /// MTU of the links inside, in bytes.
    pub inside_mtu: u32,
    /// MTU of the links outside, in bytes.
    pub outside_mtu: u32,
    /// Largest TCP segment that a SYN may announce, in bytes; larger announcements are lowered to
    /// it. `None` leaves them.
    pub largest_segment: Option<u16>,
    /// Bindings that are always there.
    pub static_bindings: Vec<StaticBinding>,
}

impl Nat44 {
    /// True if a packet with these addresses is from inside and is to be translated.
    #[must_use]
    #[inline]
    pub fn is_from_inside(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.inside.contains(source) && !self.inside.contains(destination) && !self.untranslated.contains(destination)
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
        screen_ipv4(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.inside_error(number, packet, parsed, work, outbox);
        }
        let (space, event) = space_of(parsed)?;
        let remote = Endpoint { address: parsed.destination, port: parsed.destination_port };
        let inside = inside_key(number, space, parsed.source.into(), parsed.source_port);
        let outside = self.napt(number, work).outbound(&inside, space, remote, event).map_err(no_state_inside)?;
        work.notes.add("RFC 4787 REQ-1", || {
            let (source, port) = (parsed.source, parsed.source_port.0);
            format!("{source} port {port} is bound to {} port {}", outside.address, outside.port.0)
        });
        let to = Rewrite {
            source: outside.address,
            destination: remote.address,
            source_port: Some(outside.port),
            destination_port: None,
        };
        let identification = Identification::Renew(work.identifications);
        if self.pool.contains(remote.address) {
            // It never meets the outside link, so that link's MTU is no limit.
            let _ = readdress(packet, parsed, &to, self.link(u32::MAX), identification)?;
            return self.come_in_again(number, packet, work, outbox);
        }
        readdress(packet, parsed, &to, self.link(self.outside_mtu), identification)?.send(packet, outbox)?;
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
        screen_ipv4(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.outside_error(number, packet, parsed, work, outbox);
        }
        let (space, event) = space_of(parsed)?;
        let remote = Endpoint { address: parsed.source, port: parsed.source_port };
        let outside = Endpoint { address: parsed.destination, port: parsed.destination_port };
        let inside = match self.napt(number, work).inbound(outside, space, remote, event) {
            Ok(inside) => inside,
            Err(reason) if self.policy.holds(reason, space, event) => {
                return held::hold(packet, outside, remote, reason, &mut self.napt(number, work));
            }
            Err(reason) => return Err(reason.into()),
        };
        work.notes.add("RFC 4787 REQ-1", || {
            let (host, port) = (Ipv4Addr::from(inside.ipv4), u16::from_be_bytes(inside.port));
            format!("{} port {} is bound to {host} port {port}", outside.address, outside.port.0)
        });
        self.deliver(packet, parsed, &inside, outbox)
    }

    /// Sends a packet from outside to the host with the endpoint `inside`.
    fn deliver(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        inside: &InsideKey,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let to = Rewrite {
            source: parsed.source,
            destination: inside.ipv4.into(),
            source_port: None,
            destination_port: Some(Port(u16::from_be_bytes(inside.port))),
        };
        readdress(packet, parsed, &to, self.link(self.inside_mtu), Identification::Keep)?.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// Sends a packet of the gateway's own, as if from outside, to the host with the endpoint
    /// `inside`; no state is looked at.
    ///
    /// # Errors
    /// The reason why it is not sent.
    pub(crate) fn send_inside(
        &self,
        packet: &mut Packet<'_>,
        inside: &InsideKey,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let parsed = parse_ipv4(packet)?;
        self.deliver(packet, &parsed, inside, outbox)
    }

    /// An ICMP error from inside, about a packet that came from outside (RFC 5508 REQ-5). It leaves
    /// from the outside address that the remote has sent to, whichever inside router it comes from.
    fn inside_error(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        let space = space_of_embedded(&about)?;
        let remote = Endpoint { address: about.source, port: about.source_port };
        let inside = inside_key(number, space, about.destination.into(), about.destination_port);
        let outside = self.napt(number, work).outbound_error(&inside, space, remote).ok_or(DropReason::NoSession)?;
        let to = ErrorRewrite {
            source: outside.address,
            destination: remote.address,
            embedded: Rewrite {
                source: remote.address,
                destination: outside.address,
                source_port: None,
                destination_port: Some(outside.port),
            },
            node: None,
        };
        let identification = Identification::Renew(work.identifications);
        if self.pool.contains(remote.address) {
            let _ = readdress_error(packet, parsed, &about, &to, u32::MAX, identification)?;
            return self.come_in_again(number, packet, work, outbox);
        }
        readdress_error(packet, parsed, &about, &to, self.outside_mtu, identification)?.send(packet, outbox)?;
        Ok(Verdict::Forward)
    }

    /// An ICMP error from outside, about a packet that left from the pool (RFC 5508 REQ-4). It
    /// keeps the address of the router that sent it.
    fn outside_error(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        let space = space_of_embedded(&about)?;
        let remote = Endpoint { address: about.destination, port: about.destination_port };
        let outside = Endpoint { address: about.source, port: about.source_port };
        let inside = self.napt(number, work).inbound_error(outside, space, remote).ok_or(DropReason::NoSession)?;
        let host = Ipv4Addr::from(inside.ipv4);
        let to = ErrorRewrite {
            source: parsed.source,
            destination: host,
            embedded: Rewrite {
                source: host,
                destination: about.destination,
                source_port: Some(Port(u16::from_be_bytes(inside.port))),
                destination_port: None,
            },
            node: None,
        };
        readdress_error(packet, parsed, &about, &to, self.inside_mtu, Identification::Keep)?.send(packet, outbox)?;
        Ok(Verdict::Forward)
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

    const fn link(&self, mtu: u32) -> NextLink {
        NextLink { mtu, largest_segment: self.largest_segment }
    }

    fn napt<'a>(&'a self, number: u8, work: &'a mut Work<'_>) -> Napt<'a, Random> {
        stateful::napt(number, &self.pool, &self.policy, work)
    }
}
