//! `[[service]]` of the kinds `b4`, `aftr`, `lwb4` and `lwaftr`: the ends of softwires.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::PortRanges;
use tombolo_engine::mapping::port_set::PortDivision;
use tombolo_engine::mapping::softwire_table::{SoftwireRow, SoftwireTable, SoftwireTableError, b4_address};
use tombolo_engine::mechanism::mtu::segment_size_of_softwire;
use tombolo_engine::mechanism::napt::{Policy, SubscriberIs};
use tombolo_engine::mechanism::softwire::{DontFragment, Fragments};
use tombolo_engine::mechanism::{FarEndName, Softwire, SoftwireSettings};
use tombolo_engine::plan::ServiceKind;
use tombolo_engine::service::aftr::{Aftr, Untranslated};
use tombolo_engine::service::b4::B4;
use tombolo_engine::service::lwaftr::Lwaftr;
use tombolo_engine::service::lwb4::Lwb4;

use crate::assigned::assign;
use crate::difference::Wording;
use crate::document::{Node, Table};
use crate::nat44::{self, Inside};
use crate::networks;
use crate::pool::{self, Draft, InsideEnd};
use crate::problem::{Log, Problem};
use crate::reference::{AFTR, B4 as B4_KEYS, LWAFTR, LWB4, SOFTWIRE, Section, UNTRANSLATED_HOST};
use crate::shared::SharedPool;
use crate::shared_pool;
use crate::stateful::{self, Hosts};
use crate::translation::{largest_segment, traffic_class};
use crate::value::{self, Addresses};

/// Mistakes of a file of softwires that are reported one by one.
const REPORTED: usize = 20;
/// Columns of a file of softwires.
const COLUMNS: &str = "b4,ipv4,psid_offset,psid_length,psid,aftr";
/// Inner sources that an AFTR accepts (RFC 6333 section 11, RFC 1918, RFC 6598).
const PRIVATE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "192.0.0.0/29", "100.64.0.0/10"];
/// Prefix of a subscriber that RFC 7785 section 3 suggests.
const SUBSCRIBER_PREFIX: u8 = 56;

/// The four kinds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    B4,
    Aftr,
    Lwb4,
    Lwaftr,
}

/// Their names in a file.
pub(crate) const KINDS: [(&str, Kind); 4] =
    [("b4", Kind::B4), ("aftr", Kind::Aftr), ("lwb4", Kind::Lwb4), ("lwaftr", Kind::Lwaftr)];

/// The keys of the kind that is called `name`.
pub(crate) fn section(name: &str) -> Option<&'static Section> {
    match name {
        "b4" => Some(&B4_KEYS),
        "aftr" => Some(&AFTR),
        "lwb4" => Some(&LWB4),
        "lwaftr" => Some(&LWAFTR),
        _ => None,
    }
}

/// What the services before have taken.
pub(crate) struct Taken<'r, 'd> {
    /// Name of the service at hand.
    pub(crate) service: &'r str,
    pub(crate) inside: &'r mut Vec<Inside<'d>>,
    pub(crate) pools: &'r mut Vec<Draft<'d>>,
    pub(crate) shared_pools: &'r mut Vec<SharedPool>,
    pub(crate) tunnels: &'r mut Vec<(Node<'d>, Ipv6Addr)>,
    pub(crate) next_slot: &'r mut u32,
}

/// Reads the service in `table`.
pub(crate) fn read<'d>(kind: Kind, table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> Option<ServiceKind> {
    Some(match kind {
        Kind::B4 => ServiceKind::B4(b4(table, taken, log)?),
        Kind::Aftr => ServiceKind::Aftr(aftr(table, taken, log)?),
        Kind::Lwb4 => ServiceKind::Lwb4(lwb4(table, taken, log)?),
        Kind::Lwaftr => ServiceKind::Lwaftr(lwaftr(table, taken, log)),
    })
}

fn b4<'d>(table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> Option<B4> {
    let inside = read_inside(table, taken, log);
    let local = require_tunnel(table, "address", taken, log);
    let remote = far_end(table, local, log);
    let (remote, name) = remote?;
    Some(B4 {
        inside,
        far_end: name,
        softwire: settings(table, log),
        icmp_source: icmp_source(table, Ipv4Addr::new(192, 0, 0, 2), log),
        ends: Softwire { local: local?, remote },
    })
}

