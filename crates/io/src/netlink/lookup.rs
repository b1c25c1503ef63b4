//! Which rule and which route decide about a packet that comes in, by name.
//!
//! Read first: ip-rule(8); Linux `net/core/fib_rules.c` (`fib_rule_match`).
//!
//! The kernel answers where a packet would go, but not because of what. So rules and routes are read
//! and walked as it does: rules by their priority, in the table that one names the longest prefix,
//! of its routes that with the smallest metric; a table without a route leads on to the next rule.

use std::fmt;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{RouteFlags, RouteMessage, RouteProtocol};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::parse::{Hop, KernelRoute, LOCAL, MAIN, RouteKind};
use crate::rtnl::{ROUTE_PROTOCOL, RouteSocket};

/// A packet that comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way<'i> {
    /// From whom.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// By which interface.
    pub interface: &'i str,
}

/// A rule of routing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    is_ipv6: bool,
    priority: u32,
    source: Option<IpNet>,
    destination: Option<IpNet>,
    interface: Option<String>,
    action: RuleAction,
    goto: Option<u32>,
    table: u32,
    /// Routes of prefixes that are not longer do not count (`suppress_prefixlength`).
    suppressed: Option<u8>,
    is_inverted: bool,
    /// It chooses by what no packet that is asked for has: a mark, an output interface, a protocol.
    chooses_otherwise: bool,
    is_the_gateways: bool,
}

/// What the kernel does with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'l> {
    /// What this route says, in the table that this rule names.
    Route(&'l Rule, Decision<'l>),
    /// It is refused by a rule.
    Refused(&'l Rule),
    /// There is no route.
    Nothing,
}

/// A route that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'l>(&'l KernelRoute);

/// Rules and routes of a moment.
#[derive(Debug)]
pub struct Lookup {
    rules: Vec<Rule>,
    routes: Vec<KernelRoute>,
    advertised: Vec<u32>,
}

