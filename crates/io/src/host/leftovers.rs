//! What an earlier gateway has left on its host: rules and routes that keep private sources in. The
//! next start takes over what it needs itself and removes the rest; [`take_down`] removes all.

use std::io;

use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use super::changes::{Host, What};
use super::error::{HostError, fail};
use super::keys::{RouteKey, RuleKey};
use super::proxies::{self, Proxies};
use super::reserved_ports::ReservedPorts;
use super::shared::table_of_shared;
use crate::rtnl::{ROUTE_PROTOCOL, RouteSocket};

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Rules.
    pub rules: usize,
    /// Routes.
    pub routes: usize,
    /// Addresses that neighbours were answered for.
    pub answers: usize,
}

/// Removes what gateways with this device or routing table have left in the calling thread's network
/// namespace. None may be running.
///
/// # Errors
/// [`HostError`].
pub fn take_down(device: &str, table: u32) -> Result<Leftovers, HostError> {
    let mut socket = RouteSocket::open().map_err(|source| fail("opening an rtnetlink socket", source))?;
    let (mut reserved, mut proxies) = (ReservedPorts::open(), Proxies::open());
    remove(&mut socket, (&mut reserved, &mut proxies), (device, table), &[], &[])
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
        remove(&mut self.socket, (&mut self.reserved, &mut self.proxies), (device, table), &rules, &routes)
    }
}

fn remove(
    socket: &mut RouteSocket,
    (reserved, proxies): (&mut ReservedPorts, &mut Proxies),
    (device, table): (&str, u32),
    rules: &[RuleKey],
    routes: &[RouteKey],
) -> Result<Leftovers, HostError> {
    let mut removed = Leftovers::default();
    let action = format!("removing what an earlier gateway has left in routing table {table}");
    let failed = |source| fail(&action, source);
    for message in own_rules(socket).map_err(failed)? {
        let key = RuleKey::of(&message);
        let is_its = [table, table_of_shared(table)].contains(&key.table) || key.from_device.as_deref() == Some(device);
        if is_its && !rules.contains(&key) {
            done(socket.request(RouteNetlinkMessage::DelRule(message), 0)).map_err(failed)?;
            removed.rules += 1;
            key.ports.into_iter().for_each(|(first, last)| reserved.inherit(first..=last));
        }
    }
    let mut left = own_routes(socket, AddressFamily::Inet, table).map_err(failed)?;
    left.extend(own_routes(socket, AddressFamily::Inet, table_of_shared(table)).map_err(failed)?);
    for message in left {
        if RouteKey::of(&message).is_some_and(|key| !routes.contains(&key)) {
            done(socket.request(RouteNetlinkMessage::DelRoute(message), 0)).map_err(failed)?;
            removed.routes += 1;
        }
    }
    let mut routed = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let routes = own_routes(socket, family, RouteHeader::RT_TABLE_MAIN.into()).map_err(failed)?;
        let to_devices = routes.iter().filter_map(RouteKey::of).filter(|key| key.interface.is_some());
        routed.extend(to_devices.map(|key| key.prefix));
    }
    removed.answers = proxies::remove_dead(socket, proxies, &routed).map_err(failed)?;
    Ok(removed)
}

/// What somebody else has removed meanwhile is gone, too.
fn done(result: io::Result<Vec<RouteNetlinkMessage>>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ESRCH)) => Ok(()),
        other => other.map(drop),
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
