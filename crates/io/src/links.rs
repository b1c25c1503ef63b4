//! The host's interfaces, and what kind of thing is behind each.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};

use crate::netlink::{EventSocket, Received};
use crate::rtnl::RouteSocket;

/// RTNLGRP_LINK (`linux/rtnetlink.h`).
const GROUP: u32 = 1;
/// Bytes that the kernel may queue for us. What is lost is made up for by looking at everything.
const EVENT_BUFFER: u32 = 1 << 18;

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `bridge`, `vlan` and so on as the kernel calls it; `card` for hardware and what
    /// looks like it.
    pub kind: String,
    /// It is part of a bridge, a bond or the like, which its packets appear on.
    pub is_port: bool,
    /// It has been set up.
    pub is_up: bool,
    /// It has link-layer addresses of six bytes, as Ethernet.
    pub is_ethernet: bool,
    /// It asks who has an address (ARP, neighbour discovery).
    pub asks: bool,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
}

impl Link {
    /// True for hardware and what looks like it: what may have XDP in its driver, and no need for
    /// segmentation behind it.
    #[must_use]
    pub fn is_card(&self) -> bool {
        self.kind == "card"
    }
}

/// The Ethernet interfaces of the calling thread's network namespace, by number.
///
/// # Errors
/// What the kernel says.
pub fn ethernet() -> io::Result<Vec<Link>> {
    let mut links = all()?;
    links.retain(|link| link.is_ethernet);
    Ok(links)
}

/// The same of all interfaces.
///
/// # Errors
/// What the kernel says.
pub fn all() -> io::Result<Vec<Link>> {
    of(&mut RouteSocket::open()?)
}

/// The same, by a socket that is open.
pub(crate) fn of(socket: &mut RouteSocket) -> io::Result<Vec<Link>> {
    let answers = socket.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let mut links: Vec<Link> = answers.into_iter().filter_map(link).collect();
    links.sort_by_key(|link| link.index);
    Ok(links)
}

/// Hears of links that come, go or change.
#[derive(Debug)]
pub struct LinkWatch(EventSocket);

impl LinkWatch {
    /// Watches the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        Ok(Self(EventSocket::open(&[GROUP], EVENT_BUFFER)?))
    }

    /// Whether any did since the last call. Does not wait.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn has_changed(&self) -> io::Result<bool> {
        let mut changed = false;
        loop {
            match self.0.receive()? {
                Received::Events(events) => changed |= !events.is_empty(),
                Received::Overrun => changed = true,
                Received::Nothing => return Ok(changed),
            }
        }
    }
}

fn link(answer: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: "card".to_owned(),
        is_port: false,
        is_up: message.header.flags.contains(LinkFlags::Up),
        is_ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        asks: !message.header.flags.contains(LinkFlags::Noarp),
        mac: [0; 6],
        mtu: 0,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Controller(_) => link.is_port = true,
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::LinkInfo(infos) => {
                let kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
                link.kind = kind.unwrap_or(link.kind);
            }
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}
