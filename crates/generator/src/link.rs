//! What the tester has to know of an interface: its link-layer address, and what its driver
//! counted.

use std::fs;
use std::io;

use nix::ifaddrs::getifaddrs;

use crate::namespace::in_namespace;
use crate::port::Port;

/// Frames that an interface's driver counted as lost, from /proc/net/dev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Receive errors and drops.
    pub receive_drops: u64,
    /// Transmit errors and drops.
    pub transmit_drops: u64,
}

/// The link-layer address of the port.
///
/// # Errors
/// If namespace or interface do not exist, or the interface has no such address.
pub fn link_address(port: &Port) -> io::Result<[u8; 6]> {
    in_namespace(port.namespace.as_ref(), || {
        let found = getifaddrs()?
            .filter(|interface| interface.interface_name == port.name)
            .find_map(|interface| interface.address?.as_link_addr()?.addr());
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{} has no link-layer address", port.name)))
    })?
}

/// The drop counters of the port; zeros where the driver has none.
///
/// # Errors
/// If the namespace cannot be entered.
pub fn port_counters(port: &Port) -> io::Result<Counted> {
    let table = in_namespace(port.namespace.as_ref(), || fs::read_to_string("/proc/thread-self/net/dev"))??;
    Ok(parse(&table, &port.name).unwrap_or_default())
}

/// A line is `name: rx bytes packets errs drop fifo frame compressed multicast tx bytes packets
/// errs drop ...`.
fn parse(table: &str, name: &str) -> Option<Counted> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let sum = |range: std::ops::Range<usize>| Some(numbers.get(range)?.iter().sum());
    Some(Counted { receive_drops: sum(2..4)?, transmit_drops: sum(10..12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_and_errors_are_summed() {
        let table = "Inter-|\n face |\n  left: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n left0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(parse(table, "left"), Some(Counted { receive_drops: 7, transmit_drops: 23 }));
        assert_eq!(parse(table, "right"), None);
    }
}