fn aftr<'d>(table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> Option<Aftr> {
    let address = require_tunnel(table, "address", taken, log);
    let b4s = b4_prefixes(table, address, log);
    let inside = inner_sources(table, log);
    let drafts = pool::read(table, taken.pools, log);
    let end = InsideEnd::Softwire { b4s: &b4s, inside: &inside };
    let static_bindings = shared_pool::read_with_static(table, (taken.service, &end), &drafts, taken.shared_pools, log);
    let policy = stateful::policy(table, Policy::default(), log);
    let pool = pool::build(&drafts, &static_bindings, policy.protocols, taken.next_slot, log);
    let untranslated = untranslated(table, &end, &drafts, log);
    let prefix_length = table.read_or("subscriber_prefix", SUBSCRIBER_PREFIX, log, |node| {
        Ok(u8::try_from(node.number32(1..=128)?).unwrap_or(SUBSCRIBER_PREFIX))
    });
    let hosts = Hosts::Ipv6 { prefix_length, inside: ("b4s", &b4s) };
    let pool = assign(stateful::allocation(table, pool, &hosts, log), &drafts, &hosts, log);
    taken.pools.extend(drafts);
    let policy = Policy { subscriber: SubscriberIs::Softwire { prefix_length }, ..policy };
    Some(Aftr {
        b4s,
        inside,
        untranslated,
        nat: stateful::nat(table, pool, policy, static_bindings, log),
        softwire: settings(table, log),
        outside_mtu: table.read_or("outside_mtu", 1500, log, ipv4_mtu),
        icmp_source: icmp_source(table, Ipv4Addr::new(192, 0, 0, 1), log),
        tell_unknown: table.read_or("tell_unknown", true, log, Node::switch),
        address: address?,
    })
}

fn lwb4<'d>(table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> Option<Lwb4> {
    let inside = read_inside(table, taken, log);
    let address = table.require("ipv4", log).and_then(|node| Some((log.keep(public(&node))?, node)));
    let set = port_set(table, log);
    let local = match &address {
        Some((ipv4, _)) => own_address(table, *ipv4, set.map_or(0, |(_, psid)| psid), taken, log),
        None => None,
    };
    let remote = far_end(table, local, log);
    let policy = stateful::policy(table, Policy::default(), log);
    let softwire = settings(table, log);
    let inside_mtu = table.read_or("inside_mtu", 1500, log, ipv4_mtu);
    let tell_not_ours = table.read_or("tell_not_ours", false, log, Node::switch);
    let ((ipv4, node), (division, psid), (remote, name)) = (address?, set?, remote?);
    if inside.contains(ipv4) {
        log.mistake(node.problem("lies in \"inside\"; the hosts need addresses of their own"));
    }
    let ports = PortRanges::new(division.ranges(psid));
    let drafts = [Draft::of_one(node, ipv4, &ports)];
    let static_bindings = pool::read_static(table, &InsideEnd::Ipv4(&inside), drafts.as_slice().into(), log);
    if let Some(binding) = static_bindings.iter().find(|binding| !ports.contains(binding.outside.port.0))
        && let Some(node) = table.find("static")
    {
        let port = binding.outside.port.0;
        log.mistake(
            node.problem(format!("outside port {port} is not in the port set; choose one of {}", list(&ports))),
        );
    }
    let pool = pool::build(&drafts, &static_bindings, policy.protocols, taken.next_slot, log);
    taken.pools.extend(drafts);
    Some(Lwb4 {
        inside,
        ends: Softwire { local: local?, remote },
        far_end: name,
        nat: stateful::nat(table, pool, policy, static_bindings, log),
        softwire,
        inside_mtu,
        icmp_source: ipv4,
        tell_not_ours,
    })
}

fn lwaftr<'d>(table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> Lwaftr {
    let addresses = tunnels(table, taken, log);
    let ipv4 = claimed(table, taken, log);
    let hairpinning = table.read_or("hairpinning", true, log, Node::switch);
    let tell_unknown = table.read_or("tell_unknown", true, log, Node::switch);
    let tell_unreachable = table.read_or("tell_unreachable", true, log, Node::switch);
    let inbound_icmp = table.read_or("inbound_icmp", true, log, Node::switch);
    let table_of = softwires(table, &addresses, &ipv4, log);
    Lwaftr {
        softwire: settings(table, log),
        addresses,
        ipv4,
        table: table_of,
        hairpinning,
        tell_unknown,
        tell_unreachable,
        inbound_icmp,
    }
}

