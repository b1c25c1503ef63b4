//! What an earlier gateway has left on its host: rules and routes that keep private sources in. The
//! next start takes over what it needs itself and removes the rest; [`take_down`] removes all.

use std::fmt;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use super::changes::{Host, What};
use super::error::{HostError, fail};
use super::messages::name_of;
use crate::rtnl::{ROUTE_PROTOCOL, RouteSocket, default_address, ip};

/// `RT_TABLE_MAIN`.
const MAIN: u32 = 254;

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Rules.
    pub rules: usize,
    /// Routes.
    pub routes: usize,
}

/// Removes what gateways with this device or routing table have left in the calling thread's network
/// namespace. None may be running.
///
/// # Errors
/// [`HostError`].
pub fn take_down(device: &str, table: u32) -> Result<Leftovers, HostError> {
    let mut socket = RouteSocket::open().map_err(|source| fail("opening an rtnetlink socket", source))?;
    remove(&mut socket, device, table, &[], &[])
}

impl Host {
    /// Removes what earlier gateways with this device or routing table have left and this one does
    /// not need.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn remove_leftovers(&mut self, device: &str, table: u32) -> Result<Leftovers, HostError> {
        let (mut rules, mut routes) = (Vec::new(), Vec::new());
        for change in &self.changes {
            match &change.what {
                What::Rule(message) => rules.push(RuleKey::of(message)),
                What::Route(message) => routes.extend(RouteKey::of(message)),
                What::Up(_) | What::Address(_) => {}
            }
        }
        remove(&mut self.socket, device, table, &rules, &routes)
    }
}

fn remove(
    socket: &mut RouteSocket,
    device: &str,
    table: u32,
    rules: &[RuleKey],
    routes: &[RouteKey],
) -> Result<Leftovers, HostError> {
    let mut removed = Leftovers::default();
    let action = format!("removing what an earlier gateway has left in routing table {table}");
    let failed = |source| fail(&action, source);
    for message in own_rules(socket).map_err(failed)? {
        let key = RuleKey::of(&message);
        let is_its = key.table == table || key.from_device.as_deref() == Some(device);
        if is_its && !rules.contains(&key) {
            done(socket.request(RouteNetlinkMessage::DelRule(message), 0)).map_err(failed)?;
            removed.rules += 1;
        }
    }
    for message in own_routes(socket, AddressFamily::Inet, table).map_err(failed)? {
        if RouteKey::of(&message).is_some_and(|key| !routes.contains(&key)) {
            done(socket.request(RouteNetlinkMessage::DelRoute(message), 0)).map_err(failed)?;
            removed.routes += 1;
        }
    }
    Ok(removed)
}

/// What somebody else has removed meanwhile is gone, too.
fn done(result: io::Result<Vec<RouteNetlinkMessage>>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ESRCH)) => Ok(()),
        other => other.map(drop),
    }
}

/// What tells a rule from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleKey {
    priority: u32,
    table: u32,
    source: Option<(IpAddr, u8)>,
    from_device: Option<String>,
}

impl RuleKey {
    pub(super) fn of(message: &RuleMessage) -> Self {
        let mut key = Self { priority: 0, table: message.header.table.into(), source: None, from_device: None };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(number) => key.priority = *number,
                RuleAttribute::Table(number) => key.table = *number,
                RuleAttribute::Source(address) => key.source = Some((*address, message.header.src_len)),
                RuleAttribute::Iifname(name) => key.from_device = Some(name.clone()),
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
    /// None where the kernel is to choose: it does so for IPv6.
    metric: Option<u32>,
}

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
                RouteAttribute::Priority(number) if address.is_ipv4() => key.metric = Some(*number),
                _ => {}
            }
        }
        key.prefix = IpNet::new(address, message.header.destination_prefix_length).ok()?;
        Some(key)
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
        if let Some(device) = &self.from_device {
            write!(f, " iif {device}")?;
        }
        write!(f, " lookup {}", self.table)
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

/// The rules of all gateways. All are of IPv4.
pub(super) fn own_rules(socket: &mut RouteSocket) -> io::Result<Vec<RuleMessage>> {
    let mut request = RuleMessage::default();
    request.header.family = AddressFamily::Inet;
    let ours = RuleAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL));
    let answers = socket.dump(RouteNetlinkMessage::GetRule(request))?;
    let rules = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRule(rule) if rule.attributes.contains(&ours) => Some(rule),
        _ => None,
    });
    Ok(rules.collect())
}

/// The routes of gateways in a table. The kernel leaves out the others by itself where it can.
pub(super) fn own_routes(socket: &mut RouteSocket, family: AddressFamily, table: u32) -> io::Result<Vec<RouteMessage>> {
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    request.header.protocol = RouteProtocol::Other(ROUTE_PROTOCOL);
    request.attributes = vec![RouteAttribute::Table(table)];
    let answers = socket.dump_of(RouteNetlinkMessage::GetRoute(request))?;
    let routes = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    });
    let is_ours = |route: &RouteMessage| {
        route.header.protocol == RouteProtocol::Other(ROUTE_PROTOCOL)
            && RouteKey::of(route).is_some_and(|key| key.table == table)
    };
    Ok(routes.filter(is_ours).collect())
}
