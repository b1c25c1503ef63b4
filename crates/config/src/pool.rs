//! `service.pool` and `service.static`: outside addresses, their ports, and fixed bindings on them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Owner, Pool, PoolRange, PortRanges, PortSpace};
use tombolo_engine::mechanism::napt::{Endpoint, Protocols};
use tombolo_engine::plan::StaticBinding;
use tombolo_tables::binding::InsideKey;
use tombolo_wire::{Port, Prefix64};

use crate::document::{Node, Table};
use crate::problem::{Log, Problem};
use crate::reference::{POOL, STATIC};
use crate::shared::{self, SharedPool};
use crate::value::{self, Addresses};

/// What is said of a host that is none of the service's.
const NOT_INSIDE: &str = "is not inside; add it to the key \"inside\", or use a host there";

/// What is said of another protocol on an address of the host.
pub(crate) const SHARED_ALONE: &str =
    "an address of the host itself is shared for TCP, UDP and ICMP alone; use an address that is the gateway's";

/// Addresses that share their ports, from one item of the file or several.
#[derive(Debug, Clone)]
pub(crate) struct Draft<'d> {
    /// The item's `addresses`.
    pub(crate) node: Node<'d>,
    pub(crate) addresses: Addresses,
    ports: EachSpace,
    /// Whom they are for: the item's `for`.
    pub(crate) hosts: Option<Node<'d>>,
}

/// Ports for each protocol, in the order of [`PortSpace::WITH_SLOTS`].
pub(crate) type EachSpace = [PortRanges; 3];

impl<'d> Draft<'d> {
    /// One address whose ports are `ports` for every protocol.
    pub(crate) fn of_one(node: Node<'d>, address: Ipv4Addr, ports: &PortRanges) -> Self {
        let addresses = Addresses { first: address, last: address };
        Self { node, addresses, ports: PortSpace::WITH_SLOTS.map(|_| ports.clone()), hosts: None }
    }

    /// Addresses that a service has without handing out their ports.
    pub(crate) fn of_addresses(node: Node<'d>, addresses: Addresses) -> Self {
        Self { node, addresses, ports: Default::default(), hosts: None }
    }
}

/// Reads the pool of the service `table`, but for addresses of the host; `others` are the pools of the services
/// before it.
pub(crate) fn read<'d>(table: &Table<'d>, others: &[Draft<'d>], log: &mut Log) -> Vec<Draft<'d>> {
    if table.find("masquerade").is_none()
        && let Some(node) = table.require("pool", log)
        && log.keep(node.items()).is_some_and(|items| items.is_empty())
    {
        log.mistake(node.problem("no addresses to hand out; add { addresses = \"192.0.2.0/28\" }"));
    }
    let mut drafts: Vec<Draft<'d>> = Vec::new();
    for item in items(table).into_iter().filter(|item| item.entry("interface").is_none()) {
        let Some(draft) = read_item(&item, log) else { continue };
        let result = add(&mut drafts, draft, others, table.node().path());
        log.keep(result);
    }
    drafts
}

/// The items of the pool of the service `table`.
pub(crate) fn items<'d>(table: &Table<'d>) -> Vec<Node<'d>> {
    table.find("pool").and_then(|node| node.items().ok()).unwrap_or_default()
}

fn read_item<'d>(item: &Node<'d>, log: &mut Log) -> Option<Draft<'d>> {
    let table = item.table(&POOL, log)?;
    let ports = ports(&table, 1024..=65_535, log);
    let node = table.require("addresses", log)?;
    let addresses = node.text().and_then(|text| value::addresses(text).map_err(|text| node.problem(text)));
    Some(Draft { node, addresses: log.keep(addresses)?, ports, hosts: table.find("for") })
}

/// The ports of an item of a pool, which are `usual` without `ports`.
pub(crate) fn ports(table: &Table<'_>, usual: RangeInclusive<u16>, log: &mut Log) -> EachSpace {
    let usual = PortRanges::new([usual]);
    let ports =
        table.read_or("ports", usual, log, |node| value::ports(node.text()?).map_err(|text| node.problem(text)));
    let spaces = table.read_or("protocols", PortSpace::WITH_SLOTS.to_vec(), log, protocols);
    PortSpace::WITH_SLOTS.map(|space| if spaces.contains(&space) { ports.clone() } else { PortRanges::default() })
}

