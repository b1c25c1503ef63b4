//! What all services with bindings and sessions have in common: what subscribers may do, and in
//! which portions they get ports. `service.limits` and `service.allocation`.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv6Net;
use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::{Allocation, Blocks, Deterministic, Subscribers};
use tombolo_engine::mapping::deterministic::{DeterministicMap, Order};
use tombolo_engine::mapping::networks::Networks;
use tombolo_engine::mapping::pool::{Parity, Pool, PortRanges, PortSpace};
use tombolo_engine::mechanism::Helpers;
use tombolo_engine::mechanism::napt::{
    Filtering, Filters, InboundTcp, Nat, Policy, Protocols, Sessions, StaticBinding, SubscriberIs, UnsolicitedSyn,
};
use tombolo_tables::lpm::Prefix;
use tombolo_tables::tables::Budget;

use crate::document::{Node, Table};
use crate::pcp;
use crate::pool;
use crate::problem::{Log, Problem};
use crate::reference::{ALLOCATION, FILTERING, LIMITS};

/// Most subscribers of a deterministic mapping.
const MOST_SUBSCRIBERS: u64 = 1 << 24;

/// Fewest ports that the addresses of a pool must span for blocks.
const SPAN_FOR_BLOCKS: u32 = 128;

/// Reads what subscribers may do.
pub(crate) fn policy(table: &Table<'_>, defaults: Policy, log: &mut Log) -> Policy {
    const INBOUND_TCP: [(&str, InboundTcp); 2] = [("filtered", InboundTcp::Filtered), ("denied", InboundTcp::Denied)];
    const SESSIONS: [(&str, Sessions); 2] =
        [("where-they-decide", Sessions::WhereTheyDecide), ("kept", Sessions::Kept)];
    const UNSOLICITED: [(&str, UnsolicitedSyn); 2] = [("drop", UnsolicitedSyn::Drop), ("hold", UnsolicitedSyn::Hold)];
    let whole = |node: &Node<'_>| node.number32(1..=u32::MAX);
    let limit = |node: &Node<'_>| whole(node).map(Some);
    let mut policy = Policy {
        protocols: protocols(table, defaults.protocols, log),
        filtering: filters(table, defaults.filtering, log),
        inbound_tcp: table.read_or("inbound_tcp", defaults.inbound_tcp, log, |node| node.choice(&INBOUND_TCP)),
        sessions: table.read_or("sessions", defaults.sessions, log, |node| node.choice(&SESSIONS)),
        bindings_per_subscriber: table.read_or("bindings_per_subscriber", None, log, limit),
        parity: table.read_or("port_parity", defaults.parity, log, |node| {
            Ok(if node.switch()? { Parity::Preserve } else { Parity::Ignore })
        }),
        ..defaults
    };
    // Of an AFTR it is the prefix of softwires, which it reads itself.
    if table.allows("subscriber_prefix") && !table.allows("b4s") {
        let bits = table.read_or("subscriber_prefix", 128, log, |node| node.number32(32..=128));
        policy.subscriber = SubscriberIs::Host { prefix_length: u8::try_from(bits).unwrap_or(128) };
    }
    if table.allows("unsolicited_syn") {
        policy.unsolicited_syn =
            table.read_or("unsolicited_syn", defaults.unsolicited_syn, log, |node| node.choice(&UNSOLICITED));
    }
    if table.allows("helpers") {
        policy.helpers = table.read_or("helpers", defaults.helpers, log, helpers);
    }
    if table.allows("pcp")
        && let Some(node) = table.find("pcp")
    {
        policy.pcp = pcp::read(&node, log);
    }
    if table.allows("limits")
        && let Some(limits) = table.table("limits", &LIMITS, log)
    {
        policy.sessions_per_subscriber = limits.read_or("sessions", None, log, limit);
        policy.unanswered = Budget {
            of_binding: limits.read_or("unanswered_per_binding", defaults.unanswered.of_binding, log, whole),
            of_subscriber: limits.read_or("unanswered", defaults.unanswered.of_subscriber, log, whole),
        };
        policy.subscriber_rate = limits.read_or("new_subscribers_per_second", None, log, limit);
        policy.binding_rate = limits.read_or("new_bindings_per_second", None, log, |node| {
            let rate = node.number32(1..=32_767)?;
            Ok(u16::try_from(rate).ok())
        });
    }
    policy
}

/// What of applications is rewritten.
fn helpers(node: &Node<'_>) -> Result<Helpers, Problem> {
    let mut helpers = Helpers::default();
    for item in node.items()? {
        helpers = helpers.and(item.choice(&Helpers::NAMES)?);
    }
    Ok(helpers)
}