/// How packets cross the softwires.
pub(crate) fn settings(table: &Table<'_>, log: &mut Log) -> SoftwireSettings {
    const DONT_FRAGMENT: [(&str, DontFragment); 2] =
        [("obey", DontFragment::Obey), ("override", DontFragment::Override)];
    const FRAGMENTS: [(&str, Fragments); 2] = [("outer", Fragments::Outer), ("inner", Fragments::Inner)];
    let defaults = SoftwireSettings::default();
    let ipv6_mtu = table.read_or("ipv6_mtu", defaults.ipv6_mtu, log, |node| node.number32(1280..=65_535));
    SoftwireSettings {
        ipv6_mtu,
        hop_limit: table.read_or("hop_limit", defaults.hop_limit, log, |node| {
            Ok(u8::try_from(node.number32(1..=255)?).unwrap_or(u8::MAX))
        }),
        traffic_class: table.read_or("traffic_class", defaults.traffic_class, log, traffic_class),
        dont_fragment: table.read_or("dont_fragment", defaults.dont_fragment, log, |node| node.choice(&DONT_FRAGMENT)),
        fragments: table.read_or("fragments", defaults.fragments, log, |node| node.choice(&FRAGMENTS)),
        largest_segment: largest_segment(table, segment_size_of_softwire(ipv6_mtu), log),
    }
}

fn ipv4_mtu(node: &Node<'_>) -> Result<u32, Problem> {
    node.number32(68..=65_535)
}

fn read_inside<'d>(table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> AddressRanges {
    let inside = nat44::read_inside(table, taken.inside, log);
    let addresses = nat44::addresses(&inside);
    taken.inside.extend(inside);
    addresses
}

/// A tunnel address that no other service has.
fn tunnel<'d>(node: Node<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> Option<Ipv6Addr> {
    let address = log.keep(unicast(&node))?;
    if let Some((other, _)) = taken.tunnels.iter().find(|(_, other)| *other == address) {
        log.mistake(node.problem(format!("is the address of {} too; give each its own", other.path())));
    }
    taken.tunnels.push((node, address));
    Some(address)
}

fn require_tunnel<'d>(
    table: &Table<'d>,
    key: &'static str,
    taken: &mut Taken<'_, 'd>,
    log: &mut Log,
) -> Option<Ipv6Addr> {
    tunnel(table.require(key, log)?, taken, log)
}

fn tunnels<'d>(table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> Vec<Ipv6Addr> {
    let Some(node) = table.require("addresses", log) else { return Vec::new() };
    let items = log.keep(node.items()).unwrap_or_default();
    if items.is_empty() {
        log.mistake(node.problem("no tunnel address; add one, as \"2001:db8:ffff::1\""));
    }
    items.into_iter().filter_map(|item| tunnel(item, taken, log)).collect()
}

/// The other end, which cannot be this one: its address; or none yet, and its name.
fn far_end(table: &Table<'_>, local: Option<Ipv6Addr>, log: &mut Log) -> Option<(Ipv6Addr, Option<FarEndName>)> {
    let node = table.require("aftr", log)?;
    if let Some(name) = node.text().ok().and_then(FarEndName::new) {
        return Some((Ipv6Addr::UNSPECIFIED, Some(name)));
    }
    let remote = log.keep(far_address(&node))?;
    if Some(remote) == local {
        log.mistake(node.problem("is this end's own address; name the provider's end"));
    }
    Some((remote, None))
}

fn far_address(node: &Node<'_>) -> Result<Ipv6Addr, Problem> {
    let address = node.text()?.parse();
    let address = address.map_err(|_| {
        node.problem("neither an IPv6 address nor a name; write it as \"2001:db8:ffff::1\" or \"aftr.example.net\"")
    })?;
    check_far_end(address).map_err(|text| node.problem(text))?;
    Ok(address)
}

fn unicast(node: &Node<'_>) -> Result<Ipv6Addr, Problem> {
    let address = node.text()?.parse();
    let address: Ipv6Addr =
        address.map_err(|_| node.problem("not an IPv6 address; write it without a prefix length"))?;
    check_far_end(address).map_err(|text| node.problem(text))?;
    Ok(address)
}

