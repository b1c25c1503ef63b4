//! A cable with a delay: frames are taken from one interface, kept for a while, and sent out of
//! another.
//!
//! ```text
//!   node A            relay namespace             node B
//!   eth ---veth--- end0  [queue, queue]  end1 ---veth--- eth
//! ```
//!
//! The kernel's own means is the netem queueing discipline, which many kernels (of containers and
//! small virtual machines above all) are built without. This relay behaves the same everywhere, so
//! labs always use it. What it costs: two copies of every frame and two system calls, about 2 us a
//! frame, on one thread per link; so measure *latency-bound* behaviour over it, not throughput.
//!
//! Frames travel with their virtio header (PACKET_VNET_HDR): super-packets and packets without
//! checksums, which veth relies on, come out as they went in. Each direction holds at most
//! [`QUEUE_BYTES`]; beyond it, frames are lost, as in any real queue.

use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        socket::{MsgFlags, recv, send},
        time::TimeSpec,
    },
};

use crate::{LabError, Namespace, frames::open};

/// What one direction may hold.
const QUEUE_BYTES: usize = 64 << 20;

/// The largest read: a virtio header, an Ethernet header, a super-packet of 64 KiB.
const FRAME_BYTES: usize = 10 + 18 + (64 << 10);

/// A running relay between two interfaces of one namespace; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<(), LabError>>>,
}

/// One direction: where frames come from, where they go, and those on their way, oldest first.
struct Direction<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    waiting: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Relay {
    /// Starts moving frames between two interfaces of `namespace`, each after `delay`.
    pub(crate) fn start(namespace: &Namespace, interfaces: [&str; 2], delay: Duration) -> Result<Self, LabError> {
        let failed = |e: io::Error| LabError::system("start the relay of a delayed link", e);
        let [left, right] = [namespace.index_of(interfaces[0])?, namespace.index_of(interfaces[1])?];
        let sockets = namespace.run(|| Ok((open(left, true)?, open(right, true)?)))?.map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let thread = namespace.spawn(move || relay(&sockets.0, &sockets.1, delay, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What the relay could not do any more is of no interest now.
            drop(thread.join());
        }
    }
}

/// Moves frames both ways until `stopped` hangs up.
fn relay(left: &OwnedFd, right: &OwnedFd, delay: Duration, stopped: &UnixStream) {
    let mut directions = [Direction::new(left, right), Direction::new(right, left)];
    let mut buffer = vec![0; FRAME_BYTES];
    loop {
        let next = directions.iter().filter_map(Direction::next).min();
        let timeout = next.map(|at| TimeSpec::from(at.saturating_duration_since(Instant::now())));
        let mut watched = [
            PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(left.as_fd(), PollFlags::POLLIN),
            PollFd::new(right.as_fd(), PollFlags::POLLIN),
        ];
        // Interrupted by a signal is as good as timed out: everything is looked at below.
        let _ = ppoll(&mut watched, timeout, None);
        if watched[0].any().unwrap_or(true) {
            return;
        }
        for direction in &mut directions {
            direction.receive(&mut buffer, delay);
            direction.send_due();
        }
    }
}

impl<'a> Direction<'a> {
    fn new(from: &'a OwnedFd, to: &'a OwnedFd) -> Self {
        Self { from, to, waiting: VecDeque::new(), bytes: 0 }
    }

    /// When the oldest frame is due.
    fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Takes in what has arrived, at most 64 frames, so that sending has its turn.
    fn receive(&mut self, buffer: &mut [u8], delay: Duration) {
        for _ in 0..64 {
            let Ok(length) = recv(self.from.as_raw_fd(), buffer, MsgFlags::empty()) else {
                return;
            };
            if self.bytes + length <= QUEUE_BYTES {
                self.bytes += length;
                self.waiting.push_back((Instant::now() + delay, buffer[..length].to_vec()));
            }
        }
    }

    fn send_due(&mut self) {
        while self.next().is_some_and(|due| due <= Instant::now())
            && let Some((_, frame)) = self.waiting.pop_front()
        {
            self.bytes -= frame.len();
            // A full device queue loses the frame, as a real one would.
            let _ = send(self.to.as_raw_fd(), &frame, MsgFlags::empty());
        }
    }
}
