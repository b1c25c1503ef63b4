//! `[[service]]` of the kinds `siit` and `clat`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use tombolo_engine::mapping::dynamic_pool::{DynamicPool, Lease};
use tombolo_engine::mapping::eam::{Eam, EamError, EamTable, parse_prefix};
use tombolo_engine::mapping::error_sources::ErrorSources;
use tombolo_engine::mapping::stateless::{DenyList, StatelessMap};
use tombolo_engine::mechanism::TranslateSettings;
use tombolo_engine::service::siit::{Hairpinning, Role, Siit};
use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

use crate::document::{Node, Table};
use crate::problem::{Log, Problem};
use crate::reference::EAM;
use crate::relay::is_reached_by_anybody;
use crate::value;

/// Overlaps that are reported one by one; tables with many have them on purpose.
const REPORTED_OVERLAPS: usize = 10;

/// Keys that are about IPv6 hosts inside, which a CLAT does not have.
const SIIT_ALONE: [&str; 4] = ["hairpinning", "embedded_hosts", "dynamic_pool", "dynamic_map"];

/// The address that the host of a CLAT gets itself, if it is to be served too (RFC 7335).
pub(crate) fn host_address<'d>(role: Role, table: &Table<'d>, log: &mut Log) -> Option<(Node<'d>, Ipv4Addr)> {
    let node = table.find("host")?;
    if role != Role::Clat {
        log.mistake(
            node.problem("the host of a SIIT has addresses of its own; remove the key, or use kind = \"clat\""),
        );
        return None;
    }
    let address = node.text().and_then(|text| {
        let address: Result<Ipv4Addr, _> = text.parse();
        address.map_err(|_| node.problem("not an IPv4 address; write it as \"192.0.0.1\" (RFC 7335)"))
    });
    let address = log.keep(address)?;
    Some((node, address))
}

/// Reads the service in `table`; `prefix` and `translate` are what its keys of these names say.
pub(crate) fn read(
    role: Role,
    table: &Table<'_>,
    prefix: Option<Prefix64>,
    translate: TranslateSettings,
    log: &mut Log,
) -> Siit {
    let explicit = explicit(table, log);
    if role == Role::Siit && table.find("prefix").is_none() && table.find("eam").is_none() {
        log.mistake(table.node().problem("translates no address; add a prefix, or explicit mappings under eam"));
    }
    if role == Role::Clat {
        check_clat(table, &explicit, log);
    }
    if let Some(node) = table.find("dynamic_pool")
        && prefix.is_some_and(is_reached_by_anybody)
    {
        log.warning(node.problem(
            "the prefix is routed on the Internet, so that anybody may get here and is lent an address; let a firewall \
             pass those alone who may",
        ));
    }
    let denied = prefixes(table, "deny", log);
    let denied = DenyList::new(&denied).map_err(|error| table.node().problem(error));
    let mapping = StatelessMap {
        explicit,
        prefix,
        well_known_prefix_strict: table.read_or("well_known_prefix_strict", true, log, Node::switch),
        denied: log.keep(denied).unwrap_or_default(),
    };
    Siit {
        role,
        mapping,
        dynamic: dynamic(table, log),
        embedded_hosts: prefixes(table, "embedded_hosts", log),
        hairpinning: hairpinning(role, table, log),
        error_sources: ErrorSources::new(error_sources(table, log)),
        identify_nodes: table.read_or("identify_nodes", false, log, Node::switch),
        translate,
    }
}

fn check_clat(table: &Table<'_>, explicit: &EamTable, log: &mut Log) {
    for key in SIIT_ALONE {
        if let Some(node) = table.find(key) {
            log.mistake(node.problem("a CLAT has no IPv6 hosts inside; remove the key, or use kind = \"siit\""));
        }
    }
    let _ = table.require("prefix", log);
    if let Some((node, address)) = host_address(Role::Clat, table, &mut Log::default())
        && !explicit.contains_ipv4(address)
        && table.find("eam").is_some()
    {
        log.mistake(node.problem("no explicit mapping has this address; add one to eam"));
    }
    if explicit.rows().is_empty() && table.find("eam").is_none() {
        log.mistake(table.node().problem(
            "the hosts inside have no IPv6 addresses; add eam = [{ ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8::464\" }]",
        ));
    }
}

fn dynamic(table: &Table<'_>, log: &mut Log) -> Option<Arc<DynamicPool>> {
    let Some(node) = table.find("dynamic_pool") else {
        if let Some(node) = table.find("dynamic_map") {
            log.mistake(node.problem("there is nothing to remember; add a dynamic_pool"));
        }
        return None;
    };
    let prefix = node.text().and_then(|text| parse_prefix(text).map_err(|error| node.problem(fix(&error))));
    let pool = DynamicPool::new(log.keep(prefix)?, Lease::default());
    log.keep(pool.map(Arc::new).map_err(|error| node.problem(error)))
}

