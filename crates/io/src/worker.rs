//! The threads that serve the queues: one each, pinned to a processor.
//!
//! ```text
//! sleep in poll() --packet--> batch: up to 64 times receive, handle; flush --empty--> idle() --> sleep
//!        ^  |                        ^___________full: next batch___________|                       |
//!        |  +--stop or time--> idle()                                                               |
//!        +------------------------------------------------------------------------------------------+
//! ```
//!
//! The clock is read once a batch. `idle` is called when the queue is empty, and by the time that
//! it asked for itself even if the queue never is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::Pid;
use tombolo_engine::DropReason;
use tombolo_engine::packet::{Outbox, Packet};

use crate::clock::monotonic_nanos;
use crate::queue::{Buffer, TunQueue};

/// Packets handled under one reading of the clock and one snapshot of the plan.
pub const BATCH: usize = 64;

/// What is done with the packets of one queue. All times are nanoseconds of the monotonic clock.
pub trait Handler {
    /// A batch of 1 to [`BATCH`] packets, or a call of [`idle`](Self::idle), is about to begin: the
    /// moment to take the current plan.
    fn batch_start(&mut self, now: u64);

    /// One packet. Whatever is to be sent goes to `outbox`; the packet is gone afterwards.
    fn packet(&mut self, packet: &mut Packet<'_>, now: u64, outbox: &mut impl Outbox);

    /// What became of a packet of this batch was held, and the port has not taken it in the end. Said once of a packet.
    fn lost(&mut self, loss: Loss);

    /// No packet waits, or the time asked for has come. Says how long until the next call at the
    /// latest.
    fn idle(&mut self, now: u64, outbox: &mut impl Outbox) -> Duration;
}

/// A packet of which something was lost after it had been sent to a port that held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Which of the batch it was, counted from 0.
    pub number: usize,
    /// Why the device did not take it.
    pub reason: DropReason,
}

/// Where packets come from and go to.
pub trait Port: Outbox + AsFd {
    /// The next packet; `None` if none waits. Does not block.
    ///
    /// # Errors
    /// What makes the port useless from now on.
    fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>>;

    /// The batch is over: what was held of it is sent. Which of its packets were lost since.
    fn flush(&mut self) -> &[Loss] {
        &[]
    }
}

impl Port for TunQueue {
    fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>> {
        Self::recv(self, buffer)
    }
}

/// Tells workers to stop. Clones are the same signal.
#[derive(Debug, Clone)]
pub struct StopSignal(Arc<Signal>);

#[derive(Debug)]
struct Signal {
    is_set: AtomicBool,
    wake: EventFd,
}

impl StopSignal {
    /// A signal that is not given yet.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(Signal { is_set: AtomicBool::new(false), wake })))
    }

    /// Gives the signal. Workers finish the batch at hand.
    pub fn stop(&self) {
        self.0.is_set.store(true, Ordering::Release);
        // Nobody reads the counter, so every poll on it returns at once from now on. The write
        // fails only if the counter is full, and then it is readable anyway.
        let _ = self.0.wake.write(1);
    }

    /// True once the signal was given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }
}

/// A worker could not be started, or had to give up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// No thread.
    #[error("worker {name}: the system gives no more threads")]
    Spawn {
        /// Name of the thread.
        name: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Not allowed on that processor.
    #[error("worker {name} cannot run on processor {cpu}: choose one of {allowed}")]
    Pin {
        /// Name of the thread.
        name: String,
        /// The processor asked for.
        cpu: usize,
        /// Those that the process may use, as a list.
        allowed: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The port failed.
    #[error("worker {name} lost its device: was it removed while the gateway ran?")]
    Port {
        /// Name of the thread.
        name: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The handler panicked.
    #[error("worker {name} panicked; this is a defect, report it")]
    Panicked {
        /// Name of the thread.
        name: String,
    },
}

/// A running worker.
#[derive(Debug)]
pub struct Worker<H> {
    name: String,
    thread: JoinHandle<Result<H, WorkerError>>,
}

impl<H: Handler + Send + 'static> Worker<H> {
    /// Starts a thread that serves `port` with `handler` until `stop` is given; pinned to processor
    /// `cpu` if one is named.
    ///
    /// # Errors
    /// [`WorkerError::Spawn`], [`WorkerError::Pin`].
    pub fn start<P: Port + Send + 'static>(
        name: &str,
        cpu: Option<usize>,
        mut port: P,
        mut handler: H,
        stop: StopSignal,
    ) -> Result<Self, WorkerError> {
        let name = name.to_owned();
        if let Some(cpu) = cpu {
            check_processor(&name, cpu)?;
        }
        let thread_name = name.clone();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                if let Some(cpu) = cpu {
                    pin(&thread_name, cpu)?;
                }
                // Whatever ends one worker ends all, a panic too: a gateway with a dead queue would
                // lose a part of its flows in silence.
                let _ends_all = StopOnDrop(stop.clone());
                let result = serve(&mut port, &mut handler, &stop);
                result.map_err(|source| WorkerError::Port { name: thread_name, source })?;
                Ok(handler)
            })
            .map_err(|source| WorkerError::Spawn { name: name.clone(), source })?;
        Ok(Self { name, thread })
    }

    /// True once the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the thread and gives back its handler.
    ///
    /// # Errors
    /// [`WorkerError`] if it ended for another reason than the signal.
    pub fn join(self) -> Result<H, WorkerError> {
        self.thread.join().unwrap_or(Err(WorkerError::Panicked { name: self.name }))
    }
}

