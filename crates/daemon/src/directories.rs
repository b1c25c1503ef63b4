//! Where a gateway keeps what others find it by: its control socket, and its tables and programs in
//! the BPF file system.
//!
//! With a run directory the socket is there. Otherwise it is under `/run/tombolo`, in a directory
//! named for the gateway's device, and for its network namespace unless that is the host's own:
//! names of devices are unique in one only.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use tombolo_config::Host;

/// Directory of gateways that have no run directory of their own.
pub const ROOT: &str = "/run/tombolo";
/// Name of the socket in its directory.
pub const SOCKET: &str = "control.sock";

/// The directory of the control socket of a gateway with these settings.
#[must_use]
pub fn of_socket(settings: &Host) -> PathBuf {
    match &settings.run_directory {
        Some(directory) => directory.clone(),
        None => Path::new(ROOT).join(name(&settings.device)),
    }
}

/// Makes the directory, readable by its owner only, if it is not there.
///
/// # Errors
/// What the kernel says.
pub fn make_private(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// What distinguishes a gateway from others on this host: its device, and its network namespace if
/// that is not the host's.
#[must_use]
pub fn name(device: &str) -> String {
    match (namespace("self"), namespace("1")) {
        (Some(own), host) if host != Some(own) => format!("{device}@{own}"),
        _ => device.to_owned(),
    }
}

/// The number of a process's network namespace.
pub(crate) fn namespace(process: &str) -> Option<u64> {
    std::fs::metadata(format!("/proc/{process}/ns/net")).ok().map(|file| file.ino())
}

/// Directory of the tables and programs of a gateway in the BPF file system, which allows no dots
/// in names.
#[must_use]
pub fn of_pins(settings: &Host) -> PathBuf {
    let allowed = |letter: char| if letter.is_ascii_alphanumeric() || "@-_".contains(letter) { letter } else { '_' };
    let name: String = name(&settings.device).chars().map(allowed).collect();
    Path::new("/sys/fs/bpf/tombolo").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_in_the_run_directory_if_there_is_one() {
        let own = Host { run_directory: Some("/srv/gateway".into()), ..Host::default() };
        assert_eq!(of_socket(&own), Path::new("/srv/gateway"));
        let default = of_socket(&Host { device: "tun7".into(), ..Host::default() });
        assert!(
            default.starts_with(ROOT) && default.file_name().unwrap().to_str().unwrap().starts_with("tun7"),
            "{default:?}"
        );
    }

    #[test]
    fn the_directory_has_no_dots() {
        let settings = Host { device: "tun.7".into(), ..Host::default() };
        let pins = of_pins(&settings);
        assert!(pins.starts_with("/sys/fs/bpf/tombolo"));
        assert!(!pins.file_name().unwrap().to_str().unwrap().contains('.'), "{pins:?}");
    }
}
