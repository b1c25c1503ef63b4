//! Where the kernel would send a packet of the host's own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rtnl::RouteSocket;

/// Addresses, of IPv4 and of IPv6, that all routes to the Internet have in common.
pub const INTERNET: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(1, 1, 1, 1), Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1));

/// The number of the interface that packets to an address leave by; none if they stay here, or have no route.
///
/// # Errors
/// What the kernel says, but that there is no route.
pub fn egress(address: IpAddr) -> io::Result<Option<u32>> {
    let mut question = RouteMessage::default();
    let (family, destination) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, RouteAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, RouteAddress::Inet6(address)),
    };
    question.header.address_family = family;
    question.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    question.attributes = vec![RouteAttribute::Destination(destination)];
    let answers = match RouteSocket::open()?.request(RouteNetlinkMessage::GetRoute(question), 0) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES)) => {
            return Ok(None);
        }
        answers => answers?,
    };
    Ok(answers.into_iter().find_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Unicast => {
            route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            })
        }
        _ => None,
    }))
}
