//! Which prefix a NAT64 uses, from what its DNS64 says about a name that has IPv4 addresses only.
//!
//! Read first: RFC 7050 section 3 (the heuristic), RFC 6052 section 2.2 (the places), RFC 8880 (the
//! name is special).
//!
//! `ipv4only.arpa` has the addresses 192.0.0.170 and 192.0.0.171. Whoever answers with IPv6
//! addresses has made them, by putting these into the prefix wanted.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

use crate::Prefix64;

/// The name to ask for.
pub const NAME: &str = "ipv4only.arpa";
/// Its IPv4 addresses (RFC 7050 section 2.2).
pub const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
/// Lengths that a prefix may have; the usual one first.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];

/// The prefixes in the IPv6 addresses of [`NAME`], without repetition, in the order of the
/// addresses. The first is to be preferred (RFC 7050 section 3).
#[must_use]
pub fn prefixes_in(answer: impl IntoIterator<Item = Ipv6Addr>) -> Vec<Prefix64> {
    let mut prefixes = Vec::new();
    for prefix in answer.into_iter().filter_map(prefix_of) {
        if !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// The prefix in one address: where one of the two well-known addresses stands, and stands only
/// once. If one of them is there twice the other decides (RFC 7050 section 3).
#[must_use]
pub fn prefix_of(address: Ipv6Addr) -> Option<Prefix64> {
    WELL_KNOWN.into_iter().find_map(|wanted| {
        let places: Vec<Prefix64> =
            LENGTHS.into_iter().filter_map(|length| prefix_at(address, length, wanted)).collect();
        match places.as_slice() {
            [only] if occurrences(address, wanted) <= 1 => Some(*only),
            _ => None,
        }
    })
}

/// The prefix of `length` bits, if `wanted` is embedded behind it.
fn prefix_at(address: Ipv6Addr, length: u8, wanted: Ipv4Addr) -> Option<Prefix64> {
    let network = Ipv6Net::new(address, length).ok()?.network();
    let prefix = Prefix64::new(network, length).ok()?;
    (prefix.extract(address) == Some(wanted)).then_some(prefix)
}

/// How often the four octets stand in a row anywhere in the address.
fn occurrences(address: Ipv6Addr, wanted: Ipv4Addr) -> usize {
    address.octets().windows(4).filter(|octets| **octets == wanted.octets()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix64 {
        let (address, length) = text.split_once('/').unwrap();
        Prefix64::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_prefix_of_any_length_is_found_in_either_address() {
        let lengths = [
            "64:ff9b::/96",
            "2001:db8:1:2::/64",
            "2001:db8:1:2ff::/64",
            "2001:db8:1:200::/56",
            "2001:db8:1::/48",
            "2001:db8:100::/40",
            "2001:db8::/32",
            "2001:db8:64:0:0:1::/96",
        ];
        for prefix in lengths.map(prefix) {
            for address in WELL_KNOWN {
                assert_eq!(prefix_of(prefix.embed(address)), Some(prefix));
            }
            let answer = WELL_KNOWN.map(|address| prefix.embed(address));
            assert_eq!(prefixes_in(answer), [prefix]);
        }
    }

    #[test]
    fn several_prefixes_keep_their_order() {
        let (one, other) = (prefix("2001:db8:a::/48"), prefix("64:ff9b::/96"));
        let answer = [one.embed(WELL_KNOWN[1]), other.embed(WELL_KNOWN[0]), one.embed(WELL_KNOWN[0])];
        assert_eq!(prefixes_in(answer), [one, other]);
    }

    #[test]
    fn what_is_ambiguous_is_decided_by_the_other_address_or_not_at_all() {
        // 192.0.0.170 stands in the prefix, too.
        let twice = prefix("2001:dc0:0:aa00::/96");
        assert_eq!(prefix_of(twice.embed(WELL_KNOWN[0])), None);
        assert_eq!(prefix_of(twice.embed(WELL_KNOWN[1])), Some(twice));
    }

    #[test]
    fn other_addresses_have_no_prefix() {
        for text in ["::", "2001:db8::1", "64:ff9b::192.0.2.1", "::ffff:0:0", "2001:db8::c000:ab:0:0"] {
            let address: Ipv6Addr = text.parse().unwrap();
            assert_eq!(prefix_of(address), None, "{text}");
        }
        assert_eq!(prefixes_in([]), []);
    }
}
