//! Where a gateway keeps what others find it by: its control socket, and its tables and programs in
//! the BPF file system.
//!
//! With a run directory the socket is there. Otherwise it is under `/run/tombolo`, in a directory
//! named for the gateway's device, and for its network namespace unless that is the host's own:
//! names of devices are unique in one only.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tombolo_config::Host;
use tombolo_fastpath::file_system;

/// Directory of gateways that have no run directory of their own.
pub const ROOT: &str = "/run/tombolo";
/// Where the package has the run directory, in which the control socket then is.
pub const STATE: &str = "/var/lib/tombolo";
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

/// How long a directory without a socket is taken for one whose gateway is about to make it.
const SETTLED: Duration = Duration::from_secs(60);

/// Removes the directory of the control socket if it is one of those under [`ROOT`], and nothing is
/// in it.
pub fn remove_empty(directory: &Path) {
    if directory.parent() == Some(Path::new(ROOT)) {
        let _ = std::fs::remove_dir(directory);
    }
}

/// Removes the directories of gateways that were killed: each is named for a network namespace, and
/// is never used again once that is gone. Says how many.
pub fn remove_dead() -> usize {
    remove_dead_in(Path::new(ROOT))
}

fn remove_dead_in(root: &Path) -> usize {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|directory| directory.is_dir() && is_dead(directory) && remove_socket(directory)).count()
}

/// Nobody listens there any more.
fn is_dead(directory: &Path) -> bool {
    match UnixStream::connect(directory.join(SOCKET)) {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let changed = std::fs::metadata(directory).and_then(|found| found.modified()).ok();
            changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > SETTLED)
        }
        Err(_) => false,
    }
}

fn remove_socket(directory: &Path) -> bool {
    // One that is about to be made has another lock than this: that of its gateway.
    let Ok(lock) = File::open(directory) else { return false };
    if lock.try_lock().is_err() {
        return false;
    }
    let _ = std::fs::remove_file(directory.join(SOCKET));
    std::fs::remove_dir(directory).is_ok()
}

/// Keeps others from removing the directory for as long as the value lives.
///
/// # Errors
/// What the kernel says.
pub fn hold(directory: &Path) -> io::Result<File> {
    loop {
        make_private(directory)?;
        let held = File::open(directory)?;
        held.lock_shared()?;
        // It may have been removed before it was locked.
        if std::fs::metadata(directory).is_ok_and(|found| found.ino() == held.metadata().map_or(0, |own| own.ino())) {
            return Ok(held);
        }
    }
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
    file_system::find().0.join("tombolo").join(name)
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
        assert!(pins.parent().unwrap().ends_with("sys/fs/bpf/tombolo"), "{pins:?}");
        assert!(!pins.file_name().unwrap().to_str().unwrap().contains('.'), "{pins:?}");
    }

    #[test]
    fn directories_of_the_dead_are_removed_and_others_are_not() {
        use std::os::unix::net::UnixListener;
        let root = tempfile::tempdir().unwrap();
        let paths = ["dead@1", "living@2", "fresh@3", "held@4"].map(|name| root.path().join(name));
        paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let [dead, living, fresh, held] = paths;
        drop(UnixListener::bind(dead.join(SOCKET)).unwrap());
        let _listener = UnixListener::bind(living.join(SOCKET)).unwrap();
        drop(UnixListener::bind(held.join(SOCKET)).unwrap());
        let _held = hold(&held).unwrap();
        assert_eq!(remove_dead_in(root.path()), 1);
        assert_eq!([dead, living, fresh, held].map(|path| path.exists()), [false, true, true, true]);
    }
}
