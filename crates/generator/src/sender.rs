//! The sending threads: each pinned to its core, inside one long system call, until its stream has
//! sent everything.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, sigaction};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::af_xdp::AfXdp;
use crate::frame::Template;
use crate::layout::{MADE_FRAMES, Made, TEMPLATE_BYTES};
use crate::mapped::Mapped;
use crate::packet_socket::PacketSocket;
use crate::patience::Patience;
use crate::realtime::become_realtime;
use crate::test_run::{run_live, run_once};

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
    /// They are made a burst at a time, and sent from here.
    UserSpace(UserExit),
}

/// What a sending thread needs to send frames by itself.
pub(crate) struct UserExit {
    pub(crate) lane: usize,
    /// Where the program leaves them.
    pub(crate) made: Arc<Mapped<Made>>,
    /// By port; nothing where no direction leaves.
    pub(crate) doors: [Option<Arc<Mutex<Door>>>; 2],
}

/// How frames leave through one port, for one thread.
pub(crate) enum Door {
    AfXdp(Box<AfXdp>),
    /// The frame is filler, apart from what the program makes.
    Packet {
        socket: PacketSocket,
        frame: Vec<u8>,
    },
}

impl Door {
    /// Sends the frame, with the next [`flush`](Door::flush) at the latest.
    fn put(&mut self, made: &Made) -> io::Result<()> {
        match self {
            Door::AfXdp(socket) => socket.put(made),
            Door::Packet { socket, frame } => {
                frame[..TEMPLATE_BYTES].copy_from_slice(&made.bytes);
                let frame = &frame[..(made.length as usize).min(frame.len())];
                // Full queues are waited for: the program has counted the frame as sent.
                let mut patience = Patience::new();
                while !socket.send(frame)? {
                    patience.wait()?;
                }
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Door::AfXdp(socket) => socket.flush(),
            Door::Packet { .. } => Ok(()),
        }
    }
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
    if let Exit::UserSpace(exit) = &assignment.exit {
        return send_from_user_space(assignment, exit, finished);
    }
    while !finished() {
        match run_live(assignment.program.as_fd(), &assignment.page, assignment.calls, assignment.burst) {
            Err(why) if why.raw_os_error() != Some(Errno::EINTR as i32) => return Err(why),
            _ => {}
        }
    }
    Ok(())
}

/// The same without live frames: the program makes a burst a call, as it would for the kernel, and
/// the frames are sent from here.
fn send_from_user_space(
    assignment: &Assignment,
    exit: &UserExit,
    finished: &(dyn Fn() -> bool + Sync),
) -> io::Result<()> {
    let mut doors = exit.doors.each_ref().map(|door| door.as_ref().map(locked));
    let mut order = Template::page(u16::try_from(TEMPLATE_BYTES).unwrap_or(u16::MAX));
    order[..4].copy_from_slice(&u32::try_from(exit.lane).unwrap_or(u32::MAX).to_ne_bytes());
    while !finished() {
        let count = run_once(assignment.program.as_fd(), &order)? as usize;
        for place in 0..count.min(MADE_FRAMES) {
            let made = exit.made.get(exit.lane * MADE_FRAMES + place);
            if let Some(Some(door)) = doors.get_mut(made.port as usize) {
                door.put(&made)?;
            }
        }
        if count > 0 {
            doors.iter_mut().flatten().try_for_each(|door| door.flush())?;
        }
    }
    Ok(())
}

fn locked(door: &Arc<Mutex<Door>>) -> MutexGuard<'_, Door> {
    door.lock().unwrap_or_else(PoisonError::into_inner)
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
