//! The plan: everything that configuration decides, validated, immutable while packets use it.
//!
//! A reload makes a new plan; workers read the pointer to it once a batch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tombolo_tables::tables::Capacity;
use tombolo_wire::Port;
use tombolo_wire::rfc6052::Prefix64;

use crate::mapping::address_ranges::AddressRanges;
use crate::mapping::pool::{Pool, PoolRange, PortSpace};
use crate::mapping::stateless::Claim;
use crate::mechanism::TranslateSettings;
use crate::mechanism::napt::{Endpoint, Policy, Times};
use crate::mechanism::session_state::Side;
use crate::service::aftr::Aftr;
use crate::service::b4::B4;
use crate::service::lwaftr::Lwaftr;
use crate::service::lwb4::Lwb4;
use crate::service::map::MapEdge;
use crate::service::map_e_br::MapEBr;
use crate::service::map_e_ce::MapECe;
use crate::service::map_t_br::MapTBr;
use crate::service::map_t_ce::MapTCe;
use crate::service::nat44::Nat44;
use crate::service::siit::{Role, Siit};

/// All services of a gateway, and what they share.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The services; a service's number is its place here.
    pub services: Vec<Service>,
    /// Lifetimes of sessions and bindings.
    pub times: Times,
    /// Room in the tables.
    pub capacity: Capacity,
    /// Addresses that the gateway speaks from when it sends ICMP errors of its own.
    pub own: OwnAddresses,
}

/// Addresses of the gateway itself, and what it says from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnAddresses {
    /// Source of ICMPv4 errors; without it none are sent.
    pub ipv4: Option<Ipv4Addr>,
    /// Source of ICMPv6 errors; without it none are sent.
    pub ipv6: Option<Ipv6Addr>,
    /// Who answers what is sent to these addresses.
    pub answered_by: AnsweredBy,
    /// Which errors are sent, and how many.
    pub errors: ErrorPolicy,
}

/// Who answers what is sent to the gateway's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnsweredBy {
    /// The host, which has them on an interface: packets to them do not come here, unless a service
    /// has the address too.
    #[default]
    Host,
    /// The gateway: no interface has them. It answers echo requests, and refuses everything else.
    Gateway,
}

/// ICMP errors of the gateway's own, each worker by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorPolicy {
    /// Errors a second (RFC 4443 section 2.4 (f)); 0 sends none.
    pub rate: u32,
    /// Errors that may be sent at once.
    pub burst: u32,
    /// Whether senders are told of packets that are refused for want of a mapping or by policy.
    pub refusals: Refusals,
}

/// Whether senders are told of packets that are refused for want of a mapping or by policy (RFC
/// 7915 sections 4.4, 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refusals {
    /// They are: "administratively prohibited".
    #[default]
    Told,
    /// They are not, and so learn nothing about what is mapped.
    Silent,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        Self { rate: 100, burst: 50, refusals: Refusals::Told }
    }
}

/// A service.
#[derive(Debug, Clone)]
pub struct Service {
    /// Name for logs and metrics.
    pub name: String,
    /// What it does.
    pub kind: ServiceKind,
}

/// What a service does.
#[derive(Debug, Clone)]
pub enum ServiceKind {
    /// Stateful NAT64 (RFC 6146).
    Nat64(Nat64),
    /// Stateful NAT44.
    Nat44(Nat44),
    /// Stateless translation (RFC 7915), SIIT or CLAT.
    Siit(Siit),
    /// The customer's end of DS-Lite (RFC 6333).
    B4(B4),
    /// The provider's end of DS-Lite (RFC 6333).
    Aftr(Aftr),
    /// The customer's end of Lightweight 4over6 (RFC 7596).
    Lwb4(Lwb4),
    /// The provider's end of Lightweight 4over6 (RFC 7596).
    Lwaftr(Lwaftr),
    /// The border relay of MAP-T (RFC 7599).
    MapTBr(MapTBr),
    /// A customer's edge of MAP-T (RFC 7599).
    MapTCe(MapTCe),
    /// The border relay of MAP-E (RFC 7597).
    MapEBr(MapEBr),
    /// A customer's edge of MAP-E (RFC 7597).
    MapECe(MapECe),
}

