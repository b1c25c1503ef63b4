//! What stands in the way of a leg, by what the kernel has. Nothing is sent.

use std::net::IpAddr;

use ipnet::IpNet;
use tombolo_engine::Plan;
use tombolo_io::host::is_for_the_rest;
use tombolo_io::links::Link;
use tombolo_io::netlink::{Decision, Found, RouteKind, Rule, Way};

use super::finding::{Finding, Report};
use super::ground::{Ground, Setting};
use super::legs::{Leg, Towards};
use crate::provision::routes;

/// Addresses that the host is told one by one to answer for.
const MOST_ANSWERED_FOR: usize = 256;

/// The first thing that stands in the way.
pub(super) fn obstacle(leg: &Leg, ground: &Ground, device: &Link) -> Option<Finding> {
    let is_ipv6 = leg.destination.is_ipv6();
    let entrance = leg.entrance.and_then(|entrance| ground.link(entrance));
    if let Some(entrance) = entrance {
        if let Some(finding) = ground.obstacle_at(entrance, is_ipv6) {
            return Some(finding);
        }
        if !is_ipv6 && Setting::ipv4("all", "forwarding").is("1") && Setting::ipv4(&entrance.name, "forwarding").is("0")
        {
            let found = format!("the host forwards no IPv4 packet that comes in by {}", entrance.name);
            return Some(Finding::fault("forwarding", found, Setting::ipv4(&entrance.name, "forwarding").line("1")));
        }
    }
    let device_obstacle = || ground.obstacle_at(device, is_ipv6);
    // Who is nearest to a way that nobody knows is the device.
    let way = leg.way(ground).unwrap_or(Way { source: leg.source, destination: leg.destination, interface: "lo" });
    let exit = match (leg.towards, ground.lookup.find(way)) {
        (Towards::Device, found) => match misled(leg, found, ground, device) {
            Some(finding) => return Some(device_obstacle().unwrap_or(finding)),
            None => device.index,
        },
        (Towards::World, found) => match lost(leg, found, ground, device) {
            Ok(exit) => exit?,
            Err(finding) => {
                let disabled = if is_ipv6 { ground.lost_ipv6() } else { None };
                return Some(disabled.unwrap_or(finding));
            }
        },
    };
    let at_exit = ground.link(exit).and_then(|exit| ground.obstacle_at(exit, is_ipv6));
    // Another way back than there is as good, if the kernel lets packets in there.
    let others =
        ground.lookup.all_ways(leg.source).filter(|way| leg.towards == Towards::Device && *way != device.index);
    let mut entrances = entrance.into_iter().chain(others.filter_map(|other| ground.link(other)));
    at_exit.or_else(|| entrances.find_map(|entrance| source_check(way, entrance, ground)))
}

/// A packet for the device that goes elsewhere.
fn misled(leg: &Leg, found: Found<'_>, ground: &Ground, device: &Link) -> Option<Finding> {
    let to = leg.destination;
    let there_is_no_route = || {
        let family = if leg.routed.addr().is_ipv6() { "ip -6" } else { "ip" };
        let line = format!("{family} route add {} dev {}", leg.routed, device.name);
        let found = format!("{}: no route leads packets for {to} to {}", leg.name, device.name);
        let finding = Finding::fault("route", found, line);
        if leg.by_source { finding.with_words("restart the gateway: its rules and routes are gone") } else { finding }
    };
    let (rule, route) = match found {
        Found::Nothing => return Some(there_is_no_route()),
        Found::Refused(rule) => return Some(refused(leg, rule)),
        Found::Route(rule, route) => (rule, route),
    };
    if route.hops().iter().any(|hop| hop.interface == device.index) {
        return None;
    }
    if route.kind() == RouteKind::Local {
        let found = format!("{}: {to} is an address of this host, which takes its packets itself", leg.name);
        let finding = Finding::fault("route", found, String::new());
        return Some(finding.with_words("remove the address from this host, or from the pool"));
    }
    if rule.is_somebodys() {
        return Some(sent_elsewhere(leg, rule, route, ground));
    }
    if leg.by_source || route.prefix().prefix_len() < leg.routed.prefix_len() {
        return Some(there_is_no_route());
    }
    let words = route.words(|index| ground.name(index));
    let found = format!("{}: the route {words} takes packets for {to} from {}", leg.name, device.name);
    Some(Finding::fault("route", found, route.removal(|index| ground.name(index))))
}

/// The interface by which a packet from the device leaves; none if it does not, and that is nobody's
/// concern.
fn lost(leg: &Leg, found: Found<'_>, ground: &Ground, device: &Link) -> Result<Option<u32>, Finding> {
    let to = leg.destination;
    let (rule, route) = match found {
        // Of a host that nobody named, nobody knows that there should be a route.
        Found::Nothing if !leg.is_real => return Ok(None),
        Found::Nothing => {
            let finding = Finding::fault("route", format!("{}: there is no route to {to}", leg.name), String::new());
            return Err(finding.with_words(&format!("add one by the next router: ip route add {to} via ROUTER")));
        }
        Found::Refused(rule) => return Err(refused(leg, rule)),
        Found::Route(rule, route) => (rule, route),
    };
    match route.kind() {
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit if rule.is_somebodys() => {
            Err(sent_elsewhere(leg, rule, route, ground))
        }
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => {
            let words = route.words(|index| ground.name(index));
            let found = format!("{}: the route {words} drops packets for {to}", leg.name);
            Err(Finding::fault("route", found, route.removal(|index| ground.name(index))))
        }
        RouteKind::Unicast if rule.is_somebodys() && comes_back(route, device) => {
            Err(sent_elsewhere(leg, rule, route, ground))
        }
        RouteKind::Unicast if comes_back(route, device) && leg.is_real => {
            let words = route.words(|index| ground.name(index));
            let found = format!("{}: packets for {to} come back to the gateway, by {words}", leg.name);
            let finding = Finding::fault("route", found, String::new());
            Err(finding.with_words("add a more specific route for the host, or take it out of what the service has"))
        }
        _ => Ok(route.hops().first().map(|hop| hop.interface).filter(|&exit| exit != device.index)),
    }
}

