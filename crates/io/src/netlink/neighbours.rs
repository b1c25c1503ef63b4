//! Who is known on the links at this moment, and for whom this host answers.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rtnl::RouteSocket;

/// Neighbours of the calling thread's network namespace, each with the number of its interface.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// Those that were asked for and have not answered.
    pub silent: Vec<(u32, IpAddr)>,
    /// Those that have answered, or are configured.
    pub known: Vec<(u32, IpAddr)>,
    /// Those in whose place this host answers.
    pub answered_for: Vec<(u32, IpAddr)>,
}

impl Neighbours {
    /// Reads them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read() -> io::Result<Self> {
        let mut socket = RouteSocket::open()?;
        let mut found = Self::default();
        for message in list(&mut socket, NeighbourFlags::empty())? {
            let Some(address) = address_of(&message) else { continue };
            let place = match message.header.state {
                NeighbourState::Failed | NeighbourState::Incomplete => &mut found.silent,
                _ => &mut found.known,
            };
            place.push((message.header.ifindex, address));
        }
        for message in list(&mut socket, NeighbourFlags::Proxy)? {
            let proxied = address_of(&message).map(|address| (message.header.ifindex, address));
            found.answered_for.extend(proxied);
        }
        Ok(found)
    }
}

/// Of both families. The kernel lists those that it answers for, or the others.
pub(crate) fn list(socket: &mut RouteSocket, flags: NeighbourFlags) -> io::Result<Vec<NeighbourMessage>> {
    let mut found = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = NeighbourMessage::default();
        request.header.family = family;
        request.header.flags = flags;
        let answers = socket.dump(RouteNetlinkMessage::GetNeighbour(request))?;
        found.extend(answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => Some(message),
            _ => None,
        }));
    }
    Ok(found)
}

pub(crate) fn address_of(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    })
}
