//! Stateless translation (RFC 7915) with explicit mappings (RFC 7757), and its mirror image, the
//! CLAT of 464XLAT (RFC 6877).
//!
//! Both do the same to a packet. They differ in which side is inside, and so in which packets are
//! theirs:
//!
//! | | inside | theirs from IPv6 | theirs from IPv4 |
//! |---|---|---|---|
//! | [`Role::Siit`] | IPv6 hosts | to the prefix, or explicitly mapped | to explicit mappings and embedded hosts |
//! | [`Role::Clat`] | IPv4 hosts | to explicit mappings (the CLAT's own) | to anything but the explicit mappings |
//! | [`Role::Everything`] | IPv6 hosts | all | all |
//!
//! Hairpinning (RFC 7757 section 4): an inside host that talks to an inside host by its IPv4
//! address has to see the answers come from that address. Rules 1 to 3 of section 4.2.1 keep
//! explicit mappings away from the addresses that would break this; they hold for packets that were
//! hairpinned here (intrinsic) or that come back from the IPv4 network (simple).

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

use super::serve::Serve;
use super::shape::Shape;
use crate::description::{Description, Fact, addresses};
use crate::mapping::dynamic_pool::DynamicPool;
use crate::mapping::eam::Eam;
use crate::mapping::error_sources::ErrorSources;
use crate::mapping::stateless::{By, Claim, Mapped, StatelessMap};
use crate::mechanism::hairpin::{Origin, check_size, come_in_again};
use crate::mechanism::screen::{
    is_illegal_destination_ipv4, is_illegal_source_ipv4, is_illegal_source_ipv6, screen_ipv4, screen_ipv6,
};
use crate::mechanism::translate::{
    ErrorRewrite, Rewrite, TranslateSettings, Translated, translate_4to6, translate_6to4, translate_error_4to6,
    translate_error_6to4,
};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::parse::{Parsed, Payload};
use crate::routed::{Routed, of_prefix};
use crate::side::Side;
use crate::verdict::{DropReason, Verdict};
use crate::work::Work;

/// A stateless translator.
#[derive(Debug, Clone)]
pub struct Siit {
    /// Which side is inside.
    pub role: Role,
    /// Which address stands for which.
    pub mapping: StatelessMap,
    /// IPv4 addresses that are lent to IPv6 hosts without one.
    pub dynamic: Option<Arc<DynamicPool>>,
    /// IPv4 addresses of inside hosts whose IPv6 addresses are embedded in the prefix, without
    /// explicit mapping.
    pub embedded_hosts: Vec<Prefix<u32>>,
    /// What becomes of packets between inside hosts that use IPv4 addresses.
    pub hairpinning: Hairpinning,
    /// Sources of translated ICMPv6 errors whose senders have no IPv4 address (RFC 6791).
    pub error_sources: ErrorSources,
    /// Tell the sender's IPv6 address in an extension of such an error (RFC 6791 section 3, RFC
    /// 5837).
    pub identify_nodes: bool,
    /// How headers are translated.
    pub translate: TranslateSettings,
}

/// Which side of a stateless translator is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// IPv6 hosts are inside, the IPv4 Internet is outside.
    #[default]
    Siit,
    /// IPv4 hosts are inside, an IPv6-only network is outside.
    Clat,
    /// Whatever reaches the device is to be translated, either way; who routes it there has
    /// decided. What Tayga does.
    Everything,
}

/// Support for packets between two inside hosts by way of their IPv4 addresses (RFC 7757 section
/// 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hairpinning {
    /// None: explicit mappings apply to every address. What a CLAT needs.
    Off,
    /// The IPv4 network sends such packets back, and they are translated so that answers find their
    /// way.
    Simple,
    /// Such packets are hairpinned without being sent to the IPv4 network.
    #[default]
    Intrinsic,
}