/// The file that keeps what the dynamic pool has lent.
pub(crate) fn lease_file(table: &Table<'_>, log: &mut Log) -> Option<PathBuf> {
    table.find("dynamic_map").and_then(|node| log.keep(absolute(&node)))
}

fn absolute(node: &Node<'_>) -> Result<PathBuf, Problem> {
    let path = PathBuf::from(node.text()?);
    if path.is_absolute() { Ok(path) } else { Err(node.problem("not an absolute path; begin with \"/\"")) }
}

fn hairpinning(role: Role, table: &Table<'_>, log: &mut Log) -> Hairpinning {
    const CHOICES: [(&str, Hairpinning); 3] =
        [("intrinsic", Hairpinning::Intrinsic), ("simple", Hairpinning::Simple), ("off", Hairpinning::Off)];
    match role {
        Role::Clat => Hairpinning::Off,
        _ => table.read_or("hairpinning", Hairpinning::default(), log, |node| node.choice(&CHOICES)),
    }
}

/// The explicit mappings. Without mistakes in rows, mistakes between rows are looked for.
fn explicit(table: &Table<'_>, log: &mut Log) -> EamTable {
    let Some(node) = table.find("eam") else { return EamTable::default() };
    let items = log.keep(node.items()).unwrap_or_default();
    let rows: Vec<Option<Eam>> = items.iter().map(|item| row(item, log)).collect();
    let Some(rows) = rows.into_iter().collect::<Option<Vec<_>>>() else { return EamTable::default() };
    match EamTable::new(rows) {
        Ok(explicit) => {
            warn_of_overlaps(&explicit, &node, &items, log);
            explicit
        }
        Err(EamError::Duplicate { prefix, first, second }) => {
            let other = items[first].path();
            let text = format!("the prefix {prefix} is in {other} too; remove one of them (RFC 7757 section 5)");
            log.mistake(items[second].problem(text));
            EamTable::default()
        }
        Err(error) => {
            log.mistake(node.problem(error));
            EamTable::default()
        }
    }
}

fn row(item: &Node<'_>, log: &mut Log) -> Option<Eam> {
    let table = item.table(&EAM, log)?;
    let (ipv4, ipv6) = (table.require("ipv4", log)?, table.require("ipv6", log)?);
    let left = log.keep(ipv4.text().and_then(|text| parse_prefix(text).map_err(|error| ipv4.problem(fix(&error)))));
    let right = log.keep(ipv6.text().and_then(|text| parse_prefix(text).map_err(|error| ipv6.problem(fix(&error)))));
    log.keep(Eam::new(left?, right?).map_err(|error| ipv6.problem(fix(&error))))
}

/// The error, with the fix where it does not say.
pub(crate) fn fix(error: &EamError) -> String {
    match error {
        EamError::Prefix(error) => format!("{error}; write the prefix without host bits"),
        error => error.to_string(),
    }
}

fn warn_of_overlaps(explicit: &EamTable, node: &Node<'_>, items: &[Node<'_>], log: &mut Log) {
    let overlaps = explicit.overlaps();
    for overlap in overlaps.iter().take(REPORTED_OVERLAPS) {
        let other = items[overlap.inside].path();
        log.warning(items[overlap.row].problem(format!(
            "lies inside {other}; addresses may be translated to one and back from another (RFC 7757 section 5)"
        )));
    }
    if overlaps.len() > REPORTED_OVERLAPS {
        let more = overlaps.len() - REPORTED_OVERLAPS;
        log.warning(node.problem(format!("{more} more rows lie inside others (RFC 7757 section 5)")));
    }
}

fn prefixes(table: &Table<'_>, key: &'static str, log: &mut Log) -> Vec<Prefix<u32>> {
    let Some(node) = table.find(key) else { return Vec::new() };
    let items = log.keep(node.items()).unwrap_or_default();
    let prefix = |item: &Node<'_>| parse_prefix(item.text()?).map_err(|error| item.problem(fix(&error)));
    items.iter().filter_map(|item| log.keep(prefix(item))).collect()
}

pub(crate) fn error_sources(table: &Table<'_>, log: &mut Log) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let Some(node) = table.find("icmp_sources") else { return Vec::new() };
    let items = log.keep(node.items()).unwrap_or_default();
    let read = |item: &Node<'_>| -> Result<_, Problem> {
        let range = value::addresses(item.text()?).map_err(|text| item.problem(text))?;
        Ok((range.first, range.last))
    };
    let ranges: Vec<_> = items.iter().filter_map(|item| Some((item, log.keep(read(item))?))).collect();
    for (item, (first, last)) in &ranges {
        if first.is_private() || last.is_private() || is_shared(*first) || is_shared(*last) {
            log.warning(item.problem(
                "private addresses do not pass filters of the source on the Internet (RFC 6791 section 3); use public ones",
            ));
        }
    }
    ranges.into_iter().map(|(_, range)| range).collect()
}

/// 100.64.0.0/10 (RFC 6598).
fn is_shared(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    a == 100 && b & 0xc0 == 64
}
