//! The list of services: the one place that names them all.
//!
//! | column | meaning |
//! |---|---|
//! | variant | of [`ServiceKind`] |
//! | type | what the service is, in a file of its own; it implements `Serve` |
//! | name | of the kind in the configuration, unless the service says otherwise |
//!
//! [`for_each_service!`](crate::for_each_service) hands the list to a macro, for crates that have
//! something of their own to say about each service.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Prefix64;

use super::serve::Serve;
use super::shape::Shape;
use crate::description::Description;
use crate::mapping::pool::Pool;
use crate::mapping::stateless::Claim;
use crate::mechanism::napt::{Host, KnownBy, Nat, StaticBinding};
use crate::mechanism::{FarEndName, Refusal, Softwire};
use crate::packet::Packet;
use crate::parse::Parsed;
use crate::routed::{Routed, of_pool};
use crate::row::Ends;
use crate::side::Side;
use crate::standby::Standby;
use crate::verdict::Verdict;
use crate::work::Work;

/// Calls the macro named with the list of services, each as
/// `Variant(module::Type) = "name", "what it is";`.
#[macro_export]
macro_rules! for_each_service {
    ($then:path) => {
        $then! {
            Nat64(nat64::Nat64) = "nat64", "Stateful NAT64 (RFC 6146).";
            Nat44(nat44::Nat44) = "nat44", "Stateful NAT44.";
            Siit(siit::Siit) = "siit", "Stateless translation (RFC 7915), SIIT or CLAT.";
            B4(b4::B4) = "b4", "The customer's end of DS-Lite (RFC 6333).";
            Aftr(aftr::Aftr) = "aftr", "The provider's end of DS-Lite (RFC 6333).";
            Lwb4(lwb4::Lwb4) = "lwb4", "The customer's end of Lightweight 4over6 (RFC 7596).";
            MapECe(map_e_ce::MapECe) = "map-e-ce", "A customer's edge of MAP-E (RFC 7597).";
            MapTCe(map_t_ce::MapTCe) = "map-t-ce", "A customer's edge of MAP-T (RFC 7599).";
            Lwaftr(lwaftr::Lwaftr) = "lwaftr", "The provider's end of Lightweight 4over6 (RFC 7596).";
            MapEBr(map_e_br::MapEBr) = "map-e-br", "The border relay of MAP-E (RFC 7597).";
            MapTBr(map_t_br::MapTBr) = "map-t-br", "The border relay of MAP-T (RFC 7599).";
        }
    };
}

