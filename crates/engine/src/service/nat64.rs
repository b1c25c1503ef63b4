//! Stateful NAT64 (RFC 6146), which is also the PLAT of 464XLAT (RFC 6877).
//!
//! The remote side is algorithmic: an IPv4 address embedded in the prefix (RFC 6052). The
//! subscribers' side is bound to the pool. A packet from inside to an address of the pool is
//! hairpinned (section 3.8): it is translated to IPv4 and comes in again as if from outside, with
//! one decrement of the hop limit in total.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Prefix64;

use super::serve::Serve;
use super::shape::Shape;
use crate::description::{Description, Fact};
use crate::mapping::embedding::check_embedding;
use crate::mapping::networks::Networks;
use crate::mapping::stateless::Claim;
use crate::mechanism::hairpin::{check_size, come_in_again};
use crate::mechanism::napt::{Arrival, Host, KnownBy, Nat, port_of};
use crate::mechanism::screen::{check_scope, is_illegal_destination_ipv4, screen_ipv4, screen_ipv6};
use crate::mechanism::translate::{
    ErrorRewrite, Rewrite, TranslateSettings, translate_4to6, translate_6to4, translate_error_4to6,
    translate_error_6to4,
};
use crate::mechanism::{IcmpAnswer, Refusal, slice};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::routed::{Routed, of_pool, shared_of};
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A stateful NAT64, which is also the PLAT of 464XLAT.
#[derive(Debug, Clone)]
pub struct Nat64 {
    /// The prefix in which IPv6 hosts see IPv4 addresses (RFC 6052).
    pub prefix: Prefix64,
    /// The hosts that may use it; anybody if there are none. An ICMP error may come from any router on
    /// the way to such a host.
    pub inside: Networks,
    /// Drop packets that combine the well-known prefix with an IPv4 address that is not global (RFC
    /// 6052 section 3.1).
    pub well_known_prefix_strict: bool,
    /// Outside addresses, and what subscribers may do.
    pub nat: Nat,
    /// How headers are translated.
    pub translate: TranslateSettings,
}

impl Serve for Nat64 {
    fn shape(&self) -> Shape {
        Shape::PROVIDER
    }

    fn describe(&self) -> Description {
        let about = Description::default().with("prefix", self.prefix.to_string());
        self.nat.describe(about.with("inside", Fact::texts(self.inside.prefixes())))
    }

    fn routed(&self) -> Routed {
        let ipv6 = vec![(self.prefix.address(), self.prefix.length())];
        Routed { ipv6, ipv4: of_pool(&self.nat.pool), shared: shared_of(&self.nat), ..Routed::default() }
    }

    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, _: &mut Claim) -> bool {
        self.prefix.contains(destination)
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, _: &mut Claim) -> bool {
        self.nat.pool.contains(destination)
    }

    fn has_inside(&self, inside: &InsideKey) -> bool {
        let host = Ipv6Addr::from(inside.ipv6);
        !self.prefix.contains(host) && self.is_inside(host)
    }

    #[inline]
    fn admits(&self, parsed: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
        if parsed.payload == Payload::IcmpError || self.is_inside(parsed.source) {
            return Ok(());
        }
        Err(Refusal::with(DropReason::NotInside, IcmpAnswer::Prohibited))
    }

    fn nat(&self) -> Option<&Nat> {
        Some(&self.nat)
    }

    fn nat_mut(&mut self) -> Option<&mut Nat> {
        Some(&mut self.nat)
    }

    fn hosts_known_by(&self) -> KnownBy {
        KnownBy::Ipv6
    }

    fn host_of_ipv6(&self, parsed: &Parsed<Ipv6Addr>, packet: &Packet<'_>) -> Option<Host> {
        match parsed.payload {
            Payload::IcmpError => Some(parsed.embedded(packet).ok()?.destination.into()),
            _ => Some(parsed.source.into()),
        }
    }

    fn pref64(&self) -> Option<Prefix64> {
        Some(self.prefix)
    }

    fn ends_loops(&self) -> bool {
        true
    }

    /// From inside.
    #[inline]
    fn serve_ipv6(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv6(parsed)?;
        self.admits(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.error_from_inside(parsed, work);
        }
        let remote = self.remote_address(parsed.destination).map_err(refuse)?;
        let hairpins = self.nat.receives(remote, parsed, work);
        if hairpins {
            check_size(&work.packet, parsed, self.translate.ipv6_mtu)?;
        }
        let outside = self.nat.leave(parsed, parsed.source.into(), remote, work)?;
        let helped = self.nat.help_out(parsed, parsed.source.into(), remote, work)?;
        let parsed = helped.as_ref().unwrap_or(parsed);
        let to = Rewrite {
            source: outside.address,
            destination: remote,
            source_port: Some(outside.port),
            destination_port: None,
        };
        let identifications = &mut work.worker.identifications;
        if hairpins {
            let settings = self.translate.without_ipv4_limit();
            let _whole = translate_6to4(&mut work.packet, parsed, &to, &settings, identifications)?;
            return self.hairpin(parsed.largest_piece, work);
        }
        let translated = translate_6to4(&mut work.packet, parsed, &to, &self.translate, identifications)?;
        work.forward(translated)
    }

    /// From outside.
    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv4(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.error_from_outside(parsed, work);
        }
        check_scope(parsed.source)?;
        let source = self.embedded_source(parsed.source).map_err(refuse)?;
        match self.nat.arrive(parsed, parsed.destination, parsed.source, work)? {
            Arrival::At(inside) => {
                let helped = self.nat.help_in(parsed, &inside, parsed.source, work)?;
                self.send_inside(helped.as_ref().unwrap_or(parsed), source, &inside, work)
            }
            Arrival::Held => Ok(Verdict::Hold),
        }
    }

    fn deliver(&self, parsed: &Parsed<Ipv4Addr>, inside: &InsideKey, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        self.send_inside(parsed, self.embedded_source(parsed.source)?, inside, work)
    }
}