fn comes_back(route: Decision<'_>, device: &Link) -> bool {
    route.hops().iter().any(|hop| hop.interface == device.index)
}

fn refused(leg: &Leg, rule: &Rule) -> Finding {
    let found = format!("{}: a rule of routing refuses packets for {}: {rule}", leg.name, leg.destination);
    Finding::fault("rule", found, rule.removal())
}

fn sent_elsewhere(leg: &Leg, rule: &Rule, route: Decision<'_>, ground: &Ground) -> Finding {
    let words = route.words(|index| ground.name(index));
    let found = format!("{}: the rule {rule} sends packets for {} elsewhere: {words}", leg.name, leg.destination);
    Finding::fault("rule", found, rule.removal())
}

/// The kernel drops what comes in where its answers would not leave (`rp_filter`); of IPv4 alone.
fn source_check(way: Way<'_>, entrance: &Link, ground: &Ground) -> Option<Finding> {
    let value = |name: &str| Setting::ipv4(name, "rp_filter").value().and_then(|value| value.parse::<u8>().ok());
    let strictness = value("all").max(value(&entrance.name)).unwrap_or(0);
    if way.source.is_ipv6() || strictness != 1 {
        return None;
    }
    let back = Way { source: way.destination, destination: way.source, interface: &entrance.name };
    let leaves_there = match ground.lookup.find(back) {
        Found::Route(_, route) => route.hops().iter().any(|hop| hop.interface == entrance.index),
        _ => false,
    };
    (!leaves_there).then(|| {
        let (name, from) = (&entrance.name, way.source);
        let found = format!(
            "rp_filter is strict on {name}: packets from {from} that come in there are dropped, since its route leads elsewhere"
        );
        Finding::fault("rp_filter", found, Setting::ipv4(name, "rp_filter").line("2"))
    })
}

/// What is beside the ways: neighbours that nobody answers, routes within what is the gateway's,
/// advertisements.
pub(super) fn surroundings(plan: &Plan, ground: &Ground, device: &Link, report: &mut Report) {
    for prefix in routes(plan) {
        if prefix.addr().is_ipv6() || is_for_the_rest(prefix) {
            // A network of the host's own that the prefix covers is as it should be; and a CLAT takes what no other
            // route takes.
            continue;
        }
        for route in ground.lookup.within(prefix, device.index).filter(|route| route.prefix() != prefix) {
            let words = route.words(|index| ground.name(index));
            let found = format!("the route {words} takes packets for a part of {prefix} from {}", device.name);
            report.add(Finding::fault("route", found, route.removal(|index| ground.name(index))));
        }
        unanswered(prefix, ground, device).into_iter().for_each(|finding| report.add(finding));
    }
    advertisements(ground, report);
}

/// Hosts on a link ask who has an address of the pool, and nobody answers.
fn unanswered(pool: IpNet, ground: &Ground, device: &Link) -> Option<Finding> {
    let (index, net) = ground.lookup.on_link(pool.network(), device.index)?;
    let name = &ground.link(index)?.name;
    if Setting::ipv4(name, "proxy_arp").is("1") || Setting::ipv4("all", "proxy_arp").is("1") {
        return None;
    }
    let is_silent = |address: &IpAddr| !ground.neighbours.answered_for.contains(&(index, *address));
    let addresses: Vec<IpAddr> = addresses(pool).take(MOST_ANSWERED_FOR + 1).filter(is_silent).collect();
    if addresses.is_empty() {
        return None;
    }
    let found = format!("{pool} lies in {net} on {name}, and nobody answers there for its addresses (ARP)");
    let line = match addresses.as_slice() {
        [address] => format!("ip neigh replace proxy {address} dev {name}"),
        several if several.len() <= MOST_ANSWERED_FOR => {
            let words: Vec<_> = several.iter().map(IpAddr::to_string).collect();
            format!("for a in {}; do ip neigh replace proxy $a dev {name}; done", words.join(" "))
        }
        _ => Setting::ipv4(name, "proxy_arp").line("1"),
    };
    Some(Finding::fault("arp", found, line))
}

fn addresses(net: IpNet) -> impl Iterator<Item = IpAddr> {
    let IpNet::V4(net) = net else { return None.into_iter().flatten() };
    let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
    Some((first..=last).map(|bits| IpAddr::V4(bits.into()))).into_iter().flatten()
}

/// A host that forwards ignores advertisements of routers, unless it is told not to: its default route
/// goes when the last one that it believed has run out.
fn advertisements(ground: &Ground, report: &mut Report) {
    if !Setting::ipv6("all", "forwarding").is("1") {
        return;
    }
    for index in ground.lookup.advertised() {
        let Some(name) = ground.link(index).map(|link| &link.name) else { continue };
        if Setting::ipv6(name, "accept_ra").is("1") {
            let found = format!(
                "the default route of {name} is from a router's advertisement, and advertisements are ignored since the host forwards (accept_ra=1): it goes when its time is up"
            );
            report.add(Finding::warning("accept_ra", found, Setting::ipv6(name, "accept_ra").line("2")));
        }
    }
}
