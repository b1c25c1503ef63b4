//! Stateful NAT64 (RFC 6146), which is also the PLAT of 464XLAT (RFC 6877).
//!
//! The remote side is algorithmic: an IPv4 address embedded in the prefix (RFC 6052). The
//! subscribers' side is bound to the pool. A packet to an address of the pool that comes from
//! inside turns round ("hairpin", section 3.8): it is translated to IPv4 and comes in again as if
//! from outside, with one decrement of the hop limit in total.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Port;

use crate::engine::{Random, Work};
use crate::mechanism::hairpin::come_in_again;
use crate::mechanism::held;
use crate::mechanism::icmp_error::{ErrorRewrite, translate_error_4to6, translate_error_6to4};
use crate::mechanism::napt::{Endpoint, Napt};
use crate::mechanism::screen::{screen_ipv4, screen_ipv6};
use crate::mechanism::{Refusal, Rewrite, Translated, translate_4to6, translate_6to4};
use crate::packet::{Outbox, Packet};
use crate::parse::{Parsed, Payload, parse_ipv4};
use crate::plan::Nat64;
use crate::service::stateful::{self, inside_key, no_state_inside, space_of, space_of_embedded};
use crate::verdict::{DropReason, Verdict};

impl Nat64 {
    /// A packet from inside.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    pub(crate) fn inside(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        if self.prefix.contains(parsed.source) {
            return Err(DropReason::SourceInPrefix.into());
        }
        screen_ipv6(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.inside_error(number, packet, parsed, work, outbox);
        }
        let remote = self.remote_address(parsed.destination)?;
        let (space, event) = space_of(parsed)?;
        let remote = Endpoint { address: remote, port: parsed.destination_port };
        let inside = inside_key(number, space, parsed.source.into(), parsed.source_port);
        let outside = self.napt(number, work).outbound(&inside, space, remote, event).map_err(no_state_inside)?;
        work.notes.add("RFC 6146 section 3.5", || {
            let (port, to) = (parsed.source_port.0, remote.address);
            format!("{} port {port} has {} port {}, towards {to}", parsed.source, outside.address, outside.port.0)
        });
        let to = Rewrite {
            source: outside.address,
            destination: remote.address,
            source_port: Some(outside.port),
            destination_port: None,
        };
        if self.pool.contains(remote.address) {
            return self.turn_round(number, packet, parsed, &to, work, outbox);
        }
        let translated = translate_6to4(packet, parsed, &to, &self.translate, work.identifications)?;
        translated.send(packet, outbox)?;
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
        let source = self.embedded_source(parsed.source)?;
        if parsed.payload == Payload::IcmpError {
            return self.outside_error(number, packet, parsed, source, work, outbox);
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
        work.notes.add("RFC 6146 section 3.5", || {
            let (address, port) = (Ipv6Addr::from(inside.ipv6), u16::from_be_bytes(inside.port));
            format!("{} port {} is {address} port {port}", outside.address, outside.port.0)
        });
        self.deliver(packet, parsed, source, &inside, outbox)
    }

    /// Sends a packet from outside to the host with the endpoint `inside`.
    fn deliver(
        &self,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        source: Ipv6Addr,
        inside: &InsideKey,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let to = Rewrite {
            source,
            destination: inside.ipv6.into(),
            source_port: None,
            destination_port: Some(Port(u16::from_be_bytes(inside.port))),
        };
        translate_4to6(packet, parsed, &to, &self.translate)?.send(packet, outbox)?;
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
        self.deliver(packet, &parsed, self.embedded_source(parsed.source)?, inside, outbox)
    }

    /// An ICMPv6 error from inside, about a packet that came from outside (section 3.5.3 and RFC
    /// 5508 REQ-5). It leaves from the outside address that the remote has sent to, whichever
    /// inside router it comes from.
    fn inside_error(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        let space = space_of_embedded(&about)?;
        let remote = self.prefix.extract(about.source).ok_or(DropReason::IcmpErrorUnusable)?;
        let remote = Endpoint { address: remote, port: about.source_port };
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
        translate_error_6to4(packet, parsed, &about, &to, &self.translate, work.identifications)?;
        if self.pool.contains(remote.address) {
            return self.come_in_again(number, packet, work, outbox);
        }
        outbox.send(packet);
        Ok(Verdict::Forward)
    }

    /// An ICMPv4 error from outside, about a packet that left from the pool (RFC 5508 REQ-4). It
    /// keeps the router's address, embedded in the prefix, so that traceroute shows the path.
    fn outside_error(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv4Addr>,
        source: Ipv6Addr,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(packet)?;
        let space = space_of_embedded(&about)?;
        let remote = Endpoint { address: about.destination, port: about.destination_port };
        let outside = Endpoint { address: about.source, port: about.source_port };
        let inside = self.napt(number, work).inbound_error(outside, space, remote).ok_or(DropReason::NoSession)?;
        let host = Ipv6Addr::from(inside.ipv6);
        let to = ErrorRewrite {
            source,
            destination: host,
            embedded: Rewrite {
                source: host,
                destination: self.prefix.embed(about.destination),
                source_port: Some(Port(u16::from_be_bytes(inside.port))),
                destination_port: None,
            },
            node: None,
        };
        translate_error_4to6(packet, parsed, &about, &to, &self.translate)?;
        outbox.send(packet);
        Ok(Verdict::Forward)
    }

    /// From inside to an address of the pool: out, and in again.
    fn turn_round(
        &self,
        number: u8,
        packet: &mut Packet<'_>,
        parsed: &Parsed<Ipv6Addr>,
        to: &Rewrite<Ipv4Addr>,
        work: &mut Work<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<Verdict, Refusal> {
        // It never meets the IPv4 link, so that link's MTU is no limit.
        let unlimited = crate::mechanism::TranslateSettings { ipv4_mtu: u32::MAX, ..self.translate };
        let translated = translate_6to4(packet, parsed, to, &unlimited, work.identifications)?;
        debug_assert!(matches!(translated, Translated::Whole));
        self.come_in_again(number, packet, work, outbox)
    }

    /// A packet that has been translated to IPv4 and is for the pool comes in as if from outside.
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

    fn napt<'a>(&'a self, number: u8, work: &'a mut Work<'_>) -> Napt<'a, Random> {
        stateful::napt(number, &self.pool, &self.policy, work)
    }

    /// The IPv4 address of a destination inside the prefix.
    fn remote_address(&self, destination: Ipv6Addr) -> Result<Ipv4Addr, DropReason> {
        let address = self.prefix.extract(destination).ok_or(DropReason::Untranslatable)?;
        self.check_well_known(address)?;
        if crate::mechanism::screen::is_illegal_destination_ipv4(address) {
            return Err(DropReason::IllegalDestination);
        }
        Ok(address)
    }

    fn embedded_source(&self, source: Ipv4Addr) -> Result<Ipv6Addr, DropReason> {
        self.check_well_known(source)?;
        Ok(self.prefix.embed(source))
    }

    fn check_well_known(&self, address: Ipv4Addr) -> Result<(), DropReason> {
        if self.well_known_prefix_strict && self.prefix.forbids(address) {
            return Err(DropReason::PrivateInWellKnownPrefix);
        }
        Ok(())
    }
}
