//! Explicit mappings of a SIIT that lead back to the gateway.
//!
//! A packet that is translated to an address which is routed to the gateway's own device comes back,
//! is translated to where it came from, and so on. Whether an address is routed there decides the
//! host: hosts inside may have addresses within a service's prefix, if the host has more specific
//! routes to them (RFC 7915 section 5.6). So a row is refused where no route could be more specific
//! or the gateway keeps the address for itself, and elsewhere the operator is warned; the engine
//! drops what comes back. See docs/decisions/explicit-mappings-that-loop.md.

use std::net::Ipv6Addr;

use tombolo_engine::mapping::eam::Eam;
use tombolo_engine::plan::{AnsweredBy, OwnAddresses, Service, ServiceKind};
use tombolo_engine::service::siit::Role;
use tombolo_tables::lpm::Prefix;

use crate::document::Node;
use crate::problem::Log;

/// Rows that are warned of one by one.
const REPORTED: usize = 10;

/// Where the rows of a service stand.
#[derive(Debug)]
pub(crate) struct Rows<'d> {
    /// Place of the service.
    pub(crate) service: usize,
    pub(crate) node: Node<'d>,
}

/// Reports the rows of all services that lead back to the gateway.
pub(crate) fn check(services: &[Service], rows: &[Rows<'_>], own: &OwnAddresses, log: &mut Log) {
    let routed: Vec<Prefix<u128>> = services
        .iter()
        .flat_map(|service| service.kind.routed().ipv6)
        .map(|(address, length)| Prefix::covering(address.to_bits(), length))
        .collect();
    for Rows { service, node } in rows {
        let Some(ServiceKind::Siit(siit)) = services.get(*service).map(|service| &service.kind) else { continue };
        // The addresses that a CLAT's rows have are its own.
        if siit.role != Role::Siit {
            continue;
        }
        let items = node.items().unwrap_or_default();
        let mut warned = 0;
        for (item, row) in items.iter().zip(siit.mapping.explicit.rows()) {
            if let Some(text) = conflict_with_own(row, own).or_else(|| covers(row, &routed)) {
                log.mistake(item.problem(text));
            } else if let Some(prefix) = routed.iter().find(|prefix| prefix.contains(row.ipv6().key())) {
                warned += 1;
                if warned <= REPORTED {
                    log.warning(item.problem(format!(
                        "lies inside {prefix}, which is routed to this gateway; the host needs a more specific route to \
                         it, or packets to it come back and are dropped (mapping-loops)"
                    )));
                }
            }
        }
        if warned > REPORTED {
            log.warning(node.problem(format!("{} more rows lie in what is routed to this gateway", warned - REPORTED)));
        }
    }
}

/// An address that the gateway or its host answers by itself never gets to the mapping.
fn conflict_with_own(row: &Eam, own: &OwnAddresses) -> Option<String> {
    if own.ipv4.is_some_and(|address| row.ipv4() == Prefix::covering(address.to_bits(), 32)) {
        return Some(
            "maps gateway.ipv4, which is the gateway's own; map another address, or give it another one".into(),
        );
    }
    let answers = own.answered_by == AnsweredBy::Gateway;
    if answers && own.ipv6.is_some_and(|address| row.ipv6() == Prefix::covering(address.to_bits(), 128)) {
        return Some(
            "maps gateway.ipv6, which the gateway answers itself; map another address, or give it another one".into(),
        );
    }
    None
}

/// What is routed to the gateway and lies in the row as a whole: no route of the host can be more
/// specific there than the gateway's.
fn covers(row: &Eam, routed: &[Prefix<u128>]) -> Option<String> {
    let row = row.ipv6();
    let is_covered = |prefix: &&Prefix<u128>| row.prefix_len() <= prefix.prefix_len() && row.contains(prefix.key());
    let prefix = routed.iter().find(is_covered)?;
    let what =
        if prefix.prefix_len() == 128 { Ipv6Addr::from_bits(prefix.key()).to_string() } else { prefix.to_string() };
    Some(format!("holds {what}, which is routed to this gateway: packets to it would come back; map other addresses"))
}