impl Serve for Siit {
    fn kind(&self) -> Option<&'static str> {
        (self.role == Role::Clat).then_some("clat")
    }

    fn shape(&self) -> Shape {
        if self.role == Role::Clat { Shape::CUSTOMER } else { Shape::PROVIDER }.with_fragments()
    }

    fn describe(&self) -> Description {
        let prefix = match self.mapping.prefix {
            None if self.awaits_prefix() => Some("auto".into()),
            prefix => prefix.map(|prefix| prefix.to_string()),
        };
        let sources = self.error_sources.ranges().iter().map(|(first, last)| addresses(*first, *last));
        Description::default()
            .with("prefix", prefix)
            .with("explicit_mappings", self.mapping.explicit.rows().len())
            .with("icmp_sources", Fact::texts(sources))
    }

    /// Inside hosts of an SIIT have the explicitly mapped IPv6 addresses themselves; a CLAT takes
    /// every IPv4 packet that no other route takes.
    fn routed(&self) -> Routed {
        let rows = self.mapping.explicit.rows().iter();
        let lent = self.dynamic.iter().map(|pool| pool.addresses());
        match self.role {
            Role::Siit => Routed {
                ipv6: self.mapping.prefix.iter().map(|prefix| (prefix.address(), prefix.length())).collect(),
                ipv4: rows
                    .map(Eam::ipv4)
                    .chain(self.embedded_hosts.iter().copied())
                    .chain(lent)
                    .map(of_prefix)
                    .collect(),
                ..Routed::default()
            },
            Role::Everything => Routed::default(),
            Role::Clat => Routed {
                ipv6: rows.map(Eam::ipv6).map(|p| (Ipv6Addr::from_bits(p.key()), p.prefix_len())).collect(),
                ipv4: vec![(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST)],
                ..Routed::default()
            },
        }
    }

    fn hosts(&self) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        match self.role {
            Role::Clat => self.mapping.explicit.rows().iter().map(Eam::ipv4).map(of_prefix).collect(),
            Role::Siit | Role::Everything => Vec::new(),
        }
    }

    /// If its explicit mapping was looked for, `claim` says what was found.
    #[inline]
    fn claims_ipv6(&self, destination: Ipv6Addr, claim: &mut Claim) -> bool {
        let embedded = || self.mapping.prefix.is_some_and(|prefix| prefix.contains(destination));
        // What a service before this one has found is nothing to this one.
        *claim = Claim::Unknown;
        if self.role == Role::Everything || self.role == Role::Siit && embedded() {
            return true;
        }
        let row = self.mapping.explicit.row_of_ipv6(destination);
        *claim = row.into();
        row.is_some()
    }

    #[inline]
    fn claims_ipv4(&self, destination: Ipv4Addr, claim: &mut Claim) -> bool {
        *claim = Claim::Unknown;
        if self.role == Role::Everything {
            return true;
        }
        let row = self.mapping.explicit.row_of_ipv4(destination);
        *claim = row.into();
        match self.role {
            Role::Clat => row.is_none(),
            _ => {
                row.is_some()
                    || self.embedded_hosts.iter().any(|prefix| prefix.contains(destination.to_bits()))
                    || self.dynamic.as_ref().is_some_and(|pool| pool.contains(destination))
            }
        }
    }

    fn pref64(&self) -> Option<Prefix64> {
        self.mapping.prefix
    }

    /// IPv6 hosts whose addresses are embedded in the prefix are no IPv4 hosts.
    fn shows_ipv4_as(&self, address: Ipv6Addr) -> bool {
        let shown = self.mapping.prefix.and_then(|prefix| prefix.extract(address));
        shown.is_some_and(|shown| !self.embedded_hosts.iter().any(|hosts| hosts.contains(shown.to_bits())))
    }

    #[inline]
    fn serve_ipv6(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        self.receive_ipv6(parsed, work)
    }

    #[inline]
    fn serve_ipv4(&self, _: Side, parsed: &Parsed<Ipv4Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        self.receive_ipv4(parsed, Origin::Network, work)
    }
}

impl Siit {
    /// True if it is a CLAT that has to learn the prefix of its PLAT from the network (RFC 8781,
    /// RFC 7050). Until then it drops what it is given.
    #[must_use]
    pub const fn awaits_prefix(&self) -> bool {
        matches!(self.role, Role::Clat) && self.mapping.prefix.is_none()
    }

