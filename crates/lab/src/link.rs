//! Interfaces, addresses and routes of a namespace, through rtnetlink.

use std::{net::IpAddr, os::fd::AsRawFd as _};

use nix::net::if_::if_nametoindex;
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder, new_connection,
    packet_route::{
        address::{AddressAttribute, AddressFlags, AddressHeaderFlags},
        link::{InfoData, InfoVeth, LinkAttribute, LinkMessage},
        route::RouteMessage,
    },
};

use crate::{LabError, Namespace, Prefix, Route, topology::Link};

/// The interface that makes a switch of its node.
const SWITCH: &str = "switch0";

/// One end of a cable before it has addresses.
pub(crate) struct Plug<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) interface: &'a str,
}

/// Lays a cable between two namespaces. Both ends are made where they belong, so no interface is
/// ever seen elsewhere.
pub(crate) fn connect(left: &Plug<'_>, right: &Plug<'_>, link: &Link) -> Result<(), LabError> {
    let mut far =
        LinkMessageBuilder::<LinkUnspec>::new().name(right.interface).setns_by_fd(right.namespace.as_fd().as_raw_fd());
    let mut near = LinkVeth::new(left.interface, right.interface);
    if let Some(mtu) = link.mtu {
        (near, far) = (near.mtu(mtu), far.mtu(mtu));
    }
    for attribute in
        link.queues.into_iter().flat_map(|n| [LinkAttribute::NumTxQueues(n), LinkAttribute::NumRxQueues(n)])
    {
        near = near.append_extra_attribute(attribute.clone());
        far = far.append_extra_attribute(attribute);
    }
    let pair = near.set_info_data(InfoData::Veth(InfoVeth::Peer(far.build()))).build();
    let action = format!("connect {} to {}", left.interface, right.namespace.name());
    left.namespace.netlink(&action, async |handle| handle.link().add(pair).execute().await)?;
    // Only now: veth refuses to go up (ENOTCONN) before it has its peer.
    left.namespace.set_up(left.interface)?;
    right.namespace.set_up(right.interface)
}

impl Namespace {
    /// Makes interfaces the ports of one switch.
    ///
    /// # Errors
    /// [`LabError`] when the kernel has no bridges.
    pub(crate) fn switch(&self, ports: &[&str]) -> Result<(), LabError> {
        self.netlink("make a switch", async |handle| {
            handle.link().add(LinkBridge::new(SWITCH).build()).execute().await
        })?;
        let bridge = self.index_of(SWITCH)?;
        ports.iter().try_for_each(|port| self.change_link(port, "plug in", |link| link.controller(bridge)))
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// [`LabError`] when there is no such interface.
    pub fn set_up(&self, interface: &str) -> Result<(), LabError> {
        self.change_link(interface, "set up", |link| link.up())
    }

    /// Sets an interface down: the cable is pulled at both ends.
    ///
    /// # Errors
    /// [`LabError`] when there is no such interface.
    pub fn set_down(&self, interface: &str) -> Result<(), LabError> {
        self.change_link(interface, "set down", |link| link.down())
    }

    /// Sets the MTU of an interface in bytes. For a cable, do it at both ends.
    ///
    /// # Errors
    /// [`LabError`] when there is no such interface or the value is out of the driver's range
    /// (veth: 68 to 65535).
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), LabError> {
        self.change_link(interface, "set the MTU of", |link| link.mtu(mtu))
    }

    /// Gives an interface an address; an IPv6 address is usable at once (no duplicate address
    /// detection).
    ///
    /// # Errors
    /// [`LabError`] when there is no such interface or the address is there already.
    pub fn add_address(&self, interface: &str, address: Prefix) -> Result<(), LabError> {
        let index = self.index_of(interface)?;
        let action = format!("give {interface} the address {address}");
        self.netlink(&action, async |handle| {
            let mut request = handle.address().add(index, address.address, address.length);
            if address.address.is_ipv6() {
                let message = request.message_mut();
                message.header.flags |= AddressHeaderFlags::Nodad;
                message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
            request.execute().await
        })
    }

    /// Adds a route through a gateway.
    ///
    /// # Errors
    /// [`LabError`] when the gateway is not on a link or the route is there already.
    pub fn add_route(&self, route: Route) -> Result<(), LabError> {
        let message = gateway_route(route)?;
        let action = format!("add the route to {} via {}", route.destination, route.via);
        self.netlink(&action, async |handle| handle.route().add(message).execute().await)
    }

    /// Removes a route that [`Namespace::add_route`] added.
    ///
    /// # Errors
    /// [`LabError`] when it is not there.
    pub fn remove_route(&self, route: Route) -> Result<(), LabError> {
        let message = gateway_route(route)?;
        let action = format!("remove the route to {} via {}", route.destination, route.via);
        self.netlink(&action, async |handle| handle.route().del(message).execute().await)
    }

    /// Adds a route straight to an interface (for a TUN device).
    ///
    /// # Errors
    /// [`LabError`] when there is no such interface or the route is there already.
    pub fn add_interface_route(&self, destination: Prefix, interface: &str) -> Result<(), LabError> {
        let index = self.index_of(interface)?;
        let message = route_to(destination)?.output_interface(index).build();
        let action = format!("add the route to {destination} on {interface}");
        self.netlink(&action, async |handle| handle.route().add(message).execute().await)
    }

    /// The kernel's index of an interface.
    ///
    /// # Errors
    /// [`LabError`] when there is no such interface.
    pub fn index_of(&self, interface: &str) -> Result<u32, LabError> {
        self.run(|| if_nametoindex(interface))?
            .map_err(|e| LabError::system(format!("find the interface {interface} in {}", self.name()), e))
    }

    fn change_link(
        &self,
        interface: &str,
        verb: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<(), LabError> {
        let message: LinkMessage = change(LinkUnspec::new_with_name(interface)).build();
        let action = format!("{verb} {interface}");
        self.netlink(&action, async |handle| handle.link().set(message).execute().await)
    }

    /// Runs a netlink request inside the namespace; `action` says what it is for.
    pub(crate) fn netlink<T: Send>(
        &self,
        action: &str,
        request: impl AsyncFnOnce(Handle) -> Result<T, rtnetlink::Error> + Send,
    ) -> Result<T, LabError> {
        let failed = |e: std::io::Error| LabError::system(action, e);
        self.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
            runtime.block_on(async {
                let (connection, handle, _) = new_connection().map_err(failed)?;
                let driver = tokio::spawn(connection);
                let result = request(handle).await;
                driver.abort();
                result.map_err(|source| LabError::Netlink {
                    action: action.to_owned(),
                    namespace: self.name().to_owned(),
                    source: Box::new(source),
                })
            })
        })?
    }
}

fn gateway_route(route: Route) -> Result<RouteMessage, LabError> {
    let built = route_to(route.destination)?.gateway(route.via);
    Ok(built.map_err(|e| LabError::BadTopology { reason: e.to_string() })?.build())
}

fn route_to(destination: Prefix) -> Result<RouteMessageBuilder<IpAddr>, LabError> {
    RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(destination.address, destination.length)
        .map_err(|e| LabError::BadTopology { reason: e.to_string() })
}
