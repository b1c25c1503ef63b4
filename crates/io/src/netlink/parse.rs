//! From netlink's messages to what the mirror keeps.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType, RouteVia};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use crate::rtnl::{ROUTE_PROTOCOL, default_address, ip};

/// `RT_TABLE_MAIN` and `RT_TABLE_LOCAL` (`linux/rtnetlink.h`).
pub(super) const MAIN: u32 = 254;
pub(super) const LOCAL: u32 = 255;
/// `RT_TABLE_DEFAULT`, which nobody uses: it is asked last.
const DEFAULT: u32 = 253;

/// What the kernel does with packets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Sends them to a next hop.
    Unicast,
    /// Takes them: an address of the host, anycast included.
    Local,
    /// Takes and sends them to many.
    Multicast,
    /// Drops them.
    Blackhole,
    /// Answers that the destination is unreachable.
    Unreachable,
    /// Answers that it is prohibited.
    Prohibit,
    /// Goes on in the next routing table.
    Throw,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// The interface's index.
    pub interface: u32,
    /// The gateway; none if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Share of the flows: 1 to 256.
    pub weight: u16,
}

/// Where a route leads: what a next-hop number of the tables stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// What happens.
    pub kind: RouteKind,
    /// Next hops: none unless [`RouteKind::Unicast`] or multicast; several of a multipath route.
    pub hops: Vec<Hop>,
}

/// A neighbour whose link-layer address is known, or that needs none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface's index.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address: 6 bytes on Ethernet.
    pub link_address: Vec<u8>,
}

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelRoute {
    pub(super) prefix: IpNet,
    pub(super) table: u32,
    /// Type of service and metric: routes to one prefix that differ in them stand side by side.
    pub(super) tos: u8,
    pub(super) metric: u32,
    pub(super) target: Target,
    /// The destination alone decides where its packets go: one next hop, and nothing else to it
    /// (path MTU, encapsulation, source, group of next hops) that this mirror does not keep.
    pub(super) plain: bool,
}

impl KernelRoute {
    /// Reads a route that all packets may take; nothing if it is of another table or family, or of a
    /// kind that is not routed by.
    pub(super) fn read(message: &RouteMessage) -> Option<Self> {
        Self::read_any(message).filter(|route| route.table == MAIN || route.table == LOCAL)
    }

    /// The same of any table.
    pub(super) fn read_any(message: &RouteMessage) -> Option<Self> {
        let kind = kind(message.header.kind)?;
        let mut prefix = default_address(message.header.address_family)?;
        let (mut table, mut metric) = (u32::from(message.header.table), 0);
        let (mut interface, mut gateway, mut hops) = (None, None, Vec::new());
        let mut plain =
            kind == RouteKind::Unicast && message.header.tos == 0 && message.header.source_prefix_length == 0;
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => prefix = ip(address)?,
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Priority(number) => metric = *number,
                RouteAttribute::Oif(index) => interface = Some(*index),
                RouteAttribute::Gateway(address) => gateway = ip(address),
                RouteAttribute::Via(via) => gateway = via_ip(via),
                RouteAttribute::MultiPath(paths) => {
                    hops.extend(paths.iter().map(|path| Hop {
                        interface: path.interface_index,
                        gateway: path.attributes.iter().find_map(gateway_of),
                        weight: u16::from(path.hops) + 1,
                    }));
                }
                RouteAttribute::PrefSource(_) | RouteAttribute::Preference(_) | RouteAttribute::CacheInfo(_) => {}
                _ => plain = false,
            }
        }
        // Cloned routes are the kernel's notes on path MTUs and redirects, not routes.
        let cloned = message.header.flags.contains(netlink_packet_route::route::RouteFlags::Cloned);
        if cloned {
            return None;
        }
        if hops.is_empty() && matches!(kind, RouteKind::Unicast | RouteKind::Multicast) {
            hops.extend(interface.map(|interface| Hop { interface, gateway, weight: 1 }));
        }
        hops.sort_unstable();
        let prefix = IpNet::new(prefix, message.header.destination_prefix_length).ok()?.trunc();
        plain &= table == MAIN && hops.len() == 1;
        Some(Self { prefix, table, tos: message.header.tos, metric, target: Target { kind, hops }, plain })
    }

    /// True if the kernel has one of the two only: they have table, type of service and metric in
    /// common. Both are of one prefix.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        (self.table, self.tos, self.metric) == (other.table, other.tos, other.metric)
    }

    /// All addresses of a network are the host's, as 127.0.0.0/8 is everywhere.
    pub(super) fn is_local_network(&self) -> bool {
        let whole = self.prefix.prefix_len() < self.prefix.max_prefix_len() && !self.prefix.addr().is_loopback();
        whole && self.table == LOCAL && self.target.kind == RouteKind::Local
    }

    /// The kernel asks the local table first, then takes the smallest metric (IPv6: 0 is 1024).
    /// Routes for one type of service only are not for all packets, so they come last.
    pub(super) fn order(&self) -> (bool, u8, u32) {
        (self.table != LOCAL, self.tos, self.metric)
    }
}