struct StopOnDrop(StopSignal);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves a port on the calling thread until `stop` is given.
///
/// # Errors
/// What made the port useless.
pub fn serve<P: Port, H: Handler>(port: &mut P, handler: &mut H, stop: &StopSignal) -> io::Result<()> {
    let mut buffer = Buffer::new();
    let mut idle_due = 0;
    while !stop.is_given() {
        let now = monotonic_nanos();
        let filled = batch(port, handler, &mut buffer, now)?;
        if filled && now < idle_due {
            continue;
        }
        if !filled {
            handler.batch_start(now);
        }
        let pause = handler.idle(now, port);
        idle_due = now.saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX));
        if !filled {
            wait(port.as_fd(), stop, pause)?;
        }
    }
    Ok(())
}

/// Handles up to [`BATCH`] packets, and has the port send what it holds of them. True if there may be more.
fn batch<P: Port, H: Handler>(port: &mut P, handler: &mut H, buffer: &mut Buffer, now: u64) -> io::Result<bool> {
    let result = handle(port, handler, buffer, now);
    port.flush().iter().for_each(|&loss| handler.lost(loss));
    result
}

fn handle<P: Port, H: Handler>(port: &mut P, handler: &mut H, buffer: &mut Buffer, now: u64) -> io::Result<bool> {
    for number in 0..BATCH {
        let Some(mut packet) = port.recv(buffer)? else { return Ok(false) };
        if number == 0 {
            handler.batch_start(now);
        }
        handler.packet(&mut packet, now, port);
    }
    Ok(true)
}

