//! Subscribers one by one: those who have most, and all that one has and may have.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use serde::Serialize;
use tombolo_engine::Plan;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::pool::{PortSpace, block_ports};
use tombolo_engine::mechanism::napt::Nat;
use tombolo_tables::subscriber::SubscriberId;

use super::filter::{Filter, Matcher};
use super::rows::{Failure, Rows};
use crate::running::Running;
use crate::table_rows::SubscriberRow;

/// Subscribers that are shown of those who have most, unless another number is asked for.
const TOP: u64 = 10;

/// What a subscriber has, and what it may have.
#[derive(Debug, Serialize)]
struct DetailRow<'p> {
    #[serde(flatten)]
    subscriber: SubscriberRow<'p>,
    /// Bindings of each protocol.
    tcp: u64,
    udp: u64,
    icmp: u64,
    /// Of other protocols, together.
    #[serde(skip_serializing_if = "is_zero")]
    others: u64,
    /// Bindings that it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    most_bindings: Option<u32>,
    /// Sessions that count towards its limit, and that it may have; where there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_sessions: Option<u32>,
    /// Bindings that it may make in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    most_new_bindings_per_second: Option<u16>,
    /// What it has asked for with PCP, and may; where it may ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_mappings: Option<u32>,
    /// Blocks of ports that it has, and how many it may have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_blocks: Option<usize>,
    /// Limits that it has reached.
    reached: Vec<&'static str>,
}

/// All that the subscribers have that are wanted.
pub(crate) fn details(running: &Running, plan: &Plan, filter: &Filter, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let matcher = Matcher::new(filter, plan).map_err(Failure::Refused)?;
    let host = filter.inside.as_deref().and_then(|host| host.parse::<Ipv6Addr>().ok());
    let subscribers = &running.tables.subscribers;
    let mut wanted = Vec::new();
    for id in subscribers.iter() {
        if wanted.len() as u64 >= matcher.limit {
            break;
        }
        let Some((subscriber, touched)) = subscribers.read(id) else { continue };
        let row = SubscriberRow::of(plan, &subscriber, subscribers.bindings(id), touched, running.now());
        let nat = plan.service(subscriber.key.service).and_then(|service| service.kind.nat());
        let is_wanted = matcher.wants_subscriber(&row) || host.is_some_and(|host| has_host(&row, nat, host));
        if matcher.wants_service(subscriber.key.service) && is_wanted {
            wanted.push((id, nat, row));
        }
    }
    let counts = bindings_of(running, wanted.iter().map(|(id, ..)| *id));
    for (id, nat, row) in wanted {
        rows.row(&detail(running, nat, id, counts.get(&id).copied().unwrap_or_default(), row))?;
    }
    Ok(())
}

/// Bindings of a subscriber: TCP, UDP, ICMP, others.
type OfEach = [u64; 4];
const OTHERS: usize = 3;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Bindings of these subscribers. One look at all bindings, however many subscribers there are.
fn bindings_of(running: &Running, wanted: impl Iterator<Item = SubscriberId>) -> HashMap<SubscriberId, OfEach> {
    let mut counts: HashMap<_, _> = wanted.map(|id| (id, OfEach::default())).collect();
    let bindings = &running.tables.bindings;
    for (binding, _) in bindings.iter().filter_map(|id| bindings.read(id)) {
        let counts = SubscriberId::new(binding.subscriber).and_then(|id| counts.get_mut(&id));
        let place = PortSpace::WITH_SLOTS.iter().position(|space| space.protocol() == binding.inside.protocol);
        if let Some(counts) = counts {
            counts[place.unwrap_or(OTHERS)] += 1;
        }
    }
    counts
}

/// Whether a host is the subscriber's, where that is a whole network.
fn has_host(row: &SubscriberRow<'_>, nat: Option<&Nat>, host: Ipv6Addr) -> bool {
    let network = match (row.softwire, row.inside) {
        (Some(softwire), _) => softwire,
        (None, IpAddr::V6(inside)) => inside,
        (None, IpAddr::V4(_)) => return false,
    };
    let length = nat.map_or(128, |nat| nat.policy.subscriber.prefix_length());
    Ipv6Net::new(network, length).is_ok_and(|network| network.contains(&host))
}

fn detail<'p>(
    running: &Running,
    nat: Option<&Nat>,
    id: SubscriberId,
    [tcp, udp, icmp, others]: OfEach,
    subscriber: SubscriberRow<'p>,
) -> DetailRow<'p> {
    let tables = &running.tables;
    let policy = nat.map(|nat| nat.policy).unwrap_or_default();
    let sessions = policy.sessions_per_subscriber.map(|_| tables.subscribers.sessions(id));
    let blocks_of = nat.and_then(|nat| match nat.pool.allocation() {
        Allocation::Blocks(blocks) => Some(*blocks),
        Allocation::Deterministic(shares) => shares.blocks,
        Allocation::Ports => None,
    });
    let block = |place| {
        let ports = blocks_of.map(|blocks| block_ports(blocks.size, place))?;
        Some(format!("{}:{}-{}", subscriber.outside, ports.start(), ports.end()))
    };
    let blocks: Vec<String> = tables.subscribers.blocks(id).filter_map(block).collect();
    let most_blocks = blocks_of.map(|blocks| blocks.most());
    let is_reached = |has: u64, most: Option<u32>| most.is_some_and(|most| has >= most.into());
    let (mappings, most_mappings) = (tables.leases.open().count_of(id.get()), policy.pcp.map(|pcp| pcp.mappings));
    let reached = [
        ("mappings", is_reached(mappings.into(), most_mappings)),
        ("bindings", is_reached(subscriber.bindings, policy.bindings_per_subscriber)),
        ("sessions", is_reached(sessions.unwrap_or(0), policy.sessions_per_subscriber)),
        ("blocks", most_blocks.is_some_and(|most| blocks.len() >= most)),
    ];
    DetailRow {
        subscriber,
        tcp,
        udp,
        icmp,
        others,
        most_bindings: policy.bindings_per_subscriber,
        sessions,
        most_sessions: policy.sessions_per_subscriber,
        most_new_bindings_per_second: policy.binding_rate,
        mappings: most_mappings.map(|_| mappings),
        most_mappings,
        blocks,
        most_blocks,
        reached: reached.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect(),
    }
}

/// The subscribers with most bindings, in rows.
pub(crate) fn top(running: &Running, plan: &Plan, limit: Option<u64>, rows: &mut Rows<'_>) -> Result<(), Failure> {
    let most = usize::try_from(limit.unwrap_or(TOP)).unwrap_or(usize::MAX);
    most_bindings(running, plan, most).iter().try_for_each(|row| rows.row(row))
}

/// The `most` subscribers that have most bindings, the first of them first.
pub(crate) fn most_bindings<'p>(running: &Running, plan: &'p Plan, most: usize) -> Vec<SubscriberRow<'p>> {
    let subscribers = &running.tables.subscribers;
    let mut all: Vec<_> = subscribers.iter().map(|id| (subscribers.bindings(id), id)).collect();
    let place = most.min(all.len().saturating_sub(1));
    if !all.is_empty() {
        all.select_nth_unstable_by_key(place, |(count, _)| Reverse(*count));
    }
    all.truncate(most);
    all.sort_by_key(|(count, _)| Reverse(*count));
    let row = |(count, id)| {
        let (subscriber, touched) = subscribers.read(id)?;
        Some(SubscriberRow::of(plan, &subscriber, count, touched, running.now()))
    };
    all.into_iter().filter_map(row).collect()
}
