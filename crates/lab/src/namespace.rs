//! A named network namespace: made, entered, removed.
//!
//! A namespace is a file under /run/netns with the namespace bind-mounted on it, exactly as `ip
//! netns add` leaves it, so that `ip netns exec NAME` works on a lab. Unlike `ip netns exec`,
//! nothing is remounted under /sys for the processes started here: bpffs stays reachable, and
//! /sys/class/net keeps showing the caller's interfaces (use netlink instead).

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd as _, BorrowedFd},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

use crate::{LabError, groups::ProcessGroups, pins};

/// Where namespaces have their names.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// One node of a lab: a network namespace, and everything that can be done in it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: Arc<str>,
    file: Arc<File>,
    groups: Arc<ProcessGroups>,
}

impl Namespace {
    /// Makes a namespace with a name; loopback is still down.
    pub(crate) fn create(name: &str, groups: Arc<ProcessGroups>) -> Result<Self, LabError> {
        let path = path_of(name);
        let directory = prepare_directory()?;
        directory.lock().map_err(|e| LabError::system(format!("lock {DIRECTORY}"), e))?;
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| LabError::system(format!("create {}", path.display()), e))?;
        let made = on_thread(|| mount_new_namespace(&path)).and_then(|()| Self::open(name, groups));
        if made.is_err() {
            drop(fs::remove_file(&path));
        }
        made
    }

    /// Opens a namespace that exists.
    pub(crate) fn open(name: &str, groups: Arc<ProcessGroups>) -> Result<Self, LabError> {
        let path = path_of(name);
        let file =
            File::open(&path).map_err(|e| LabError::system(format!("open the namespace {}", path.display()), e))?;
        Ok(Self { name: name.into(), file: Arc::new(file), groups })
    }

    /// The full name, as `ip netns` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that is the namespace.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path_of(&self.name)
    }

    /// The open namespace, for `setns` or for moving interfaces here.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Runs a closure inside the namespace, on a thread of its own, and waits for it. Sockets, TUN
    /// devices and BPF attachments that it makes belong to the namespace and may be handed back.
    ///
    /// # Errors
    /// [`LabError`] when the thread cannot enter the namespace.
    ///
    /// # Panics
    /// When the closure panics, with its panic.
    pub fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        on_thread(|| {
            self.enter()?;
            Ok(closure())
        })
    }

    /// Starts a closure inside the namespace on a thread of its own.
    ///
    /// # Errors
    /// [`LabError`] when there is no thread to be had. That it cannot enter the namespace is in the
    /// thread's result.
    pub fn spawn<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Result<thread::JoinHandle<Result<T, LabError>>, LabError> {
        let here = self.clone();
        let body = move || {
            here.enter()?;
            Ok(closure())
        };
        let builder = thread::Builder::new().name("lab-thread".to_owned());
        builder.spawn(body).map_err(|e| LabError::system("start a thread", e))
    }

    /// Sets a kernel parameter of the namespace, named as for sysctl(8):
    /// `net.ipv6.conf.all.forwarding`. Interface names with dots are not supported.
    ///
    /// # Errors
    /// [`LabError::System`] when the kernel lacks it or refuses the value.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        // /proc/sys/net shows the namespace of the thread that opens it.
        self.run(|| fs::write(&path, value))?
            .map_err(|e| LabError::system(format!("set {key} to `{value}` in {}", self.name), e))
    }

    /// Reads a kernel parameter of the namespace.
    ///
    /// # Errors
    /// [`LabError::System`] when the kernel lacks it.
    pub fn sysctl(&self, key: &str) -> Result<String, LabError> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.run(|| fs::read_to_string(&path))?
            .map(|value| value.trim().to_owned())
            .map_err(|e| LabError::system(format!("read {key} in {}", self.name), e))
    }

    /// The process groups that end with the lab.
    pub(crate) fn groups(&self) -> &Arc<ProcessGroups> {
        &self.groups
    }

    /// Moves the calling thread, and only it, into the namespace, for good.
    fn enter(&self) -> Result<(), LabError> {
        setns(self.as_fd(), CloneFlags::CLONE_NEWNET)
            .map_err(|e| LabError::system(format!("enter the namespace {}", self.name), e))
    }
}

/// Unmounts and removes a namespace's name. The namespace itself goes when the last process and
/// descriptor in it go.
pub(crate) fn remove(name: &str) -> Result<(), LabError> {
    let path = path_of(name);
    if let Ok(file) = fs::metadata(&path) {
        pins::remove_of_gateways(file.ino());
    }
    pins::remove_named(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: a file that nothing is mounted on, left over from a creation that was killed
        // halfway.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(errno) => {
            return Err(LabError::system(format!("unmount {}", path.display()), errno));
        }
    }
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LabError::system(format!("remove {}", path.display()), e)),
        _ => Ok(()),
    }
}

pub(crate) fn path_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Makes /run/netns a shared mount of its own, as iproute2 does, so that a namespace that is
/// unmounted here is not kept alive by a copy of the mount in a service's private mount namespace.
/// Returns the open directory.
fn prepare_directory() -> Result<File, LabError> {
    let failed = |e: io::Error| LabError::system(format!("prepare {DIRECTORY}"), e);
    fs::create_dir_all(DIRECTORY).map_err(failed)?;
    let directory = File::open(DIRECTORY).map_err(failed)?;
    // The lock that ip(8) takes, so that two programs do not both mount it.
    directory.lock().map_err(failed)?;
    let none: Option<&str> = None;
    let share = || mount(none, DIRECTORY, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none);
    let shared = match share() {
        Err(Errno::EINVAL) => {
            mount(Some(DIRECTORY), DIRECTORY, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).and_then(|()| share())
        }
        other => other,
    };
    shared.map_err(|errno| failed(errno.into()))?;
    // Opened again: the first descriptor is of the directory under the mount.
    File::open(DIRECTORY).map_err(failed)
}

/// Gives the calling thread a new network namespace and mounts that on `path`.
fn mount_new_namespace(path: &Path) -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| LabError::system("make a network namespace", e))?;
    let none: Option<&str> = None;
    mount(Some("/proc/thread-self/ns/net"), path, none, MsFlags::MS_BIND, none)
        .map_err(|e| LabError::system(format!("mount a namespace on {}", path.display()), e))
}

/// Runs a closure on a thread that ends with it, since a thread that has changed its namespace is
/// of no other use.
fn on_thread<T: Send>(closure: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
    thread::scope(|scope| {
        let started = thread::Builder::new().name("lab-thread".to_owned()).spawn_scoped(scope, closure);
        let handle = started.map_err(|e| LabError::system("start a thread", e))?;
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
