//! An address with a prefix length: an interface address, a subnet, or a route's destination.

use std::{fmt, net::IpAddr, str::FromStr};

/// An IPv4 or IPv6 address with a prefix length in bits. Host bits are kept: `10.0.0.2/24` is the
/// address 10.0.0.2 on the subnet 10.0.0.0/24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The address, host bits included.
    pub address: IpAddr,
    /// How many leading bits name the network: 0 to 32, or 0 to 128.
    pub length: u8,
}

/// Why a text is not a [`Prefix`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not ADDRESS/LENGTH: {reason}")]
pub struct ParsePrefixError {
    text: String,
    reason: &'static str,
}

impl Prefix {
    /// The single address as a prefix (/32 or /128).
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| ParsePrefixError { text: text.to_owned(), reason };
        let (address, length) = text.split_once('/').ok_or_else(|| error("the length is missing"))?;
        let address: IpAddr = address.parse().map_err(|_| error("the address does not parse"))?;
        let length: u8 = length.parse().map_err(|_| error("the length is not a number"))?;
        if length > Self::host(address).length {
            return Err(error("the length exceeds the address"));
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_parsed() {
        for text in ["10.0.0.2/24", "64:ff9b::/96", "::/0", "192.0.2.1/32"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_prefix() {
        for text in ["10.0.0.2", "10.0.0.2/33", "2001:db8::/129", "x/8", "10.0.0.0/-1", ""] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}
