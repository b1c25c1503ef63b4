//! What a lab needs from the machine: privileges and programs.

use std::io::Write as _;

use nix::sched::{CloneFlags, unshare};

/// The programs that labs run, and the Debian package of each.
const PACKAGES: &[(&str, &str)] = &[
    ("conntrack", "conntrack"),
    ("curl", "curl"),
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("iptables", "iptables"),
    ("ip6tables", "iptables"),
    ("nft", "nftables"),
    ("ping", "iputils-ping"),
    ("tayga", "tayga"),
    ("tcpdump", "tcpdump"),
    ("tracepath", "iputils-tracepath"),
    ("traceroute", "traceroute"),
    ("tshark", "tshark"),
];

/// The Debian package that has a program; the program's own name where none is known.
#[must_use]
pub fn package_of(tool: &str) -> &str {
    PACKAGES.iter().find(|(name, _)| *name == tool).map_or(tool, |(_, package)| package)
}

/// Why this process may not build labs, in words; `None` when it may. It asks the kernel by making a
/// network namespace on a thread of its own, which vanishes with the thread.
#[must_use]
pub fn missing_privilege() -> Option<String> {
    let attempt = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join();
    match attempt {
        Ok(Ok(())) => None,
        Ok(Err(errno)) => Some(format!("network namespaces are not permitted ({errno}); run as root")),
        Err(_) => Some("the thread that asked for a network namespace panicked".to_owned()),
    }
}

/// For tests: true, with a line `SKIP: test: reason` on the real standard error (past the test harness's
/// capture, so that skips can be counted), when labs cannot be built here.
#[must_use]
pub fn skip_without_privilege(test: &str) -> bool {
    let Some(reason) = missing_privilege() else {
        return false;
    };
    // A closed standard error is no reason to fail a test that is skipped anyway.
    drop(writeln!(std::io::stderr(), "SKIP: {test}: {reason}"));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_package_of_a_tool() {
        assert_eq!(package_of("ip"), "iproute2");
        assert_eq!(package_of("unheard-of"), "unheard-of");
    }
}
