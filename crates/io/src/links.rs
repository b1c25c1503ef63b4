//! The host's interfaces, and what kind of thing is behind each.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};

use crate::netlink::{EventSocket, Received};
use crate::rtnl::RouteSocket;

/// RTNLGRP_LINK, _IPV6_IFADDR, _IPV6_IFINFO, _IPV4_NETCONF, _IPV6_NETCONF (`linux/rtnetlink.h`). All but the first are for
/// what the kernel takes: where IPv6 is switched off it announces no more than that addresses go.
const GROUPS: [u32; 5] = [1, 9, 12, 24, 25];
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
    /// What the kernel does with packets that come in by it.
    pub intake: Intake,
}

/// What the kernel does with packets that come in by an interface and are for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Intake {
    /// It forwards IPv4.
    pub forwards_ipv4: bool,
    /// It takes IPv6: the interface is not below 1280 bytes, and IPv6 is not switched off there.
    pub takes_ipv6: bool,
    /// It drops IPv4 whose source is routed elsewhere, by the interface's own `rp_filter`.
    pub checks_sources: bool,
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
        Ok(Self(EventSocket::open(&GROUPS, EVENT_BUFFER)?))
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
        intake: Intake::default(),
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
            LinkAttribute::AfSpecUnspec(families) => link.intake = intake(&families),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

/// A family that the interface does not have is not among these.
fn intake(families: &[AfSpecUnspec]) -> Intake {
    let mut intake = Intake::default();
    for family in families {
        match family {
            AfSpecUnspec::Inet(settings) => {
                for setting in settings {
                    if let AfSpecInet::DevConf(of_device) = setting {
                        intake.forwards_ipv4 = of_device.forwarding != 0;
                        intake.checks_sources = of_device.rp_filter == 1;
                    }
                }
            }
            AfSpecUnspec::Inet6(settings) => {
                for setting in settings {
                    if let AfSpecInet6::DevConf(of_device) = setting {
                        intake.takes_ipv6 = of_device.disable_ipv6 == 0;
                    }
                }
            }
            _ => {}
        }
    }
    intake
}
