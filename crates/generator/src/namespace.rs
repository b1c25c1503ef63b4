//! Doing something inside a network namespace: on a thread of its own, so that no other thread
//! changes place.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};

/// A network namespace by its file, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace(PathBuf);

impl Namespace {
    /// The namespace of this file.
    pub fn at(path: impl Into<PathBuf>) -> Namespace {
        Namespace(path.into())
    }

    /// The namespace that `ip netns add NAME` made.
    pub fn named(name: &str) -> Namespace {
        Namespace(Path::new("/run/netns").join(name))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Runs `work` in the namespace, or where the caller is if there is none.
///
/// # Errors
/// If the namespace cannot be entered (no such file, no `CAP_SYS_ADMIN`) or the thread cannot be
/// started.
///
/// # Panics
/// If `work` does.
pub fn in_namespace<T: Send>(namespace: Option<&Namespace>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(namespace) = namespace else {
        return Ok(work());
    };
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            setns(File::open(namespace.path())?, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
