//! Sets of IPv6 addresses, as prefixes: who may use a service.

use std::net::Ipv6Addr;

use tombolo_tables::lpm::Prefix;

/// A set of addresses: prefixes in ascending order, none of which lies in another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(Vec<Prefix<u128>>);

impl Networks {
    /// The addresses that are in any of `prefixes`.
    #[must_use]
    pub fn new(prefixes: impl IntoIterator<Item = Prefix<u128>>) -> Self {
        let mut sorted: Vec<_> = prefixes.into_iter().collect();
        sorted.sort_by_key(|prefix| (prefix.key(), prefix.prefix_len()));
        // What lies in another one stands behind it.
        sorted.dedup_by(|inner, outer| outer.contains(inner.key()));
        Self(sorted)
    }

    /// The prefixes, ascending.
    #[must_use]
    pub fn prefixes(&self) -> &[Prefix<u128>] {
        &self.0
    }

    /// True if there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `address` is one of the set.
    #[must_use]
    #[inline]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        let bits = address.to_bits();
        let after = self.0.partition_point(|prefix| prefix.key() <= bits);
        self.0[..after].last().is_some_and(|prefix| prefix.contains(bits))
    }

    /// True if all addresses of `prefix` lie in one prefix of the set.
    #[must_use]
    pub fn covers(&self, prefix: Prefix<u128>) -> bool {
        self.0.iter().any(|own| own.prefix_len() <= prefix.prefix_len() && own.contains(prefix.key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix<u128> {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_set_has_what_any_of_its_prefixes_has() {
        let texts = ["2001:db8:2::/48", "2001:db8:1:8::/64", "2001:db8:1::/48", "fd00::1/128", "2001:db8:1::/48"];
        let networks = Networks::new(texts.map(prefix));
        assert_eq!(networks.prefixes(), ["2001:db8:1::/48", "2001:db8:2::/48", "fd00::1/128"].map(prefix));
        for (address, is_in) in [
            ("2001:db8:1::", true),
            ("2001:db8:1:ffff:ffff:ffff:ffff:ffff", true),
            ("2001:db8:2::1", true),
            ("2001:db8:3::", false),
            ("2001:db8::1", false),
            ("fd00::1", true),
            ("fd00::2", false),
            ("::", false),
        ] {
            assert_eq!(networks.contains(address.parse().unwrap()), is_in, "{address}");
        }
        assert!(networks.covers(prefix("2001:db8:1:8::/61")) && !networks.covers(prefix("2001:db8::/46")));
    }

    #[test]
    fn everything_and_nothing_are_sets() {
        let all = Networks::new([prefix("::/0"), prefix("2001:db8::/32")]);
        assert_eq!(all.prefixes().len(), 1);
        assert!(all.contains(Ipv6Addr::LOCALHOST) && all.covers(prefix("::/0")));
        assert!(Networks::default().is_empty() && !Networks::default().contains(Ipv6Addr::LOCALHOST));
    }
}
