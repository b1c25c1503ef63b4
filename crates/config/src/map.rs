//! `[[service]]` of the kinds `map-t` and `map-e`: rules, and the customer's edge.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::map_domain::{MapDomain, MapDomainError};
use tombolo_engine::mapping::map_rule::{
    Assignment, DEFAULT_OFFSET_BITS, GivenPsid, InterfaceIdentifier, MapCe, MapRule,
};
use tombolo_engine::mapping::pool::PortRanges;
use tombolo_engine::plan::StaticBinding;
use tombolo_tables::lpm::Prefix;

use crate::document::{Node, Table};
use crate::pool::Draft;
use crate::problem::{Log, Problem};
use crate::reference::MAP_RULE;

/// Which end of MAP a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Br,
    Ce,
}

const ENDS: [(&str, End); 2] = [("br", End::Br), ("ce", End::Ce)];

/// Keys that only a CE has.
const CE_ALONE: [&str; 8] = [
    "end_user_prefix",
    "inside",
    "napt",
    "static",
    "filtering",
    "inbound_tcp",
    "bindings_per_subscriber",
    "port_parity",
];

/// Keys that are about a NAPT.
pub(crate) const NAPT_ALONE: [&str; 6] =
    ["inside", "static", "filtering", "inbound_tcp", "bindings_per_subscriber", "port_parity"];

/// Which end it is. Keys of the other end are reported.
pub(crate) fn read_end(table: &Table<'_>, log: &mut Log) -> Option<End> {
    let end = table.require("role", log).and_then(|node| log.keep(node.choice(&ENDS)))?;
    if end == End::Br {
        for node in CE_ALONE.iter().filter_map(|key| table.find(key)) {
            log.mistake(node.problem("a border relay has no hosts inside; remove the key, or use role = \"ce\""));
        }
    }
    Some(end)
}

/// The address of the border relay.
pub(crate) fn read_relay<'d>(table: &Table<'d>, log: &mut Log) -> Option<(Node<'d>, Ipv6Addr)> {
    let node = table.require("br", log)?;
    let address = node.text().and_then(|text| {
        let address: Ipv6Addr = text.parse().map_err(|_| {
            node.problem("not an IPv6 address; write it without a prefix length, as \"2001:db8:ffff::1\"")
        })?;
        let is_host = !address.is_multicast() && !address.is_unspecified() && !address.is_loopback();
        if is_host && !address.is_unicast_link_local() {
            return Ok(address);
        }
        Err(node.problem("no relay can have this address; use a global or unique local one"))
    });
    let address = log.keep(address)?;
    Some((node, address))
}

/// A rule, and where it stands.
pub(crate) struct Row<'d> {
    node: Node<'d>,
    rule: MapRule,
    /// A Forwarding Mapping Rule, to others.
    forwarding: bool,
}

/// Reads the rules.
pub(crate) fn read_rules<'d>(table: &Table<'d>, end: End, log: &mut Log) -> Vec<Row<'d>> {
    let Some(node) = table.require("rules", log) else { return Vec::new() };
    let items = log.keep(node.items()).unwrap_or_default();
    if items.is_empty() {
        log.mistake(node.problem("no rule; add { ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 }"));
    }
    let identifier = identifier(table, log);
    items.into_iter().filter_map(|item| read_rule(item, end, identifier, log)).collect()
}

/// Where the domain's addresses have IPv4 address and PSID. Of MAP-T there is no other version about.
fn identifier(table: &Table<'_>, log: &mut Log) -> InterfaceIdentifier {
    let Some(node) = table.knows("draft").then(|| table.find("draft")).flatten() else { return <_>::default() };
    if log.keep(node.number32(0..=u32::MAX)).is_some_and(|number| number != 3) {
        log.mistake(
            node.problem("only draft 3 is deployed with another interface identifier; use 3, or remove the key"),
        );
    }
    InterfaceIdentifier::Draft3
}

fn read_rule<'d>(item: Node<'d>, end: End, identifier: InterfaceIdentifier, log: &mut Log) -> Option<Row<'d>> {
    let table = item.table(&MAP_RULE, log)?;
    let (ipv6, ipv4) = (table.require("ipv6", log), table.require("ipv4", log));
    let ea_bits = table.require("ea_bits", log).and_then(|node| log.keep(small(&node, 48)));
    let ipv6 = ipv6.and_then(|node| log.keep(prefix::<u128>(&node)));
    let ipv4 = ipv4.and_then(|node| log.keep(prefix::<u32>(&node)));
    let offset_bits = table.read_or("psid_offset", DEFAULT_OFFSET_BITS, log, |node| small(node, 15));
    let bits = table.find("psid_length").and_then(|node| log.keep(small(&node, 16)));
    let psid = table.find("psid").and_then(|node| log.keep(node.number32(0..=65_535)));
    let given = match (bits, psid) {
        (Some(bits), Some(psid)) => Some(GivenPsid { bits, psid: u16::try_from(psid).unwrap_or_default() }),
        (None, None) => None,
        _ => {
            log.mistake(table.node().problem("psid and psid_length belong together; give both or neither"));
            None
        }
    };
    let forwarding = match table.find("forwarding") {
        Some(node) if end == End::Br => {
            log.mistake(node.problem("a border relay forwards by every rule; remove the key"));
            false
        }
        Some(node) => log.keep(node.switch()).unwrap_or_default(),
        None => false,
    };
    let rule = MapRule::new(ipv6?, ipv4?, ea_bits?, offset_bits, given);
    let rule = log.keep(rule.map_err(|error| table.node().problem(error)))?;
    Some(Row { node: item, rule: rule.with_identifier(identifier), forwarding })
}

