//! The rules of a MAP domain, found by the longest match of either address.
//!
//! Read first: RFC 7597 sections 5 (which rule is selected) and 8.1; RFC 7599 section 5.
//!
//! Rules without EA bits, one a subscriber, may share an IPv4 address: they have different PSIDs
//! then, and the port decides among them.
//!
//! Invariants of a [`MapDomain`]: no two rules have the same IPv6 prefix; rules with the same IPv4
//! prefix have given PSIDs, all different, and divide ports alike.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tombolo_tables::lpm::{Frozen, LpmError, NextHop, Prefix, Route};

use super::map_rule::{MapRule, Share};
use super::port_set::PortOwner;

/// Rules, and how to find the one for an address. Immutable, and cheap to clone.
#[derive(Clone, Default)]
pub struct MapDomain {
    rules: Arc<[MapRule]>,
    index: Option<Index>,
}

#[derive(Clone)]
struct Index {
    /// To the number of a group.
    ipv4: Frozen<u32>,
    /// To the number of a rule.
    ipv6: Frozen<u128>,
    groups: Arc<[Group]>,
}

/// The rules of one IPv4 prefix.
#[derive(Debug)]
enum Group {
    One(u32),
    /// By ascending PSID.
    ByPsid(Box<[(u16, u32)]>),
}

/// Why rules cannot be together in a domain.
#[derive(Debug, thiserror::Error)]
pub enum MapDomainError {
    /// Two rules have the same IPv6 prefix.
    #[error("rule {second} has the IPv6 prefix {prefix} of rule {first}; remove one of them")]
    SameIpv6 {
        /// The prefix.
        prefix: Prefix<u128>,
        /// Number of the first rule, from 0.
        first: usize,
        /// Number of the second rule, from 0.
        second: usize,
    },
    /// Two rules have the same IPv4 prefix and nothing tells their ports apart.
    #[error(
        "rule {second} has the IPv4 prefix {prefix} of rule {first}, and ports of its own do not tell them apart; \
         remove one of them, or give both PSIDs of the same length and offset (RFC 7597 section 5.1)"
    )]
    SameIpv4 {
        /// The prefix.
        prefix: Prefix<u32>,
        /// Number of the first rule, from 0.
        first: usize,
        /// Number of the second rule, from 0.
        second: usize,
    },
    /// More rules than a table can number, or no memory for them.
    #[error("the table cannot be made")]
    Table(#[source] LpmError),
}

/// Whose an IPv4 address and port are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressOwner {
    /// A subscriber's.
    Subscriber {
        /// Number of the rule, from 0.
        rule: u32,
        /// What belongs to the subscriber.
        share: Share,
        /// The subscriber's MAP address.
        address: Ipv6Addr,
    },
    /// The address is in the domain, the port is nobody's.
    Nobody,
    /// The address is not in the domain.
    Outside,
}

impl MapDomain {
    /// A domain of `rules`.
    ///
    /// # Errors
    /// [`MapDomainError`].
    pub fn new(rules: Vec<MapRule>) -> Result<Self, MapDomainError> {
        if rules.is_empty() {
            return Ok(Self::default());
        }
        let ipv6 = index_ipv6(&rules)?;
        let (ipv4, groups) = index_ipv4(&rules)?;
        Ok(Self { rules: rules.into(), index: Some(Index { ipv4, ipv6, groups: groups.into() }) })
    }

    /// The rules, in the order given.
    #[must_use]
    pub fn rules(&self) -> &[MapRule] {
        &self.rules
    }

    /// True if a rule has the IPv4 address.
    #[must_use]
    #[inline]
    pub fn contains_ipv4(&self, address: Ipv4Addr) -> bool {
        self.group_of(address).is_some()
    }

    /// The rule with the longest IPv6 prefix around `address`, and its number.
    #[must_use]
    #[inline]
    pub fn rule_of_ipv6(&self, address: Ipv6Addr) -> Option<(u32, &MapRule)> {
        let number = self.index.as_ref()?.ipv6.lookup(address.to_bits())?.next_hop().number();
        Some((number, &self.rules[number as usize]))
    }

    /// The rule with the longest IPv4 prefix around `address` whose subscribers have whole
    /// addresses, so that no port has to be known; and its number.
    #[must_use]
    #[inline]
    pub fn unshared_rule_of_ipv4(&self, address: Ipv4Addr) -> Option<(u32, &MapRule)> {
        let Group::One(number) = self.group_of(address)? else { return None };
        let rule = &self.rules[*number as usize];
        (!rule.division().is_shared()).then_some((*number, rule))
    }

    /// Whose `port` of `address` is (RFC 7597 section 5.3).
    #[must_use]
    #[inline]
    pub fn owner(&self, address: Ipv4Addr, port: u16) -> AddressOwner {
        let Some(group) = self.group_of(address) else { return AddressOwner::Outside };
        let number = match group {
            Group::One(number) => Some(*number),
            Group::ByPsid(members) => self.member(members, port),
        };
        let Some(number) = number else { return AddressOwner::Nobody };
        let rule = &self.rules[number as usize];
        match rule.share_of(address, port) {
            Some(share) => AddressOwner::Subscriber { rule: number, share, address: rule.map_address(share) },
            None => AddressOwner::Nobody,
        }
    }