impl Nat64 {
    #[inline]
    fn is_inside(&self, host: Ipv6Addr) -> bool {
        self.inside.is_empty() || self.inside.contains(host)
    }

    /// Sends a packet from outside to the host with the endpoint `inside`.
    fn send_inside(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        source: Ipv6Addr,
        inside: &InsideKey,
        work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        let to = Rewrite {
            source,
            destination: inside.ipv6.into(),
            source_port: None,
            destination_port: Some(port_of(inside)),
        };
        let translated = translate_4to6(&mut work.packet, parsed, &to, &self.translate)?;
        work.forward(translated)
    }

    /// An ICMPv6 error from inside, about a packet that came from outside (section 3.5.3 and RFC
    /// 5508 REQ-5). It leaves from the outside address that the remote has sent to, whichever
    /// inside router it comes from.
    fn error_from_inside(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let about = parsed.embedded(&work.packet)?;
        let remote = self.prefix.extract(about.source).ok_or(DropReason::IcmpErrorUnusable)?;
        let hairpins = self.nat.sent(remote, &about, work);
        let outside = self.nat.error_leaves(&about, Host::from(about.destination), remote, work)?;
        let to = ErrorRewrite {
            source: outside.address,
            destination: remote,
            embedded: Rewrite {
                source: remote,
                destination: outside.address,
                source_port: None,
                destination_port: Some(outside.port),
            },
            node: None,
        };
        let identifications = &mut work.worker.identifications;
        translate_error_6to4(&mut work.packet, parsed, &about, &to, &self.translate, identifications)?;
        if hairpins { self.hairpin(0, work) } else { work.forward_whole() }
    }

    /// An ICMPv4 error from outside, about a packet that left from the pool (RFC 5508 REQ-4). It
    /// keeps the router's address, embedded in the prefix, so that traceroute shows the path. A
    /// router whose address must not be there (private, loopback) may yet know the path MTU: its
    /// error is sent from the gateway's own address (RFC 7915 section 4.1).
    fn error_from_outside(&self, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let source = self.embedded_source(parsed.source).or_else(|reason| work.own.ipv6.ok_or(reason))?;
        let about = parsed.embedded(&work.packet)?;
        let inside = self.nat.error_arrives(&about, about.source, about.destination, work)?;
        let host = Ipv6Addr::from(inside.ipv6);
        let to = ErrorRewrite {
            source,
            destination: host,
            embedded: Rewrite {
                source: host,
                destination: self.prefix.embed(about.destination),
                source_port: Some(port_of(&inside)),
                destination_port: None,
            },
            node: None,
        };
        translate_error_4to6(&mut work.packet, parsed, &about, &to, &self.translate)?;
        work.forward_whole()
    }

    /// What has just become IPv4 and is for the pool comes in as if from outside.
    fn hairpin(&self, largest_piece: u16, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let parsed = Parsed { largest_piece, ..come_in_again(&mut work.packet)? };
        if let Some(verdict) = slice::hairpin_elsewhere(&self.nat, &parsed, work).map_err(Refusal::silence)? {
            return Ok(verdict);
        }
        self.serve_ipv4(Side::Outside, &parsed, work).map_err(Refusal::silence)
    }

    /// The IPv4 address of a destination inside the prefix.
    fn remote_address(&self, destination: Ipv6Addr) -> Result<Ipv4Addr, DropReason> {
        let address = self.prefix.extract(destination).ok_or(DropReason::Untranslatable)?;
        self.check_well_known(address)?;
        check_scope(address)?;
        if is_illegal_destination_ipv4(address) {
            return Err(DropReason::IllegalDestination);
        }
        Ok(address)
    }

    fn embedded_source(&self, source: Ipv4Addr) -> Result<Ipv6Addr, DropReason> {
        self.check_well_known(source)?;
        Ok(self.prefix.embed(source))
    }

    fn check_well_known(&self, address: Ipv4Addr) -> Result<(), DropReason> {
        check_embedding(self.prefix, self.well_known_prefix_strict, address)
    }
}

/// What the prefix may not stand for is refused with "administratively prohibited", the default of
/// RFC 7915 sections 4.4 and 5.4.
fn refuse(reason: DropReason) -> Refusal {
    match reason {
        DropReason::PrivateInWellKnownPrefix | DropReason::LinkLocal => Refusal::with(reason, IcmpAnswer::Prohibited),
        _ => reason.into(),
    }
}
