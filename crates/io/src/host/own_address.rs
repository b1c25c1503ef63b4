//! Which address an interface of the host has, and that it changes.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::changes::Host;
use super::error::{HostError, fail};
use super::messages::{Reach, name_of};
use crate::netlink::{EventSocket, Received};

/// RTNLGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE (`linux/rtnetlink.h`).
const GROUPS: [u32; 3] = [1, 5, 7];
/// Bytes that the kernel may queue for us. What is lost is made up for by looking again.
const EVENT_BUFFER: u32 = 1 << 18;

impl Host {
    /// The first global IPv4 address of an interface, in the kernel's order: primary addresses come before
    /// those that were added to their networks.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn own_address(&mut self, interface: &str) -> Result<Option<Ipv4Addr>, HostError> {
        let addresses = self.addresses()?.into_iter();
        let mut own = addresses.filter(|own| own.device == interface && own.reach == Reach::Global);
        Ok(own.find_map(|own| match own.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }))
    }

    /// The interface that IPv4's default route of the lowest metric leaves by.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn default_interface(&mut self) -> Result<Option<String>, HostError> {
        Ok(self.default_routes()?.iter().filter_map(leaves_by).min().map(|(_, index)| name_of(index)))
    }

    /// The default routes of IPv4, as the main table has them.
    pub(super) fn default_routes(&mut self) -> Result<Vec<RouteMessage>, HostError> {
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet;
        request.attributes = vec![RouteAttribute::Table(RouteHeader::RT_TABLE_MAIN.into())];
        let answers = self.socket.dump_of(RouteNetlinkMessage::GetRoute(request));
        let answers = answers.map_err(|source| fail("looking for the default route", source))?;
        let routes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        let is_default = |route: &RouteMessage| {
            route.header.destination_prefix_length == 0 && route.header.table == RouteHeader::RT_TABLE_MAIN
        };
        Ok(routes.filter(is_default).collect())
    }
}

/// Metric and interface of a route, if it has one.
fn leaves_by(route: &RouteMessage) -> Option<(u32, u32)> {
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let (mut metric, mut interface) = (0, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Oif(index) => interface = Some(*index),
            _ => {}
        }
    }
    interface.map(|interface| (metric, interface))
}

/// Routers learn thousands of routes a second, of which the default ones matter.
fn concerns(event: &RouteNetlinkMessage) -> bool {
    match event {
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            route.header.destination_prefix_length == 0
        }
        _ => true,
    }
}

/// Hears of IPv4 addresses, links and default routes that come and go.
#[derive(Debug)]
pub struct AddressWatch(EventSocket);

impl AddressWatch {
    /// Listens in the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        EventSocket::open(&GROUPS, EVENT_BUFFER).map(Self)
    }

    /// Waits for a change, `limit` at most. False if there was none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        self.0.wait(limit)?;
        let mut heard = false;
        loop {
            match self.0.receive()? {
                Received::Nothing => return Ok(heard),
                Received::Events(events) => heard |= events.iter().any(|(event, _)| concerns(event)),
                Received::Overrun => heard = true,
            }
        }
    }
}
