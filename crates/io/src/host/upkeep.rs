//! What the gateway has given its host and somebody else has taken away: a device that was set down
//! (and its routes with it), routes and rules flushed by a tool that takes them for foreign,
//! addresses removed. It is found out by asking the kernel, and put back on request.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::time::Duration;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteMessage, RouteProtocol};

use super::changes::{Host, What};
use super::error::{HostError, fail, is_there_already};
use super::keys::{RouteKey, RuleKey};
use super::leftovers::{own_routes, own_rules};
use super::messages::{address_of, link_message, name_of};
use crate::netlink::{EventSocket, Received};
use crate::rtnl::ROUTE_PROTOCOL;

/// RTNLGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV4_RULE, _IPV6_IFADDR, _IPV6_ROUTE, _IPV6_RULE
/// (`linux/rtnetlink.h`).
const GROUPS: [u32; 7] = [1, 5, 7, 8, 9, 11, 19];
/// Bytes that the kernel may queue for us. What is lost is made up for by looking at everything.
const EVENT_BUFFER: u32 = 1 << 20;

/// The gateway's routes, by family (true for IPv4) and routing table.
type Tables = HashMap<(bool, u32), HashSet<RouteKey>>;

/// What kind of thing is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The device is down, gone, or has another MTU.
    Device,
    /// An address of the device.
    Address,
    /// A route.
    Route,
    /// A rule of routing.
    Rule,
}

/// Something that the gateway has given its host and that is not there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What kind of thing it is.
    pub subject: Subject,
    /// Which one, in words.
    pub name: String,
    /// Its place among the changes.
    place: usize,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Host {
    /// What is not there any more, in the order in which it is put back.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn missing(&mut self) -> Result<Vec<Missing>, HostError> {
        let looking = |source| fail("looking for what the gateway has set up", source);
        let mut missing = Vec::new();
        let mut rules = None;
        let mut tables = HashMap::new();
        for place in 0..self.changes.len() {
            let found = match self.changes[place].what.clone() {
                What::Up(message) => self.lacks_link(&message).map_err(looking)?.map(|name| (Subject::Device, name)),
                What::Address(message) => match address_of(&message) {
                    Some(address) if !self.has_address(message.header.index, address)? => Some((
                        Subject::Address,
                        format!("address {} of {}", address.addr(), name_of(message.header.index)),
                    )),
                    _ => None,
                },
                What::Route(message) => {
                    let there = self.has_route(&message, &mut tables).map_err(looking)?;
                    (!there).then(|| (Subject::Route, route_name(&message)))
                }
                What::Rule(message) => {
                    if rules.is_none() {
                        let found = own_rules(&mut self.socket).map_err(looking)?;
                        rules = Some(found.iter().map(RuleKey::of).collect::<Vec<_>>());
                    }
                    let key = RuleKey::of(&message);
                    let there = rules.as_ref().is_some_and(|rules| rules.contains(&key));
                    (!there).then(|| (Subject::Rule, key.to_string()))
                }
            };
            missing.extend(found.map(|(subject, name)| Missing { subject, name, place }));
        }
        Ok(missing)
    }

    /// Puts something back.
    ///
    /// # Errors
    /// [`HostError`]; in particular if somebody else has it now.
    pub fn put_back(&mut self, missing: &Missing) -> Result<(), HostError> {
        let Some(change) = self.changes.get(missing.place) else { return Ok(()) };
        let what = change.what.clone();
        let action = format!("putting back {missing}");
        let message = match &what {
            What::Up(message) => {
                let message = RouteNetlinkMessage::SetLink(message.clone());
                return self.socket.request(message, 0).map(drop).map_err(|source| fail(&action, source));
            }
            _ => what.made_by(),
        };
        let Some(message) = message else { return Ok(()) };
        match self.socket.request(message, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(_) if matches!(what, What::Rule(_)) => self.put_local_last().map_err(|source| fail(&action, source)),
            Ok(_) => Ok(()),
            Err(source) if is_there_already(&source) => match &what {
                What::Route(message) => self.check_owner(message),
                _ => Ok(()),
            },
            Err(source) => Err(fail(&action, source)),
        }
    }

    /// A route that is there already is ours, or somebody else's of the same metric.
    fn check_owner(&mut self, message: &RouteMessage) -> Result<(), HostError> {
        let Some(key) = RouteKey::of(message).filter(RouteKey::is_main) else { return Ok(()) };
        match self.owner_index(key.prefix) {
            Some(index) if Some(index) != key.interface => {
                Err(HostError::RouteTaken { prefix: key.prefix, owner: name_of(index) })
            }
            _ => Ok(()),
        }
    }

    /// What is wrong with the device, if anything is.
    fn lacks_link(&mut self, wanted: &LinkMessage) -> io::Result<Option<String>> {
        let index = wanted.header.index;
        let Ok(answers) = self.socket.request(RouteNetlinkMessage::GetLink(link_message(index)), 0) else {
            return Ok(Some("the device, which is gone".to_owned()));
        };
        let name = name_of(index);
        for answer in answers {
            let RouteNetlinkMessage::NewLink(found) = answer else { continue };
            if !found.header.flags.contains(LinkFlags::Up) {
                return Ok(Some(format!("device {name}, which is down")));
            }
            let (is, should) = (mtu_of(&found), mtu_of(wanted));
            if should.is_some() && is != should {
                let (is, should) = (is.unwrap_or(0), should.unwrap_or(0));
                return Ok(Some(format!("mtu {should} of device {name}, which is {is}")));
            }
        }
        Ok(None)
    }

    fn has_address(&mut self, index: u32, address: IpNet) -> Result<bool, HostError> {
        Ok(self.addresses()?.iter().any(|own| own.index == index && own.address == address.addr()))
    }

    /// `tables` are those that were read meanwhile.
    fn has_route(&mut self, message: &RouteMessage, tables: &mut Tables) -> io::Result<bool> {
        let Some(key) = RouteKey::of(message) else { return Ok(true) };
        // The kernel's own look-up is cheap however many routes there are. It finds another one if
        // that is longer, or if rules lead elsewhere.
        if key.is_main() && self.owner_index(key.prefix).is_some_and(|index| Some(index) == key.interface) {
            return Ok(true);
        }
        let routes = match tables.entry((key.prefix.addr().is_ipv4(), key.table)) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => {
                let routes = own_routes(&mut self.socket, message.header.address_family, key.table)?;
                unread.insert(routes.iter().filter_map(RouteKey::of).collect())
            }
        };
        Ok(routes.contains(&key))
    }
}

