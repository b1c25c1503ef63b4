//! The process groups of a lab, which end with it.

use std::{
    collections::HashSet,
    io,
    process::{Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// The process groups running in a lab, to be killed when it goes.
#[derive(Debug, Default)]
pub(crate) struct ProcessGroups {
    state: Mutex<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    alive: HashSet<Pid>,
    closed: bool,
}

impl ProcessGroups {
    /// The data are consistent at every step, so a panic elsewhere does not matter.
    fn locked(&self) -> MutexGuard<'_, Groups> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process and notes its group, in one step: a lab that is going away starts nothing
    /// any more.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<Child> {
        let mut groups = self.locked();
        if groups.closed {
            return Err(io::Error::other("the lab is being removed"));
        }
        let child = command.spawn()?;
        groups.alive.insert(Pid::from_raw(child.id().cast_signed()));
        Ok(child)
    }

    pub(crate) fn forget(&self, group: Pid) {
        self.locked().alive.remove(&group);
    }

    /// Kills every group, and every one that would be started from now on.
    pub(crate) fn close(&self) {
        let mut groups = self.locked();
        groups.closed = true;
        for group in groups.alive.drain() {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}
