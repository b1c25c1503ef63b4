//! The BPF file system that programs and tables are pinned in.
//!
//! What is pinned there stays until the last mount of that file system goes. Mount namespaces may
//! have one of their own, or none: `ip netns exec` gives its command a fresh /sys without it. Pins in
//! one that is mounted there end with the namespace, and so with the process: nothing would be
//! forwarded after a kill. So a process in another mount namespace than process 1 uses the file
//! system of process 1, where it may.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::sys::statfs::statfs;

/// Where it is mounted by custom.
pub const CUSTOM: &str = "/sys/fs/bpf";
/// The same, as process 1 sees it.
const OF_PROCESS_1: &str = "/proc/1/root/sys/fs/bpf";
/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// How long pins stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// Until they are removed, or the system ends.
    AsTheSystem,
    /// As above, in the file system of process 1, since this mount namespace has none that lasts.
    ThroughProcess1,
    /// Until the last process of this mount namespace ends.
    AsTheMountNamespace,
}

/// The file system to be used, and how long pins stay there.
#[must_use]
pub fn find() -> (PathBuf, Lasting) {
    choose(is_own_namespace(), device(Path::new(CUSTOM)), device(Path::new(OF_PROCESS_1)))
}

/// `own` and `theirs` are the devices of the two, where they are BPF file systems.
fn choose(is_own_namespace: Option<bool>, own: Option<u64>, theirs: Option<u64>) -> (PathBuf, Lasting) {
    match (is_own_namespace, own, theirs) {
        (Some(false), _, _) => (CUSTOM.into(), Lasting::AsTheSystem),
        // Where process 1 may not be looked into: one that is there has been mounted by somebody
        // who stays.
        (None, Some(_), _) => (CUSTOM.into(), Lasting::AsTheSystem),
        (_, Some(own), Some(theirs)) if own == theirs => (CUSTOM.into(), Lasting::AsTheSystem),
        (_, _, Some(_)) => (OF_PROCESS_1.into(), Lasting::ThroughProcess1),
        _ => (CUSTOM.into(), Lasting::AsTheMountNamespace),
    }
}

/// Whether the mount namespace is another one than that of process 1, if that can be found out.
fn is_own_namespace() -> Option<bool> {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    Some(namespace("1")? != namespace("self")?)
}

fn device(path: &Path) -> Option<u64> {
    let is_bpf = statfs(path).ok()?.filesystem_type().0 == BPF_FS_MAGIC;
    is_bpf.then(|| std::fs::metadata(path).ok().map(|found| found.dev())).flatten()
}

/// A name for `directory`, which need not be there yet, that the process goes on reaching it by when it
/// may not look into process 1 any more, or into a file system that is root's: through the directory
/// around it, which stays open.
///
/// # Errors
/// What the kernel says.
pub fn hold(directory: &Path) -> io::Result<PathBuf> {
    let (Some(around), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Ok(directory.to_owned());
    };
    mount_at(directory)?;
    DirBuilder::new().recursive(true).mode(0o700).create(around)?;
    // Who may not read it may look up what is his own there.
    std::fs::set_permissions(around, Permissions::from_mode(0o711))?;
    let held = open(around, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    Ok(Path::new("/proc/self/fd").join(held.into_raw_fd().to_string()).join(name))
}

/// Mounts the file system if `directory` is below the place where it is by custom and it is not there.
pub(crate) fn mount_at(directory: &Path) -> io::Result<()> {
    if !directory.starts_with(CUSTOM) || device(Path::new(CUSTOM)).is_some() {
        return Ok(());
    }
    let none: Option<&str> = None;
    Ok(mount(Some("bpf"), CUSTOM, Some("bpf"), MsFlags::empty(), none)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_go_where_they_last() {
        let (system, ours) = ((CUSTOM.into(), Lasting::AsTheSystem), (CUSTOM.into(), Lasting::AsTheMountNamespace));
        assert_eq!(choose(Some(false), None, None), system, "it will be mounted");
        assert_eq!(choose(Some(true), Some(7), Some(7)), system, "a service of systemd");
        assert_eq!(choose(Some(true), None, Some(7)), (OF_PROCESS_1.into(), Lasting::ThroughProcess1), "ip netns exec");
        assert_eq!(choose(Some(true), Some(8), Some(7)).1, Lasting::ThroughProcess1);
        assert_eq!(choose(Some(true), None, None), ours);
        assert_eq!(choose(None, Some(7), None), system, "a container");
        assert_eq!(choose(None, None, None), ours);
    }
}
