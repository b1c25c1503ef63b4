//! `[[service]]` of the kind `nat44`: who is inside.

use tombolo_engine::mapping::address_ranges::AddressRanges;

use crate::document::{Node, Table};
use crate::pool::Draft;
use crate::problem::{Log, Problem};
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

/// Destinations whose packets are to leave as they are.
pub(crate) fn untranslated(table: &Table<'_>, log: &mut Log) -> AddressRanges {
    let Some(node) = table.find("untranslated") else { return AddressRanges::default() };
    let items = log.keep(node.items()).unwrap_or_default();
    let ranges: Vec<_> = items.iter().filter_map(|node| log.keep(read_addresses(node))).collect();
    AddressRanges::new(ranges.into_iter().map(|range| range.first..=range.last))
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