macro_rules! service_kinds {
    ($($kind:ident($module:ident::$service:ident) = $name:literal, $what:literal;)+) => {
        /// What a service does.
        #[derive(Debug, Clone)]
        pub enum ServiceKind {
            $(#[doc = $what] $kind(super::$module::$service),)+
        }

        impl ServiceKind {
            /// Its kind in the configuration.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$kind(service) => service.kind().unwrap_or($name),)+ }
            }

            /// What it is set to, for people and for machines.
            #[must_use]
            pub fn describe(&self) -> Description {
                match self { $(Self::$kind(service) => service.describe(),)+ }
            }

            /// Where packets of this service are addressed to, for routes.
            #[must_use]
            pub fn routed(&self) -> Routed {
                match self { $(Self::$kind(service) => service.routed(),)+ }
            }

            /// The addresses of its pool, and the IPv4 hosts inside.
            #[must_use]
            pub fn ends(&self) -> Ends {
                let outside = self.pool().map(of_pool).unwrap_or_default();
                (outside, match self { $(Self::$kind(service) => service.hosts(),)+ })
            }

            /// Its NAT, if it has bindings.
            #[must_use]
            pub fn nat(&self) -> Option<&Nat> {
                match self { $(Self::$kind(service) => service.nat(),)+ }
            }

            /// The same, to be changed before the plan is in force.
            pub fn nat_mut(&mut self) -> Option<&mut Nat> {
                match self { $(Self::$kind(service) => service.nat_mut(),)+ }
            }

            /// The softwire whose far end is known by a name.
            #[must_use]
            pub fn named_end(&self) -> Option<(&FarEndName, Softwire)> {
                match self { $(Self::$kind(service) => service.named_end(),)+ }
            }

            /// The same, to be changed before the plan is in force.
            pub fn named_end_mut(&mut self) -> Option<(&FarEndName, &mut Softwire)> {
                match self { $(Self::$kind(service) => service.named_end_mut(),)+ }
            }

            /// What the hosts inside its NAT are known by.
            #[must_use]
            pub fn hosts_known_by(&self) -> KnownBy {
                match self { $(Self::$kind(service) => service.hosts_known_by(),)+ }
            }

            /// True if the host of an inside endpoint of its NAT may still be one.
            #[must_use]
            pub fn has_inside(&self, inside: &InsideKey) -> bool {
                match self { $(Self::$kind(service) => service.has_inside(inside),)+ }
            }

            /// True if an IPv6 packet to `destination` is this service's. What it took to find out goes to
            /// `claim`.
            #[inline]
            #[must_use]
            pub fn claims_ipv6(&self, destination: Ipv6Addr, claim: &mut Claim) -> bool {
                match self { $(Self::$kind(service) => service.claims_ipv6(destination, claim),)+ }
            }

            /// True if an IPv4 packet to `destination` is this service's, whoever sends it.
            #[inline]
            #[must_use]
            pub fn claims_ipv4(&self, destination: Ipv4Addr, claim: &mut Claim) -> bool {
                match self { $(Self::$kind(service) => service.claims_ipv4(destination, claim),)+ }
            }

            /// True if an IPv4 packet is this service's because of who sends it: a host inside.
            #[inline]
            #[must_use]
            pub fn claims_source(&self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
                match self { $(Self::$kind(service) => service.claims_source(source, destination),)+ }
            }

            /// How its packets come.
            #[inline]
            #[must_use]
            pub fn shape(&self) -> Shape {
                match self { $(Self::$kind(service) => service.shape(),)+ }
            }

            /// The prefix in which it shows IPv4 hosts to IPv6 hosts (Pref64), if it has one.
            #[must_use]
            pub fn pref64(&self) -> Option<Prefix64> {
                match self { $(Self::$kind(service) => service.pref64(),)+ }
            }

            #[inline]
            pub(crate) fn shows_ipv4_as(&self, address: Ipv6Addr) -> bool {
                match self { $(Self::$kind(service) => service.shows_ipv4_as(address),)+ }
            }

            #[inline]
            pub(crate) fn ends_loops(&self) -> bool {
                match self { $(Self::$kind(service) => service.ends_loops(),)+ }
            }

            pub(crate) fn admits(&self, parsed: &Parsed<Ipv6Addr>) -> Result<(), Refusal> {
                match self { $(Self::$kind(service) => service.admits(parsed),)+ }
            }

            pub(crate) fn host_of_ipv6(&self, parsed: &Parsed<Ipv6Addr>, packet: &Packet<'_>) -> Option<Host> {
                match self { $(Self::$kind(service) => service.host_of_ipv6(parsed, packet),)+ }
            }

            pub(crate) fn host_of_ipv4(&self, parsed: &Parsed<Ipv4Addr>, packet: &Packet<'_>) -> Option<Host> {
                match self { $(Self::$kind(service) => service.host_of_ipv4(parsed, packet),)+ }
            }

            pub(crate) fn softwire_end(&self) -> Option<Ipv6Addr> {
                match self { $(Self::$kind(service) => service.softwire_end(),)+ }
            }

            pub(crate) fn icmp_source(&self) -> Option<Ipv4Addr> {
                match self { $(Self::$kind(service) => service.icmp_source(),)+ }
            }

            #[inline]
            pub(crate) fn serve_ipv6(
                &self,
                parsed: &Parsed<Ipv6Addr>,
                work: &mut Work<'_>,
            ) -> Result<Verdict, Refusal> {
                match self { $(Self::$kind(service) => service.serve_ipv6(parsed, work),)+ }
            }

            #[inline]
            pub(crate) fn serve_ipv4(
                &self,
                side: Side,
                parsed: &Parsed<Ipv4Addr>,
                work: &mut Work<'_>,
            ) -> Result<Verdict, Refusal> {
                match self { $(Self::$kind(service) => service.serve_ipv4(side, parsed, work),)+ }
            }

            pub(crate) fn deliver(
                &self,
                parsed: &Parsed<Ipv4Addr>,
                inside: &InsideKey,
                work: &mut Work<'_>,
            ) -> Result<Verdict, Refusal> {
                match self { $(Self::$kind(service) => service.deliver(parsed, inside, work),)+ }
            }

            pub(crate) fn answer_held(&self, refusal: Refusal, work: &mut Work<'_>) -> Result<Verdict, Refusal> {
                match self { $(Self::$kind(service) => service.answer_held(refusal, work),)+ }
            }
        }
    };
}

for_each_service!(service_kinds);

impl ServiceKind {
    /// Its outside addresses, if it has bindings.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        self.nat().map(|nat| &nat.pool)
    }

    /// Its bindings that are always there.
    #[must_use]
    pub fn static_bindings(&self) -> &[StaticBinding] {
        self.nat().map_or(&[], |nat| &nat.static_bindings)
    }
}

/// A service.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its number in the tables: its place in the plan that the tables were made for. It keeps it under
    /// later plans, whatever its place is there.
    pub number: u8,
    /// Name for logs and metrics.
    pub name: String,
    /// What it does.
    pub kind: ServiceKind,
    /// Whether it leaves IPv4 to the host's own connection.
    pub standby: Standby,
}

impl Service {
    /// One that never stands by.
    #[must_use]
    pub fn new(number: u8, name: impl Into<String>, kind: ServiceKind) -> Self {
        Self { number, name: name.into(), kind, standby: Standby::Never }
    }

    /// True if native IPv4 works, and it leaves its hosts to that.
    #[must_use]
    pub fn stands_by(&self) -> bool {
        self.standby == Standby::StandingBy
    }

    /// Where packets that are brought to it are addressed to: to one that stands by nobody brings those of IPv4
    /// hosts.
    #[must_use]
    pub fn routed(&self) -> Routed {
        let routed = self.kind.routed();
        if self.stands_by() { Routed { ipv6: routed.ipv6, ..Routed::default() } } else { routed }
    }
}
