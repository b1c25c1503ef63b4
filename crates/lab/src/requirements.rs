//! What a lab needs from the machine: privileges and programs.

use std::{
    env,
    io::{self, Write as _},
    path::PathBuf,
};

use nix::sched::{CloneFlags, unshare};

/// The programs that labs run, and the Debian package of each.
const PACKAGES: &[(&str, &str)] = &[
    ("/usr/lib/frr/bgpd", "frr"),
    ("bird", "bird2"),
    ("conntrack", "conntrack"),
    ("curl", "curl"),
    ("etcd", "etcd-server"),
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("iptables", "iptables"),
    ("ip6tables", "iptables"),
    ("nft", "nftables"),
    ("openssl", "openssl"),
    ("ping", "iputils-ping"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("sshd", "openssh-server"),
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

/// Why this process may not build labs, in words; `None` when it may. It asks the kernel by making
/// a network namespace on a thread of its own, which vanishes with the thread.
#[must_use]
pub fn missing_privilege() -> Option<String> {
    let attempt = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join();
    match attempt {
        Ok(Ok(())) => None,
        Ok(Err(errno)) => Some(format!("network namespaces are not permitted ({errno}); run as root")),
        Err(_) => Some("the thread that asked for a network namespace panicked".to_owned()),
    }
}

/// Whether a program is in one of the directories of PATH, or where administrators' programs are.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(administrators).any(|directory| directory.join(program).is_file())
}

/// Major and minor number of the kernel that runs; zeros if it does not say.
#[must_use]
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// For tests: true, with a line `SKIP: test: reason` on the real standard error (past the test
/// harness's capture, so that skips can be counted), when labs cannot be built here or one of
/// `programs` is missing.
#[must_use]
pub fn skip_without(test: &str, programs: &[&str]) -> bool {
    let missing = || {
        let program = programs.iter().find(|program| !is_installed(program))?;
        Some(format!("`{program}` is not installed; fix: apt-get install {}", package_of(program)))
    };
    let Some(reason) = missing_privilege().or_else(missing) else { return false };
    skip(test, &reason);
    true
}

/// Says that a test is skipped, and why, past the harness's capture.
pub fn skip(test: &str, reason: &str) {
    // A closed standard error is no reason to fail a test that is skipped anyway.
    drop(writeln!(io::stderr(), "SKIP: {test}: {reason}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_package_of_a_tool() {
        assert_eq!(package_of("ip"), "iproute2");
        assert_eq!(package_of("unheard-of"), "unheard-of");
    }

    #[test]
    fn sees_what_is_installed() {
        assert!(is_installed("sh"));
        assert!(!is_installed("unheard-of"));
    }
}