    /// A packet from the IPv6 side.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    #[inline]
    pub(crate) fn receive_ipv6(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        screen_ipv6(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.receive_error_ipv6(parsed, work);
        }
        let source = self.source_to_ipv4(parsed.source, work).map_err(refuse)?;
        let destination = self.destination_to_ipv4(parsed.destination, work).map_err(refuse)?;
        if is_illegal_source_ipv4(source.address) {
            return Err(DropReason::IllegalSource.into());
        }
        if is_illegal_destination_ipv4(destination.address) {
            return Err(DropReason::IllegalDestination.into());
        }
        self.note_mapping(work, "source", parsed.source, source);
        self.note_mapping(work, "destination", parsed.destination, destination);
        let to = Rewrite::addresses(source.address, destination.address);
        // Condition set A of RFC 7757 section 4.2.2.
        if self.hairpins(destination, work) {
            work.notes.add("RFC 7757 section 4.2.2 (A)", || {
                format!("{} is an inside host's and was embedded: the packet is hairpinned", destination.address)
            });
            check_size(&work.packet, parsed, self.translate.ipv6_mtu)?;
            let translated =
                translate_6to4(&mut work.packet, parsed, &to, &self.unlimited_ipv4(), &mut work.worker.identifications);
            debug_assert!(!matches!(translated, Ok(Translated::Fragments { .. })), "no limit, no fragments");
            let _whole = translated.map_err(Refusal::silence)?;
            return self.hairpin(work);
        }
        let translated =
            translate_6to4(&mut work.packet, parsed, &to, &self.translate, &mut work.worker.identifications)?;
        work.forward(translated)
    }

    fn receive_error_ipv6(&self, parsed: &Parsed<Ipv6Addr>, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let embedded = parsed.embedded(&work.packet)?;
        let destination = self.to_ipv4(parsed.destination, work)?.address;
        if is_illegal_destination_ipv4(destination) {
            return Err(DropReason::IllegalDestination.into());
        }
        let inner_source = self.to_ipv4(embedded.source, work)?;
        let inner_destination = self.to_ipv4(embedded.destination, work)?;
        self.note_mapping(work, "source of the packet in error", embedded.source, inner_source);
        self.note_mapping(work, "destination of the packet in error", embedded.destination, inner_destination);
        let (source, node) = self.error_source_ipv4(parsed.source, work)?;
        let to = ErrorRewrite {
            source,
            destination,
            embedded: Rewrite::addresses(inner_source.address, inner_destination.address),
            node,
        };
        translate_error_6to4(
            &mut work.packet,
            parsed,
            &embedded,
            &to,
            &self.translate,
            &mut work.worker.identifications,
        )?;
        // Condition set B of RFC 7757 section 4.2.2.
        if self.hairpins(inner_source, work) {
            work.notes.add("RFC 7757 section 4.2.2 (B)", || {
                format!("the packet in error came from inside host {}: the error is hairpinned", inner_source.address)
            });
            return self.hairpin(work);
        }
        work.forward_whole()
    }

    /// The IPv4 source of an ICMPv6 error from `node`, which may be a router without any IPv4
    /// address; then also the address for an extension (RFC 6791 section 3).
    fn error_source_ipv4(
        &self,
        node: Ipv6Addr,
        work: &mut Work<'_>,
    ) -> Result<(Ipv4Addr, Option<Ipv6Addr>), DropReason> {
        match self.to_ipv4(node, work) {
            Ok(mapped) if is_illegal_source_ipv4(mapped.address) => Err(DropReason::IllegalSource),
            Ok(mapped) => {
                self.note_mapping(work, "source", node, mapped);
                Ok((mapped.address, None))
            }
            Err(DropReason::PrivateInWellKnownPrefix) => Err(DropReason::PrivateInWellKnownPrefix),
            Err(reason) => {
                let source = self.error_sources.pick(&mut work.worker.random).or(work.own.ipv4).ok_or(reason)?;
                work.notes.add("RFC 6791 section 3", || format!("{node} has no IPv4 address: sent from {source}"));
                Ok((source, self.identify_nodes.then_some(node)))
            }
        }
    }

    /// A packet from the IPv4 side.
    ///
    /// # Errors
    /// The reason why it is not forwarded.
    #[inline]
    pub(crate) fn receive_ipv4(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        origin: Origin,
        work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        screen_ipv4(parsed)?;
        if parsed.payload == Payload::IcmpError {
            return self.receive_error_ipv4(parsed, origin, work);
        }
        // Rule 1 of RFC 7757 section 4.2.1.
        let source = if self.is_hairpinning(origin) {
            self.mapping.embed(parsed.source)
        } else {
            self.to_ipv6(parsed.source, work)
        };
        let source = source.map_err(refuse)?;
        let destination = self.destination_to_ipv6(parsed.destination, work).map_err(refuse)?;
        self.note_mapping(work, "source", parsed.source, source);
        self.note_mapping(work, "destination", parsed.destination, destination);
        if is_illegal_source_ipv6(source.address) {
            return Err(DropReason::IllegalSource.into());
        }
        let to = Rewrite::addresses(source.address, destination.address);
        let translated = translate_4to6(&mut work.packet, parsed, &to, &self.translate)?;
        work.forward(translated)
    }

