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
use tombolo_engine::packet::{HEADROOM, Outbox, Packet};

use crate::vnet::{VNET_HEADER_BYTES, VnetHeader};

/// Bytes of a [`Buffer`]: the headroom, the longest IPv6 packet without jumbo payload (40 +
/// 65,535), and some spare behind it.
pub const BUFFER_BYTES: usize = 66 * 1024;

const _: () = assert!(BUFFER_BYTES >= HEADROOM + 40 + 65_535 && HEADROOM >= VNET_HEADER_BYTES);

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

/// What a queue received, sent, and what the kernel refused. Written by the queue's thread alone,
/// read by anyone.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct QueueCounters {
    /// Packets received; a super-packet counts once.
    pub received_packets: AtomicU64,
    /// Bytes received, from the IP header on.
    pub received_bytes: AtomicU64,
    /// Packets received with a virtio header that makes no sense, and thrown away.
    pub received_unusable: AtomicU64,
    /// Packets sent; a super-packet counts once.
    pub sent_packets: AtomicU64,
    /// Bytes sent, from the IP header on.
    pub sent_bytes: AtomicU64,
    /// Refused for want of memory or room in the kernel (EAGAIN, ENOBUFS, ENOMEM).
    pub refused_busy: AtomicU64,
    /// Refused because packet and virtio header contradict each other (EINVAL), or without headroom
    /// for the header: a defect of the gateway.
    pub refused_invalid: AtomicU64,
    /// Refused because the device is down or gone (EIO, EBADFD).
    pub refused_down: AtomicU64,
    /// Refused for another reason.
    pub refused_other: AtomicU64,
}

impl QueueCounters {
    /// Name and value of each, for metrics and tables.
    #[must_use]
    pub fn read(&self) -> [(&'static str, u64); 9] {
        [
            ("received-packets", &self.received_packets),
            ("received-bytes", &self.received_bytes),
            ("received-unusable", &self.received_unusable),
            ("sent-packets", &self.sent_packets),
            ("sent-bytes", &self.sent_bytes),
            ("refused-busy", &self.refused_busy),
            ("refused-invalid", &self.refused_invalid),
            ("refused-down", &self.refused_down),
            ("refused-other", &self.refused_other),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
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
    /// Sends one packet, with its virtio header written into the ten bytes in front of it. What the
    /// kernel refuses is counted.
    fn send(&mut self, packet: &mut Packet<'_>) {
        let header = VnetHeader::from_offload(packet.offload, packet.bytes()).emit();
        let length = packet.len();
        let (buffer, start, end) = packet.parts_mut();
        let Some(front) = start.checked_sub(VNET_HEADER_BYTES) else {
            add(&self.counters.refused_invalid, 1);
            return;
        };
        buffer[front..start].copy_from_slice(&header);
        let counters = &*self.counters;
        let refused = match nix::unistd::write(&self.descriptor, &buffer[front..end]) {
            Ok(_) => {
                add(&counters.sent_packets, 1);
                add(&counters.sent_bytes, length);
                return;
            }
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => &counters.refused_busy,
            Err(Errno::EINVAL) => &counters.refused_invalid,
            Err(Errno::EIO | Errno::EBADFD | Errno::ENODEV) => &counters.refused_down,
            Err(_) => &counters.refused_other,
        };
        add(refused, 1);
    }
}

impl AsFd for TunQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
