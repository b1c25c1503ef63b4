//! The host's Ethernet interfaces, and what kind of thing is behind each.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};

use crate::rtnl::RouteSocket;

/// An Ethernet interface.
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
    let answers = RouteSocket::open()?.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let mut links: Vec<Link> = answers.into_iter().filter_map(link).collect();
    links.sort_by_key(|link| link.index);
    Ok(links)
}

fn link(answer: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: "card".to_owned(),
        is_port: false,
        is_up: message.header.flags.contains(LinkFlags::Up),
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Controller(_) => link.is_port = true,
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
