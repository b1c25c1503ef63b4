//! Whether others are there, as the host's routes say: who announces a prefix lives.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteType;

use super::changes::Host;
use super::keys::RouteKey;
use crate::netlink::{EventSocket, Received};

/// RTNLGRP_LINK, _IPV4_ROUTE, _IPV6_ROUTE (`linux/rtnetlink.h`). Some routes go with their link, without a word.
const GROUPS: [u32; 3] = [1, 7, 11];
/// Addresses that nobody has more than a default route for.
const NOBODY: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(240, 0, 0, 1), Ipv6Addr::new(0x4000, 0, 0, 0, 0, 0, 0, 1));
/// Bytes that the kernel may queue for us. What is lost is made up for by looking again.
const EVENT_BUFFER: u32 = 1 << 20;

impl Host {
    /// Whether the host has a route for exactly this prefix by which packets go somewhere.
    pub fn reaches(&mut self, prefix: IpNet) -> bool {
        // The kernel takes no address of all zeros for one to be looked for.
        let (ipv4, ipv6) = NOBODY;
        let address = match prefix {
            IpNet::V4(net) if net.prefix_len() == 0 => ipv4.into(),
            IpNet::V6(net) if net.prefix_len() == 0 => ipv6.into(),
            net => net.addr(),
        };
        self.route_towards(address, prefix).is_some_and(|route| route.header.kind == RouteType::Unicast)
    }
}

/// Hears of routes to some prefixes that come and go.
#[derive(Debug)]
pub struct PresenceWatch {
    events: EventSocket,
    prefixes: Vec<IpNet>,
}

impl PresenceWatch {
    /// Listens in the calling thread's network namespace for routes within `prefixes`; of a default route for that alone.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(prefixes: Vec<IpNet>) -> io::Result<Self> {
        Ok(Self { events: EventSocket::open(&GROUPS, EVENT_BUFFER)?, prefixes })
    }

    /// Waits for a change, `limit` at most. False if there was none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        self.events.wait(limit)?;
        let mut heard = false;
        loop {
            match self.events.receive()? {
                Received::Nothing => return Ok(heard),
                Received::Events(events) => heard |= events.iter().any(|(event, _)| self.concerns(event)),
                Received::Overrun => heard = true,
            }
        }
    }

    /// Routers learn thousands of routes a second.
    fn concerns(&self, event: &RouteNetlinkMessage) -> bool {
        match event {
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
                let is_within =
                    |key: &RouteKey, prefix: &IpNet| prefix.prefix_len() > 0 && prefix.contains(&key.prefix);
                RouteKey::of(route).is_some_and(|key| {
                    self.prefixes.iter().any(|prefix| *prefix == key.prefix || is_within(&key, prefix))
                })
            }
            _ => true,
        }
    }
}
