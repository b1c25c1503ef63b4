//! Names to addresses, by the system's resolver (`/etc/nsswitch.conf`, `/etc/resolv.conf`).
//!
//! It waits as long as the resolver does: by default five seconds a try, two tries a server. Not
//! for the packet path.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The IPv6 addresses of `name`, in the order in which the resolver gives them, which is that of
/// RFC 6724.
///
/// # Errors
/// What the resolver says; a name without IPv6 addresses is no error.
pub fn ipv6_addresses(name: &str) -> io::Result<Vec<Ipv6Addr>> {
    let addresses = (name, 0_u16).to_socket_addrs()?;
    let ipv6 = |address| match address {
        SocketAddr::V6(address) => Some(*address.ip()),
        SocketAddr::V4(_) => None,
    };
    Ok(addresses.filter_map(ipv6).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_own_name() {
        assert_eq!(ipv6_addresses("2001:db8::1").unwrap(), ["2001:db8::1".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!(ipv6_addresses("192.0.2.1").unwrap(), [""; 0].map(|_| Ipv6Addr::UNSPECIFIED));
    }
}
