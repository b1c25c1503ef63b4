//! `[[service]]` of the kind `nat44`: who is inside.

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::exemptions::{Exemption, Exemptions};
use tombolo_engine::mapping::pool::PortRanges;

use crate::document::{Node, Table};
use crate::pool::Draft;
use crate::problem::{Log, Problem};
use crate::reference::UNTRANSLATED;
use crate::value::{self, Addresses};

/// One item of a service's `inside`.
#[derive(Debug, Clone)]
pub(crate) struct Inside<'d> {
    node: Node<'d>,
    addresses: Addresses,
}

/// Reads `inside` of the service `table`; `others` are those of the services before it.
pub(crate) fn read_inside<'d>(table: &Table<'d>, others: &[Inside<'d>], log: &mut Log) -> Vec<Inside<'d>> {
    let Some(node) = table.require("inside", log) else { return Vec::new() };
    let items = log.keep(node.items()).unwrap_or_default();
    if items.is_empty() {
        log.mistake(node.problem("nobody is inside; add a prefix, as \"10.0.0.0/24\""));
    }
    let mut inside: Vec<Inside<'d>> = Vec::new();
    for node in items {
        let Some(addresses) = log.keep(read_addresses(&node)) else { continue };
        match inside.iter().chain(others).find(|other| other.addresses.overlaps(addresses)) {
            Some(other) => log.mistake(overlap(&node, &other.node)),
            None => inside.push(Inside { node, addresses }),
        }
    }
    inside
}

/// Destinations whose packets are to leave as they are, and ports of others.
pub(crate) fn untranslated(table: &Table<'_>, log: &mut Log) -> (AddressRanges, Exemptions) {
    let Some(node) = table.find("untranslated") else { return Default::default() };
    let (mut ranges, mut ports) = (Vec::new(), Vec::new());
    for item in log.keep(node.items()).unwrap_or_default() {
        if item.is_table() {
            ports.extend(exemption(&item, log));
        } else {
            ranges.extend(log.keep(read_addresses(&item)).map(|range| range.first..=range.last));
        }
    }
    (AddressRanges::new(ranges), Exemptions(ports))
}

/// Ports of destinations.
fn exemption(item: &Node<'_>, log: &mut Log) -> Option<Exemption> {
    let table = item.table(&UNTRANSLATED, log)?;
    let addresses = table.require("addresses", log).and_then(|node| log.keep(read_addresses(&node)));
    let ports = table.require("ports", log);
    let ports = ports
        .and_then(|node| log.keep(node.text().and_then(|text| value::ports(text).map_err(|text| node.problem(text)))));
    let [tcp, udp] = table.read_or("protocols", [true; 2], log, transports);
    let (addresses, ports) = (addresses?, ports?);
    let of = |is_meant: bool| if is_meant { ports.clone() } else { PortRanges::default() };
    Some(Exemption { addresses: addresses.first..=addresses.last, tcp: of(tcp), udp: of(udp) })
}

/// Whether TCP is named, and UDP.
fn transports(node: &Node<'_>) -> Result<[bool; 2], Problem> {
    const TRANSPORTS: [(&str, usize); 2] = [("tcp", 0), ("udp", 1)];
    let mut found = [false; 2];
    for item in node.items()? {
        found[item.choice(&TRANSPORTS)?] = true;
    }
    if found == [false; 2] {
        return Err(node.problem("no protocol; name some, or leave the key out"));
    }
    Ok(found)
}

/// All addresses of `inside`.
pub(crate) fn addresses(inside: &[Inside<'_>]) -> AddressRanges {
    AddressRanges::new(inside.iter().map(|item| item.addresses.first..=item.addresses.last))
}

/// No host inside may have an address of the pool: its packets would look like both.
pub(crate) fn check_apart(inside: &[Inside<'_>], pool: &[Draft<'_>], log: &mut Log) {
    for draft in pool {
        if let Some(item) = inside.iter().find(|item| item.addresses.overlaps(draft.addresses)) {
            log.mistake(overlap(&draft.node, &item.node));
        }
    }
}

fn read_addresses(node: &Node<'_>) -> Result<Addresses, Problem> {
    value::addresses(node.text()?).map_err(|text| node.problem(text))
}

fn overlap(node: &Node<'_>, other: &Node<'_>) -> Problem {
    node.problem(format!(
        "overlaps {} ({}); give each its own addresses",
        other.path(),
        other.text().unwrap_or_default()
    ))
}