/// Whether the rules are those of a kernel that nobody has given others: the local table, then
/// main, for every packet. The gateway's own bring packets to its device and from it; what the
/// programs have translated is neither.
pub(super) fn are_plain(rules: &mut Vec<RuleMessage>) -> bool {
    let ours = RuleAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL));
    rules.retain(|rule| !rule.attributes.contains(&ours));
    let priority = |rule: &RuleMessage| {
        rule.attributes.iter().find_map(|attribute| match attribute {
            RuleAttribute::Priority(number) => Some(*number),
            _ => None,
        })
    };
    rules.sort_by_key(|rule| priority(rule).unwrap_or(0));
    let tables: Option<Vec<u32>> = rules.iter().map(plain_table).collect();
    matches!(tables.as_deref(), Some([LOCAL, MAIN] | [LOCAL, MAIN, DEFAULT]))
}

/// The table that a rule names for every packet; nothing if it chooses among packets, or does
/// something else.
fn plain_table(rule: &RuleMessage) -> Option<u32> {
    let header = &rule.header;
    if header.action != RuleAction::ToTable || header.src_len + header.dst_len + header.tos > 0 {
        return None;
    }
    let mut table = u32::from(header.table);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Priority(_) | RuleAttribute::Protocol(_) | RuleAttribute::SuppressPrefixLen(u32::MAX) => {}
            _ => return None,
        }
    }
    Some(table)
}

impl Neighbour {
    /// Reads a neighbour, and whether it can be sent to.
    pub(super) fn read(message: &NeighbourMessage) -> Option<(Self, bool)> {
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
            _ => None,
        })?;
        let link_address = message.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => Some(bytes.clone()),
            _ => None,
        });
        use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
        let valid = matches!(message.header.state, Reachable | Stale | Delay | Probe | Permanent | Noarp);
        let neighbour =
            Self { interface: message.header.ifindex, address, link_address: link_address.unwrap_or_default() };
        Some((neighbour, valid))
    }
}

fn kind(kind: RouteType) -> Option<RouteKind> {
    match kind {
        RouteType::Unicast => Some(RouteKind::Unicast),
        RouteType::Local | RouteType::Anycast => Some(RouteKind::Local),
        RouteType::Broadcast | RouteType::Multicast => Some(RouteKind::Multicast),
        RouteType::BlackHole => Some(RouteKind::Blackhole),
        RouteType::Unreachable => Some(RouteKind::Unreachable),
        RouteType::Prohibit => Some(RouteKind::Prohibit),
        RouteType::Throw => Some(RouteKind::Throw),
        _ => None,
    }
}

fn via_ip(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(address) => Some(IpAddr::V4(*address)),
        RouteVia::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

fn gateway_of(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(via) => via_ip(via),
        _ => None,
    }
}