/// Sleeps until a packet waits, the signal is given, or the time is over.
fn wait(port: BorrowedFd<'_>, stop: &StopSignal, pause: Duration) -> io::Result<()> {
    let mut descriptors = [PollFd::new(port, PollFlags::POLLIN), PollFd::new(stop.0.wake.as_fd(), PollFlags::POLLIN)];
    // Rounded up to the millisecond: waking too early would only mean to sleep again.
    let millis = pause.as_micros().div_ceil(1000);
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match poll(&mut descriptors, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Processors that this process may use, in order.
///
/// # Errors
/// What the kernel says.
pub fn processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

/// Makes the calling thread yield to threads of ordinary priority, the workers: `nice` is 0 to 19,
/// the higher the more.
pub fn lower_priority(nice: i32) {
    const THIS_THREAD: libc::id_t = 0;
    // SAFETY: no pointer is passed. In Linux the priority is the thread's, whatever POSIX says. It
    // may always be lowered; if it fails all the same, the thread only is as important as others.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, THIS_THREAD, nice) };
}

fn check_processor(name: &str, cpu: usize) -> Result<(), WorkerError> {
    match processors() {
        Ok(allowed) if !allowed.contains(&cpu) => {
            Err(pin_error(name, cpu, io::Error::from(io::ErrorKind::InvalidInput)))
        }
        _ => Ok(()),
    }
}

fn pin(name: &str, cpu: usize) -> Result<(), WorkerError> {
    stay_on(cpu).map_err(|error| pin_error(name, cpu, error))
}

/// Keeps the calling thread on one processor.
///
/// # Errors
/// What the kernel says.
pub fn stay_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn pin_error(name: &str, cpu: usize, source: io::Error) -> WorkerError {
    let allowed: Vec<String> = processors().unwrap_or_default().iter().map(ToString::to_string).collect();
    WorkerError::Pin { name: name.to_owned(), cpu, allowed: allowed.join(", "), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use tombolo_engine::packet::{HEADROOM, Offload};

    /// One end of a datagram socket pair as a port.
    struct Pair(UnixDatagram);

    impl Pair {
        fn new() -> (Self, UnixDatagram) {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            (Self(ours), theirs)
        }
    }

    impl AsFd for Pair {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Outbox for Pair {
        fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
            self.0.send(packet.bytes()).map(drop).map_err(|_| DropReason::DeviceRefused)
        }
    }

    impl Port for Pair {
        fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>> {
            match self.0.recv(&mut buffer.bytes_mut()[HEADROOM..]) {
                // A datagram of this one byte stands for the loss of the device.
                Ok(1) => Err(io::Error::other("gone")),
                Ok(length) => Ok(Packet::new(buffer.bytes_mut(), HEADROOM, length, Offload::default())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Sends every packet back and keeps count of what it was asked.
    #[derive(Default)]
    struct Echo {
        batches: Vec<u64>,
        packets: Vec<u64>,
        losses: Vec<Loss>,
        idles: usize,
    }

    impl Handler for Echo {
        fn batch_start(&mut self, now: u64) {
            self.batches.push(now);
        }

        fn packet(&mut self, packet: &mut Packet<'_>, now: u64, outbox: &mut impl Outbox) {
            self.packets.push(now);
            outbox.send(packet).unwrap();
        }

        fn lost(&mut self, loss: Loss) {
            self.losses.push(loss);
        }

        fn idle(&mut self, _: u64, _: &mut impl Outbox) -> Duration {
            self.idles += 1;
            Duration::from_secs(3600)
        }
    }

    #[test]
    fn packets_go_through_the_handler_and_the_signal_ends_the_sleep() {
        let (port, peer) = Pair::new();
        let stop = StopSignal::new().unwrap();
        let worker = Worker::start("echo", None, port, Echo::default(), stop.clone()).unwrap();
        for text in ["first", "second"] {
            peer.send(text.as_bytes()).unwrap();
            let mut answer = [0; 16];
            let length = peer.recv(&mut answer).unwrap();
            assert_eq!(&answer[..length], text.as_bytes());
        }
        stop.stop();
        let handler = worker.join().unwrap();
        assert_eq!(handler.packets.len(), 2);
        assert!(handler.idles >= 1);
    }

    #[test]
    fn a_batch_has_one_time_and_one_start() {
        let (mut port, peer) = Pair::new();
        peer.set_nonblocking(true).unwrap();
        for _ in 0..3 {
            peer.send(b"xx").unwrap();
        }
        let mut handler = Echo::default();
        let more = batch(&mut port, &mut handler, &mut Buffer::new(), 77).unwrap();
        assert!(!more);
        assert_eq!(handler.batches, [77]);
        assert_eq!(handler.packets, [77; 3]);
    }

    /// A port that holds what it is sent, and says that so much of it was lost.
    struct Losing(Pair, Vec<Loss>);

    impl AsFd for Losing {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Outbox for Losing {
        fn send(&mut self, _: &mut Packet<'_>) -> Result<(), DropReason> {
            Ok(())
        }
    }

    impl Port for Losing {
        fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>> {
            self.0.recv(buffer)
        }

        fn flush(&mut self) -> &[Loss] {
            &self.1
        }
    }

    #[test]
    fn what_a_port_loses_of_a_batch_is_said_when_the_batch_is_over() {
        let (port, peer) = Pair::new();
        peer.send(b"xx").unwrap();
        let losses = vec![Loss { number: 0, reason: DropReason::DeviceBusy }];
        let mut handler = Echo::default();
        batch(&mut Losing(port, losses.clone()), &mut handler, &mut Buffer::new(), 1).unwrap();
        assert_eq!((handler.packets.len(), handler.losses), (1, losses));
    }

    #[test]
    fn a_lost_device_ends_the_worker_and_the_others() {
        let (port, peer) = Pair::new();
        let stop = StopSignal::new().unwrap();
        let worker = Worker::start("w0", None, port, Echo::default(), stop.clone()).unwrap();
        peer.send(b"!").unwrap();
        let error = worker.join().err().unwrap();
        assert!(matches!(error, WorkerError::Port { .. }), "{error}");
        assert!(stop.is_given());
    }

    #[test]
    fn a_worker_is_pinned_to_a_processor_it_may_use() {
        let (port, _peer) = Pair::new();
        let stop = StopSignal::new().unwrap();
        let error = Worker::start("w0", Some(1023), port, Echo::default(), stop.clone()).err().unwrap();
        assert!(error.to_string().starts_with("worker w0 cannot run on processor 1023: choose one of "), "{error}");

        let last = *processors().unwrap().last().unwrap();
        let seen = std::thread::spawn(move || {
            pin("w0", last).unwrap();
            processors().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
    }

    #[test]
    fn stop_signals_are_shared_by_their_clones() {
        let stop = StopSignal::new().unwrap();
        let clone = stop.clone();
        assert!(!clone.is_given());
        stop.stop();
        stop.stop();
        assert!(clone.is_given());
        let port = OwnedFd::from(UnixDatagram::pair().unwrap().0);
        wait(port.as_fd(), &clone, Duration::from_secs(3600)).unwrap();
    }
}