fn protocols(node: &Node<'_>) -> Result<Vec<PortSpace>, Problem> {
    let named = PortSpace::WITH_SLOTS.map(|space| (space.name(), space));
    let spaces: Vec<_> = node.items()?.iter().map(|item| item.choice(&named)).collect::<Result<_, _>>()?;
    if spaces.is_empty() {
        return Err(node.problem("no protocol; name some, or leave the key out"));
    }
    Ok(spaces)
}

/// Adds an item to the pool: as a range of its own, or as further protocols of the same addresses.
fn add<'d>(drafts: &mut Vec<Draft<'d>>, draft: Draft<'d>, others: &[Draft<'d>], service: &str) -> Result<(), Problem> {
    let same = drafts.iter_mut().find(|other| other.addresses == draft.addresses);
    if let Some(same) = same.filter(|same| are_disjoint(&same.ports, &draft.ports)) {
        let texts = |draft: &Draft<'_>| draft.hosts.as_ref().map(Node::value_text).map(str::to_owned);
        if texts(same) != texts(&draft) {
            let text = "its addresses are for other hosts in another item, and an address is for the same ones with every protocol; give both the same \"for\"";
            return Err(draft.node.problem(text));
        }
        add_protocols(&mut same.ports, draft.ports);
        return Ok(());
    }
    let overlapping = drafts.iter().chain(others).find(|other| other.addresses.overlaps(draft.addresses));
    if let Some(other) = overlapping {
        let path = other.node.path();
        let path = path.strip_prefix(service).map_or(path, |rest| rest.trim_start_matches('.'));
        let path = path.trim_end_matches(".addresses");
        let text = other.node.text().unwrap_or_default();
        return Err(draft.node.problem(format!("overlaps {path} ({text}); remove one of them")));
    }
    drafts.push(draft);
    Ok(())
}

/// True if the two have no protocol in common.
pub(crate) fn are_disjoint(a: &EachSpace, b: &EachSpace) -> bool {
    a.iter().zip(b).all(|(a, b)| a.is_empty() || b.is_empty())
}

/// Adds protocols that `ports` does not have.
pub(crate) fn add_protocols(ports: &mut EachSpace, further: EachSpace) {
    for (ports, further) in ports.iter_mut().zip(further) {
        if !further.is_empty() {
            *ports = further;
        }
    }
}

/// The pool itself. Its slots in the outside index begin at `next_slot`, which moves on.
pub(crate) fn build(
    drafts: &[Draft<'_>],
    bindings: &[StaticBinding],
    protocols: Protocols,
    next_slot: &mut u32,
    log: &mut Log,
) -> Pool {
    let mut ranges = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let range = PoolRange {
            first: draft.addresses.first,
            last: draft.addresses.last,
            ports: draft.ports.clone(),
            span: span(draft, bindings, protocols),
            first_slot: *next_slot,
            owner: Owner::Gateway,
        };
        match range.slots().and_then(|slots| next_slot.checked_add(slots)) {
            Some(next) => *next_slot = next,
            None => log.mistake(draft.node.problem(
                "the pools need more than 4294967295 slots (addresses x 3 protocols x ports); give fewer addresses or ports",
            )),
        }
        ranges.push(range);
    }
    Pool::new(ranges)
}

/// From the lowest port that is handed out or bound to the highest. What has no ports has port 0.
fn span(draft: &Draft<'_>, bindings: &[StaticBinding], protocols: Protocols) -> RangeInclusive<u16> {
    let dynamic = draft.ports.iter().flat_map(PortRanges::ranges).flat_map(|range| [*range.start(), *range.end()]);
    let fixed =
        bindings.iter().map(|binding| binding.outside).filter(|outside| draft.addresses.contains(outside.address));
    let whole = protocols.iter().any(|space| !space.has_ports()).then_some(0);
    let ports: Vec<u16> = dynamic.chain(fixed.map(|outside| outside.port.0)).chain(whole).collect();
    ports.iter().min().copied().unwrap_or(1)..=ports.iter().max().copied().unwrap_or(1)
}