/// Asks whether a softwire may end at an address.
///
/// # Errors
/// Why not.
pub fn check_far_end(address: Ipv6Addr) -> Result<(), &'static str> {
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() || address.is_unicast_link_local() {
        return Err("no softwire can end there; use a global or unique local address");
    }
    Ok(())
}

fn icmp_source(table: &Table<'_>, default: Ipv4Addr, log: &mut Log) -> Ipv4Addr {
    table.read_or("icmp_source", default, log, public)
}

fn public(node: &Node<'_>) -> Result<Ipv4Addr, Problem> {
    let range = value::addresses(node.text()?).map_err(|text| node.problem(text))?;
    if range.first != range.last {
        return Err(node.problem("several addresses; write one, as \"192.0.2.1\""));
    }
    Ok(range.first)
}

/// Where an AFTR's B4s may be.
fn b4_prefixes(table: &Table<'_>, own: Option<Ipv6Addr>, log: &mut Log) -> Networks {
    let Some(node) = table.require("b4s", log) else { return Networks::default() };
    let prefixes = networks::read(&node, log);
    if node.items().is_ok_and(|items| items.is_empty()) {
        log.mistake(node.problem("no B4 may come; add their prefix, as \"2001:db8:1000::/36\""));
    }
    for (item, prefix) in &prefixes {
        if own.is_some_and(|own| prefix.contains(own.to_bits())) {
            log.mistake(
                item.problem("contains the AFTR's own address, so that its packets could loop; leave that out"),
            );
        }
    }
    networks::all(&prefixes)
}

fn inner_sources(table: &Table<'_>, log: &mut Log) -> AddressRanges {
    let ranges = |texts: &[Addresses]| AddressRanges::new(texts.iter().map(|range| range.first..=range.last));
    let defaults: Vec<_> = PRIVATE.iter().filter_map(|text| value::addresses(text).ok()).collect();
    let Some(node) = table.find("inside") else { return ranges(&defaults) };
    let items = log.keep(node.items()).unwrap_or_default();
    let read = |item: &Node<'_>| value::addresses(item.text()?).map_err(|text| item.problem(text));
    let given: Vec<_> = items.iter().filter_map(|item| log.keep(read(item))).collect();
    ranges(&given)
}

/// Who reaches which destinations with an address of its own.
fn untranslated(table: &Table<'_>, end: &InsideEnd<'_>, drafts: &[Draft<'_>], log: &mut Log) -> Untranslated {
    let (destinations, exempt) = nat44::untranslated(table, log);
    let Some(node) = table.find("untranslated_hosts") else {
        if let Some(node) = table.find("untranslated") {
            log.mistake(node.problem(
                "no host is named that has an address of its own; add untranslated_hosts = [{ address = \"203.0.113.5\", \
                 softwire = \"2001:db8:1000::b4\" }]",
            ));
        }
        return Untranslated::default();
    };
    let mut hosts: Vec<(Ipv4Addr, Ipv6Addr)> = Vec::new();
    for item in log.keep(node.items()).unwrap_or_default() {
        let Some(host) = untranslated_host(&item, end, log) else { continue };
        if hosts.iter().any(|(other, _)| *other == host.0) {
            log.mistake(item.problem(format!("{} is named twice; one address has one softwire", host.0)));
        }
        if drafts.iter().any(|draft| draft.addresses.contains(host.0)) {
            log.mistake(item.problem(format!("{} is in the pool too; give the host another address", host.0)));
        }
        hosts.push(host);
    }
    Untranslated::new(destinations, exempt, hosts)
}

fn untranslated_host(item: &Node<'_>, end: &InsideEnd<'_>, log: &mut Log) -> Option<(Ipv4Addr, Ipv6Addr)> {
    let table = item.table(&UNTRANSLATED_HOST, log)?;
    let address = table.require("address", log).and_then(|node| {
        let address = log.keep(public(&node))?;
        log.keep(end.check_ipv4(address, &node))?;
        Some(address)
    });
    let softwire = pool::read_softwire(&table, end, log);
    Some((address?, softwire?))
}

/// The division of the ports, and this end's set.
fn port_set(table: &Table<'_>, log: &mut Log) -> Option<(PortDivision, u16)> {
    let bits = |key: &'static str, most: u32, log: &mut Log| {
        table.read_or(key, 0, log, |node| Ok(u8::try_from(node.number32(0..=most)?).unwrap_or_default()))
    };
    let (offset, length) = (bits("psid_offset", 15, log), bits("psid_length", 16, log));
    let psid = table.read_or("psid", 0, log, |node| Ok(u16::try_from(node.number32(0..=65_535)?).unwrap_or_default()));
    let node = table.find("psid").or_else(|| table.find("psid_length")).or_else(|| table.find("psid_offset"));
    match (check_set(offset, length, psid), node) {
        (Ok(division), _) => Some((division, psid)),
        (Err(text), Some(node)) => {
            log.mistake(node.problem(text));
            None
        }
        // Without any of the keys nothing can be wrong with them.
        (Err(_), None) => None,
    }
}

