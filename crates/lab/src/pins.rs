//! What processes of a lab have pinned in the BPF file system, which stays when they are killed.
//!
//! ```text
//! /sys/fs/bpf/tombolo/DEVICE@NUMBER    of a gateway, in the network namespace with this number
//! /sys/fs/bpf/ID, /sys/fs/bpf/ID-NODE  of tests and benchmarks that load the programs themselves: the lab's, or a node's
//! ```
//!
//! Gateways of the host itself are in `tombolo/DEVICE`, and those of other namespaces have other numbers.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/bpf";
const GATEWAYS: &str = "/sys/fs/bpf/tombolo";

/// Removes what gateways in network namespace `number` have left.
pub(crate) fn remove_of_gateways(number: u64) {
    let suffix = format!("@{number}");
    entries(Path::new(GATEWAYS))
        .filter(|path| path.to_string_lossy().ends_with(&suffix))
        .for_each(|path| remove(&path));
}

/// Removes what is named for a lab, or for the namespace of a node.
pub(crate) fn remove_named(name: &str) {
    remove(&Path::new(ROOT).join(name));
}

/// Links go before maps. What cannot be removed takes memory until the next start of the system, and nothing worse.
fn remove(directory: &Path) {
    let mut pins: Vec<PathBuf> = entries(directory).collect();
    pins.sort_by_key(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("link-")));
    pins.iter().for_each(|pin| drop(fs::remove_file(pin)));
    let _ = fs::remove_dir(directory);
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