    fn receive_error_ipv4(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        origin: Origin,
        work: &mut Work<'_>,
    ) -> Result<Verdict, Refusal> {
        let embedded = parsed.embedded(&work.packet)?;
        let destination = self.to_ipv6(parsed.destination, work)?.address;
        let hairpinning = self.is_hairpinning(origin);
        let inner_source = self.to_ipv6(embedded.source, work)?.address;
        // Rule 2 of RFC 7757 section 4.2.1.
        let inner_destination = if hairpinning {
            work.notes.add("RFC 7757 section 4.2.1 rule 2", || {
                "the destination of the packet in error is embedded in any case".into()
            });
            self.mapping.embed(embedded.destination)?.address
        } else {
            self.to_ipv6(embedded.destination, work)?.address
        };
        // Rule 3: the destination of the packet in error has sent the error itself.
        let source = if hairpinning && parsed.source == embedded.destination {
            work.notes.add("RFC 7757 section 4.2.1 rule 3", || "the source of the error, too".into());
            self.mapping.embed(parsed.source)
        } else {
            self.to_ipv6(parsed.source, work)
        };
        // No RFC names a source for routers that have no IPv6 address; without one, path MTU
        // discovery would fail.
        let source = source.map(|mapped| mapped.address).or_else(|reason| work.own.ipv6.ok_or(reason))?;
        work.notes.add("RFC 7915 sections 4.2, 4.3", || {
            format!("the error comes from {source}; it is about a packet from {inner_source} to {inner_destination}")
        });
        let embedded_to = Rewrite::addresses(inner_source, inner_destination);
        let to = ErrorRewrite { source, destination, embedded: embedded_to, node: None };
        translate_error_4to6(&mut work.packet, parsed, &embedded, &to, &self.translate)?;
        work.forward_whole()
    }

    /// The IPv6 address for an IPv4 address: by an explicit mapping, else that of the host that the
    /// address is lent to, else by the prefix.
    #[inline]
    fn to_ipv6(&self, address: Ipv4Addr, work: &Work<'_>) -> Result<Mapped<Ipv6Addr>, DropReason> {
        match &self.dynamic {
            Some(pool) if pool.contains(address) => {
                if let Some((address, row)) = self.mapping.explicit.to_ipv6(address) {
                    return Ok(Mapped { address, by: By::Row(row) });
                }
                let host = pool.host_of(address, work.now.tick()).ok_or(DropReason::NoBinding)?;
                Ok(Mapped { address: host, by: By::Pool })
            }
            _ => self.mapping.to_ipv6(address),
        }
    }

    /// As [`to_ipv6`](Self::to_ipv6), for the destination of the packet at hand: whoever asked
    /// whose packet it is may have looked already.
    #[inline]
    fn destination_to_ipv6(&self, address: Ipv4Addr, work: &Work<'_>) -> Result<Mapped<Ipv6Addr>, DropReason> {
        match work.claim {
            Claim::Row(row) => {
                Ok(Mapped { address: self.mapping.explicit.ipv6_by_row(row, address), by: By::Row(row) })
            }
            Claim::None if self.dynamic.is_none() => self.mapping.embed(address),
            _ => self.to_ipv6(address, work),
        }
    }

    /// The IPv4 address for an IPv6 address: by an explicit mapping, else by the prefix, else the
    /// one that is lent to it.
    #[inline]
    fn to_ipv4(&self, address: Ipv6Addr, work: &Work<'_>) -> Result<Mapped<Ipv4Addr>, DropReason> {
        match (self.mapping.to_ipv4(address), &self.dynamic) {
            (Err(DropReason::Untranslatable), Some(pool)) => {
                let lent = pool.address_of(address, work.now.tick()).ok_or(DropReason::Untranslatable)?;
                Ok(Mapped { address: lent, by: By::Pool })
            }
            (mapped, _) => mapped,
        }
    }

    /// As [`to_ipv4`](Self::to_ipv4), for the destination of the packet at hand.
    #[inline]
    fn destination_to_ipv4(&self, address: Ipv6Addr, work: &Work<'_>) -> Result<Mapped<Ipv4Addr>, DropReason> {
        match work.claim {
            Claim::Row(row) => {
                Ok(Mapped { address: self.mapping.explicit.ipv4_by_row(row, address), by: By::Row(row) })
            }
            _ => self.to_ipv4(address, work),
        }
    }

