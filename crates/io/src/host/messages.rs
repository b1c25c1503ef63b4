//! What the gateway says to the kernel, and how it reads what the kernel says.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rtnl::ROUTE_PROTOCOL;

/// Metric of the route that prohibits: any other one comes before it.
const PROHIBIT_METRIC: u32 = u32::MAX - 1;

/// An address of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// Number of the device that has it.
    pub index: u32,
    /// Name of the device that has it.
    pub device: String,
    /// Where it is valid.
    pub reach: Reach,
    /// Length of the network that it is in, in bits.
    pub prefix_len: u8,
}

impl HostAddress {
    /// True if hosts on its link take all of `prefix` for their neighbours.
    pub(super) fn has_on_link(&self, prefix: IpNet) -> bool {
        let is_network = self.prefix_len < prefix.max_prefix_len() && self.prefix_len <= prefix.prefix_len();
        is_network && IpNet::new(self.address, self.prefix_len).is_ok_and(|network| network.contains(&prefix))
    }

    /// True if it may stay in `prefix` though that is routed to the gateway: its own network is more
    /// specific, and packets to that need no translation (RFC 7915 section 5.6). An IPv4 prefix
    /// holds addresses to be handed out, of which none may be missing.
    pub(super) fn may_lie_in(&self, prefix: IpNet) -> bool {
        prefix.addr().is_ipv6() && self.prefix_len > prefix.prefix_len()
    }
}

/// Where an address is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Everywhere, as far as the host knows.
    Global,
    /// On the link, or within the host, or not yet or no longer to be used (tentative, deprecated).
    Restricted,
}

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    pub(super) fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::Ipv4)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

pub(super) fn name_of(index: u32) -> String {
    let name = nix::net::if_::if_indextoname(index);
    name.ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| format!("device {index}"))
}

pub(super) fn family_of(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

pub(super) fn link_message(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

pub(super) fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family_of(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    // Usable at once: nobody on a TUN device can have the same address.
    message.header.flags = AddressHeaderFlags::Nodad;
    message.attributes = vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
    message
}

pub(super) fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

pub(super) fn route_message(index: u32, prefix: IpNet) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family_of(prefix.addr()),
        destination_prefix_length: prefix.prefix_len(),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Other(ROUTE_PROTOCOL),
        scope: if prefix.addr().is_ipv4() { RouteScope::Link } else { RouteScope::Universe },
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes = vec![RouteAttribute::Destination(route_address(prefix.addr())), RouteAttribute::Oif(index)];
    message
}

/// A route that sends the search on to the next rule.
pub(super) fn throw_message(prefix: IpNet) -> RouteMessage {
    let mut message = route_message(0, prefix);
    message.header.kind = RouteType::Throw;
    message.header.scope = RouteScope::Universe;
    message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Oif(_)));
    message
}

/// A route for what no other route of its table takes: the sender is answered that it is prohibited.
pub(super) fn prohibit_message(prefix: IpNet) -> RouteMessage {
    let mut message = throw_message(prefix);
    message.header.kind = RouteType::Prohibit;
    message.attributes.push(RouteAttribute::Priority(PROHIBIT_METRIC));
    message
}

/// A route in another table than the main one.
pub(super) fn in_table(mut message: RouteMessage, table: u32) -> RouteMessage {
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.attributes.push(RouteAttribute::Table(table));
    message
}

/// An IPv4 rule that looks packets up in `table`. `source_length` is the length of a source prefix
/// in `selector`.
pub(super) fn rule_message(priority: u32, table: u32, selector: RuleAttribute, source_length: u8) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.src_len = source_length;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        selector,
        RuleAttribute::Priority(priority),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL)),
    ];
    message
}

/// True of a default route, and of either half of one that stands beside another's: everybody has addresses and networks
/// behind it, and it is for what no other route takes.
#[must_use]
pub fn is_for_the_rest(prefix: IpNet) -> bool {
    prefix.prefix_len() == 0 || prefix.addr().is_ipv4() && prefix.prefix_len() == 1
}

/// True if a route's destination is exactly this prefix.
pub(super) fn is_for(route: &RouteMessage, prefix: IpNet) -> bool {
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => Some(address),
        _ => None,
    });
    route.header.destination_prefix_length == prefix.prefix_len()
        && destination.map_or(prefix.addr().is_unspecified(), |address| *address == route_address(prefix.addr()))
}

pub(super) fn owner_index(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

pub(super) fn owner_name(route: &RouteMessage) -> String {
    owner_index(route).map_or_else(|| "another next hop".to_owned(), name_of)
}

/// The address that an address message is about.
pub(super) fn address_of(message: &AddressMessage) -> Option<IpNet> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    })?;
    IpNet::new(local, message.header.prefix_len).ok()
}

pub(super) fn host_address(message: RouteNetlinkMessage) -> Option<HostAddress> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    // On a point-to-point device `Address` is the peer's, and `Local` ours. IPv6 has `Address`
    // alone.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Deprecated | AddressHeaderFlags::Dadfailed;
    let is_global = message.header.scope == AddressScope::Universe && !message.header.flags.intersects(unusable);
    let reach = if is_global { Reach::Global } else { Reach::Restricted };
    let (index, prefix_len) = (message.header.index, message.header.prefix_len);
    Some(HostAddress { address, index, device: name_of(index), reach, prefix_len })
}
