//! Why the host could not be prepared, in the operator's words.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use nix::errno::Errno;

/// The host could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No such device.
    #[error("there is no network device {device}")]
    NoDevice {
        /// Name of the device.
        device: String,
    },
    /// No privilege.
    #[error(
        "{action} is not allowed: the process needs CAP_NET_ADMIN; run as root, or let systemd give it AmbientCapabilities=CAP_NET_ADMIN"
    )]
    Denied {
        /// What was tried.
        action: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The prefix is routed already.
    #[error(
        "{prefix} is routed to {owner} already: remove that route (\"ip route del {prefix}\"), or give the service another prefix"
    )]
    RouteTaken {
        /// The prefix.
        prefix: IpNet,
        /// Name of the device that has the route.
        owner: String,
    },
    /// One of the host's own addresses lies in the prefix, and no more specific route says so.
    #[error(
        "{prefix} contains {address}, an address of {owner}: packets to it would never reach the gateway; take it out of the prefix or off the device (\"ip addr del {address} dev {owner}\")"
    )]
    AddressInPrefix {
        /// The prefix.
        prefix: IpNet,
        /// The address.
        address: IpAddr,
        /// Name of the device that has the address.
        owner: String,
    },
    /// The address is there already.
    #[error(
        "{address} is an address of {owner} already: choose another one, or remove it (\"ip addr del {address} dev {owner}\")"
    )]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// Name of the device that has it.
        owner: String,
    },
    /// Another gateway has the routing table.
    #[error(
        "routing table {table} has a default route already: give this gateway another one (gateway.table), or remove the route (\"ip route del default table {table}\")"
    )]
    TableTaken {
        /// Number of the table.
        table: u32,
    },
    /// IPv6 is switched off.
    #[error(
        "{action} failed because IPv6 is switched off: set net.ipv6.conf.all.disable_ipv6=0, or boot without ipv6.disable=1"
    )]
    NoIpv6 {
        /// What was tried.
        action: String,
    },
    /// The MTU is out of range.
    #[error("mtu {mtu} is not possible on {device}: use 1280 to 65535")]
    Mtu {
        /// Name of the device.
        device: String,
        /// The MTU in bytes.
        mtu: u32,
    },
    /// Anything else.
    #[error("{action} failed")]
    Failed {
        /// What was tried.
        action: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

pub(super) fn fail(action: &str, source: io::Error) -> HostError {
    let action = action.to_owned();
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => HostError::Denied { action, source },
        _ => HostError::Failed { action, source },
    }
}

pub(super) fn family_error(action: &str, address: IpAddr, source: io::Error) -> HostError {
    match source.raw_os_error().map(Errno::from_raw) {
        // The kernel's words for a device or system without IPv6.
        Some(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EACCES) if address.is_ipv6() => {
            HostError::NoIpv6 { action: action.to_owned() }
        }
        _ => fail(action, source),
    }
}

pub(super) fn is_there_already(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| Errno::from_raw(number) == Errno::EEXIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_privilege_says_which_one() {
        let error = fail("routing 192.0.2.0/24 to t0", io::Error::from_raw_os_error(libc::EPERM));
        assert!(error.to_string().starts_with("routing 192.0.2.0/24 to t0 is not allowed"), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    }
}
