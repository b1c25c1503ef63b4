//! Answers to neighbours in the place of what lies behind the gateway: proxy ARP and NDP.
//!
//! A prefix that is routed to the gateway may lie in the network of a link, as addresses of a provider's Ethernet do, or
//! a CLAT's in the one /64 of a LAN. Hosts on the link ask there who has such an address, and nobody does: so the host
//! answers for it (RFC 1027; RFC 4861 section 7.2.8). The kernel does by itself once it has an entry for the address:
//!
//! ```text
//! ip neigh add proxy 192.0.2.9 dev eth0 proto 84
//! sysctl -w net.ipv6.conf.all.proxy_ndp=1        of IPv6: that of the interface alone forwards what is asked of one host
//! ```
//!
//! Links, and their networks, come and go. What is to be answered is therefore worked out again each time
//! ([`Host::answer_neighbours`]), and compared with what the kernel has. Entries of others are left alone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::changes::{Host, What, index_of};
use super::error::{HostError, fail};
use super::keys::RouteKey;
use super::messages::{HostAddress, name_of};
use super::proxies::{Answer, Maker, NDP_SWITCH, add, present, remove};
use crate::links;

/// Addresses that are answered for, at most: the kernel looks for them in sixteen lists.
const MOST: u128 = 4096;

/// What came of looking for neighbours to answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// For whom is answered from now on, and where.
    pub begun: Vec<String>,
    /// For whom not any more.
    pub ended: Vec<String>,
    /// What cannot be answered, and why.
    pub faults: Vec<String>,
}

impl Host {
    /// Has the kernel answer neighbours who ask for what is routed to `device` and lies in the network of their link,
    /// and ends what is not asked for any more.
    ///
    /// # Errors
    /// [`HostError::Failed`].
    pub fn answer_neighbours(&mut self, device: &str) -> Result<Answers, HostError> {
        if !self.proxies.is_on && self.proxies.held.is_empty() {
            return Ok(Answers::default());
        }
        let failed = |source| fail("answering neighbours", source);
        let mut answers = Answers::default();
        let wanted = self.wanted(index_of(device)?, &mut answers.faults)?;
        if wanted.is_empty() && self.proxies.held.is_empty() {
            return Ok(answers);
        }
        let present = present(&mut self.socket).map_err(failed)?;
        for &answer in &wanted {
            match present.get(&answer) {
                // An earlier gateway, or this one.
                Some(Maker::Gateway) => drop(self.proxies.held.insert(answer)),
                Some(Maker::Other) => {}
                None => match add(&mut self.socket, answer) {
                    Ok(()) => {
                        self.proxies.held.insert(answer);
                        answers.begun.push(words(answer));
                    }
                    Err(error) => {
                        answers.faults.push(format!("nobody answers neighbours for {}: {error}", words(answer)))
                    }
                },
            }
        }
        for answer in self.proxies.held.difference(&wanted).copied().collect::<Vec<_>>() {
            self.proxies.held.remove(&answer);
            // The interface may be gone.
            if remove(&mut self.socket, answer).is_ok() {
                answers.ended.push(words(answer));
            }
        }
        let has_ipv6 = self.proxies.held.iter().any(|(_, address)| address.is_ipv6());
        if let Err(error) = self.proxies.set_switch(has_ipv6) {
            answers.faults.push(format!("neighbours are not answered over IPv6: {NDP_SWITCH}: {error}"));
        }
        Ok(answers)
    }

    /// Whom the kernel is to answer for.
    fn wanted(&mut self, device: u32, faults: &mut Vec<String>) -> Result<BTreeSet<Answer>, HostError> {
        let mut wanted = BTreeSet::new();
        if !self.proxies.is_on {
            return Ok(wanted);
        }
        let networks = self.addresses()?.into_iter().filter(|own| own.index != device).collect::<Vec<_>>();
        let routes = self.changes.iter().filter_map(|change| match &change.what {
            What::Route(message) => RouteKey::of(message),
            _ => None,
        });
        let routed = routes.filter(|key| key.is_main() && key.interface == Some(device)).map(|key| key.prefix);
        let on_link = routed.flat_map(|prefix| {
            networks.iter().filter(move |own| own.has_on_link(prefix)).map(move |own| (prefix, own))
        });
        let on_link: Vec<(IpNet, &HostAddress)> = on_link.collect();
        if on_link.is_empty() {
            return Ok(wanted);
        }
        let links = links::of(&mut self.socket).map_err(|source| fail("listing the host's interfaces", source))?;
        let asks = |index| links.iter().any(|link| link.index == index && link.is_ethernet && link.asks && link.is_up);
        let mut left = MOST;
        for (prefix, own) in on_link.into_iter().filter(|(_, own)| asks(own.index)) {
            let size = 1u128 << (prefix.max_prefix_len() - prefix.prefix_len()).min(127);
            if size > left {
                faults.push(format!(
                    "{prefix} lies in the network of {}, and is too large to answer neighbours there for each address: \
                     route it to this host instead",
                    own.device
                ));
                continue;
            }
            left -= size;
            wanted.extend(all_of(prefix).map(|address| (own.index, address)));
        }
        Ok(wanted)
    }
}

/// The addresses of a prefix that [`MOST`] bounds; all are somebody's, also the first and the last.
fn all_of(prefix: IpNet) -> impl Iterator<Item = IpAddr> {
    let host_bits = prefix.max_prefix_len() - prefix.prefix_len();
    (0..1u32 << host_bits).map(move |number| match prefix.network() {
        IpAddr::V4(first) => IpAddr::V4((first.to_bits() + number).into()),
        IpAddr::V6(first) => IpAddr::V6((first.to_bits() + u128::from(number)).into()),
    })
}

fn words((index, address): Answer) -> String {
    format!("{address} on {}", name_of(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_prefix_are_answered_for() {
        let of = |text: &str| all_of(text.parse().unwrap()).map(|address| address.to_string()).collect::<Vec<_>>();
        assert_eq!(of("192.0.2.4/30"), ["192.0.2.4", "192.0.2.5", "192.0.2.6", "192.0.2.7"]);
        assert_eq!(of("2001:db8::/127"), ["2001:db8::", "2001:db8::1"]);
        assert_eq!(of("255.255.255.255/32"), ["255.255.255.255"]);
    }
}