/// What is translated besides TCP, UDP and ICMP. Of addresses of the host, the kernel brings these alone.
fn protocols(table: &Table<'_>, defaults: Protocols, log: &mut Log) -> Protocols {
    if !table.allows("further_protocols") {
        return defaults;
    }
    let is_masqueraded = table.find("masquerade").is_some_and(|node| !matches!(node.switch(), Ok(false)));
    let is_shared = is_masqueraded || pool::items(table).iter().any(|item| item.entry("interface").is_some());
    let named = PortSpace::names().map(|(name, space)| (name, Some(space).filter(|space| !is_usual(*space))));
    let read = |node: &Node<'_>| {
        let mut further = Vec::new();
        for item in node.items()? {
            further.push(item.choice(&named)?.ok_or_else(|| item.problem("is translated in any case; remove it"))?);
        }
        match further.is_empty() || !is_shared {
            true => Ok(Protocols::with(further)),
            false => Err(node.problem(pool::SHARED_ALONE)),
        }
    };
    table.read_or("further_protocols", if is_shared { Protocols::with([]) } else { defaults }, log, read)
}

fn is_usual(space: PortSpace) -> bool {
    PortSpace::WITH_SLOTS.contains(&space)
}

/// The NAT, if its parts fit together.
pub(crate) fn nat(
    table: &Table<'_>,
    pool: Pool,
    policy: Policy,
    static_bindings: Vec<StaticBinding>,
    log: &mut Log,
) -> Nat {
    let node = if table.allows("further_protocols") { table.find("further_protocols") } else { None };
    let other = static_bindings.iter().map(|binding| binding.space).find(|space| !policy.protocols.has(*space));
    if let (Some(space), Some(place)) = (other, table.find("static")) {
        let remedy = if table.allows("further_protocols") { "add it to further_protocols, or " } else { "" };
        let name = space.name();
        log.mistake(place.problem(format!("{name} is not translated by this service; {remedy}remove the binding")));
    }
    let without_ports = policy.protocols.iter().find(|space| !space.has_ports());
    if let (Some(space), Some(node)) = (without_ports, node)
        && !matches!(pool.allocation(), Allocation::Ports)
    {
        log.mistake(node.problem(format!(
            "{} has no ports, so that blocks and shares of ports do not say who has sent it; remove it, or the allocation",
            space.name()
        )));
    }
    Nat { pool, policy, static_bindings }
}

/// One for all protocols, or a table with one for each.
fn filters(table: &Table<'_>, defaults: Filters, log: &mut Log) -> Filters {
    const WORDS: [(&str, Filtering); 2] =
        [("endpoint-independent", Filtering::EndpointIndependent), ("address-dependent", Filtering::AddressDependent)];
    match table.find("filtering") {
        Some(node) if node.is_table() => {
            let Some(table) = node.table(&FILTERING, log) else { return defaults };
            PortSpace::WITH_SLOTS.into_iter().fold(defaults, |filters, space| {
                let read = table.read_or(space.name(), defaults.of(space), log, |node| node.choice(&WORDS));
                filters.with(space, read)
            })
        }
        _ => table.read_or("filtering", defaults, log, |node| node.choice(&WORDS).map(Filters::from)),
    }
}

/// Who the subscribers of a service are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hosts<'a> {
    /// IPv4 hosts with these addresses.
    Ipv4(&'a AddressRanges),
    /// IPv6 prefixes of so many bits.
    Ipv6 {
        /// Bits that tell subscribers apart.
        prefix_length: u8,
        /// The key that says who is served, and what it says.
        inside: (&'a str, &'a Networks),
    },
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Ports,
    Blocks,
    Deterministic,
}

/// The pool, handed out as the file says.
pub(crate) fn allocation(table: &Table<'_>, pool: Pool, hosts: &Hosts<'_>, log: &mut Log) -> Pool {
    const MODES: [(&str, Mode); 3] =
        [("ports", Mode::Ports), ("blocks", Mode::Blocks), ("deterministic", Mode::Deterministic)];
    let Some(table) = table.table("allocation", &ALLOCATION, log) else { return pool };
    let mode = table.require("mode", log).and_then(|node| log.keep(node.choice(&MODES)));
    let blocks = Blocks {
        size: table.read_or("block_size", 512, log, |node| node.number32(64..=32_768)),
        most: table.read_or("blocks", 4, log, |node| node.number32(1..=4).map(|most| u8::try_from(most).unwrap_or(1))),
    };
    let has_blocks = table.find("block_size").is_some() || table.find("blocks").is_some();
    let allocation = match mode {
        None | Some(Mode::Ports) => return pool,
        Some(Mode::Blocks) => Allocation::Blocks(blocks),
        Some(Mode::Deterministic) => match deterministic(&table, &pool, hosts, has_blocks.then_some(blocks), log) {
            Some(shares) => Allocation::Deterministic(Arc::new(shares)),
            None => return pool,
        },
    };
    let uses_blocks = matches!(allocation, Allocation::Blocks(_)) || has_blocks;
    let narrow = |pool: &Pool| {
        let width = |range: &std::ops::RangeInclusive<u16>| u32::from(range.end() - range.start()) + 1;
        pool.ranges().iter().any(|range| width(&range.span) < SPAN_FOR_BLOCKS)
    };
    if uses_blocks && narrow(&pool) {
        log.mistake(table.node().problem(format!(
            "an address of the pool has fewer than {SPAN_FOR_BLOCKS} ports, too few for blocks; give it more ports"
        )));
    }
    pool.with_allocation(allocation)
}

