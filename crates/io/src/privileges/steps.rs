//! What a thread does to give up its privileges. Runs in a signal's handler: system calls only, no
//! memory is allocated, nothing is locked.

use std::os::fd::RawFd;

use nix::errno::Errno;
use seccompiler::sock_filter;

use super::calls::MARK;
use super::capabilities::Capabilities;

/// Capabilities that there may be, more than the kernel has (`CAP_LAST_CAP`).
const MOST: libc::c_ulong = 64;

/// What a thread becomes.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) user: libc::uid_t,
    pub(super) group: libc::gid_t,
    pub(super) groups: Vec<libc::gid_t>,
}

/// What each thread gives up.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) identity: Option<Identity>,
    pub(super) capabilities: Capabilities,
    pub(super) ruleset: Option<RawFd>,
    pub(super) filters: Vec<Vec<sock_filter>>,
}

/// The step that failed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) errno: Errno,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    User = 1,
    Capabilities,
    NoNewPrivileges,
    Landlock,
    Seccomp,
}

impl Step {
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::User, "becoming the user"),
        (Self::Capabilities, "dropping capabilities"),
        (Self::NoNewPrivileges, "giving up new privileges"),
        (Self::Landlock, "entering Landlock's restrictions"),
        (Self::Seccomp, "filtering system calls"),
    ];

    fn failed(self) -> impl FnOnce(Errno) -> Failure {
        move |errno| Failure { step: self, errno }
    }
}

impl Steps {
    /// Takes all steps. One that has been taken, by the thread that started this one, is not taken again.
    pub(super) fn take(&self) -> Result<(), Failure> {
        if is_restricted() {
            return Ok(());
        }
        self.shrink_bounds();
        if let Some(identity) = &self.identity {
            identity.assume().map_err(Step::User.failed())?;
        }
        self.capabilities.take().map_err(Step::Capabilities.failed())?;
        control(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(Step::NoNewPrivileges.failed())?;
        if let Some(ruleset) = self.ruleset {
            // SAFETY: no pointer is passed.
            let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) };
            Errno::result(result).map_err(Step::Landlock.failed())?;
        }
        for (place, filter) in self.filters.iter().enumerate() {
            // What is refused is logged by the kernel, but for what the first one refuses: see `calls`.
            let log = if place > 0 { libc::SECCOMP_FILTER_FLAG_LOG } else { 0 };
            install(filter, log | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW).map_err(Step::Seccomp.failed())?;
        }
        Ok(())
    }

    /// What no program could get back. Not without CAP_SETPCAP; and then it is none the worse, since
    /// there are no new privileges.
    fn shrink_bounds(&self) {
        for capability in (0..MOST).filter(|number| self.capabilities.bits() & 1 << number == 0) {
            let _ = control(libc::PR_CAPBSET_DROP, capability);
        }
        let _ = control(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong);
    }
}

impl Identity {
    /// The calls are the kernel's own, since those of the C library interrupt all threads themselves.
    fn assume(&self) -> Result<(), Errno> {
        let call = |result: libc::c_long| Errno::result(result).map(drop);
        // SAFETY: no pointer is passed.
        let is_it = unsafe { libc::syscall(libc::SYS_geteuid) == libc::c_long::from(self.user) };
        if is_it {
            return Ok(());
        }
        control(libc::PR_SET_KEEPCAPS, 1)?;
        // SAFETY: as many groups as are passed.
        call(unsafe { libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()) })?;
        // SAFETY: no pointer is passed.
        call(unsafe { libc::syscall(libc::SYS_setresgid, self.group, self.group, self.group) })?;
        // SAFETY: no pointer is passed.
        call(unsafe { libc::syscall(libc::SYS_setresuid, self.user, self.user, self.user) })?;
        control(libc::PR_SET_KEEPCAPS, 0)
    }
}

fn control(option: libc::c_int, value: libc::c_ulong) -> Result<(), Errno> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: the options that are used here take numbers.
    Errno::result(unsafe { libc::prctl(option, value, NONE, NONE, NONE) }).map(drop)
}

fn install(filter: &[sock_filter], flags: libc::c_ulong) -> Result<(), Errno> {
    let length = u16::try_from(filter.len()).map_err(|_| Errno::E2BIG)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the program has as many instructions as it says, laid out as the kernel's; it is only read.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    Errno::result(result).map(drop)
}

/// Whether the calling thread's system calls are filtered by this module: the filter has an answer of
/// its own to a request that the kernel does not know.
#[must_use]
pub fn is_restricted() -> bool {
    control(MARK, 0) == Err(Errno::ENOSYS)
}

/// Whether the kernel filters system calls.
pub(super) fn has_seccomp() -> bool {
    // SAFETY: without a program the kernel says EFAULT if it knows the call, and nothing happens.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::null::<libc::sock_fprog>())
    };
    Errno::result(result) == Err(Errno::EFAULT)
}