impl Lookup {
    /// Those of the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read() -> io::Result<Self> {
        let mut socket = RouteSocket::open()?;
        let (mut rules, mut routes, mut advertised) = (Vec::new(), Vec::new(), Vec::new());
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RuleMessage::default();
            request.header.family = family;
            let found = socket.dump(RouteNetlinkMessage::GetRule(request))?;
            rules.extend(found.into_iter().filter_map(|message| match message {
                RouteNetlinkMessage::NewRule(rule) => Some(Rule::read(&rule)),
                _ => None,
            }));
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let found = socket.dump(RouteNetlinkMessage::GetRoute(request))?;
            routes.extend(found.into_iter().filter_map(|message| match message {
                RouteNetlinkMessage::NewRoute(route) => {
                    let read = live(&route)?;
                    if route.header.protocol == RouteProtocol::Ra && read.prefix.prefix_len() == 0 {
                        advertised.extend(read.target.hops.iter().map(|hop| hop.interface));
                    }
                    Some(read)
                }
                _ => None,
            }));
        }
        // As stable as the kernel, which asks rules of one priority in the order in which they came.
        rules.sort_by_key(|rule| rule.priority);
        Ok(Self { rules, routes, advertised })
    }

    /// What becomes of a packet.
    #[must_use]
    pub fn find(&self, way: Way<'_>) -> Found<'_> {
        let mut from = 0;
        for rule in self.rules.iter().filter(|rule| rule.is_ipv6 == way.destination.is_ipv6()) {
            if rule.priority < from || !rule.takes(way) {
                continue;
            }
            match rule.action {
                RuleAction::ToTable => {}
                RuleAction::Goto => {
                    from = rule.goto.unwrap_or(0);
                    continue;
                }
                RuleAction::Nop => continue,
                _ => return Found::Refused(rule),
            }
            let Some(route) = self.longest(rule.table, way.destination) else { continue };
            let is_suppressed = rule.suppressed.is_some_and(|length| route.prefix.prefix_len() <= length);
            if !is_suppressed && route.target.kind != RouteKind::Throw {
                return Found::Route(rule, Decision(route));
            }
        }
        Found::Nothing
    }

    /// Routes within a prefix that lead elsewhere than to interface number `interface`, of the tables
    /// that all packets are looked up in.
    pub fn within(&self, prefix: IpNet, interface: u32) -> impl Iterator<Item = Decision<'_>> {
        let is_elsewhere = move |route: &&KernelRoute| {
            (route.table == MAIN || route.table == LOCAL)
                && prefix.contains(&route.prefix)
                && route.target.kind != RouteKind::Multicast
                && route.target.hops.iter().all(|hop| hop.interface != interface)
        };
        self.routes.iter().filter(is_elsewhere).map(Decision)
    }

    /// The interfaces of default routes that are from a router's advertisement, by number.
    #[must_use]
    pub fn advertised(&self) -> Vec<u32> {
        self.advertised.clone()
    }

    /// The interfaces that any route leads to `address` by, by number.
    pub fn all_ways(&self, address: IpAddr) -> impl Iterator<Item = u32> {
        let routes = self.routes.iter().filter(move |route| {
            route.table == MAIN && route.target.kind == RouteKind::Unicast && route.prefix.contains(&address)
        });
        routes.flat_map(|route| route.target.hops.iter().map(|hop| hop.interface))
    }

    /// The interface, but number `except`, that a network is on which `address` lies in: by number,
    /// with the network.
    #[must_use]
    pub fn on_link(&self, address: IpAddr, except: u32) -> Option<(u32, IpNet)> {
        let is_on_link = |route: &&KernelRoute| {
            let is_hop = |hop: &Hop| hop.gateway.is_none() && hop.interface != except;
            route.table == MAIN
                && route.target.kind == RouteKind::Unicast
                && route.prefix.contains(&address)
                && route.prefix.prefix_len() > 0
                && route.target.hops.first().is_some_and(is_hop)
        };
        let routes = self.routes.iter().filter(is_on_link).filter(|route| route.prefix.prefix_len() < max(address));
        let route = routes.max_by_key(|route| route.prefix.prefix_len())?;
        Some((route.target.hops.first()?.interface, route.prefix))
    }

    fn longest(&self, table: u32, destination: IpAddr) -> Option<&KernelRoute> {
        let routes = self
            .routes
            .iter()
            .filter(|route| route.table == table && route.tos == 0 && route.prefix.contains(&destination));
        routes.min_by_key(|route| (u8::MAX - route.prefix.prefix_len(), route.metric))
    }
}

fn max(address: IpAddr) -> u8 {
    IpNet::from(address).prefix_len()
}

/// A route whose interface is there.
fn live(message: &RouteMessage) -> Option<KernelRoute> {
    let is_dead = message.header.flags.contains(RouteFlags::Dead);
    KernelRoute::read_any(message).filter(|_| !is_dead && message.header.source_prefix_length == 0)
}

