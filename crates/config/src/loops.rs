//! Explicit mappings that lead back to the gateway.
//!
//! A packet that is translated to an address which is routed to the gateway's own device comes back,
//! is translated to where it came from, and so on until its hop limit ends; and what the gateway
//! answers itself never gets to a mapping. Such a row is refused. See
//! docs/decisions/explicit-mappings-that-loop.md.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::eam::Eam;
use tombolo_engine::plan::{AnsweredBy, OwnAddresses, Service, ServiceKind};
use tombolo_engine::service::siit::Role;
use tombolo_tables::lpm::Prefix;

use crate::document::Node;
use crate::problem::Log;

/// Where the rows of a service stand.
#[derive(Debug)]
pub(crate) struct Rows<'d> {
    /// Place of the service.
    pub(crate) service: usize,
    pub(crate) node: Node<'d>,
}

/// What the gateway has for itself.
#[derive(Debug)]
pub(crate) struct Occupied {
    /// Addresses that the gateway answers.
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
    /// What is routed to its device.
    pub(crate) routed: Vec<Prefix<u128>>,
    /// What the file calls the two addresses.
    pub(crate) names: [&'static str; 2],
}

/// Reports the rows of all services that lead back to the gateway.
pub(crate) fn check(services: &[Service], rows: &[Rows<'_>], own: &OwnAddresses, log: &mut Log) {
    let routed = services.iter().flat_map(|service| service.kind.routed().ipv6);
    let occupied = Occupied {
        ipv4: own.ipv4,
        // On an interface of the host it is a host like any other.
        ipv6: own.ipv6.filter(|_| own.answered_by == AnsweredBy::Gateway),
        routed: routed.map(|(address, length)| Prefix::covering(address.to_bits(), length)).collect(),
        names: ["gateway.ipv4", "gateway.ipv6"],
    };
    for Rows { service, node } in rows {
        let Some(ServiceKind::Siit(siit)) = services.get(*service).map(|service| &service.kind) else { continue };
        // The addresses that a CLAT's rows have are its own.
        if siit.role != Role::Siit {
            continue;
        }
        let items = node.items().unwrap_or_default();
        for (item, row) in items.iter().zip(siit.mapping.explicit.rows()) {
            if let Some(text) = occupied.conflict_with(row) {
                log.mistake(item.problem(text));
            }
        }
    }
}

impl Occupied {
    /// Why packets by this row would come back, or not get to it.
    pub(crate) fn conflict_with(&self, row: &Eam) -> Option<String> {
        let [ipv4, ipv6] = self.names;
        let taken = |name| {
            format!("maps {name}, which the gateway answers itself; map another address, or give the gateway another")
        };
        if self.ipv4.is_some_and(|address| row.ipv4() == Prefix::covering(address.to_bits(), 32)) {
            return Some(taken(ipv4));
        }
        if self.ipv6.is_some_and(|address| row.ipv6() == Prefix::covering(address.to_bits(), 128)) {
            return Some(taken(ipv6));
        }
        self.routed.iter().find_map(|routed| overlap(row.ipv6(), *routed))
    }
}

/// Where a row and what is routed to the gateway have addresses in common.
fn overlap(row: Prefix<u128>, routed: Prefix<u128>) -> Option<String> {
    let name =
        if routed.prefix_len() == 128 { Ipv6Addr::from_bits(routed.key()).to_string() } else { routed.to_string() };
    let (how, fix) = if row.prefix_len() <= routed.prefix_len() && row.contains(routed.key()) {
        ("holds", "map other addresses")
    } else if routed.contains(row.key()) {
        ("lies inside", "map an address outside of it")
    } else {
        return None;
    };
    Some(format!("{how} {name}, which is routed to this gateway: packets to it would come back; {fix}"))
}