    /// As [`to_ipv4`](Self::to_ipv4), for the source of the packet at hand: a host without address
    /// may be lent one.
    #[inline]
    fn source_to_ipv4(&self, address: Ipv6Addr, work: &Work<'_>) -> Result<Mapped<Ipv4Addr>, DropReason> {
        match (self.mapping.to_ipv4(address), &self.dynamic) {
            (Err(DropReason::Untranslatable), Some(pool)) => {
                let is_taken = |lent| self.mapping.explicit.contains_ipv4(lent) || work.own.ipv4 == Some(lent);
                let lent = pool.lend(address, work.now.tick(), is_taken).ok_or(DropReason::PoolExhausted)?;
                Ok(Mapped { address: lent, by: By::Pool })
            }
            (mapped, _) => mapped,
        }
    }

    /// Whether rules 1 to 3 of RFC 7757 section 4.2.1 apply.
    #[inline]
    fn is_hairpinning(&self, origin: Origin) -> bool {
        origin == Origin::Hairpin || self.hairpinning == Hairpinning::Simple
    }

    /// Whether a packet goes back inside for the sake of this address: it was embedded, and the
    /// IPv4 address in it is that of an inside host. What is known of it is kept for the second
    /// pass.
    #[inline]
    fn hairpins(&self, mapped: Mapped<Ipv4Addr>, work: &mut Work<'_>) -> bool {
        if self.hairpinning != Hairpinning::Intrinsic || mapped.by != By::Prefix {
            return false;
        }
        let is_explicit = self.mapping.explicit.contains_ipv4(mapped.address);
        // The destination of the second pass need not be the address that was asked about: an error
        // goes elsewhere.
        work.claim = Claim::Unknown;
        let is_lent = |pool: &Arc<DynamicPool>| pool.host_of(mapped.address, work.now.tick()).is_some();
        is_explicit || self.dynamic.as_ref().is_some_and(is_lent)
    }

    #[inline]
    fn note_mapping<A: Display, B: Display>(&self, work: &mut Work<'_>, what: &str, from: A, mapped: Mapped<B>) {
        if work.notes.are_wanted() {
            self.write_mapping(work, what, &from, &mapped);
        }
    }

    #[cold]
    fn write_mapping<A: Display, B: Display>(&self, work: &mut Work<'_>, what: &str, from: &A, mapped: &Mapped<B>) {
        let clause = match mapped.by {
            By::Row(_) => "RFC 7757 section 3.3",
            By::Prefix => "RFC 6052 section 2.3",
            By::Pool => "",
        };
        work.notes.add(clause, || {
            let by = match (mapped.by, self.mapping.prefix) {
                (By::Row(number), _) => format!("explicit mapping {}", self.mapping.explicit.rows()[number as usize]),
                (By::Prefix, Some(prefix)) => format!("prefix {prefix}"),
                (By::Prefix, None) => "a prefix".into(),
                (By::Pool, _) => "the dynamic pool".into(),
            };
            format!("{what} {from} is {} by {by}", mapped.address)
        });
    }

    fn unlimited_ipv4(&self) -> TranslateSettings {
        TranslateSettings { ipv4_mtu: u32::MAX, ..self.translate }
    }

    /// A packet that has just become IPv4 comes in again, with one decrement of the hop limit in
    /// total (RFC 7757 section 4.2.2).
    fn hairpin(&self, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
        let parsed = come_in_again(&mut work.packet)?;
        self.receive_ipv4(&parsed, Origin::Hairpin, work).map_err(Refusal::silence)
    }
}

/// Packets without mapping are refused with "administratively prohibited", the default of RFC 7915
/// sections 4.4 and 5.4; so is what RFC 6052 section 3.1 forbids.
fn refuse(reason: DropReason) -> Refusal {
    match reason {
        DropReason::Untranslatable
        | DropReason::Denied
        | DropReason::PrivateInWellKnownPrefix
        | DropReason::LinkLocal => Refusal::with(reason, IcmpAnswer::Prohibited),
        // The address is lent to nobody, or there is none left to lend.
        DropReason::NoBinding | DropReason::PoolExhausted => Refusal::with(reason, IcmpAnswer::HostUnreachable),
        _ => reason.into(),
    }
}
