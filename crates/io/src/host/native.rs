//! Whether the host has IPv4 of its own, as seen from what carries IPv4 over IPv6: a default route that is none of a
//! gateway's, out of an interface whose link is up.

use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol, RouteType,
};

use super::changes::Host;
use super::error::HostError;
use super::messages::name_of;
use crate::rtnl::ROUTE_PROTOCOL;

impl Host {
    /// The interface that native IPv4 leaves by, if there is one.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn native_ipv4(&mut self) -> Result<Option<String>, HostError> {
        Ok(self.default_routes()?.iter().find_map(working_interface).map(name_of))
    }
}

/// Number of an interface that a default route leaves by. The kernel marks next hops whose link is down.
fn working_interface(route: &RouteMessage) -> Option<u32> {
    let header = &route.header;
    if header.kind != RouteType::Unicast
        || header.protocol == RouteProtocol::Other(ROUTE_PROTOCOL)
        || header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown)
    {
        return None;
    }
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        RouteAttribute::MultiPath(hops) => {
            let down = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
            hops.iter().find(|hop| !hop.flags.intersects(down)).map(|hop| hop.interface_index)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::route::RouteNextHop;

    fn route(attribute: RouteAttribute) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.kind = RouteType::Unicast;
        route.header.protocol = RouteProtocol::Dhcp;
        route.attributes = vec![attribute];
        route
    }

    #[test]
    fn a_default_route_whose_link_is_up_is_native_ipv4() {
        let native = route(RouteAttribute::Oif(7));
        assert_eq!(working_interface(&native), Some(7));
        let changed = |change: fn(&mut RouteMessage)| {
            let mut route = native.clone();
            change(&mut route);
            working_interface(&route)
        };
        assert_eq!(changed(|route| route.header.flags = RouteFlags::Linkdown), None);
        assert_eq!(changed(|route| route.header.kind = RouteType::Unreachable), None);
        assert_eq!(changed(|route| route.header.protocol = RouteProtocol::Other(ROUTE_PROTOCOL)), None);
    }

    #[test]
    fn of_several_next_hops_one_is_enough() {
        let hop = |interface_index, flags| {
            let mut hop = RouteNextHop::default();
            (hop.interface_index, hop.flags) = (interface_index, flags);
            hop
        };
        let (down, up) = (hop(7, RouteNextHopFlags::Linkdown), hop(8, RouteNextHopFlags::empty()));
        assert_eq!(working_interface(&route(RouteAttribute::MultiPath(vec![down.clone(), up]))), Some(8));
        assert_eq!(working_interface(&route(RouteAttribute::MultiPath(vec![down]))), None);
    }
}
