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

/// Bytes of an entry (256 on 64-bit machines, and 128 of extensions for NAT), and of a bucket.
const ENTRY_BYTES: u64 = 384;
const BUCKET_BYTES: u64 = 8;

/// What so many connections take of the kernel's memory.
pub(super) fn memory_bytes(connections: u64) -> u64 {
    let (_, buckets) = sizes_for(connections);
    connections * ENTRY_BYTES + buckets * BUCKET_BYTES
}

/// The kernel rounds the number of buckets up to whole pages of them.
const BUCKETS_IN_A_PAGE: u64 = 512;

/// Sizes the table for so many connections: four buckets for three of them, which is the load that
/// the published tables have (draft-lencse-v6ops-transition-scalability-02 section 2.2: 0.745), and
/// room for a quarter more. Returns the number of buckets that holds now; put back as those of
/// [`make_room`].
///
/// # Errors
/// [`LabError`] if it cannot be changed.
pub(super) fn size(lab: &Lab, connections: u64) -> Result<u64, LabError> {
    let (most, buckets) = sizes_for(connections);
    for (path, wanted) in [(BUCKETS, buckets), (MAX, most)] {
        if read(path) != Some(wanted) {
            lab.change_setting(Path::new(path), &wanted.to_string())?;
        }
    }
    Ok(read(BUCKETS).unwrap_or(buckets))
}

/// Connections that the table may hold, and buckets.
fn sizes_for(connections: u64) -> (u64, u64) {
    let buckets = (connections * 4).div_ceil(3).next_multiple_of(BUCKETS_IN_A_PAGE);
    (connections + (connections / 4).max(1024), buckets)
}

fn read(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_connections_has_the_same_load_of_a_bucket() {
        for connections in [4_000u64, 40_000, 400_000, 4_000_000, 100_000_000] {
            let (most, buckets) = sizes_for(connections);
            let load = connections as f64 / buckets as f64;
            assert!((0.70..=0.7501).contains(&load) && most > connections, "{connections}: {load} in {buckets}");
        }
    }
}