impl ServiceKind {
    /// The stateful NAT64, if it is one.
    #[must_use]
    pub const fn nat64(&self) -> Option<&Nat64> {
        match self {
            Self::Nat64(nat64) => Some(nat64),
            _ => None,
        }
    }

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Nat64(_) => "nat64",
            Self::Nat44(_) => "nat44",
            Self::Siit(Siit { role: Role::Clat, .. }) => "clat",
            Self::Siit(_) => "siit",
            Self::B4(_) => "b4",
            Self::Aftr(_) => "aftr",
            Self::Lwb4(_) => "lwb4",
            Self::Lwaftr(_) => "lwaftr",
            Self::MapTBr(_) | Self::MapTCe(_) => "map-t",
            Self::MapEBr(_) | Self::MapECe(_) => "map-e",
        }
    }

    /// Its outside addresses, if it has bindings.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        match self {
            Self::Nat64(nat64) => Some(&nat64.pool),
            Self::Nat44(nat44) => Some(&nat44.pool),
            Self::Aftr(aftr) => Some(&aftr.pool),
            Self::Lwb4(lwb4) => Some(&lwb4.pool),
            _ => self.map_edge()?.napt.as_ref().map(|nat44| &nat44.pool),
        }
    }

    /// The customer's edge, if it is a CE of MAP.
    #[must_use]
    #[inline]
    pub const fn map_edge(&self) -> Option<&MapEdge> {
        match self {
            Self::MapTCe(ce) => Some(&ce.edge),
            Self::MapECe(ce) => Some(&ce.edge),
            _ => None,
        }
    }

    /// Its bindings that are always there.
    #[must_use]
    pub fn static_bindings(&self) -> &[StaticBinding] {
        match self {
            Self::Nat64(nat64) => &nat64.static_bindings,
            Self::Nat44(nat44) => &nat44.static_bindings,
            Self::Lwb4(lwb4) => &lwb4.static_bindings,
            _ => match self.map_edge() {
                Some(MapEdge { napt: Some(nat44), .. }) => &nat44.static_bindings,
                _ => &[],
            },
        }
    }

    /// Where packets of this service are addressed to, for routes.
    #[must_use]
    pub fn routed(&self) -> Routed {
        let embedding = |prefix: &Prefix64| (prefix.address(), prefix.length());
        let addresses = |pool: &Pool| pool.ranges().iter().map(|range| (range.first, range.last)).collect();
        let ranges = |ranges: &AddressRanges| ranges.ranges().iter().map(|r| (*r.start(), *r.end())).collect();
        match self {
            Self::Nat64(nat64) => {
                Routed { ipv6: vec![embedding(&nat64.prefix)], ipv4: addresses(&nat64.pool), ..Routed::default() }
            }
            Self::Nat44(nat44) => Routed {
                ipv4: addresses(&nat44.pool),
                sources: ranges(&nat44.inside),
                exempt: ranges(&nat44.untranslated),
                ..Routed::default()
            },
            Self::Siit(siit) => siit.routed(),
            Self::B4(B4 { inside, ends, .. }) | Self::Lwb4(Lwb4 { inside, ends, .. }) => {
                Routed { ipv6: vec![(ends.local, 128)], sources: ranges(inside), ..Routed::default() }
            }
            Self::Aftr(aftr) => {
                Routed { ipv6: vec![(aftr.address, 128)], ipv4: addresses(&aftr.pool), ..Routed::default() }
            }
            Self::Lwaftr(lwaftr) => {
                let ipv6 = lwaftr.addresses.iter().map(|&address| (address, 128)).collect();
                Routed { ipv6, ipv4: ranges(&lwaftr.ipv4), ..Routed::default() }
            }
            Self::MapTBr(br) => br.routed(),
            Self::MapTCe(ce) => ce.routed(),
            Self::MapEBr(br) => br.routed(),
            Self::MapECe(ce) => ce.routed(),
        }
    }

    /// True if IPv6 fragments have to be put together before this service takes them.
    #[must_use]
    #[inline]
    pub const fn collects_ipv6(&self) -> bool {
        !matches!(self, Self::Siit(_))
    }

    /// True if IPv4 fragments have to be put together before this service takes them.
    #[must_use]
    #[inline]
    pub const fn collects_ipv4(&self) -> bool {
        !matches!(self, Self::Siit(_) | Self::B4(_))
    }

    /// True for the end of a softwire: its answers to IPv6 packets come from the address that they
    /// were sent to, since the other end believes no other (RFC 7596 section 8.1).
    #[must_use]
    #[inline]
    pub const fn answers_as_destination(&self) -> bool {
        matches!(
            self,
            Self::B4(_) | Self::Aftr(_) | Self::Lwb4(_) | Self::Lwaftr(_) | Self::MapEBr(_) | Self::MapECe(_)
        )
    }

    /// The source of its ICMPv4 errors to IPv4 hosts inside, if it has one of its own.
    #[must_use]
    #[inline]
    pub const fn icmp_source(&self) -> Option<Ipv4Addr> {
        match self {
            Self::B4(b4) => Some(b4.icmp_source),
            _ => None,
        }
    }

    /// The side that IPv6 packets of this service come from.
    #[must_use]
    #[inline]
    pub const fn side_of_ipv6(&self) -> Side {
        match self {
            Self::Siit(Siit { role: Role::Clat, .. })
            | Self::B4(_)
            | Self::Lwb4(_)
            | Self::MapTCe(_)
            | Self::MapECe(_) => Side::Outside,
            _ => Side::Inside,
        }
    }

    /// The side that IPv4 packets of this service come from.
    #[must_use]
    #[inline]
    pub const fn side_of_ipv4(&self) -> Side {
        match self {
            Self::Siit(Siit { role: Role::Clat, .. }) | Self::MapTCe(_) | Self::MapECe(_) => Side::Inside,
            _ => Side::Outside,
        }
    }
}

