//! Prefixes that the Internet's routes lead to: whoever reaches a translator there could use it.

use std::net::Ipv6Addr;

use tombolo_tables::lpm::Prefix;
use tombolo_wire::Prefix64;

/// What is routed on the Internet (RFC 4291 section 2.4), and the parts of it that are for documentation
/// (RFC 3849, RFC 9637).
const GLOBAL: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const DOCUMENTATION: [(Ipv6Addr, u8); 2] =
    [(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20)];

/// True if anybody may get to the prefix.
pub(crate) fn is_reached_by_anybody(prefix: Prefix64) -> bool {
    let is_in = |(address, length): (Ipv6Addr, u8)| {
        Prefix::<u128>::covering(address.to_bits(), length).contains(prefix.address().to_bits())
    };
    is_in(GLOBAL) && !DOCUMENTATION.into_iter().any(is_in)
}
