//! `[[service]]` of the kind `nat64`: who may use it.

use std::net::Ipv6Addr;

use tombolo_engine::mapping::networks::Networks;
use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

use crate::document::Table;
use crate::networks;
use crate::problem::Log;
use crate::relay::is_reached_by_anybody;

/// Reads `inside` of the service `table`, whose prefix is `prefix`, if that is known.
pub(crate) fn read_inside(table: &Table<'_>, prefix: Option<Prefix64>, log: &mut Log) -> Networks {
    let Some(node) = table.find("inside") else {
        warn_of_relay(table, prefix, log);
        return Networks::default();
    };
    let inside = networks::read(&node, log);
    if node.items().is_ok_and(|items| items.is_empty()) {
        log.mistake(node.problem(
            "nobody may use the service; add the prefix of those who may, as \"2001:db8::/32\", or remove the key",
        ));
    }
    for (item, network) in &inside {
        if prefix.is_some_and(|prefix| network.prefix_len() >= prefix.length() && prefix.contains(first(*network))) {
            log.mistake(item.problem("lies in the prefix of the service and would loop; name the hosts' own prefix"));
        }
    }
    networks::all(&inside)
}

/// Whoever the Internet brings to the prefix could send from the pool's addresses, and nobody would know
/// who it was.
fn warn_of_relay(table: &Table<'_>, prefix: Option<Prefix64>, log: &mut Log) {
    let Some((node, prefix)) = table.find("prefix").zip(prefix) else { return };
    if is_reached_by_anybody(prefix) {
        log.warning(node.problem(
            "is routed on the Internet, so that anybody may get here and use the pool (an open relay); name those who \
             may: inside = [\"2001:db8::/32\"]",
        ));
    }
}

fn first(network: Prefix<u128>) -> Ipv6Addr {
    Ipv6Addr::from_bits(network.key())
}
