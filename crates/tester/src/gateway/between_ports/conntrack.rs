//! The kernel's connection tracking: room for all connections, and timeouts that none of them
//! reaches during a trial (RFC 9693 section 4.4).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tombolo_lab::{Lab, LabError, Namespace};

/// UDP timeout given to connection tracking.
pub(super) const TIMEOUT_SECONDS: u64 = 10_000;
const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "/sys/module/nf_conntrack/parameters/hashsize";

/// Makes room for so many connections; returns the sizes that hold now. They are settings of the
/// whole machine, and are put back when the lab ends.
///
/// # Errors
/// [`LabError`] if they cannot be changed.
pub(super) fn make_room(lab: &Lab, connections: u64) -> Result<BTreeMap<String, String>, LabError> {
    let wanted = (connections * 3 / 2).max(262_144).next_power_of_two();
    let mut sizes = BTreeMap::new();
    for path in [MAX, BUCKETS] {
        let read = || fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        if read().parse::<u64>().is_ok_and(|before| before < wanted) {
            lab.change_setting(Path::new(path), &wanted.to_string())?;
        }
        sizes.insert(path.rsplit('/').next().unwrap_or(path).to_owned(), read());
    }
    Ok(sizes)
}

/// Sets both UDP timeouts of the namespace; returns them.
///
/// # Errors
/// [`LabError`] if they cannot be set.
pub(super) fn set_timeouts(node: &Namespace) -> Result<BTreeMap<String, String>, LabError> {
    let mut timeouts = BTreeMap::new();
    for key in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        let (key, value) = (format!("net.netfilter.{key}"), TIMEOUT_SECONDS.to_string());
        node.set_sysctl(&key, &value)?;
        timeouts.insert(key, value);
    }
    Ok(timeouts)
}

/// Connections in the namespace's table.
pub(super) fn count(node: &Namespace) -> Option<u64> {
    node.sysctl("net.netfilter.nf_conntrack_count").ok()?.trim().parse().ok()
}
