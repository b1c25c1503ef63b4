//! `for` of an item of `service.pool`: whom its addresses are for.

use std::net::Ipv4Addr;

use tombolo_engine::mapping::address_ranges::AddressRanges;
use tombolo_engine::mapping::allocation::Allocation;
use tombolo_engine::mapping::assigned::mapped;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::pool::Pool;
use tombolo_tables::lpm::Prefix;

use crate::document::Node;
use crate::pool::Draft;
use crate::problem::{Log, Problem};
use crate::stateful::Hosts;
use crate::stateless::fix;

/// The pool with what its items say of their hosts, who are some of `hosts`.
pub(crate) fn assign(pool: Pool, drafts: &[Draft<'_>], hosts: &Hosts<'_>, log: &mut Log) -> Pool {
    let mut assigned = Vec::new();
    for (draft, node) in drafts.iter().filter_map(|draft| Some((draft, draft.hosts.as_ref()?))) {
        if matches!(pool.allocation(), Allocation::Deterministic(_)) {
            log.mistake(node.problem(
                "shares are computed over all addresses of the pool; use a service of its own for these hosts, or \"blocks\"",
            ));
            continue;
        }
        let items = log.keep(node.items()).unwrap_or_default();
        if items.is_empty() {
            log.mistake(
                node.problem("names nobody, so that nobody gets these addresses; name hosts, or remove the key"),
            );
        }
        let span = (draft.addresses.first, draft.addresses.last);
        assigned.extend(items.iter().filter_map(|item| Some((log.keep(read(item, hosts))?, span))));
    }
    pool.with_assigned(assigned)
}

/// A prefix of hosts.
fn read(item: &Node<'_>, hosts: &Hosts<'_>) -> Result<Prefix<u128>, Problem> {
    let text = item.text()?;
    match hosts {
        Hosts::Ipv4(inside) => {
            let prefix: Prefix<u32> = parse_prefix(text).map_err(|error| item.problem(fix(&error)))?;
            if !covers(inside, prefix) {
                return Err(item.problem("is not inside; add it to the key \"inside\", or name hosts there"));
            }
            Ok(Prefix::covering(mapped(Ipv4Addr::from_bits(prefix.key())), 96 + prefix.prefix_len()))
        }
        Hosts::Ipv6 { prefix_length, inside: (key, networks) } => {
            let prefix: Prefix<u128> = parse_prefix(text).map_err(|error| item.problem(fix(&error)))?;
            if prefix.prefix_len() > *prefix_length {
                return Err(item.problem(format!(
                    "is a part of a subscriber, whose prefix has {prefix_length} bits; write a shorter one, or raise \
                     \"subscriber_prefix\""
                )));
            }
            if !networks.is_empty() && !networks.covers(prefix) {
                return Err(item.problem(format!("is not inside; add it to the key \"{key}\", or name hosts there")));
            }
            Ok(prefix)
        }
    }
}

fn covers(inside: &AddressRanges, prefix: Prefix<u32>) -> bool {
    let last = prefix.key() | u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
    let ends = [prefix.key(), last].map(Ipv4Addr::from_bits);
    inside.ranges().iter().any(|range| ends.iter().all(|end| range.contains(end)))
}
