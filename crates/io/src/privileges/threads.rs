//! All threads of the process do the same, each in a signal's handler, one after the other.

use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SaFlags, SigSet};
use nix::sys::stat::Mode;
use nix::unistd::gettid;

use super::error::{PrivilegeError, prepare};
use super::steps::{Failure, Step, Steps};

/// How long a thread has to answer.
const PATIENCE: Duration = Duration::from_secs(10);
const PACE: Duration = Duration::from_micros(50);
/// Above the two or three that the C library uses itself.
const ABOVE_LIBRARY: libc::c_int = 5;

/// What is to be done; null if nothing.
static WORK: AtomicPtr<Steps> = AtomicPtr::new(ptr::null_mut());
/// What the thread at work has said.
static ANSWER: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = u32::MAX;
const DONE: u32 = 0;

/// The list of the process's threads; open, so that it can be read in another root directory.
#[derive(Debug)]
pub struct Tasks(Dir);

impl Tasks {
    /// Opens it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        Ok(Self(Dir::open("/proc/self/task", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?))
    }

    fn list(&self) -> io::Result<Vec<i32>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut directory = Dir::openat(self.0.as_fd(), ".", flags, Mode::empty())?;
        let names =
            directory.iter().map(|entry| Ok(entry?.file_name().to_str().ok().and_then(|name| name.parse().ok())));
        names.filter_map(Result::transpose).collect()
    }
}

/// Has each thread take `steps`, the calling one last. Says how many there were.
pub(super) fn in_each(tasks: &Tasks, steps: &'static Steps) -> Result<usize, PrivilegeError> {
    let failed = |action| prepare::<io::Error>(action);
    let signal = libc::SIGRTMIN() + ABOVE_LIBRARY;
    handle(signal, obey as *const () as libc::sighandler_t).map_err(failed("preparing a signal"))?;
    WORK.store(ptr::from_ref(steps).cast_mut(), Ordering::Release);
    let own = gettid().as_raw();
    let mut known = vec![own];
    let result = loop {
        // Those that are there hand down what they have; those that they have started before are new here.
        let new: Vec<i32> = match tasks.list() {
            Ok(list) => list.into_iter().filter(|thread| !known.contains(thread)).collect(),
            Err(error) => break Err(failed("listing the threads")(error)),
        };
        if new.is_empty() {
            break Ok(());
        }
        if let Some(error) = new.iter().find_map(|&thread| interrupt(thread, signal).err()) {
            break Err(error);
        }
        known.extend(new);
    };
    let result = result.and_then(|()| steps.take().map_err(|failure| error(own, failure)));
    // A thread that answers too late finds nothing to do.
    WORK.store(ptr::null_mut(), Ordering::Release);
    let _ = handle(signal, libc::SIG_IGN);
    result.map(|()| known.len())
}

/// Interrupts a thread and waits for its answer. One that has ended meanwhile is done.
fn interrupt(thread: i32, signal: libc::c_int) -> Result<(), PrivilegeError> {
    ANSWER.store(NONE, Ordering::Release);
    let began = Instant::now();
    let mut asked = send(thread, signal);
    while asked.is_ok() {
        match ANSWER.load(Ordering::Acquire) {
            NONE => {}
            DONE => return Ok(()),
            answer => return Err(error(thread, decode(answer))),
        }
        if began.elapsed() > PATIENCE {
            return Err(PrivilegeError::Silent(thread));
        }
        std::thread::sleep(PACE);
        asked = send(thread, 0);
    }
    Ok(())
}

fn send(thread: i32, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: no pointer is passed; the thread is one of this process.
    Errno::result(unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, signal) }).map(drop)
}

/// The handler.
extern "C" fn obey(_: libc::c_int) {
    // SAFETY: the thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; what was interrupted shall find it as it was.
    let before = unsafe { errno.read() };
    // SAFETY: it is there for as long as the process lives.
    if let Some(steps) = unsafe { WORK.load(Ordering::Acquire).as_ref() } {
        let answer = match steps.take() {
            Ok(()) => DONE,
            Err(Failure { step, errno }) => u32::from(step as u8) << 16 | (errno as i32).unsigned_abs(),
        };
        ANSWER.store(answer, Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

fn decode(answer: u32) -> Failure {
    let step = Step::ALL.into_iter().find(|(step, _)| u32::from(*step as u8) == answer >> 16);
    let errno = Errno::from_raw(i32::try_from(answer & 0xffff).unwrap_or_default());
    Failure { step: step.map_or(Step::Seccomp, |(step, _)| step), errno }
}

fn error(thread: i32, Failure { step, errno }: Failure) -> PrivilegeError {
    let name = Step::ALL.into_iter().find(|(other, _)| *other == step).map_or("", |(_, name)| name);
    PrivilegeError::Step { thread, step: name, source: errno.into() }
}

/// What happens on a signal: calls that it interrupts go on.
fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: all zero is a valid value; the members that count are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = SaFlags::SA_RESTART.bits();
    action.sa_mask = *SigSet::all().as_ref();
    // SAFETY: a handler that does nothing but system calls, or none.
    Ok(Errno::result(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) }).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_given() {
        for (step, _) in Step::ALL {
            let failure = Failure { step, errno: Errno::EACCES };
            assert_eq!(decode(u32::from(step as u8) << 16 | Errno::EACCES as u32), failure);
        }
    }

    #[test]
    fn the_threads_are_listed() {
        let list = Tasks::open().unwrap().list().unwrap();
        assert!(list.contains(&gettid().as_raw()), "{list:?}");
    }
}
