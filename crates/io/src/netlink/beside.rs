//! Routes that lead past the gateway.

use std::io;

use ipnet::{IpNet, Ipv6Net};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;

use super::parse::{KernelRoute, RouteKind};
use crate::rtnl::RouteSocket;

/// The prefixes of IPv6 routes that do not lead to `device`, the host's own addresses
/// included. Where one is more specific than a prefix of a service, the kernel does
/// not give its packets to the gateway (RFC 7915 section 5.6).
///
/// # Errors
/// What the kernel says.
pub fn ipv6_routes_beside(device: &str) -> io::Result<Vec<Ipv6Net>> {
    let device = if_nametoindex(device)?;
    let mut request = RouteMessage::default();
    request.header.address_family = AddressFamily::Inet6;
    let answers = RouteSocket::open()?.dump(RouteNetlinkMessage::GetRoute(request))?;
    let routes = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(message) => KernelRoute::read(&message),
        _ => None,
    });
    let leads_past = |route: &KernelRoute| match route.target.kind {
        RouteKind::Unicast => route.target.hops.iter().any(|hop| hop.interface != device),
        RouteKind::Local => true,
        _ => false,
    };
    Ok(routes
        .filter(leads_past)
        .filter_map(|route| match route.prefix {
            IpNet::V6(prefix) => Some(prefix),
            IpNet::V4(_) => None,
        })
        .collect())
}