    /// As [`owner`](Self::owner), where the packet may have no port; then only whole addresses have
    /// an owner.
    #[must_use]
    #[inline]
    pub fn owner_of(&self, address: Ipv4Addr, port: Option<u16>) -> AddressOwner {
        match port {
            Some(port) => self.owner(address, port),
            None if self.unshared_rule_of_ipv4(address).is_some() => self.owner(address, 0),
            None if self.contains_ipv4(address) => AddressOwner::Nobody,
            None => AddressOwner::Outside,
        }
    }

    /// The rule around `address`, the subscriber and the host that it stands for in translation;
    /// see [`MapRule::host_at`].
    #[must_use]
    #[inline]
    pub fn host_at(&self, address: Ipv6Addr) -> Option<(&MapRule, Share, Ipv4Addr)> {
        let (_, rule) = self.rule_of_ipv6(address)?;
        let (share, host) = rule.host_at(address)?;
        Some((rule, share, host))
    }

    /// As [`host_at`](Self::host_at), for an address that an ICMP error quotes; see
    /// [`MapRule::host_near`].
    #[must_use]
    pub fn host_near(&self, address: Ipv6Addr) -> Option<(&MapRule, Share, Ipv4Addr)> {
        let (_, rule) = self.rule_of_ipv6(address)?;
        let (share, host) = rule.host_near(address)?;
        Some((rule, share, host))
    }

    /// The rule among those of one address whose PSID has `port`.
    fn member(&self, members: &[(u16, u32)], port: u16) -> Option<u32> {
        let division = self.rules[members.first()?.1 as usize].division();
        let PortOwner::Psid(psid) = division.owner(port) else { return None };
        let place = members.binary_search_by_key(&psid, |(psid, _)| *psid).ok()?;
        Some(members[place].1)
    }

    #[inline]
    fn group_of(&self, address: Ipv4Addr) -> Option<&Group> {
        let index = self.index.as_ref()?;
        let number = index.ipv4.lookup(address.to_bits())?.next_hop().number();
        Some(&index.groups[number as usize])
    }
}

impl fmt::Debug for MapDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapDomain({} rules)", self.rules.len())
    }
}

fn next_hop(number: usize) -> Result<NextHop, MapDomainError> {
    NextHop::new(u32::try_from(number).unwrap_or(u32::MAX)).map_err(MapDomainError::Table)
}

fn index_ipv6(rules: &[MapRule]) -> Result<Frozen<u128>, MapDomainError> {
    let mut seen = HashMap::with_capacity(rules.len());
    let mut routes = Vec::with_capacity(rules.len());
    for (second, rule) in rules.iter().enumerate() {
        let prefix = rule.ipv6();
        if let Some(first) = seen.insert(prefix, second) {
            return Err(MapDomainError::SameIpv6 { prefix, first, second });
        }
        routes.push(Route { prefix, next_hop: next_hop(second)? });
    }
    Frozen::build("map-ipv6", &routes).map_err(MapDomainError::Table)
}

fn index_ipv4(rules: &[MapRule]) -> Result<(Frozen<u32>, Vec<Group>), MapDomainError> {
    let mut members: HashMap<Prefix<u32>, Vec<usize>> = HashMap::with_capacity(rules.len());
    for (number, rule) in rules.iter().enumerate() {
        members.entry(rule.ipv4()).or_default().push(number);
    }
    let mut groups = Vec::with_capacity(members.len());
    let mut routes = Vec::with_capacity(members.len());
    for (prefix, numbers) in members {
        routes.push(Route { prefix, next_hop: next_hop(groups.len())? });
        groups.push(group(rules, prefix, &numbers)?);
    }
    let table = Frozen::build("map-ipv4", &routes).map_err(MapDomainError::Table)?;
    Ok((table, groups))
}