fn deterministic(
    table: &Table<'_>,
    pool: &Pool,
    hosts: &Hosts<'_>,
    blocks: Option<Blocks>,
    log: &mut Log,
) -> Option<Deterministic> {
    const ORDERS: [(&str, Order); 2] =
        [("fill-address", Order::FillAddress), ("rotate-addresses", Order::RotateAddresses)];
    let order = table.read_or("order", Order::FillAddress, log, |node| node.choice(&ORDERS));
    let factor = table.read_or("dynamic_factor", 0, log, |node| node.number32(0..=65_535));
    let subscribers = match hosts {
        Hosts::Ipv4(addresses) => {
            if let Some(node) = table.find("inside") {
                log.mistake(
                    node.problem("the service takes its subscribers from its own key \"inside\"; remove this one"),
                );
            }
            Subscribers::Ipv4((*addresses).clone())
        }
        Hosts::Ipv6 { prefix_length, inside } => {
            let node = table.require("inside", log)?;
            log.keep(prefix_of_subscribers(&node, *prefix_length, *inside))?
        }
    };
    let ports = log.keep(common_ports(pool, table.node()))?;
    let addresses: Vec<Ipv4Addr> = (0..pool.addresses()).filter_map(|place| pool.address(place)).collect();
    let outside = addresses.len();
    let count = subscribers.count();
    let map = u32::try_from(count).ok().filter(|_| count <= MOST_SUBSCRIBERS).and_then(|hosts| {
        let first = Ipv4Addr::UNSPECIFIED;
        DeterministicMap::new(first, hosts, addresses, &ports.complement(), factor, order).ok()
    });
    if map.is_none() && outside > 0 {
        log.mistake(table.node().problem(format!(
            "{count} subscribers on {outside} outside addresses leave no port for each; give the pool more addresses, or \
             fewer subscribers"
        )));
    }
    Some(Deterministic::new(subscribers, map?, blocks))
}

fn prefix_of_subscribers(
    node: &Node<'_>,
    length: u8,
    (key, inside): (&str, &Networks),
) -> Result<Subscribers, Problem> {
    let net: Ipv6Net =
        node.text()?.parse().map_err(|_| node.problem("not an IPv6 prefix; write it as \"2001:db8::/48\""))?;
    if net.addr() != net.network() {
        return Err(node.problem(format!("bits are set behind the prefix length; write \"{}\"", net.trunc())));
    }
    if !inside.is_empty() && !inside.covers(Prefix::covering(net.network().to_bits(), net.prefix_len())) {
        return Err(node.problem(format!(
            "lies in no prefix of the service's \"{key}\", whose hosts alone may use it; give both the same"
        )));
    }
    let bits = length.checked_sub(net.prefix_len()).filter(|bits| 1_u64 << (*bits).min(63) <= MOST_SUBSCRIBERS);
    let Some(bits) = bits else {
        return Err(node.problem(format!(
            "does not hold 1 to {MOST_SUBSCRIBERS} subscribers with prefixes of {length} bits; change this prefix or \
             \"subscriber_prefix\""
        )));
    };
    Ok(Subscribers::Ipv6 { first: net.network(), length, count: 1 << bits })
}

/// The ports that all addresses have for all protocols: shares are the same everywhere.
fn common_ports(pool: &Pool, node: &Node<'_>) -> Result<PortRanges, Problem> {
    let mut all = pool.ranges().iter().flat_map(|range| &range.ports);
    let Some(first) = all.next() else { return Ok(PortRanges::default()) };
    if all.any(|ports| ports != first) {
        return Err(
            node.problem("the pool has different ports for different addresses or protocols; give all the same")
        );
    }
    Ok(first.clone())
}