impl Rule {
    fn read(message: &RuleMessage) -> Self {
        let header = &message.header;
        let mut rule = Self {
            is_ipv6: header.family == AddressFamily::Inet6,
            priority: 0,
            source: None,
            destination: None,
            interface: None,
            action: header.action,
            goto: None,
            table: header.table.into(),
            suppressed: None,
            is_inverted: header.flags.contains(RuleFlags::Invert),
            chooses_otherwise: header.tos > 0,
            is_the_gateways: false,
        };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(number) => rule.priority = *number,
                RuleAttribute::Table(number) => rule.table = *number,
                RuleAttribute::Goto(number) => rule.goto = Some(*number),
                RuleAttribute::Source(address) => rule.source = IpNet::new(*address, header.src_len).ok(),
                RuleAttribute::Destination(address) => rule.destination = IpNet::new(*address, header.dst_len).ok(),
                RuleAttribute::Iifname(name) => rule.interface = Some(name.clone()),
                RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::FwMask(_) => {}
                RuleAttribute::SuppressPrefixLen(length) => rule.suppressed = u8::try_from(*length).ok(),
                RuleAttribute::Protocol(protocol) => {
                    rule.is_the_gateways = *protocol == RouteProtocol::Other(ROUTE_PROTOCOL);
                }
                _ => rule.chooses_otherwise = true,
            }
        }
        rule
    }

    fn takes(&self, way: Way<'_>) -> bool {
        let has = |net: &Option<IpNet>, address| net.is_none_or(|net| net.contains(&address));
        let is_by = self.interface.as_deref().is_none_or(|name| name == way.interface);
        let fits = has(&self.source, way.source) && has(&self.destination, way.destination) && is_by;
        !self.chooses_otherwise && fits != self.is_inverted
    }

    /// True if it is none that every host has, and none of a gateway.
    #[must_use]
    pub fn is_somebodys(&self) -> bool {
        let is_everybodys = self.action == RuleAction::ToTable
            && self.table != 0
            && (self.source, self.destination, &self.interface) == (None, None, &None)
            && matches!(self.table, MAIN | LOCAL | 253);
        !is_everybodys && !self.is_the_gateways
    }

    /// The command that removes it.
    #[must_use]
    pub fn removal(&self) -> String {
        format!("{} rule del {self}", ip(self.is_ipv6))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}pref {}", if self.is_inverted { "not " } else { "" }, self.priority)?;
        match self.source {
            Some(source) => write!(f, " from {source}")?,
            None => f.write_str(" from all")?,
        }
        if let Some(destination) = self.destination {
            write!(f, " to {destination}")?;
        }
        if let Some(interface) = &self.interface {
            write!(f, " iif {interface}")?;
        }
        match self.action {
            RuleAction::ToTable => write!(f, " lookup {}", self.table),
            RuleAction::Blackhole => f.write_str(" blackhole"),
            RuleAction::Unreachable => f.write_str(" unreachable"),
            RuleAction::Prohibit => f.write_str(" prohibit"),
            _ => Ok(()),
        }
    }
}

impl Decision<'_> {
    /// What happens to its packets.
    #[must_use]
    pub fn kind(&self) -> RouteKind {
        self.0.target.kind
    }

    /// Where they are sent.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.0.target.hops
    }

    /// Whose packets it takes.
    #[must_use]
    pub fn prefix(&self) -> IpNet {
        self.0.prefix
    }

    /// The command that removes it. `name` tells interfaces' names.
    #[must_use]
    pub fn removal(&self, name: impl Fn(u32) -> String) -> String {
        format!("{} route del {}", ip(self.prefix().addr().is_ipv6()), self.words(name))
    }

    /// It as `ip route` has it. `name` tells interfaces' names.
    #[must_use]
    pub fn words(&self, name: impl Fn(u32) -> String) -> String {
        let KernelRoute { prefix, table, metric, target, .. } = self.0;
        let kind = match target.kind {
            RouteKind::Unicast | RouteKind::Multicast => "",
            RouteKind::Local => "local ",
            RouteKind::Blackhole => "blackhole ",
            RouteKind::Unreachable => "unreachable ",
            RouteKind::Prohibit => "prohibit ",
            RouteKind::Throw => "throw ",
        };
        let mut words = format!("{kind}{prefix}");
        if let [hop] = target.hops.as_slice() {
            if let Some(gateway) = hop.gateway {
                words += &format!(" via {gateway}");
            }
            words += &format!(" dev {}", name(hop.interface));
        }
        if *metric > 0 {
            words += &format!(" metric {metric}");
        }
        if *table != MAIN {
            words += &format!(" table {table}");
        }
        words
    }
}

fn ip(is_ipv6: bool) -> &'static str {
    if is_ipv6 { "ip -6" } else { "ip" }
}

#[cfg(test)]
mod tests {
    use super::super::parse::Target;
    use super::*;

    const TOMBOLO: u32 = 7;
    const UPLINK: u32 = 2;

    fn route(prefix: &str, table: u32, kind: RouteKind, interface: Option<u32>, metric: u32) -> KernelRoute {
        let hops = interface.map(|interface| Hop { interface, gateway: None, weight: 1 }).into_iter().collect();
        let prefix = prefix.parse().unwrap();
        KernelRoute { prefix, table, tos: 0, metric, target: Target { kind, hops }, plain: true }
    }