/// The rules `numbers`, at least one, of one prefix.
fn group(rules: &[MapRule], prefix: Prefix<u32>, numbers: &[usize]) -> Result<Group, MapDomainError> {
    let row = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let first = numbers[0];
    if numbers.len() == 1 && rules[first].given_psid().is_none() {
        return Ok(Group::One(row(first)));
    }
    let mut by_psid: Vec<(u16, u32)> = Vec::with_capacity(numbers.len());
    let mut seen = HashMap::with_capacity(numbers.len());
    for &second in numbers {
        let rule = &rules[second];
        let alike = rule.division() == rules[first].division();
        let Some(psid) = rule.given_psid().filter(|_| alike) else {
            let second = if second == first { numbers[1] } else { second };
            return Err(MapDomainError::SameIpv4 { prefix, first, second });
        };
        if let Some(first) = seen.insert(psid, second) {
            return Err(MapDomainError::SameIpv4 { prefix, first, second });
        }
        by_psid.push((psid, row(second)));
    }
    by_psid.sort_unstable();
    Ok(Group::ByPsid(by_psid.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::eam::parse_prefix;
    use crate::mapping::map_rule::GivenPsid;

    fn rule(ipv6: &str, ipv4: &str, ea_bits: u8, given: Option<(u8, u16)>) -> MapRule {
        let given = given.map(|(bits, psid)| GivenPsid { bits, psid });
        MapRule::new(parse_prefix(ipv6).unwrap(), parse_prefix(ipv4).unwrap(), ea_bits, 6, given).unwrap()
    }

    fn address_of(domain: &MapDomain, address: [u8; 4], port: u16) -> Option<Ipv6Addr> {
        match domain.owner(address.into(), port) {
            AddressOwner::Subscriber { address, .. } => Some(address),
            AddressOwner::Nobody | AddressOwner::Outside => None,
        }
    }

    #[test]
    fn the_longest_prefix_decides_on_either_side() {
        let domain = MapDomain::new(vec![
            rule("2001:db8::/32", "192.0.2.0/24", 16, None),
            rule("2001:db8:ff00::/40", "192.0.2.16/28", 12, None),
        ]);
        let domain = domain.unwrap();
        let found = |text: &str| domain.rule_of_ipv6(text.parse().unwrap()).map(|(number, _)| number);
        assert_eq!(found("2001:db8:ff00::1"), Some(1));
        assert_eq!(found("2001:db8:fe00::1"), Some(0));
        assert_eq!(found("2001:db9::1"), None);
        let AddressOwner::Subscriber { rule, .. } = domain.owner([192, 0, 2, 18].into(), 1232) else { panic!() };
        assert_eq!(rule, 1);
        assert_eq!(domain.owner([192, 0, 2, 18].into(), 80), AddressOwner::Nobody);
        assert_eq!(domain.owner([192, 0, 3, 18].into(), 80), AddressOwner::Outside);
        assert_eq!(domain.unshared_rule_of_ipv4([192, 0, 2, 18].into()), None);
    }

    #[test]
    fn the_port_decides_among_subscribers_of_one_address() {
        let domain = MapDomain::new(vec![
            rule("2001:db8:1::/56", "192.0.2.18", 0, Some((8, 0x34))),
            rule("2001:db8:2::/56", "192.0.2.18", 0, Some((8, 0x35))),
            rule("2001:db8:3::/56", "192.0.2.19", 0, None),
        ]);
        let domain = domain.unwrap();
        let expected: Ipv6Addr = "2001:db8:1::c000:212:34".parse().unwrap();
        assert_eq!(address_of(&domain, [192, 0, 2, 18], 1232), Some(expected));
        let expected: Ipv6Addr = "2001:db8:2::c000:212:35".parse().unwrap();
        assert_eq!(address_of(&domain, [192, 0, 2, 18], 1236), Some(expected));
        assert_eq!(domain.owner([192, 0, 2, 18].into(), 1240), AddressOwner::Nobody);
        let expected: Ipv6Addr = "2001:db8:3::c000:213:0".parse().unwrap();
        assert_eq!(address_of(&domain, [192, 0, 2, 19], 80), Some(expected));
        assert!(domain.unshared_rule_of_ipv4([192, 0, 2, 19].into()).is_some());
    }

    #[test]
    fn rules_that_nothing_tells_apart_are_refused() {
        let same6 = MapDomain::new(vec![
            rule("2001:db8::/32", "192.0.2.0/24", 8, None),
            rule("2001:db8::/32", "192.0.3.0/24", 8, None),
        ]);
        assert!(matches!(same6, Err(MapDomainError::SameIpv6 { first: 0, second: 1, .. })));
        for (one, other) in
            [(None, None), (Some((8, 1)), Some((8, 1))), (Some((8, 1)), Some((7, 2))), (None, Some((8, 1)))]
        {
            let same4 = MapDomain::new(vec![
                rule("2001:db8:1::/56", "192.0.2.18", 0, one),
                rule("2001:db8:2::/56", "192.0.2.18", 0, other),
            ]);
            assert!(matches!(same4, Err(MapDomainError::SameIpv4 { first: 0, second: 1, .. })), "{one:?} {other:?}");
        }
    }

    #[test]
    fn thousands_of_rules_are_as_one() {
        let rules: Vec<MapRule> = (0..5000_u32)
            .map(|n| {
                let ipv6 = Prefix::covering(0x2001_0db8 << 96 | u128::from(n) << 80, 48);
                MapRule::new(ipv6, Prefix::covering(0x0a00_0000 | n << 8, 24), 16, 6, None).unwrap()
            })
            .collect();
        let domain = MapDomain::new(rules.clone()).unwrap();
        for (number, rule) in rules.iter().enumerate() {
            let address = Ipv4Addr::from_bits(rule.ipv4().key() | 7);
            let share = rule.share_of(address, 2000).unwrap();
            let number = u32::try_from(number).unwrap();
            let expected = AddressOwner::Subscriber { rule: number, share, address: rule.map_address(share) };
            assert_eq!(domain.owner(address, 2000), expected);
            assert_eq!(domain.rule_of_ipv6(rule.map_address(share)).map(|(found, _)| found), Some(number));
        }
    }
}