fn check_set(offset: u8, length: u8, psid: u16) -> Result<PortDivision, String> {
    let division = PortDivision::new(offset, length)
        .map_err(|_| format!("{offset} offset bits and {length} PSID bits are more than 16; make them fewer"))?;
    if u32::from(psid) >= division.sets() {
        return Err(format!("PSID {psid} does not fit {length} bits; use 0 to {}", division.sets() - 1));
    }
    Ok(division)
}

/// A lwB4's tunnel address: given, or made from its bind prefix.
fn own_address<'d>(
    table: &Table<'d>,
    ipv4: Ipv4Addr,
    psid: u16,
    taken: &mut Taken<'_, 'd>,
    log: &mut Log,
) -> Option<Ipv6Addr> {
    let Some(node) = table.find("bind_prefix") else { return require_tunnel(table, "address", taken, log) };
    if let Some(address) = table.find("address") {
        log.mistake(address.problem("follows from bind_prefix; remove one of the two"));
        return None;
    }
    let prefix = node.text().and_then(|text| parse_prefix::<u128>(text).map_err(|error| node.problem(error)));
    let prefix = log.keep(prefix)?;
    if prefix.prefix_len() > 64 {
        log.mistake(node.problem("longer than 64 bits (RFC 7596 section 5.1); use \"address\" for other addresses"));
        return None;
    }
    let address = b4_address(prefix, ipv4, psid);
    taken.tunnels.push((node, address));
    Some(address)
}

/// The subscribers' addresses of a lwAFTR, which no pool may have.
fn claimed<'d>(table: &Table<'d>, taken: &mut Taken<'_, 'd>, log: &mut Log) -> AddressRanges {
    let Some(node) = table.require("ipv4", log) else { return AddressRanges::default() };
    let items = log.keep(node.items()).unwrap_or_default();
    if items.is_empty() {
        log.mistake(node.problem("no addresses; add the subscribers' prefixes, as \"192.0.2.0/24\""));
    }
    let mut ranges = Vec::new();
    for item in items {
        let addresses = item.text().and_then(|text| value::addresses(text).map_err(|text| item.problem(text)));
        let Some(addresses) = log.keep(addresses) else { continue };
        if let Some(other) = taken.pools.iter().find(|other| other.addresses.overlaps(addresses)) {
            let text = format!("overlaps {}; give each service its own addresses", other.node.path());
            log.mistake(item.problem(text));
        }
        taken.pools.push(Draft::of_addresses(item, addresses));
        ranges.push(addresses.first..=addresses.last);
    }
    AddressRanges::new(ranges)
}

/// Where a row stands.
enum Origin<'o, 'd> {
    Item(&'o Node<'d>),
    Line(u32),
}

/// The rows of the file and of the key, in this order: rows of the configuration first.
fn softwires(table: &Table<'_>, addresses: &[Ipv6Addr], ipv4: &AddressRanges, log: &mut Log) -> SoftwireTable {
    let allowed = Allowed { addresses, ipv4 };
    let node = table.find("softwires");
    let items = node.as_ref().and_then(|node| log.keep(node.items())).unwrap_or_default();
    let inline: Vec<Option<SoftwireRow>> = items.iter().map(|item| row(item, &allowed, log)).collect();
    let file = table.find("softwires_file").and_then(|node| read_file(&node, &allowed, log));
    if node.is_none() && table.find("softwires_file").is_none() {
        log.mistake(table.node().problem("no softwires; add softwires or softwires_file, if only an empty one"));
    }
    let complete = inline.iter().all(Option::is_some);
    let mut rows: Vec<SoftwireRow> = inline.into_iter().flatten().collect();
    let first_of_file = rows.len();
    let (path, lines) = match file {
        Some(File { path, rows: more, lines }) => {
            rows.extend(more);
            (path, lines)
        }
        None => (PathBuf::new(), Vec::new()),
    };
    if !complete {
        return SoftwireTable::default();
    }
    warn_of_low_ports(table.node(), &rows, log);
    let origin = |row: usize| match row.checked_sub(first_of_file) {
        None => items.get(row).map(Origin::Item),
        Some(place) => lines.get(place).map(|&line| Origin::Line(line)),
    };
    match SoftwireTable::new(&rows) {
        Ok(table) => table,
        Err(error) => {
            log.mistake(explain(&error, origin, &path).unwrap_or_else(|| table.node().problem(&error)));
            SoftwireTable::default()
        }
    }
}