/// What the hosts are that a service's static bindings are for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InsideEnd<'a> {
    /// IPv6 hosts in `inside`, if that says any, and outside the prefix of the service, if that is known.
    Ipv6 { prefix: Option<Prefix64>, inside: &'a Networks },
    /// IPv4 hosts with these addresses.
    Ipv4(&'a AddressRanges),
    /// IPv4 hosts with addresses in `inside`, behind softwires that end in one of `b4s`.
    Softwire { b4s: &'a Networks, inside: &'a AddressRanges },
}

impl InsideEnd<'_> {
    fn read(&self, node: &Node<'_>) -> Result<(IpAddr, Port), Problem> {
        let text = node.text()?;
        let problem = |text: String| node.problem(text);
        match self {
            Self::Ipv6 { prefix, inside } => {
                let (address, port) = value::inside_endpoint(text).map_err(problem)?;
                if prefix.is_some_and(|prefix| prefix.contains(address)) {
                    return Err(node.problem("lies in the prefix of the service and would loop; use a host inside"));
                }
                if !inside.is_empty() && !inside.contains(address) {
                    return Err(node.problem(format!("{address} {NOT_INSIDE}")));
                }
                Ok((address.into(), port))
            }
            Self::Ipv4(_) | Self::Softwire { .. } => {
                let (address, port) = value::outside_endpoint(text).map_err(problem)?;
                self.check_ipv4(address, node)?;
                Ok((address.into(), port))
            }
        }
    }

    /// Whether a host inside may have this address.
    pub(crate) fn check_ipv4(&self, address: Ipv4Addr, node: &Node<'_>) -> Result<(), Problem> {
        match self {
            Self::Ipv4(inside) | Self::Softwire { inside, .. } if !inside.contains(address) => {
                Err(node.problem(format!("{address} {NOT_INSIDE}")))
            }
            _ => Ok(()),
        }
    }
}

/// The far end of the softwire that the host in `table` is behind; unspecified where there are none.
pub(crate) fn read_softwire(table: &Table<'_>, end: &InsideEnd<'_>, log: &mut Log) -> Option<Ipv6Addr> {
    let InsideEnd::Softwire { b4s, .. } = end else {
        if let Some(node) = table.find("softwire") {
            log.mistake(node.problem("the hosts of this service are behind no softwires; remove the key"));
        }
        return Some(Ipv6Addr::UNSPECIFIED);
    };
    let node = table.require("softwire", log)?;
    let address = node.text().and_then(|text| {
        text.parse::<Ipv6Addr>().map_err(|_| node.problem("not an IPv6 address; write it without a prefix length"))
    });
    let address = log.keep(address)?;
    if !b4s.contains(address) {
        log.mistake(node.problem("is in none of the prefixes of \"b4s\"; add its prefix there, or correct it"));
    }
    Some(address)
}

/// Where a service has outside addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outside<'a, 'd> {
    pub(crate) drafts: &'a [Draft<'d>],
    pub(crate) shared: &'a [SharedPool],
}

impl<'a, 'd> From<&'a [Draft<'d>]> for Outside<'a, 'd> {
    fn from(drafts: &'a [Draft<'d>]) -> Self {
        Self { drafts, shared: &[] }
    }
}

impl Outside<'_, '_> {
    fn read(&self, node: &Node<'_>) -> Result<(Ipv4Addr, Port), Problem> {
        let text = node.text()?;
        let found = shared::outside_endpoint(self.shared, text).unwrap_or_else(|| value::outside_endpoint(text));
        found.map_err(|text| node.problem(text))
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        shared::is_stand_in(address) || self.drafts.iter().any(|draft| draft.addresses.contains(address))
    }
}

/// Reads the static bindings of the service `table`, whose hosts are `inside_end`.
pub(crate) fn read_static(
    table: &Table<'_>,
    inside_end: &InsideEnd<'_>,
    outside: Outside<'_, '_>,
    log: &mut Log,
) -> Vec<StaticBinding> {
    let Some(node) = table.find("static") else { return Vec::new() };
    let (mut bindings, mut taken) = (Vec::new(), Taken::default());
    for item in log.keep(node.items()).unwrap_or_default() {
        let Some(first) = read_binding(&item, inside_end, outside, log) else { continue };
        for binding in expand(&item, &first, log) {
            match taken.duplicate(&binding) {
                Some(text) => {
                    log.mistake(item.problem(text));
                    break;
                }
                None => taken.add(&item, &binding),
            }
            bindings.push(binding);
        }
    }
    bindings
}

