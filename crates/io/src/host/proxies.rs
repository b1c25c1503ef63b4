//! For whom the kernel answers neighbours: its entries, and the switch for those of IPv6.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage};
use netlink_packet_route::route::RouteProtocol;

use super::messages::family_of;
use crate::netlink::neighbours::{self, address_of};
use crate::rtnl::{ROUTE_PROTOCOL, RouteSocket};

pub(super) const NDP_SWITCH: &str = "/proc/sys/net/ipv6/conf/all/proxy_ndp";

/// An address, and the number of the interface on whose link it is answered for.
pub(super) type Answer = (u32, IpAddr);

/// Who has made an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Gateway,
    Other,
}

/// What is answered. Dropping it ends nothing: the host does.
#[derive(Debug)]
pub(super) struct Proxies {
    pub(super) is_on: bool,
    pub(super) held: BTreeSet<Answer>,
    /// Open from the start, since a restricted process cannot open it.
    switch: io::Result<File>,
    has_switched: bool,
}

impl Proxies {
    pub(super) fn open() -> Self {
        let switch = File::options().read(true).write(true).open(NDP_SWITCH);
        Self { is_on: false, held: BTreeSet::new(), switch, has_switched: false }
    }

    /// An earlier gateway has switched it on.
    pub(super) fn inherit(&mut self, address: IpAddr) {
        self.has_switched |= address.is_ipv6();
    }

    /// Ends all answers.
    pub(super) fn fall_silent(&mut self, socket: &mut RouteSocket) {
        for answer in std::mem::take(&mut self.held) {
            let _ = remove(socket, answer);
        }
        let _ = self.set_switch(false);
    }

    /// Has the kernel answer for IPv6 addresses, or not any more.
    pub(super) fn set_switch(&mut self, is_on: bool) -> io::Result<()> {
        if !is_on && !self.has_switched {
            return Ok(());
        }
        let file = self.switch.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let mut value = [0; 1];
        file.read_at(&mut value, 0)?;
        if (value == *b"0") == is_on {
            file.write_all_at(if is_on { b"1" } else { b"0" }, 0)?;
            self.has_switched = is_on;
        }
        Ok(())
    }
}

/// Ends what gateways have left that were killed: what is not in `routed`, which is routed to those that live. How many.
pub(super) fn remove_dead(socket: &mut RouteSocket, proxies: &mut Proxies, routed: &[IpNet]) -> io::Result<usize> {
    let is_dead = |&((_, address), maker): &(Answer, Maker)| {
        maker == Maker::Gateway && !routed.iter().any(|prefix| prefix.contains(&address))
    };
    let dead: Vec<Answer> = present(socket)?.into_iter().filter(is_dead).map(|(answer, _)| answer).collect();
    for &answer in &dead {
        remove(socket, answer)?;
        proxies.inherit(answer.1);
    }
    if proxies.held.iter().all(|(_, address)| address.is_ipv4()) {
        proxies.set_switch(false)?;
    }
    Ok(dead.len())
}

/// For whom the kernel answers, and who has asked it to.
pub(super) fn present(socket: &mut RouteSocket) -> io::Result<BTreeMap<Answer, Maker>> {
    let ours = NeighbourAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL));
    let found = neighbours::list(socket, NeighbourFlags::Proxy)?;
    let answer = |message: &NeighbourMessage| {
        let maker = if message.attributes.contains(&ours) { Maker::Gateway } else { Maker::Other };
        Some(((message.header.ifindex, address_of(message)?), maker))
    };
    Ok(found.iter().filter_map(answer).collect())
}

pub(super) fn add(socket: &mut RouteSocket, answer: Answer) -> io::Result<()> {
    socket.request(RouteNetlinkMessage::NewNeighbour(message(answer)), NLM_F_CREATE | NLM_F_REPLACE).map(drop)
}

pub(super) fn remove(socket: &mut RouteSocket, answer: Answer) -> io::Result<()> {
    socket.request(RouteNetlinkMessage::DelNeighbour(message(answer)), 0).map(drop)
}

fn message((index, address): Answer) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(address);
    message.header.ifindex = index;
    message.header.flags = NeighbourFlags::Proxy;
    let destination = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes = vec![
        NeighbourAttribute::Destination(destination),
        NeighbourAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL)),
    ];
    message
}