fn small(node: &Node<'_>, most: u8) -> Result<u8, Problem> {
    Ok(u8::try_from(node.number32(0..=most.into())?).unwrap_or_default())
}

fn prefix<K: tombolo_tables::lpm::Key>(node: &Node<'_>) -> Result<Prefix<K>, Problem>
where
    K::Address: std::str::FromStr,
{
    parse_prefix(node.text()?).map_err(|error| node.problem(crate::stateless::fix(&error)))
}

/// The domain of a border relay: all rules.
pub(crate) fn domain(rows: &[Row<'_>], table: &Table<'_>, log: &mut Log) -> MapDomain {
    build(&rows.iter().collect::<Vec<_>>(), table, log)
}

/// The Forwarding Mapping Rules of an edge.
pub(crate) fn mesh(rows: &[Row<'_>], table: &Table<'_>, log: &mut Log) -> MapDomain {
    build(&rows.iter().filter(|row| row.forwarding).collect::<Vec<_>>(), table, log)
}

fn build(rows: &[&Row<'_>], table: &Table<'_>, log: &mut Log) -> MapDomain {
    let error = match MapDomain::new(rows.iter().map(|row| row.rule).collect()) {
        Ok(domain) => return domain,
        Err(error) => error,
    };
    let problem = match &error {
        MapDomainError::SameIpv6 { prefix, first, second } => rows[*second].node.problem(format!(
            "has the IPv6 prefix {prefix} of {}; remove one of them",
            rows[*first].node.path()
        )),
        MapDomainError::SameIpv4 { prefix, first, second } => rows[*second].node.problem(format!(
            "has the IPv4 prefix {prefix} of {}, and ports of its own do not tell them apart; remove one of them, or give both PSIDs of the same length and offset (RFC 7597 section 5.1)",
            rows[*first].node.path()
        )),
        MapDomainError::Table(_) => table.node().problem(&error),
    };
    log.mistake(problem);
    MapDomain::default()
}

/// What an edge is: the rule with the longest prefix around its End-user prefix (RFC 7597 section
/// 5).
pub(crate) fn read_ce<'d>(table: &Table<'d>, rows: &[Row<'_>], log: &mut Log) -> Option<(Node<'d>, MapCe)> {
    let node = table.require("end_user_prefix", log)?;
    let end_user = log.keep(prefix::<u128>(&node))?;
    let around = rows.iter().map(|row| row.rule).filter(|rule| rule.ipv6().contains(end_user.key()));
    let Some(rule) = around.max_by_key(|rule| rule.ipv6().prefix_len()) else {
        if !rows.is_empty() {
            log.mistake(node.problem("lies in the IPv6 prefix of no rule; add its rule, or correct the prefix"));
        }
        return None;
    };
    let ce = log.keep(rule.provision(end_user).map_err(|error| node.problem(error)))?;
    if !ce.is_computable() {
        log.warning(node.problem(
            "bits behind the EA bits are set, so that others cannot compute this edge's address and nothing reaches it (RFC 7597 section 5.3); take the first such prefix",
        ));
    }
    let lowest = ce.ports().next().map_or(0, |range| *range.start());
    if rule.assignment() == Assignment::Shared && lowest < 1024 {
        log.warning(node.problem(
            "its port set has well-known ports, which nobody should share (RFC 7597 section 5.1); use a psid_offset of 6",
        ));
    }
    Some((node, ce))
}

/// The pool of an edge's NAPT: its address, and every range of its port set.
pub(crate) fn draft<'d>(node: Node<'d>, ce: &MapCe, log: &mut Log) -> Option<Draft<'d>> {
    if ce.rule().assignment() == Assignment::Prefix {
        log.mistake(node.problem(format!(
            "gives a whole IPv4 prefix ({}), which hosts can have without NAPT; set napt = false",
            ce.ipv4()
        )));
        return None;
    }
    // Port 0 is for nobody to use (RFC 6335 section 6).
    let ports = PortRanges::new(ce.ports().map(|range| (*range.start()).max(1)..=*range.end()));
    Some(Draft::of_one(node, ce.share().ipv4, &ports))
}

/// An edge may bind its own ports only.
pub(crate) fn check_static(ce: &MapCe, bindings: &[StaticBinding], table: &Table<'_>, log: &mut Log) {
    let own = |binding: &&StaticBinding| !ce.owns(binding.outside.address, binding.outside.port.0);
    for binding in bindings.iter().filter(own) {
        let Some(node) = table.find("static") else { return };
        let ranges: Vec<_> = ce.ports().take(3).map(|range| format!("{}-{}", range.start(), range.end())).collect();
        let (port, address): (u16, Ipv4Addr) = (binding.outside.port.0, binding.outside.address);
        log.mistake(node.problem(format!(
            "port {port} of {address} is another subscriber's; this edge has {}, ... (\"tombolo map calc\" lists all)",
            ranges.join(", ")
        )));
    }
}