fn mtu_of(message: &LinkMessage) -> Option<u32> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}

fn what_prefix(what: &What) -> Option<IpNet> {
    match what {
        What::Route(message) => RouteKey::of(message).map(|key| key.prefix),
        _ => None,
    }
}

fn route_name(message: &RouteMessage) -> String {
    RouteKey::of(message).map_or_else(|| "a route".to_owned(), |key| key.to_string())
}

/// Hears of changes that may concern the gateway.
#[derive(Debug)]
pub struct Watch {
    events: EventSocket,
    prefixes: HashSet<IpNet>,
}

impl Watch {
    /// Watches the calling thread's network namespace for what `host` has set up.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(host: &Host) -> io::Result<Self> {
        let mut watch = Self { events: EventSocket::open(&GROUPS, EVENT_BUFFER)?, prefixes: HashSet::new() };
        watch.follow(host);
        Ok(watch)
    }

    /// Watches for what `host` has set up by now.
    pub fn follow(&mut self, host: &Host) {
        self.prefixes = host.changes.iter().filter_map(|change| what_prefix(&change.what)).collect();
    }

    /// Waits for such a change, `limit` at most. False if there was none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        self.events.wait(limit)?;
        let mut concerns = false;
        loop {
            match self.events.receive()? {
                Received::Events(events) => {
                    concerns |= events.iter().any(|(event, _)| self.is_concerned(event));
                }
                Received::Overrun => concerns = true,
                Received::Nothing => return Ok(concerns),
            }
        }
    }

    /// Routers learn thousands of routes a second, of which none concerns the gateway.
    fn is_concerned(&self, event: &RouteNetlinkMessage) -> bool {
        match event {
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
                route.header.protocol == RouteProtocol::Other(ROUTE_PROTOCOL)
                    || RouteKey::of(route).is_some_and(|key| self.prefixes.contains(&key.prefix))
            }
            RouteNetlinkMessage::NewLink(_)
            | RouteNetlinkMessage::DelLink(_)
            | RouteNetlinkMessage::NewAddress(_)
            | RouteNetlinkMessage::DelAddress(_)
            | RouteNetlinkMessage::NewRule(_)
            | RouteNetlinkMessage::DelRule(_) => true,
            _ => false,
        }
    }
}