/// The error in terms of the file.
fn explain<'o, 'd: 'o>(
    error: &SoftwireTableError,
    origin: impl Fn(usize) -> Option<Origin<'o, 'd>>,
    file: &Path,
) -> Option<Problem> {
    let name = |row| match origin(row)? {
        Origin::Item(node) => Some(node.path().to_owned()),
        Origin::Line(line) => Some(format!("line {line} of {}", file.display())),
    };
    let (row, text) = match error {
        SoftwireTableError::Duplicate { first, second } => {
            (*second, format!("has the same address and port set as {}; remove one of them", name(*first)?))
        }
        SoftwireTableError::Division { first, second } => (
            *second,
            format!(
                "divides the ports of its address otherwise than {} (RFC 7597 section 5.1); give both the same \
                 psid_offset and psid_length",
                name(*first)?
            ),
        ),
        _ => return None,
    };
    Some(match origin(row)? {
        Origin::Item(node) => node.problem(text),
        Origin::Line(line) => at_line(file, line, text),
    })
}

/// RFC 7596 section 4: port sets with the well-known ports should not be given out.
fn warn_of_low_ports(node: &Node<'_>, rows: &[SoftwireRow], log: &mut Log) {
    let has_low = |row: &&SoftwireRow| {
        row.division.is_shared() && row.division.ranges(row.psid).next().is_some_and(|range| *range.start() < 1024)
    };
    let count = rows.iter().filter(has_low).count();
    if count > 0 {
        log.warning(node.problem(format!(
            "{count} softwires have well-known ports of a shared address (RFC 7596 section 4); leave the lowest PSIDs out"
        )));
    }
}

/// What a row may name.
struct Allowed<'a> {
    addresses: &'a [Ipv6Addr],
    ipv4: &'a AddressRanges,
}

impl Allowed<'_> {
    /// The row, or the column that is wrong, and reason and fix.
    fn row(&self, b4: Ipv6Addr, ipv4: Ipv4Addr, set: [u32; 3], aftr: Option<Ipv6Addr>) -> Result<SoftwireRow, Wrong> {
        let [offset, length, psid] = set;
        check_far_end(b4).map_err(|text| Wrong("b4", text.to_owned()))?;
        if !self.ipv4.contains(ipv4) {
            let text = "is not among the addresses under the service's key \"ipv4\"; add it there".to_owned();
            return Err(Wrong("ipv4", text));
        }
        let narrow = |bits: u32| u8::try_from(bits).unwrap_or(u8::MAX);
        let wide = u16::try_from(psid).map_err(|_| Wrong("psid", "out of range; use 0 to 65535".to_owned()))?;
        if offset > 15 || length > 16 {
            return Err(Wrong("psid_length", "out of range; use at most 15 offset bits and 16 PSID bits".to_owned()));
        }
        let division = check_set(narrow(offset), narrow(length), wide).map_err(|text| Wrong("psid", text))?;
        let local = aftr.or_else(|| self.addresses.first().copied()).unwrap_or(Ipv6Addr::UNSPECIFIED);
        if aftr.is_some_and(|aftr| !self.addresses.contains(&aftr)) {
            let text = "is not among the service's addresses; add it there".to_owned();
            return Err(Wrong("aftr", text));
        }
        Ok(SoftwireRow { ipv4, division, psid: wide, b4, local })
    }
}

