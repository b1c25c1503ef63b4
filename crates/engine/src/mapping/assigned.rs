//! Addresses of a pool that are for certain hosts alone.
//!
//! A host has the addresses that are for the longest prefix around it; who is in none of the prefixes has
//! those that are for nobody in particular. It is asked when a subscriber is admitted, which then stays on
//! its address, and when a plan takes another one's place.

use std::net::Ipv4Addr;

use tombolo_tables::lpm::Prefix;
use tombolo_tables::subscriber::SubscriberKey;

/// Addresses from the first to the last.
pub type Span = (Ipv4Addr, Ipv4Addr);

/// Which addresses are for whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assigned {
    /// By falling length of the prefixes. IPv4 hosts are those of ::ffff:0:0/96.
    groups: Vec<(Prefix<u128>, Vec<Span>)>,
    /// What is for nobody in particular.
    rest: Vec<Span>,
}

impl Assigned {
    /// `addresses` are for the hosts of the prefix beside them, IPv4 hosts as [`mapped`] has them; of `all`
    /// the others are for those who are in none.
    #[must_use]
    pub fn new(assigned: impl IntoIterator<Item = (Prefix<u128>, Span)>, all: impl IntoIterator<Item = Span>) -> Self {
        let mut groups: Vec<(Prefix<u128>, Vec<Span>)> = Vec::new();
        for (prefix, span) in assigned {
            match groups.iter_mut().find(|(other, _)| *other == prefix) {
                Some((_, spans)) => spans.push(span),
                None => groups.push((prefix, vec![span])),
            }
        }
        groups.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        let mut this = Self { groups, rest: Vec::new() };
        this.rest = all.into_iter().flat_map(|span| this.without_assigned(span)).collect();
        this
    }

    /// The same of other addresses.
    #[must_use]
    pub fn of(&self, all: impl IntoIterator<Item = Span>) -> Self {
        Self::new(self.assignments(), all)
    }

    /// True if all addresses are for everybody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The prefixes, each with addresses that are for its hosts.
    pub fn assignments(&self) -> impl Iterator<Item = (Prefix<u128>, Span)> + '_ {
        self.groups.iter().flat_map(|(prefix, spans)| spans.iter().map(|span| (*prefix, *span)))
    }

    /// The addresses that a subscriber may have.
    pub(super) fn spans(&self, key: &SubscriberKey) -> &[Span] {
        let ipv6 = u128::from_be_bytes(key.ipv6);
        let host = if ipv6 == 0 { mapped(key.ipv4.into()) } else { ipv6 };
        let group = self.groups.iter().find(|(prefix, _)| prefix.contains(host));
        group.map_or(&self.rest, |(_, spans)| spans)
    }

    /// The parts of a span that are for nobody in particular.
    fn without_assigned(&self, (first, last): Span) -> Vec<Span> {
        let mut taken: Vec<Span> = self.assignments().map(|(_, span)| span).collect();
        taken.sort_unstable();
        let mut parts = Vec::new();
        let mut next = Some(first.to_bits());
        for (from, to) in taken.into_iter().filter(|(from, to)| *from <= last && *to >= first) {
            let Some(at) = next else { break };
            if at < from.to_bits() {
                parts.push((Ipv4Addr::from_bits(at), Ipv4Addr::from_bits(from.to_bits() - 1)));
            }
            next = to.to_bits().checked_add(1).map(|behind| behind.max(at));
        }
        parts.extend(next.filter(|at| *at <= last.to_bits()).map(|at| (Ipv4Addr::from_bits(at), last)));
        parts
    }
}

/// An IPv4 host among IPv6 hosts: ::ffff:0:0/96.
#[must_use]
pub fn mapped(host: Ipv4Addr) -> u128 {
    host.to_ipv6_mapped().to_bits()
}

/// How many addresses there are in all.
pub(super) fn count(spans: impl IntoIterator<Item = Span>) -> u32 {
    spans.into_iter().map(width).sum()
}

/// Address number `index` of all.
pub(super) fn nth(spans: impl IntoIterator<Item = Span>, mut index: u32) -> Option<Ipv4Addr> {
    for span in spans {
        if index < width(span) {
            return Some(Ipv4Addr::from_bits(span.0.to_bits() + index));
        }
        index -= width(span);
    }
    None
}

fn width((first, last): Span) -> u32 {
    last.to_bits() - first.to_bits() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: u8, last: u8) -> Span {
        (Ipv4Addr::new(192, 0, 2, first), Ipv4Addr::new(192, 0, 2, last))
    }

    fn key(host: &str) -> SubscriberKey {
        match host.parse().unwrap() {
            std::net::IpAddr::V6(ipv6) => SubscriberKey { ipv6: ipv6.octets(), ..SubscriberKey::default() },
            std::net::IpAddr::V4(ipv4) => SubscriberKey { ipv4: ipv4.octets(), ..SubscriberKey::default() },
        }
    }

    #[test]
    fn the_longest_prefix_decides_and_others_have_the_rest() {
        let prefix = |text: &str, length| Prefix::<u128>::new(text.parse().unwrap(), length).unwrap();
        let assigned = [
            (prefix("2001:db8::", 32), span(2, 3)),
            (prefix("2001:db8:1::", 48), span(8, 9)),
            (prefix("2001:db8::", 32), span(20, 20)),
            (prefix("::ffff:10.1.0.0", 112), span(8, 9)),
        ];
        let assigned = Assigned::new(assigned, [span(1, 8), span(9, 10), span(20, 20)]);
        assert_eq!(assigned.spans(&key("2001:db8:2::7")), [span(2, 3), span(20, 20)]);
        assert_eq!(assigned.spans(&key("2001:db8:1::7")), [span(8, 9)]);
        assert_eq!(assigned.spans(&key("10.1.2.3")), [span(8, 9)]);
        let rest = [span(1, 1), span(4, 7), span(10, 10)];
        assert_eq!(assigned.spans(&key("2001:db9::7")), rest);
        assert_eq!(assigned.spans(&key("10.2.2.3")), rest);
        let addresses: Vec<_> = (0..7).map_while(|index| nth(rest, index)).collect();
        assert_eq!(addresses, [1, 4, 5, 6, 7, 10].map(|last| Ipv4Addr::new(192, 0, 2, last)));
        assert_eq!(count(rest), 6);
        // Of other addresses, the same are for the same.
        let others = assigned.of([span(3, 4)]);
        assert_eq!(others.spans(&key("10.2.2.3")), [span(4, 4)]);
        assert_eq!(others.spans(&key("2001:db8:1::7")), [span(8, 9)]);
    }

    #[test]
    fn nothing_is_left_where_all_is_for_somebody() {
        let end = (Ipv4Addr::new(255, 255, 255, 254), Ipv4Addr::BROADCAST);
        let assigned = Assigned::new([(Prefix::<u128>::covering(0, 0), end)], [end]);
        assert_eq!((assigned.rest.len(), assigned.spans(&key("10.0.0.1")).len()), (0, 1));
    }
}
