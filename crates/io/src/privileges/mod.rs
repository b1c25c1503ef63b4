//! Gives up, for good and in all threads, what a running gateway does not need: its user, its
//! capabilities, most system calls, and most of the file system.
//!
//! Read first: Linux `Documentation/userspace-api/{seccomp_filter,landlock,no_new_privs}.rst`,
//! capabilities(7).
//!
//! All of that belongs to threads, not to processes. A thread hands it down to those that it starts, but
//! a gateway becomes complete only when its threads run. So each thread is interrupted by a signal and
//! gives things up in the signal's handler, one after the other; `threads` does that. In each the order
//! is what the kernel demands:
//!
//! ```text
//! bounding set, ambient set   while CAP_SETPCAP is there
//! groups, group, user         while CAP_SETUID and CAP_SETGID are; permitted capabilities are kept
//! capabilities                permitted = effective = what is needed; inheritable = none
//! no new privileges           without it an unprivileged thread may use neither of the next two
//! Landlock                    while the call is allowed
//! seccomp                     last: it forbids all of the above
//! ```
//!
//! What the kernel lacks is left out, and [`InForce`] says so.

mod calls;
mod capabilities;
mod error;
mod files;
#[cfg(debug_assertions)]
pub(crate) mod forbidden;
mod steps;
mod threads;

use std::os::fd::{AsRawFd, OwnedFd};

use nix::unistd::{Gid, Uid};

pub use calls::Calls;
pub use capabilities::{Capabilities, Capability};
pub use error::PrivilegeError;
pub use files::{Access, FileRule, Files, restricts_ports};
pub use steps::is_restricted;
pub use threads::Tasks;

use error::prepare;
use steps::{Identity, Steps};

/// What is to be given up.
#[derive(Debug, Default)]
pub struct Wanted {
    /// User to become, with its group and all its groups.
    pub user: Option<(Uid, Gid, Vec<Gid>)>,
    /// What is kept, as far as it is there.
    pub capabilities: Capabilities,
    /// The system calls that are left; `None` for all.
    pub calls: Option<Calls>,
    /// The files that are left; `None` for all.
    pub files: Option<Files>,
}

/// Everything prepared, and nothing given up yet: what the file system is needed for has been done.
#[derive(Debug)]
pub struct Restriction {
    user: Option<(Uid, Gid, Vec<Gid>)>,
    wanted: Capabilities,
    filters: Vec<Vec<seccompiler::sock_filter>>,
    has_calls: bool,
    ruleset: Option<OwnedFd>,
    /// Files of pseudo file systems, which the kernel knows for as long as they are open.
    held: Vec<OwnedFd>,
    has_files: bool,
    tasks: Tasks,
}

/// What is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The capabilities that are left.
    pub capabilities: Capabilities,
    /// Whether system calls are filtered; `None` if that was not asked for.
    pub calls: Option<bool>,
    /// Landlock's version, 0 if the kernel has none or it is switched off; `None` if it was not asked for.
    pub files: Option<i32>,
    /// Threads that have given up what is not needed.
    pub threads: usize,
}

impl InForce {
    /// Whether only some TCP ports may be connected to.
    #[must_use]
    pub fn restricts_ports(&self) -> bool {
        self.files.is_some_and(|version| version >= files::KNOWS_TCP)
    }
}

impl Restriction {
    /// Prepares what is to be given up, by the process's threads.
    ///
    /// # Errors
    /// [`PrivilegeError::Prepare`].
    pub fn prepare(wanted: Wanted, tasks: Tasks) -> Result<Self, PrivilegeError> {
        let (has_calls, has_files) = (wanted.calls.is_some(), wanted.files.is_some());
        let filters = match wanted.calls {
            Some(calls) if steps::has_seccomp() => calls.filters()?,
            _ => Vec::new(),
        };
        let (ruleset, held) = wanted.files.map(Files::ruleset).transpose()?.unwrap_or_default();
        Ok(Self { user: wanted.user, wanted: wanted.capabilities, filters, has_calls, ruleset, held, has_files, tasks })
    }

    /// Gives it up, in all threads. Threads that are started from then on have no more.
    ///
    /// # Errors
    /// [`PrivilegeError`]. Some threads may have given it up then.
    pub fn enforce(self) -> Result<InForce, PrivilegeError> {
        let found = Capabilities::permitted().map_err(prepare("reading the capabilities"))?;
        let capabilities = self.wanted.and(found);
        let calls = self.has_calls.then_some(!self.filters.is_empty());
        let files = self.has_files.then(|| if self.ruleset.is_some() { files::version() } else { 0 });
        let identity = self.user.map(|(user, group, groups)| Identity {
            user: user.as_raw(),
            group: group.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        });
        let ruleset = self.ruleset.as_ref().map(AsRawFd::as_raw_fd);
        // A thread may be late; it finds them there for as long as the process lives.
        let steps = Box::leak(Box::new(Steps { identity, capabilities, ruleset, filters: self.filters }));
        let threads = threads::in_each(&self.tasks, steps)?;
        // Open for as long as the process lives.
        self.held.into_iter().for_each(std::mem::forget);
        Ok(InForce { capabilities, calls, files, threads })
    }
}