/// A stateful NAT64, which is also the PLAT of 464XLAT.
#[derive(Debug, Clone)]
pub struct Nat64 {
    /// The prefix in which IPv6 hosts see IPv4 addresses (RFC 6052).
    pub prefix: Prefix64,
    /// Drop packets that combine the well-known prefix with an IPv4 address that is not global (RFC
    /// 6052 section 3.1).
    pub well_known_prefix_strict: bool,
    /// Outside addresses.
    pub pool: Pool,
    /// What subscribers may do.
    pub policy: Policy,
    /// How headers are translated.
    pub translate: TranslateSettings,
    /// Bindings that are always there.
    pub static_bindings: Vec<StaticBinding>,
}

/// A binding that is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticBinding {
    /// TCP, UDP or ICMP.
    pub space: PortSpace,
    /// Inside address, of the family that the service has inside.
    pub inside: IpAddr,
    /// Inside port or identifier.
    pub inside_port: Port,
    /// Outside endpoint; it must have a slot in the pool.
    pub outside: Endpoint,
}

/// Where packets of a service are addressed to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    /// IPv6 prefixes, with their lengths.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// Ranges of IPv4 addresses, first and last.
    pub ipv4: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Ranges of IPv4 sources, first and last: packets from them are the service's wherever they
    /// go, except to each other and to `exempt`.
    pub sources: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Ranges of IPv4 destinations that packets from `sources` reach as they are.
    pub exempt: Vec<(Ipv4Addr, Ipv4Addr)>,
}

impl Plan {
    /// The service whose prefix `destination` is in, for a packet from inside. What it took to find
    /// out goes to `claim`.
    #[must_use]
    #[inline]
    pub fn service_of_ipv6(&self, destination: Ipv6Addr, claim: &mut Claim) -> Option<(u8, &Service)> {
        self.numbered().find(|(_, service)| match &service.kind {
            ServiceKind::Nat64(nat64) => nat64.prefix.contains(destination),
            ServiceKind::Nat44(_) => false,
            ServiceKind::Siit(siit) => siit.claims_ipv6(destination, claim),
            ServiceKind::B4(b4) => b4.ends.local == destination,
            ServiceKind::Aftr(aftr) => aftr.address == destination,
            ServiceKind::Lwb4(lwb4) => lwb4.ends.local == destination,
            ServiceKind::Lwaftr(lwaftr) => lwaftr.addresses.contains(&destination),
            ServiceKind::MapTBr(br) => br.dmr.contains(destination),
            ServiceKind::MapTCe(ce) => ce.claims_ipv6(destination),
            ServiceKind::MapEBr(br) => br.address == destination,
            ServiceKind::MapECe(ce) => ce.edge.ce.address() == destination,
        })
    }

    /// The service that translates what `source` sends to `destination`, if `source` is an IPv4
    /// host inside.
    #[must_use]
    #[inline]
    pub fn service_of_ipv4_source(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Option<(u8, &Service)> {
        self.numbered().find(|(_, service)| match &service.kind {
            ServiceKind::Nat44(nat44) => nat44.is_from_inside(source, destination),
            ServiceKind::B4(b4) => b4.is_from_inside(source, destination),
            ServiceKind::Lwb4(lwb4) => lwb4.is_from_inside(source, destination),
            kind => kind.map_edge().is_some_and(|edge| edge.is_from_inside(source, destination)),
        })
    }

    /// The service whose pool `destination` is in, for a packet from outside. What it took to find
    /// out goes to `claim`.
    #[must_use]
    #[inline]
    pub fn service_of_ipv4(&self, destination: Ipv4Addr, claim: &mut Claim) -> Option<(u8, &Service)> {
        self.numbered().find(|(_, service)| match &service.kind {
            ServiceKind::Nat64(nat64) => nat64.pool.contains(destination),
            ServiceKind::Nat44(nat44) => nat44.pool.contains(destination),
            ServiceKind::Siit(siit) => siit.claims_ipv4(destination, claim),
            ServiceKind::Aftr(aftr) => aftr.pool.contains(destination),
            ServiceKind::Lwaftr(lwaftr) => lwaftr.ipv4.contains(destination),
            // What is for their hosts comes through the softwire.
            ServiceKind::B4(_) | ServiceKind::Lwb4(_) => false,
            ServiceKind::MapTBr(br) => br.domain.contains_ipv4(destination),
            ServiceKind::MapTCe(ce) => ce.edge.claims_ipv4(destination),
            ServiceKind::MapEBr(br) => br.domain.contains_ipv4(destination),
            ServiceKind::MapECe(ce) => ce.edge.claims_ipv4(destination),
        })
    }

    /// Services with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u8, &Service)> {
        (0..=u8::MAX).zip(&self.services)
    }

    /// Slots of the outside index that the pools of all services need; `None` if more than 32 bits
    /// count.
    #[must_use]
    pub fn outside_slots(&self) -> Option<u32> {
        self.ranges().try_fold(0_u32, |sum, range| sum.checked_add(range.slots()?))
    }

    /// All ranges of all pools.
    pub fn ranges(&self) -> impl Iterator<Item = &PoolRange> {
        self.services.iter().filter_map(|service| service.kind.pool()).flat_map(Pool::ranges)
    }
}