/// A column, and what is wrong with it.
struct Wrong(&'static str, String);

fn row(item: &Node<'_>, allowed: &Allowed<'_>, log: &mut Log) -> Option<SoftwireRow> {
    let table = item.table(&SOFTWIRE, log)?;
    let b4 = table.require("b4", log).and_then(|node| log.keep(unicast(&node)));
    let ipv4 = table.require("ipv4", log).and_then(|node| log.keep(public(&node)));
    let mut number = |key, most| table.read_or(key, 0, log, |node| node.number32(0..=most));
    let set = [number("psid_offset", 15), number("psid_length", 16), number("psid", 65_535)];
    let aftr = table.read_or("aftr", None, log, |node| unicast(node).map(Some));
    match allowed.row(b4?, ipv4?, set, aftr) {
        Ok(row) => Some(row),
        Err(Wrong(key, text)) => {
            let node = table.find(key).unwrap_or_else(|| item.clone());
            log.mistake(node.problem(text));
            None
        }
    }
}

/// A file of softwires.
struct File {
    path: PathBuf,
    rows: Vec<SoftwireRow>,
    /// Line of each row.
    lines: Vec<u32>,
}

/// Reads the file that `node` names, relative to the configuration file.
fn read_file(node: &Node<'_>, allowed: &Allowed<'_>, log: &mut Log) -> Option<File> {
    let path = log.keep(node.beside())?;
    let text = std::fs::read_to_string(&path);
    log.reads(&path, text.as_deref().ok().map(Wording::digest));
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let text = format!("{} cannot be read ({error}); name a file of lines \"{COLUMNS}\"", path.display());
            log.mistake(node.problem(text));
            return None;
        }
    };
    let mut file = File { path, rows: Vec::new(), lines: Vec::new() };
    let mut mistakes = 0;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line == COLUMNS {
            continue;
        }
        match read_line(line, allowed) {
            Ok(row) => {
                file.rows.push(row);
                file.lines.push(number);
            }
            Err(text) => {
                mistakes += 1;
                if mistakes <= REPORTED {
                    log.mistake(at_line(&file.path, number, text));
                }
            }
        }
    }
    if mistakes > REPORTED {
        log.mistake(node.problem(format!("{} more lines of it are wrong; mend the first ones", mistakes - REPORTED)));
    }
    (mistakes == 0).then_some(file)
}

fn at_line(file: &Path, line: u32, text: String) -> Problem {
    let line = usize::try_from(line).unwrap_or_default();
    Problem { file: file.display().to_string(), line, place: String::new(), text }
}

/// `2001:db8:1::10,192.0.2.10,0,6,4` and an optional address of ours.
fn read_line(line: &str, allowed: &Allowed<'_>) -> Result<SoftwireRow, String> {
    let mut columns = line.split(',').map(str::trim);
    let mut column = |name: &'static str| columns.next().ok_or_else(|| format!("{name} is missing; write {COLUMNS}"));
    let (b4, ipv4) = (column("b4")?, column("ipv4")?);
    let set =
        [("psid_offset", column("psid_offset")?), ("psid_length", column("psid_length")?), ("psid", column("psid")?)];
    let aftr = columns.next().filter(|text| !text.is_empty());
    if columns.next().is_some() {
        return Err(format!("more than six columns; write {COLUMNS}"));
    }
    let ipv6 = |name: &str, text: &str| {
        text.parse::<Ipv6Addr>().map_err(|_| format!("{name} \"{text}\" is not an IPv6 address; write 2001:db8::1"))
    };
    let ipv4 = ipv4.parse().map_err(|_| format!("ipv4 \"{ipv4}\" is not an IPv4 address; write 192.0.2.1"))?;
    let mut numbers = [0; 3];
    for (number, (name, text)) in numbers.iter_mut().zip(set) {
        *number = text.parse().map_err(|_| format!("{name} \"{text}\" is not a number; write 0 to 65535"))?;
    }
    let aftr = aftr.map(|text| ipv6("aftr", text)).transpose()?;
    allowed.row(ipv6("b4", b4)?, ipv4, numbers, aftr).map_err(|Wrong(column, text)| format!("{column}: {text}"))
}

/// The first ranges of a port set, for an error.
fn list(ports: &PortRanges) -> String {
    let mut ranges: Vec<_> =
        ports.ranges().iter().take(4).map(|range| format!("{}-{}", range.start(), range.end())).collect();
    if ports.ranges().len() > ranges.len() {
        ranges.push("...".into());
    }
    ranges.join(", ")
}
