//! One queue of a TUN device: packets in, packets out, one system call each.
//!
//! ```text
//! Buffer  |<- HEADROOM (128) ->|<------ packet, at most 65,575 bytes ------>|<- spare ->|
//!                   | vnet |   ^ 16-byte aligned
//!                   read() and write() begin here: 10 bytes before the packet
//! ```
//!
//! A super-packet of up to 64 KiB crosses in one piece. Nothing is allocated or copied.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use tombolo_engine::DropReason;
use tombolo_engine::packet::{HEADROOM, Outbox, Packet, SENDERS_ROOM};

use crate::vnet::{VNET_HEADER_BYTES, VnetHeader};

/// Bytes of a [`Buffer`]: the headroom, the longest IPv6 packet without jumbo payload (40 +
/// 65,535), and some spare behind it.
pub const BUFFER_BYTES: usize = 66 * 1024;

const _: () = assert!(BUFFER_BYTES >= HEADROOM + 40 + 65_535 && HEADROOM >= SENDERS_ROOM);
// Whatever the engine makes of a packet, it can be sent.
const _: () = assert!(SENDERS_ROOM >= VNET_HEADER_BYTES);

/// Where a queue puts one packet. Its alignment keeps the IP header of a received packet at a
/// multiple of sixteen.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Buffer([u8; BUFFER_BYTES]);

impl Buffer {
    /// A buffer of zeros.
    #[must_use]
    pub fn new() -> Box<Self> {
        Box::new(Self([0; BUFFER_BYTES]))
    }

    /// All of it.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// What a queue received and sent. Written by the queue's thread alone, read by anyone. What the kernel
/// refuses is a drop of the engine's.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct QueueCounters {
    received_packets: AtomicU64,
    received_bytes: AtomicU64,
    received_unusable: AtomicU64,
    sent_packets: AtomicU64,
    sent_bytes: AtomicU64,
}

/// What one queue has counted, or several together. A super-packet counts once; bytes count from
/// the IP header on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueTotals {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received with a virtio header that makes no sense, and dropped.
    pub received_unusable: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

impl QueueCounters {
    /// Adds what this queue has counted.
    pub fn add_to(&self, totals: &mut QueueTotals) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        totals.received_packets += read(&self.received_packets);
        totals.received_bytes += read(&self.received_bytes);
        totals.received_unusable += read(&self.received_unusable);
        totals.sent_packets += read(&self.sent_packets);
        totals.sent_bytes += read(&self.sent_bytes);
    }

    /// What this queue has counted.
    #[must_use]
    pub fn read(&self) -> QueueTotals {
        let mut totals = QueueTotals::default();
        self.add_to(&mut totals);
        totals
    }
}

/// Adds to a counter that has one writer: a load and a store, no locked instruction.
fn add(counter: &AtomicU64, count: usize) {
    counter.store(counter.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
}

/// One queue of a TUN device, for one thread.
#[derive(Debug)]
pub struct TunQueue {
    descriptor: OwnedFd,
    device: Arc<str>,
    number: usize,
    counters: Arc<QueueCounters>,
}

impl TunQueue {
    pub(crate) fn new(descriptor: OwnedFd, device: Arc<str>, number: usize) -> Self {
        Self { descriptor, device, number, counters: Arc::default() }
    }

    /// Name of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Number of the queue within its device, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The queue's counters, to be kept by whoever reports them.
    #[must_use]
    pub fn counters(&self) -> Arc<QueueCounters> {
        Arc::clone(&self.counters)
    }

    /// The next packet; `None` if none waits. Does not block.
    ///
    /// # Errors
    /// What the kernel says when the device is gone; the queue is of no use afterwards.
    pub fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>> {
        let room = &mut buffer.0[HEADROOM - VNET_HEADER_BYTES..];
        let (offload, length) = loop {
            let count = match nix::unistd::read(&self.descriptor, room) {
                Ok(count) => count,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let Some((header, packet)) = room[..count].split_first_chunk_mut() else {
                add(&self.counters.received_unusable, 1);
                continue;
            };
            match VnetHeader::parse(*header).into_offload(packet) {
                Ok(offload) => break (offload, packet.len()),
                Err(_) => add(&self.counters.received_unusable, 1),
            }
        };
        add(&self.counters.received_packets, 1);
        add(&self.counters.received_bytes, length);
        Ok(Packet::new(&mut buffer.0, HEADROOM, length, offload))
    }
}

impl Outbox for TunQueue {
    /// Sends one packet, with its virtio header written into the ten bytes in front of it.
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        let header = VnetHeader::from_offload(packet.offload, packet.bytes()).emit();
        let length = packet.len();
        let (buffer, start, end) = packet.parts_mut();
        let front = start.checked_sub(VNET_HEADER_BYTES).ok_or(DropReason::NoHeadroom)?;
        buffer[front..start].copy_from_slice(&header);
        nix::unistd::write(&self.descriptor, &buffer[front..end]).map_err(refusal)?;
        add(&self.counters.sent_packets, 1);
        add(&self.counters.sent_bytes, length);
        Ok(())
    }
}

/// Why the kernel did not take a packet.
fn refusal(errno: Errno) -> DropReason {
    match errno {
        Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => DropReason::DeviceBusy,
        Errno::EINVAL => DropReason::DeviceInvalid,
        Errno::EIO | Errno::EBADFD | Errno::ENODEV => DropReason::DeviceDown,
        _ => DropReason::DeviceRefused,
    }
}

impl AsFd for TunQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
