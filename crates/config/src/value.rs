//! Values that are written as text: addresses, ports, endpoints. Each function gives the value, or
//! reason and fix in words.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::ops::RangeInclusive;

use ipnet::{Ipv4Net, Ipv6Net};
use tombolo_engine::mapping::pool::PortRanges;
use tombolo_wire::Port;
use tombolo_wire::rfc6052::{Prefix64, Prefix64Error};

/// Addresses from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) first: Ipv4Addr,
    pub(crate) last: Ipv4Addr,
}

impl Addresses {
    pub(crate) fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// IPv4 addresses: `192.0.2.0/28`, `192.0.2.1` or `192.0.2.1-192.0.2.9`.
pub(crate) fn addresses(text: &str) -> Result<Addresses, String> {
    let range = if text.contains('/') {
        let net: Ipv4Net = text.parse().map_err(|_| not_addresses())?;
        if net.addr() != net.network() {
            return Err(format!("bits are set behind the prefix length; write \"{}\"", net.trunc()));
        }
        Addresses { first: net.network(), last: net.broadcast() }
    } else if let Some((first, last)) = text.split_once('-') {
        let parse = |text: &str| text.trim().parse().map_err(|_| not_addresses());
        let range = Addresses { first: parse(first)?, last: parse(last)? };
        if range.first > range.last {
            return Err(format!("the range ends before it begins; write \"{}-{}\"", range.last, range.first));
        }
        range
    } else {
        let address = text.parse().map_err(|_| not_addresses())?;
        Addresses { first: address, last: address }
    };
    match unusable(range) {
        Some(kind) => Err(format!("contains {kind} addresses, which no host can have; use unicast addresses")),
        None => Ok(range),
    }
}

fn not_addresses() -> String {
    "not IPv4 addresses; write a prefix (\"192.0.2.0/28\"), an address (\"192.0.2.1\") or a range (\"192.0.2.1-192.0.2.9\")"
        .to_owned()
}

fn unusable(range: Addresses) -> Option<&'static str> {
    let block = |first: [u8; 4], last: [u8; 4]| Addresses { first: first.into(), last: last.into() };
    let blocks = [
        (block([0, 0, 0, 0], [0, 255, 255, 255]), "\"this network\""),
        (block([127, 0, 0, 0], [127, 255, 255, 255]), "loopback"),
        (block([224, 0, 0, 0], [239, 255, 255, 255]), "multicast"),
        (block([240, 0, 0, 0], [255, 255, 255, 255]), "reserved"),
    ];
    blocks.into_iter().find(|(block, _)| block.overlaps(range)).map(|(_, kind)| kind)
}

/// Ports: `1024-65535` or `80, 443, 1024-2047`.
pub(crate) fn ports(text: &str) -> Result<PortRanges, String> {
    let ranges: Result<Vec<_>, _> = text.split(',').map(|part| port_range(part.trim())).collect();
    Ok(PortRanges::new(ranges?))
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let parse = |text: &str| {
        text.trim()
            .parse::<u16>()
            .map_err(|_| format!("\"{text}\" is not a port; write numbers from 1 to 65535 as \"80, 1024-65535\""))
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (parse(first)?, parse(last)?),
        None => (parse(text)?, parse(text)?),
    };
    if first > last {
        return Err(format!("the range {first}-{last} ends before it begins; write {last}-{first}"));
    }
    if first == 0 {
        return Err("port 0 cannot be used; begin with 1".to_owned());
    }
    Ok(first..=last)
}

/// A NAT64 prefix: `64:ff9b::/96`.
pub(crate) fn prefix64(text: &str) -> Result<Prefix64, String> {
    let net: Ipv6Net = text.parse().map_err(|_| "not an IPv6 prefix; write it as \"64:ff9b::/96\"".to_owned())?;
    Prefix64::new(net.addr(), net.prefix_len()).map_err(|error| match error {
        Prefix64Error::Length(_) => format!("{error}; choose one of these lengths"),
        Prefix64Error::HostBits => format!("{error}; write \"{}\"", net.trunc()),
        Prefix64Error::UOctet => format!("{error}; choose another prefix"),
        Prefix64Error::WellKnownLength => format!("{error}; write \"64:ff9b::/96\", or take a prefix of your own"),
        Prefix64Error::Syntax => format!("{error}; write it as \"64:ff9b::/96\""),
    })
}

/// An endpoint inside: `[2001:db8::2]:80`.
pub(crate) fn inside_endpoint(text: &str) -> Result<(Ipv6Addr, Port), String> {
    let endpoint: SocketAddrV6 =
        text.parse().map_err(|_| "not an IPv6 address with a port; write it as \"[2001:db8::2]:80\"".to_owned())?;
    let address = *endpoint.ip();
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() || address.is_unicast_link_local() {
        return Err(format!("{address} cannot be reached through a gateway; use a global or unique local address"));
    }
    Ok((address, Port(endpoint.port())))
}

/// An endpoint outside: `192.0.2.1:80`.
pub(crate) fn outside_endpoint(text: &str) -> Result<(Ipv4Addr, Port), String> {
    let endpoint: SocketAddrV4 =
        text.parse().map_err(|_| "not an IPv4 address with a port; write it as \"192.0.2.1:80\"".to_owned())?;
    Ok((*endpoint.ip(), Port(endpoint.port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_three_spellings() {
        let range = |first: [u8; 4], last: [u8; 4]| Ok(Addresses { first: first.into(), last: last.into() });
        assert_eq!(addresses("192.0.2.0/28"), range([192, 0, 2, 0], [192, 0, 2, 15]));
        assert_eq!(addresses("192.0.2.7"), range([192, 0, 2, 7], [192, 0, 2, 7]));
        assert_eq!(addresses("192.0.2.7 - 192.0.2.9"), range([192, 0, 2, 7], [192, 0, 2, 9]));
        assert_eq!(addresses("192.0.2.7/32"), range([192, 0, 2, 7], [192, 0, 2, 7]));
    }

    #[test]
    fn ports_are_numbers_and_ranges() {
        assert_eq!(ports("443, 80,1024-65535").unwrap().ranges(), [80..=80, 443..=443, 1024..=65535]);
        assert!(ports("").is_err() && ports("80,").is_err() && ports("1-2-3").is_err() && ports("65536").is_err());
    }

    #[test]
    fn no_text_makes_a_value_fail_hard() {
        for text in ["", "-", "/", "0.0.0.0/0", "::/0", "::/129", "-1", "999999", "[::]:0", "[", "1.2.3.4:", "\u{e9}"] {
            let _ = (addresses(text), ports(text), prefix64(text), inside_endpoint(text), outside_endpoint(text));
        }
    }
}