    fn rule(priority: u32, source: Option<&str>, action: RuleAction, table: u32) -> Rule {
        Rule {
            is_ipv6: false,
            priority,
            source: source.map(|source| source.parse().unwrap()),
            destination: None,
            interface: None,
            action,
            goto: None,
            table,
            suppressed: None,
            is_inverted: false,
            chooses_otherwise: false,
            is_the_gateways: false,
        }
    }

    fn lookup(mut rules: Vec<Rule>, routes: Vec<KernelRoute>) -> Lookup {
        rules.extend([rule(0, None, RuleAction::ToTable, LOCAL), rule(32_766, None, RuleAction::ToTable, MAIN)]);
        rules.sort_by_key(|rule| rule.priority);
        Lookup { rules, routes, advertised: Vec::new() }
    }

    fn way(source: &str, destination: &str) -> Way<'static> {
        Way { source: source.parse().unwrap(), destination: destination.parse().unwrap(), interface: "eth0" }
    }

    fn pool_and_default() -> Vec<KernelRoute> {
        vec![
            route("0.0.0.0/0", MAIN, RouteKind::Unicast, Some(UPLINK), 0),
            route("192.0.2.0/24", MAIN, RouteKind::Unicast, Some(TOMBOLO), 0),
        ]
    }

    #[test]
    fn the_longest_prefix_decides_and_of_its_routes_the_smallest_metric() {
        let mut routes = pool_and_default();
        routes.push(route("192.0.2.0/24", MAIN, RouteKind::Unicast, Some(UPLINK), 100));
        let lookup = lookup(vec![], routes);
        let Found::Route(_, found) = lookup.find(way("198.51.100.2", "192.0.2.9")) else { panic!() };
        assert_eq!(found.hops()[0].interface, TOMBOLO);
        assert_eq!(lookup.within("192.0.2.0/24".parse().unwrap(), TOMBOLO).count(), 1);
    }

    #[test]
    fn rules_are_asked_in_their_order_and_a_table_without_a_route_leads_on() {
        let sends = rule(50, Some("198.51.100.0/24"), RuleAction::ToTable, 100);
        let mut routes = pool_and_default();
        routes.push(route("192.0.2.0/25", 100, RouteKind::Unicast, Some(UPLINK), 0));
        let lookup = lookup(vec![sends], routes);
        let Found::Route(rule, found) = lookup.find(way("198.51.100.2", "192.0.2.9")) else { panic!() };
        assert_eq!((found.hops()[0].interface, rule.is_somebodys()), (UPLINK, true));
        assert_eq!(rule.removal(), "ip rule del pref 50 from 198.51.100.0/24 lookup 100");
        for (source, destination) in [("198.51.100.2", "192.0.2.200"), ("203.0.113.1", "192.0.2.9")] {
            let Found::Route(rule, found) = lookup.find(way(source, destination)) else { panic!() };
            assert_eq!((found.hops()[0].interface, rule.is_somebodys()), (TOMBOLO, false));
        }
    }

    #[test]
    fn rules_and_routes_refuse_by_name() {
        let refuses = rule(60, Some("192.0.2.0/24"), RuleAction::Prohibit, 0);
        let mut routes = pool_and_default();
        routes.push(route("198.51.100.0/25", MAIN, RouteKind::Blackhole, None, 0));
        let lookup = lookup(vec![refuses], routes);
        let Found::Refused(rule) = lookup.find(way("192.0.2.1", "203.0.113.1")) else { panic!() };
        assert_eq!(rule.removal(), "ip rule del pref 60 from 192.0.2.0/24 prohibit");
        let Found::Route(_, found) = lookup.find(way("203.0.113.1", "198.51.100.2")) else { panic!() };
        assert_eq!(found.removal(|_| String::new()), "ip route del blackhole 198.51.100.0/25");
    }

    #[test]
    fn what_was_dropped_of_a_table_by_its_length_does_not_count() {
        let mut only_specific = rule(70, None, RuleAction::ToTable, MAIN);
        only_specific.suppressed = Some(0);
        let mut routes = pool_and_default();
        routes[0].table = MAIN;
        let found = lookup(vec![only_specific], routes);
        let Found::Route(rule, _) = found.find(way("192.0.2.1", "203.0.113.1")) else { panic!() };
        assert_eq!(rule.priority, 32_766);
    }
}
