//! The sending threads: each pinned to its core, inside one long system call, until its stream has
//! sent everything.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, sigaction};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::packet_socket::PacketSocket;
use crate::realtime::become_realtime;
use crate::test_run::{run_live, run_once};

/// From include/uapi/linux/bpf.h.
const XDP_REDIRECT: u32 = 4;
/// Longest frame: a page less the headroom and tailroom of XDP.
const LONGEST_FRAME: usize = 3520;

/// Nanoseconds of CLOCK_MONOTONIC, the clock of the programs' time stamps.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// What one thread has to do.
pub(crate) struct Assignment {
    pub(crate) program: OwnedFd,
    pub(crate) core: usize,
    pub(crate) page: Vec<u8>,
    pub(crate) burst: u32,
    /// Calls of the program that suffice: the frames, and the idle calls while waiting.
    pub(crate) calls: u32,
    pub(crate) exit: Exit,
}

/// How the frames that the program makes reach the ports.
pub(crate) enum Exit {
    /// The kernel redirects them: live frames.
    Kernel,
    /// They come back from the kernel one by one and are sent through packet sockets.
    Sockets(Vec<SocketExit>),
}

/// A port's packet socket, and the link-layer header of the frames that leave through it.
pub(crate) struct SocketExit {
    pub(crate) header: [u8; 12],
    pub(crate) socket: PacketSocket,
}

extern "C" fn wake(_: libc::c_int) {}

/// A signal ends the system call; the handler has nothing to do. The signal is blocked everywhere
/// else.
pub(crate) fn install_wake_signal() -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(wake), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing at all, so it is safe at any point.
    unsafe { sigaction(Signal::SIGURG, &action) }?;
    Ok(())
}

/// Runs the assignment on the calling thread until `finished` says so.
pub(crate) fn send(assignment: &Assignment, finished: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
    pin_to(0, &[assignment.core])?;
    let _ = become_realtime(0, 1);
    let mut only_wake = SigSet::all();
    only_wake.remove(Signal::SIGURG);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&only_wake), None)?;
    if let Exit::Sockets(exits) = &assignment.exit {
        return send_through_sockets(assignment, exits, finished);
    }
    while !finished() {
        match run_live(assignment.program.as_fd(), &assignment.page, assignment.calls, assignment.burst) {
            Err(why) if why.raw_os_error() != Some(Errno::EINTR as i32) => return Err(why),
            _ => {}
        }
    }
    Ok(())
}

/// The same without live frames: the program makes one frame a call, as it would for the kernel,
/// and it is sent from here.
fn send_through_sockets(
    assignment: &Assignment,
    exits: &[SocketExit],
    finished: &(dyn Fn() -> bool + Sync),
) -> io::Result<()> {
    let mut made = [0; LONGEST_FRAME];
    while !finished() {
        let (answer, length) = run_once(assignment.program.as_fd(), &assignment.page, &mut made)?;
        if answer != XDP_REDIRECT {
            continue;
        }
        let frame = &made[..length];
        // Full queues are waited for: the program has counted the frame as sent.
        if let Some(exit) = exits.iter().find(|exit| frame.starts_with(&exit.header)) {
            while !exit.socket.send(frame)? && !finished() {}
        }
    }
    Ok(())
}

/// Binds a thread to cores; 0 is the calling thread.
///
/// # Errors
/// If a core does not exist or the thread is not ours.
pub fn pin_to(thread: i32, cores: &[usize]) -> io::Result<()> {
    let mut cpus = CpuSet::new();
    for core in cores {
        cpus.set(*core)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(thread), &cpus)?)
}

/// The thread of one assignment.
pub(crate) struct Sender<'scope> {
    handle: thread::ScopedJoinHandle<'scope, io::Result<()>>,
    id: std::sync::mpsc::Receiver<Pthread>,
    woken: AtomicBool,
}

impl<'scope> Sender<'scope> {
    pub(crate) fn start<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        assignment: Assignment,
        finished: &'env (dyn Fn() -> bool + Sync),
    ) -> Sender<'scope> {
        let (tell, id) = std::sync::mpsc::channel();
        let handle = scope.spawn(move || {
            let _ = tell.send(pthread_self());
            send(&assignment, finished)
        });
        Sender { handle, id, woken: AtomicBool::new(false) }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.handle.is_finished()
    }

    /// Ends the system call, once: the rest of its calls would only drop frames.
    pub(crate) fn wake(&self) {
        if self.is_done() || self.woken.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Ok(thread) = self.id.recv() {
            let _ = pthread_kill(thread, Signal::SIGURG);
        }
    }

    pub(crate) fn join(self) -> io::Result<()> {
        self.handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
