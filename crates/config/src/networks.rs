//! Lists of IPv6 prefixes.

use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_engine::mapping::networks::Networks;
use tombolo_tables::lpm::Prefix;

use crate::document::Node;
use crate::problem::Log;
use crate::stateless::fix;

/// The prefixes of the list `node`, with where they stand; what is none is logged.
pub(crate) fn read<'d>(node: &Node<'d>, log: &mut Log) -> Vec<(Node<'d>, Prefix<u128>)> {
    let items = log.keep(node.items()).unwrap_or_default();
    let prefix = |item: &Node<'_>| parse_prefix(item.text()?).map_err(|error| item.problem(fix(&error)));
    items.into_iter().filter_map(|item| log.keep(prefix(&item)).map(|prefix| (item, prefix))).collect()
}

/// The addresses of all of them.
pub(crate) fn all(prefixes: &[(Node<'_>, Prefix<u128>)]) -> Networks {
    Networks::new(prefixes.iter().map(|(_, prefix)| *prefix))
}