/// The bindings of an item with a `count`: `first`, and the ports behind.
fn expand(item: &Node<'_>, first: &StaticBinding, log: &mut Log) -> Vec<StaticBinding> {
    let Some(table) = item.table(&STATIC, &mut Log::default()) else { return Vec::new() };
    let last = if first.space.has_ports() { u16::MAX } else { 0 };
    let room = u32::from(last - first.inside_port.0.max(first.outside.port.0)) + 1;
    let count = table.read_or("count", 1, log, |node| node.number32(1..=room));
    let behind = |port: Port, n: u32| u16::try_from(u32::from(port.0) + n).ok().map(Port);
    let binding = |n| {
        let outside = Endpoint { port: behind(first.outside.port, n)?, ..first.outside };
        Some(StaticBinding { inside_port: behind(first.inside_port, n)?, outside, ..*first })
    };
    (0..count).filter_map(binding).collect()
}

/// Which endpoints the bindings so far have, and where in the file.
#[derive(Debug, Default)]
struct Taken {
    /// By whose slots they have.
    outside: HashMap<(PortSpace, Endpoint), String>,
    inside: HashMap<InsideKey, String>,
}

impl Taken {
    fn duplicate(&self, binding: &StaticBinding) -> Option<String> {
        if let Some(name) = self.outside.get(&(binding.space.slots(), binding.outside)) {
            return Some(format!("has the same outside endpoint as {name}; remove one of them"));
        }
        let name = self.inside.get(&binding.key(0))?;
        Some(format!("has the same inside endpoint as {name}; remove one of them"))
    }

    fn add(&mut self, item: &Node<'_>, binding: &StaticBinding) {
        let name = item.path().rsplit('.').next().unwrap_or_default().to_owned();
        self.outside.insert((binding.space.slots(), binding.outside), name.clone());
        self.inside.insert(binding.key(0), name);
    }
}

fn read_binding(
    item: &Node<'_>,
    inside_end: &InsideEnd<'_>,
    outside_end: Outside<'_, '_>,
    log: &mut Log,
) -> Option<StaticBinding> {
    let table = item.table(&STATIC, log)?;
    let protocol = table.require("protocol", log).and_then(|node| log.keep(node.choice(&PortSpace::names())));
    let inside = table.require("inside", log).and_then(|node| Some((log.keep(inside_end.read(&node))?, node)));
    let outside = table.require("outside", log).and_then(|node| Some((log.keep(outside_end.read(&node))?, node)));
    let softwire = read_softwire(&table, inside_end, log);
    let (space, ((inside, inside_port), inside_node), ((address, port), outside_node)) = (protocol?, inside?, outside?);
    log.keep(check_port(space, inside_port, &inside_node))?;
    log.keep(check_port(space, port, &outside_node))?;
    if shared::is_stand_in(address) && !PortSpace::WITH_SLOTS.contains(&space) {
        log.mistake(outside_node.problem(SHARED_ALONE));
        return None;
    }
    if !outside_end.has(address) {
        log.mistake(
            outside_node.problem(format!(
                "{address} is not in the pool of this service; add it there, or choose another address"
            )),
        );
        return None;
    }
    Some(StaticBinding { space, softwire: softwire?, inside, inside_port, outside: Endpoint { address, port } })
}

/// Zero is an identifier of ICMP, but no port; and stands for the port of what has none.
fn check_port(space: PortSpace, port: Port, node: &Node<'_>) -> Result<(), Problem> {
    if !space.has_ports() {
        let text = || format!("{} has no ports; write port 0", space.name());
        return if port.0 == 0 { Ok(()) } else { Err(node.problem(text())) };
    }
    if port.0 == 0 && space != PortSpace::Icmp {
        return Err(node.problem("port 0 cannot be used; choose one from 1 to 65535"));
    }
    Ok(())
}
