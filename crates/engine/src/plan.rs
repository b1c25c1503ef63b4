//! The plan: everything that configuration decides, validated, immutable while packets use it.
//!
//! A reload makes a new plan; workers read the pointer to it once a batch.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_tables::subscriber::SubscriberKey;
use tombolo_tables::tables::Capacity;

use crate::cluster::Cluster;
use crate::mapping::pool::{Pool, PoolRange};
use crate::mapping::stateless::Claim;
use crate::mechanism::napt::{Nat, Times};

pub use crate::mechanism::napt::StaticBinding;
pub use crate::mechanism::pcp::PcpPolicy;
pub use crate::own_addresses::{AnsweredBy, ErrorPolicy, OwnAddresses, Refusals};
pub use crate::pcp_addresses::{ANYCAST_IPV4, ANYCAST_IPV6, MOST_PCP_ADDRESSES, PcpAddresses};
pub use crate::routed::Routed;
use crate::row::Rows;
pub use crate::service::{Service, ServiceKind};
pub use crate::standby::Standby;

/// All services of a gateway, and what they share.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The services, in the order in which they are asked whose a packet is.
    pub services: Vec<Service>,
    /// Services with state that earlier plans had, the latest last: what ends with them is still to be
    /// named.
    pub retired: Vec<Service>,
    /// Services that pass packets on to each other.
    pub rows: Rows,
    /// Lifetimes of sessions and bindings.
    pub times: Times,
    /// Room in the tables.
    pub capacity: Capacity,
    /// Addresses that the gateway speaks from when it sends ICMP errors of its own.
    pub own: OwnAddresses,
    /// Addresses that hosts inside ask for ports at.
    pub pcp: PcpAddresses,
    /// The cluster that the gateway is a node of. A plan that takes another one's place has the same.
    pub cluster: Option<Arc<Cluster>>,
}

impl Plan {
    /// The service that has the IPv6 address `destination`. What it took to find out goes to
    /// `claim`.
    #[must_use]
    #[inline]
    pub fn service_of_ipv6(&self, destination: Ipv6Addr, claim: &mut Claim) -> Option<(u8, &Service)> {
        self.numbered().find(|(_, service)| service.kind.claims_ipv6(destination, claim))
    }

    /// The service that takes what `source` sends to `destination`, if `source` is an IPv4 host
    /// inside.
    #[must_use]
    #[inline]
    pub fn service_of_ipv4_source(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Option<(u8, &Service)> {
        self.numbered().find(|(_, service)| service.kind.claims_source(source, destination))
    }

    /// The service that has the IPv4 address `destination`. What it took to find out goes to
    /// `claim`.
    #[must_use]
    #[inline]
    pub fn service_of_ipv4(&self, destination: Ipv4Addr, claim: &mut Claim) -> Option<(u8, &Service)> {
        self.numbered().find(|(_, service)| service.kind.claims_ipv4(destination, claim))
    }

    /// True if a packet from `source` to a service of this kind has come round: the source is what
    /// some service shows an IPv4 host as (RFC 6146 section 3.5, "any Pref64").
    #[inline]
    pub(crate) fn loops(&self, service: &Service, source: Ipv6Addr) -> bool {
        service.kind.ends_loops() && self.services.iter().any(|other| other.kind.shows_ipv4_as(source))
    }

    /// Whether the packets of a subscriber are served here, and not at another node of the cluster.
    #[must_use]
    pub fn serves(&self, nat: &Nat, subscriber: &SubscriberKey) -> bool {
        let is_own = |cluster: &Cluster| nat.pool.slice_of(subscriber).is_none_or(|slice| cluster.owns(slice));
        self.cluster.as_deref().is_none_or(is_own)
    }

    /// Whether this node has the bindings of a subscriber: it serves the subscriber, or is the backup of who does, or it is not known
    /// yet who has.
    #[must_use]
    pub fn keeps(&self, nat: &Nat, subscriber: &SubscriberKey) -> bool {
        let is_kept = |cluster: &Cluster| {
            let keeps = |slice| cluster.owns(slice) || cluster.backs_up(slice) || cluster.is_nobodys(slice);
            nat.pool.slice_of(subscriber).is_none_or(keeps)
        };
        self.cluster.as_deref().is_none_or(is_kept)
    }

    /// The one address that subscribers' softwires end at, if there is one alone: then a packet of a softwire is
    /// known for one whatever address of a node it comes to.
    #[must_use]
    pub fn softwire_end(&self) -> Option<Ipv6Addr> {
        let mut ends = self.services.iter().filter_map(|service| service.kind.softwire_end());
        let first = ends.next();
        first.filter(|_| ends.next().is_none())
    }

    /// Service number `number`.
    #[must_use]
    pub fn service(&self, number: u8) -> Option<&Service> {
        let at_its_place = self.services.get(usize::from(number)).filter(|service| service.number == number);
        at_its_place.or_else(|| self.services.iter().find(|service| service.number == number))
    }

    /// The service that has this number, or had it under an earlier plan.
    #[must_use]
    pub fn service_ever(&self, number: u8) -> Option<&Service> {
        self.service(number).or_else(|| self.retired.iter().rfind(|service| service.number == number))
    }

    /// Services with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u8, &Service)> {
        self.services.iter().map(|service| (service.number, service))
    }

    /// Services that pass packets on to each other, among `services`.
    #[must_use]
    pub fn rows_of(services: &[Service]) -> Rows {
        Rows::of(&services.iter().map(|service| service.kind.ends()).collect::<Vec<_>>())
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
