//! What a DHCPv6 client has got, as one configuration: of what the server offers one service, and the delegated prefix
//! where it belongs.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use anyhow::{Context as _, bail};
use ipnet::Ipv6Net;
use tombolo_engine::mapping::eam::parse_prefix;
use tombolo_wire::dhcpv6_softwire::S46Option;

use super::service::{self, Given};

/// A prefix that was delegated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delegated {
    pub(super) prefix: Ipv6Net,
    /// How long it is to be used for what is new, in seconds or what else compares.
    pub(super) preferred: u64,
    /// How long it may be used at all.
    pub(super) valid: u64,
}

/// What a client has got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) prefixes: Vec<Delegated>,
    /// In the order in which they are preferred.
    pub(super) offers: Vec<S46Option>,
}

/// How it becomes a configuration.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// Hosts inside.
    pub(super) inside: &'a str,
    /// Further lines of the service.
    pub(super) set: &'a [String],
    /// The service is a CLAT where nothing is offered.
    pub(super) clat: bool,
    /// The file in which `{service}`, `{prefix}` and `{network}` stand for what was got.
    pub(super) template: Option<&'a str>,
}

impl Lease {
    /// The configuration.
    pub(super) fn configuration(&self, wanted: &Wanted<'_>) -> anyhow::Result<String> {
        let prefix = self.prefix().context("no prefix has been delegated (yet)")?;
        let network = last_network(prefix);
        let Some(template) = wanted.template else { return self.service(prefix, wanted) };
        let mut text = template.to_owned();
        if text.contains("{service}") {
            text = text.replace("{service}", self.service(prefix, wanted)?.trim_end());
        }
        let network = network.to_string();
        Ok(text.replace("{prefix}", &prefix.to_string()).replace("{network}", network.trim_end_matches(':')))
    }

    fn service(&self, prefix: Ipv6Net, wanted: &Wanted<'_>) -> anyhow::Result<String> {
        let network = last_network(prefix);
        let address = |last: u16| Ipv6Addr::from_bits(network.to_bits() | u128::from(last));
        let mut text = match self.offers.first() {
            Some(offer) => {
                let address = address(0xb4).to_string();
                let is_map = matches!(offer, S46Option::MapE { .. } | S46Option::MapT { .. });
                let prefix = if is_map { Some(self.end_user_prefix(offer, prefix).to_string()) } else { None };
                service::of(offer, &Given { inside: wanted.inside, prefix, aftr: None, address: Some(address) })?
            }
            None if wanted.clat => clat(wanted.inside, address(0x464)),
            None => bail!(
                "the server offers no way to carry IPv4 (options 94, 95, 96 of RFC 7598, 64 of RFC 6334); ask it for them, or \
                 add --clat"
            ),
        };
        for line in wanted.set {
            let _ = writeln!(text, "{line}");
        }
        Ok(text)
    }

    /// The prefix that is in use for the longest time to come; the first of several.
    fn prefix(&self) -> Option<Ipv6Net> {
        let usable = self.prefixes.iter().filter(|delegated| delegated.valid > 0);
        let best = usable.rev().max_by_key(|delegated| delegated.preferred)?;
        Some(best.prefix)
    }

    /// The one that a rule knows, where the longest-lived is none (RFC 7597 section 5).
    fn end_user_prefix(&self, offer: &S46Option, best: Ipv6Net) -> Ipv6Net {
        let (S46Option::MapE { rules, .. } | S46Option::MapT { rules, .. }) = offer else { return best };
        let fits = |prefix: &Ipv6Net| rules.iter().any(|rule| rule.ipv6.contains(prefix));
        if fits(&best) {
            return best;
        }
        let valid = self.prefixes.iter().filter(|delegated| delegated.valid > 0).map(|delegated| delegated.prefix);
        valid.into_iter().find(fits).unwrap_or(best)
    }
}

/// The last /64 of a prefix: routers number their links from the first.
fn last_network(prefix: Ipv6Net) -> Ipv6Addr {
    let bits = prefix.broadcast().to_bits();
    let kept = if prefix.prefix_len() < 64 { u128::MAX << 64 } else { prefix.netmask().to_bits() };
    Ipv6Addr::from_bits(bits & kept)
}

/// A CLAT with one address, and the NAT44 that hides the hosts behind it (RFC 6877 section 6.1, RFC 7335).
fn clat(inside: &str, address: Ipv6Addr) -> String {
    format!(
        "[[service]]\nkind = \"nat44\"\ninside = [\"{inside}\"]\npool = [{{ addresses = \"192.0.0.1\" }}]\n\n\
         [[service]]\nkind = \"clat\"\nprefix = \"auto\"\neam = [{{ ipv4 = \"192.0.0.1\", ipv6 = \"{address}\" }}]\n"
    )
}

/// A prefix, without what stands behind its length.
pub(super) fn prefix(text: &str) -> anyhow::Result<Ipv6Net> {
    let prefix = parse_prefix::<u128>(text).with_context(|| format!("\"{text}\" is no prefix"))?;
    Ok(Ipv6Net::new(Ipv6Addr::from_bits(prefix.key()), prefix.prefix_len())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_that_lasts_longest_counts_and_one_that_is_over_does_not() {
        let delegated = |text, preferred, valid| Delegated { prefix: prefix(text).unwrap(), preferred, valid };
        let of = |prefixes: &[Delegated]| {
            let lease = Lease { prefixes: prefixes.to_vec(), offers: vec![] };
            lease.prefix().map(|prefix| prefix.to_string())
        };
        let old = delegated("2001:db8:1::/56", 0, 60);
        let new = delegated("2001:db8:2::/56", 3600, 7200);
        assert_eq!(of(&[old, new]).as_deref(), Some("2001:db8:2::/56"));
        assert_eq!(of(&[old]).as_deref(), Some("2001:db8:1::/56"));
        assert_eq!(of(&[delegated("2001:db8:1::/56", 3600, 0)]), None);
        let same = delegated("2001:db8:3::/56", 3600, 7200);
        assert_eq!(of(&[new, same]).as_deref(), Some("2001:db8:2::/56"));
    }

    #[test]
    fn addresses_are_taken_from_the_last_network_of_a_prefix() {
        let last = |text| last_network(prefix(text).unwrap()).to_string();
        assert_eq!(last("2001:db8:1:200::/56"), "2001:db8:1:2ff::");
        assert_eq!(last("2001:db8:1:2::/64"), "2001:db8:1:2::");
    }
}
