//! The names that are asked for: `AAA-BBB-CCC-DDD.dns64perf.test`, whose A record is the address that
//! it spells. Each is asked for once, so that no resolver knows it, but for those that it is to know.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr as _;

use hickory_proto::rr::Name;
use serde::Serialize;

/// Parts of the queries, percent (RFC 8219 section 9.1: 0 and 0 are required, others are optional).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shares {
    /// For names that the resolver has been asked for before.
    pub cached: u32,
    /// For names that have an AAAA record, so that nothing is synthesized.
    pub with_aaaa: u32,
}

/// The zone.
const ZONE: &str = "dns64perf.test";
/// Name 0 is 11-000-000-000.
const FIRST: u32 = 11 << 24;
/// So many names are asked for again and again.
const KNOWN: u32 = 100;
/// Odd, so that numbers spread over all parts of a hundred.
const SPREAD: u32 = 2_654_435_761;

/// The names of a measurement, in order.
#[derive(Clone, Debug)]
pub struct Names {
    pub(super) shares: Shares,
    /// Under which the resolver synthesizes, a /96.
    prefix: Ipv6Addr,
    /// The next one that nobody knows.
    next: u32,
}

impl Names {
    /// From the first name that is not among those that the resolver is to know.
    pub fn new(shares: Shares, prefix: Ipv6Addr) -> Names {
        Names { shares, prefix, next: KNOWN }
    }

    /// The name of query `number`.
    pub(super) fn choose(&mut self, number: u64) -> u32 {
        let number = u32::try_from(number & 0xffff_ffff).unwrap_or(0);
        // In every hundred as many as the share says, evenly spread: 61 and 100 have no common divisor.
        if number % 100 * 61 % 100 < self.shares.cached {
            return number % KNOWN;
        }
        self.next += 1;
        self.next
    }

    /// Those that the resolver is to know; none where it is to know none.
    pub(super) fn known(&self) -> impl Iterator<Item = u32> + use<> {
        0..if self.shares.cached == 0 { 0 } else { KNOWN }
    }

    /// The right answer to a query for the AAAA record of a name.
    pub(super) fn expected(&self, name: u32) -> Ipv6Addr {
        own_aaaa(self.shares, name)
            .unwrap_or_else(|| Ipv6Addr::from_bits(self.prefix.to_bits() | u128::from(address(name).to_bits())))
    }
}

/// The A record of a name.
pub(super) fn address(name: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.wrapping_add(name))
}

/// Its own AAAA record, if it has one.
pub(super) fn own_aaaa(shares: Shares, name: u32) -> Option<Ipv6Addr> {
    let has_one = name.wrapping_mul(SPREAD) % 100 < shares.with_aaaa;
    has_one.then(|| Ipv6Addr::from_bits(0x2001_0db8_aaaa << 80 | u128::from(name)))
}

/// A name as it is asked for.
pub(super) fn spelled(name: u32) -> Option<Name> {
    let [a, b, c, d] = address(name).octets();
    Name::from_ascii(format!("{a:03}-{b:03}-{c:03}-{d:03}.{ZONE}.")).ok()
}

/// Which name a question is for; none for what is not of the zone.
pub(super) fn number_of(name: &Name) -> Option<u32> {
    let text = name.to_ascii().to_ascii_lowercase();
    let label = text.trim_end_matches('.').strip_suffix(ZONE)?.strip_suffix('.')?;
    let mut parts = label.split('-').map(u8::from_str);
    let octets: Vec<u8> = parts.by_ref().collect::<Result<_, _>>().ok()?;
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(Ipv4Addr::from(octets).to_bits().wrapping_sub(FIRST))
}

/// The zone's own name.
pub(super) fn zone() -> Option<Name> {
    Name::from_ascii(format!("{ZONE}.")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_and_read_back() {
        for name in [0, 1, 255, 256, 70_000, 16_777_216] {
            assert_eq!(number_of(&spelled(name).unwrap()), Some(name));
        }
        assert_eq!(spelled(258).unwrap().to_ascii(), "011-000-001-002.dns64perf.test.");
        for other in ["dns64perf.test.", "011-000-001.dns64perf.test.", "011-000-001-002.example."] {
            assert_eq!(number_of(&Name::from_ascii(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn shares_are_what_they_say_and_other_names_are_new() {
        let prefix = "64:ff9b::".parse().unwrap();
        for (cached, with_aaaa) in [(0, 0), (20, 40), (100, 100)] {
            let mut names = Names::new(Shares { cached, with_aaaa }, prefix);
            let asked: Vec<u32> = (0..10_000).map(|number| names.choose(number)).collect();
            let known = asked.iter().filter(|name| **name < KNOWN).count();
            assert_eq!(known, cached as usize * 100);
            let mut new: Vec<u32> = asked.into_iter().filter(|name| *name >= KNOWN).collect();
            let count = new.len();
            new.dedup();
            assert_eq!(new.len(), count);
            let own = (0..10_000).filter(|name| own_aaaa(names.shares, *name).is_some()).count();
            assert!(own.abs_diff(with_aaaa as usize * 100) < 200, "{own} of 10000 for {with_aaaa} %");
        }
        let names = Names::new(Shares::default(), prefix);
        assert_eq!(names.expected(258), "64:ff9b::11.0.1.2".parse::<Ipv6Addr>().unwrap());
    }
}
