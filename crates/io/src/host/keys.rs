//! What tells rules and routes from others of their kind, and their names.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};

use super::messages::name_of;
use crate::rtnl::{default_address, ip};

/// `RT_TABLE_MAIN`.
const MAIN: u32 = 254;

/// What tells a rule from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RuleKey {
    pub(super) priority: u32,
    pub(super) table: u32,
    source: Option<(IpAddr, u8)>,
    destination: Option<(IpAddr, u8)>,
    protocol: Option<u8>,
    /// Of the destination, first and last.
    pub(super) ports: Option<(u16, u16)>,
    pub(super) from_device: Option<String>,
    goto: Option<u32>,
}

impl RuleKey {
    pub(super) fn of(message: &RuleMessage) -> Self {
        let mut key = Self {
            priority: 0,
            table: message.header.table.into(),
            source: None,
            destination: None,
            protocol: None,
            ports: None,
            from_device: None,
            goto: None,
        };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(number) => key.priority = *number,
                RuleAttribute::Table(number) => key.table = *number,
                RuleAttribute::Source(address) => key.source = Some((*address, message.header.src_len)),
                RuleAttribute::Destination(address) => key.destination = Some((*address, message.header.dst_len)),
                RuleAttribute::IpProtocol(protocol) => key.protocol = Some((*protocol).into()),
                RuleAttribute::DestinationPortRange(ports) => key.ports = Some((ports.start, ports.end)),
                RuleAttribute::Iifname(name) => key.from_device = Some(name.clone()),
                RuleAttribute::Goto(priority) => key.goto = Some(*priority),
                _ => {}
            }
        }
        key
    }
}

/// What tells a route from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RouteKey {
    pub(super) prefix: IpNet,
    pub(super) table: u32,
    kind: RouteType,
    pub(super) interface: Option<u32>,
    /// None where the kernel is to choose, as it does for IPv6.
    metric: Option<u32>,
}

/// What the kernel chooses for routes of IPv6 (`IP6_RT_PRIO_USER`).
const CHOSEN: u32 = 1024;

impl RouteKey {
    pub(super) fn of(message: &RouteMessage) -> Option<Self> {
        let mut address = default_address(message.header.address_family)?;
        let mut key = Self {
            prefix: IpNet::from(address),
            table: message.header.table.into(),
            kind: message.header.kind,
            interface: None,
            metric: None,
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(destination) => address = ip(destination)?,
                RouteAttribute::Table(number) => key.table = *number,
                RouteAttribute::Oif(index) => key.interface = Some(*index),
                RouteAttribute::Priority(number) if address.is_ipv4() || *number != CHOSEN => {
                    key.metric = Some(*number)
                }
                _ => {}
            }
        }
        key.prefix = IpNet::new(address, message.header.destination_prefix_length).ok()?;
        Some(key)
    }
}

impl Hash for RouteKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Kinds have no hash.
        (self.prefix, self.table, self.interface, self.metric).hash(state);
    }
}

impl RouteKey {
    /// Whether it is of the table that all hosts have. Our messages name no table there.
    pub(super) fn is_main(&self) -> bool {
        self.table == MAIN
    }
}

impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}:", self.priority)?;
        if let Some((address, length)) = self.source {
            write!(f, " from {address}/{length}")?;
        }
        if let Some((address, length)) = self.destination {
            write!(f, " to {address}/{length}")?;
        }
        if let Some(device) = &self.from_device {
            write!(f, " iif {device}")?;
        }
        if let Some(protocol) = self.protocol {
            write!(f, " ipproto {protocol}")?;
        }
        if let Some((first, last)) = self.ports {
            write!(f, " dport {first}-{last}")?;
        }
        match self.goto {
            Some(priority) => write!(f, " goto {priority}"),
            None => write!(f, " lookup {}", self.table),
        }
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("route ")?;
        match self.kind {
            RouteType::Throw => f.write_str("throw ")?,
            RouteType::Prohibit => f.write_str("prohibit ")?,
            _ => {}
        }
        write!(f, "{}", self.prefix)?;
        if let Some(index) = self.interface {
            write!(f, " dev {}", name_of(index))?;
        }
        if self.table != MAIN {
            write!(f, " table {}", self.table)?;
        }
        Ok(())
    }
}
