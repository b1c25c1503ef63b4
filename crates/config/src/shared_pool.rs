//! Pools of addresses that the host has itself: `interface` of an item of `service.pool`, and `masquerade`.

use std::ops::RangeInclusive;

use tombolo_engine::mapping::pool::{PortRanges, PortSpace};
use tombolo_engine::plan::StaticBinding;

use crate::document::{Node, Table};
use crate::gateway;
use crate::pool::{self, Draft, EachSpace, InsideEnd, Outside};
use crate::problem::{Log, Problem};
use crate::reference::POOL;
use crate::shared::{Interface, OF_DEFAULT_ROUTE, SharedPool, stand_in};

/// Ports without `ports`: below those that hosts use for connections of their own (32768 to 60999, unless
/// `ip_local_port_range` says otherwise) and above those of most daemons.
const PORTS: RangeInclusive<u16> = 10_000..=29_999;

/// Reads `masquerade` and the items of `pool` with an `interface`; `others` are those of the services before.
fn read(table: &Table<'_>, service: &str, others: &[SharedPool], log: &mut Log) -> Vec<SharedPool> {
    let mut pools: Vec<SharedPool> = Vec::new();
    if let Some(node) = table.find("masquerade")
        && let Some(Some(interface)) = log.keep(masquerade(&node))
    {
        let ports = PortSpace::WITH_SLOTS.map(|_| PortRanges::new([PORTS]));
        let result = add(&mut pools, &node, (interface, ports), service, others);
        log.keep(result);
    }
    for item in pool::items(table).into_iter().filter(|item| item.entry("interface").is_some()) {
        let Some(found) = read_item(&item, log) else { continue };
        let result = add(&mut pools, &item, found, service, others);
        log.keep(result);
    }
    if !pools.is_empty()
        && let Some(node) = table.find("allocation")
        && node.entry("mode") == Some("deterministic")
    {
        log.mistake(
            node.problem("shares are computed from addresses, and that of an interface may change; use \"blocks\""),
        );
    }
    pools
}

fn masquerade(node: &Node<'_>) -> Result<Option<Interface>, Problem> {
    match node.switch() {
        Ok(is_wanted) => Ok(is_wanted.then_some(Interface::OfDefaultRoute)),
        Err(_) if node.text().is_ok() => interface(node).map(Some),
        Err(_) => Err(node.problem("neither true nor an interface; use true, or a name as \"eth0\"")),
    }
}

fn interface(node: &Node<'_>) -> Result<Interface, Problem> {
    match node.text()? {
        OF_DEFAULT_ROUTE => Ok(Interface::OfDefaultRoute),
        _ => gateway::device(node).map(Interface::Named),
    }
}

fn read_item(item: &Node<'_>, log: &mut Log) -> Option<(Interface, EachSpace)> {
    let table = item.table(&POOL, log)?;
    let ports = pool::ports(&table, PORTS, log);
    if let Some(node) = table.find("addresses") {
        log.mistake(node.problem("the address is that of the interface; remove one of the two keys"));
    }
    if let Some(node) = table.find("for") {
        log.mistake(node.problem("the address of an interface is for all hosts; remove the key, or name addresses"));
    }
    let node = table.require("interface", log)?;
    Some((log.keep(interface(&node))?, ports))
}

/// Adds an interface, or further protocols of one.
fn add(
    pools: &mut Vec<SharedPool>,
    node: &Node<'_>,
    (interface, ports): (Interface, EachSpace),
    service: &str,
    others: &[SharedPool],
) -> Result<(), Problem> {
    if let Some(other) = others.iter().find(|other| other.interface == interface) {
        return Err(node.problem(format!(
            "service {} has the address of {interface}; an address belongs to one service, give this one another",
            other.service
        )));
    }
    match pools.iter_mut().find(|pool| pool.interface == interface) {
        Some(pool) if pool::are_disjoint(&pool.ports, &ports) => pool::add_protocols(&mut pool.ports, ports),
        Some(_) => return Err(node.problem(format!("a second time the address of {interface}; remove one of them"))),
        None => {
            pools.push(SharedPool { service: service.to_owned(), interface, ports, static_bindings: Vec::new() });
        }
    }
    Ok(())
}

/// Reads the static bindings of a service, and the addresses of the host that it shares, which `known` gets.
pub(crate) fn read_with_static<'d>(
    table: &Table<'d>,
    (service, inside): (&str, &InsideEnd<'_>),
    drafts: &[Draft<'d>],
    known: &mut Vec<SharedPool>,
    log: &mut Log,
) -> Vec<StaticBinding> {
    let mut pools = read(table, service, known, log);
    let mut bindings = pool::read_static(table, inside, Outside { drafts, shared: &pools }, log);
    take_static(&mut pools, &mut bindings);
    known.extend(pools);
    bindings
}

/// Gives the static bindings of a service whose address is yet unknown to its pools. Those of other addresses are left.
fn take_static(pools: &mut [SharedPool], bindings: &mut Vec<StaticBinding>) {
    for (place, pool) in pools.iter_mut().enumerate() {
        let own = bindings.extract_if(.., |binding| binding.outside.address == stand_in(place));
        pool.static_bindings.extend(own);
    }
}
