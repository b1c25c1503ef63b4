//! AF_XDP, the sending half: frames lie in memory that the kernel knows (the UMEM), and leave in
//! batches through a ring. Read Documentation/networking/af_xdp.rst first.
//!
//! ```text
//!   UMEM        | chunk 0 | chunk 1 | chunk 2 | chunk 3 | ...         4 KiB each
//!               '---------- slot 0 ---------' '-- slot 1 ...          a frame's chunks, next to each other
//!   TX ring     -> (address, length, more follows?) ...               to the kernel, one entry a chunk
//!   completions <- address ...                                        from the kernel: sent, to be used again
//! ```
//!
//! A frame longer than a chunk has several entries, all but its last with `XDP_PKT_CONTD` (Linux
//! 6.6). In a slot only the first [`TEMPLATE_BYTES`] change from frame to frame; what follows is
//! filler, written once a run.
//!
//! Zero copy is asked for first: the driver then sends from the UMEM itself. It also receives into
//! it on that queue, so the fill ring gets chunks of its own; the tester's program on the port sees
//! those frames as all others, and gives every chunk back. Where the driver has no such thing, the
//! kernel copies each frame into a buffer of its own, on any driver.
//!
//! The crates that there are do not fit: `xdp` sends frames of one chunk only, `xsk-rs` brings
//! libxdp, libbpf and libelf in C. Invariant: an entry of the TX ring or the fill ring lies within
//! the UMEM, and a chunk is in at most one ring at a time.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{xdp_desc, xdp_mmap_offsets, xdp_ring_offset, xdp_umem_reg};

use crate::frame::Template;
use crate::layout::{Made, TEMPLATE_BYTES};
use crate::namespace::in_namespace;
use crate::patience::Patience;
use crate::port::Port;

/// A page is the most that a chunk can be on x86-64.
const CHUNK: usize = 4096;
/// Chunks to send from, and entries of each ring. More than the rings of two veth ports hold
/// together: a gateway that is too slow has to drop frames, not to slow the tester down.
const CHUNKS: u32 = 2048;
/// Room for the kernel's copies of frames that wait in queues, bytes.
const SEND_BUFFER: libc::c_int = 256 << 20;

/// Sends frames through one queue of one interface.
pub(crate) struct AfXdp {
    // Dropped in this order: the rings and the UMEM outlive the socket.
    socket: OwnedFd,
    transmit: Ring<xdp_desc>,
    completed: Ring<u64>,
    _fill: Ring<u64>,
    umem: Memory,
    is_zero_copy: bool,
    /// Frames may have several chunks.
    takes_several: bool,
    /// Chunks of each slot, in this run.
    chunks_per_slot: u32,
    /// Slots that no frame is in.
    free: Vec<u32>,
    /// Entries of each slot that the kernel has.
    pending: Vec<u32>,
    /// Frames that the kernel took and the driver did not.
    refused: u64,
}

impl AfXdp {
    /// Opens a socket for frames of up to `length` bytes.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` on kernels without AF_XDP, `EINVAL` where there is no such queue, or frames of
    /// several chunks are not known (before Linux 6.6), `EBUSY` where another program has the queue.
    pub(crate) fn open(port: &Port, queue: u32, length: u16) -> io::Result<AfXdp> {
        in_namespace(port.namespace.as_ref(), || {
            AfXdp::open_here(&port.name, queue, length, libc::XDP_ZEROCOPY)
                .or_else(|_| AfXdp::open_here(&port.name, queue, length, libc::XDP_COPY))
        })?
    }

    fn open_here(interface: &str, queue: u32, length: u16, mode: u16) -> io::Result<AfXdp> {
        let index = nix::net::if_::if_nametoindex(interface)?;
        // SAFETY: a plain system call; the result is checked before it becomes an owned descriptor.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // The second half is for what arrives on the queue.
        let to_receive = if mode == libc::XDP_ZEROCOPY { CHUNKS } else { 0 };
        let umem = Memory::anonymous((CHUNKS + to_receive) as usize * CHUNK)?;
        // SAFETY: the record is plain integers; zero is a value of each.
        let mut registration: xdp_umem_reg = unsafe { zeroed() };
        registration.addr = umem.start.as_ptr() as u64;
        registration.len = umem.bytes as u64;
        registration.chunk_size = u32::try_from(CHUNK).unwrap_or(u32::MAX);
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING] {
            set(&socket, libc::SOL_XDP, ring, &CHUNKS)?;
        }
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
        let offsets = offsets_of(&socket)?;
        let transmit = Ring::map(&socket, &offsets.tx, libc::XDP_PGOFF_TX_RING)?;
        let completed = Ring::map(&socket, &offsets.cr, page_offset(libc::XDP_UMEM_PGOFF_COMPLETION_RING))?;
        let fill = Ring::map(&socket, &offsets.fr, page_offset(libc::XDP_UMEM_PGOFF_FILL_RING))?;
        fill.put((0..to_receive).map(|chunk| u64::from(CHUNKS + chunk) * CHUNK as u64));
        let takes_several = usize::from(length) > CHUNK;
        let several = if takes_several { libc::XDP_USE_SG } else { 0 };
        bind(&socket, index, queue, mode | libc::XDP_USE_NEED_WAKEUP | several)?;
        let is_zero_copy = mode == libc::XDP_ZEROCOPY;
        let (free, pending) = (Vec::new(), Vec::new());
        let mut opened = AfXdp {
            socket,
            transmit,
            completed,
            _fill: fill,
            umem,
            is_zero_copy,
            takes_several,
            chunks_per_slot: 1,
            free,
            pending,
            refused: 0,
        };
        opened.lay_out(length);
        Ok(opened)
    }

    /// Whether the driver sends from the UMEM.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Whether it was opened for frames of so many bytes.
    pub(crate) fn takes(&self, length: u16) -> bool {
        self.takes_several || usize::from(length) <= CHUNK
    }

    /// Frames of this run that the driver did not take.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Makes it ready for a run with frames of up to `length` bytes.
    ///
    /// # Errors
    /// If frames of the run before are still with the kernel.
    pub(crate) fn begin(&mut self, length: u16) -> io::Result<()> {
        let mut patience = Patience::new();
        while self.pending.iter().any(|entries| *entries > 0) {
            self.flush()?;
            self.reclaim();
            patience.wait()?;
        }
        self.refused = 0;
        self.lay_out(length);
        Ok(())
    }

    /// Divides the UMEM into slots of filler.
    fn lay_out(&mut self, length: u16) {
        self.chunks_per_slot = u32::try_from(usize::from(length).div_ceil(CHUNK).max(1)).unwrap_or(1);
        let slots = CHUNKS / self.chunks_per_slot;
        self.free = (0..slots).rev().collect();
        self.pending = vec![0; slots as usize];
        let filler = Template::page(length);
        (0..slots).for_each(|slot| self.umem.write(self.address(slot), &filler));
    }

    /// Where a slot begins in the UMEM.
    fn address(&self, slot: u32) -> usize {
        (slot * self.chunks_per_slot) as usize * CHUNK
    }

    /// Enters the frame into the ring; [`flush`](AfXdp::flush) sends it.
    ///
    /// # Errors
    /// If the port takes no more frames.
    pub(crate) fn put(&mut self, frame: &Made) -> io::Result<()> {
        let slot = self.free_slot()?;
        let address = self.address(slot);
        self.umem.write(address, &frame.bytes[..TEMPLATE_BYTES]);
        let chunk = u32::try_from(CHUNK).unwrap_or(u32::MAX);
        let entries = frame.length.div_ceil(chunk);
        self.transmit.put((0..entries).map(|entry| xdp_desc {
            addr: address as u64 + u64::from(entry * chunk),
            len: (frame.length - entry * chunk).min(chunk),
            options: if entry + 1 < entries { libc::XDP_PKT_CONTD } else { 0 },
        }));
        self.pending[slot as usize] = entries;
        Ok(())
    }

    fn free_slot(&mut self) -> io::Result<u32> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let mut patience = Patience::new();
        loop {
            if let Some(slot) = self.free.pop() {
                return Ok(slot);
            }
            self.flush()?;
            self.reclaim();
            patience.wait()?;
        }
    }

    /// Takes back the slots of frames that have left.
    fn reclaim(&mut self) {
        let slot_bytes = u64::from(self.chunks_per_slot) * CHUNK as u64;
        let (free, pending) = (&mut self.free, &mut self.pending);
        self.completed.take(|address| {
            let slot = usize::try_from(address / slot_bytes).unwrap_or(usize::MAX);
            let Some(entries) = pending.get_mut(slot).filter(|entries| **entries > 0) else { return };
            *entries -= 1;
            if *entries == 0 {
                free.push(u32::try_from(slot).unwrap_or(0));
            }
        });
    }

    /// Has the kernel send everything that was entered.
    ///
    /// # Errors
    /// If the interface is gone or down, or takes no more frames.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut patience = Patience::new();
        while self.transmit.has_entries() {
            // A driver that polls by itself need not be woken.
            if !self.is_zero_copy || self.transmit.needs_wakeup() {
                self.kick()?;
            }
            patience.wait()?;
        }
        Ok(())
    }

    /// One system call; the kernel copies some 32 entries in each.
    fn kick(&mut self) -> io::Result<()> {
        // SAFETY: the call is given no memory.
        let sent = unsafe {
            libc::sendto(self.socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if sent >= 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        match why.raw_os_error() {
            // The kernel says so of each frame that the driver dropped; it has left the ring.
            Some(libc::EBUSY) if !self.is_zero_copy => self.refused += 1,
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
            _ => return Err(why),
        }
        Ok(())
    }
}

/// One page is 4 KiB or more, so that on machines with 32-bit offsets there is no AF_XDP.
fn page_offset(offset: u64) -> libc::off_t {
    libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX)
}

fn length_of<T>(_: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value is a whole record of plain integers and outlives the call.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length_of(value))
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn bind(socket: &OwnedFd, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    // SAFETY: the record is plain integers; zero is a value of each.
    let mut address: libc::sockaddr_xdp = unsafe { zeroed() };
    address.sxdp_family = u16::try_from(libc::AF_XDP).unwrap_or(0);
    address.sxdp_flags = flags;
    address.sxdp_ifindex = interface;
    address.sxdp_queue_id = queue;
    // SAFETY: the address is a whole sockaddr_xdp and outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length_of(&address)) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn offsets_of(socket: &OwnedFd) -> io::Result<xdp_mmap_offsets> {
    // SAFETY: the record is plain integers; zero is a value of each.
    let mut offsets: xdp_mmap_offsets = unsafe { zeroed() };
    let mut length = length_of(&offsets);
    // SAFETY: both outlive the call; the kernel writes at most `length` bytes.
    let read = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut length,
        )
    };
    match read {
        0 if length == length_of(&offsets) => Ok(offsets),
        // Linux before 5.4 has rings without flags.
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Memory that was mapped, unmapped in the end.
struct Memory {
    start: NonNull<libc::c_void>,
    bytes: usize,
}

// SAFETY: the memory belongs to the value; who has the value may use it on any thread.
unsafe impl Send for Memory {}

impl Memory {
    fn anonymous(bytes: usize) -> io::Result<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Memory::map(bytes, flags, -1, 0)
    }

    fn map(bytes: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Memory> {
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else refers to it.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        match NonNull::new(start).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(Memory { start, bytes }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Where the byte at `offset` is, of which `bytes` are wanted.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset + bytes <= self.bytes, "{offset} + {bytes} of {} bytes", self.bytes);
        self.start.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: `at` checked the bounds. The kernel reads the chunk at the same time only where it
        // has an entry for it, and a slot that has one is not free.
        unsafe { self.at(offset, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made; no reference into it outlives the value. The
        // kernel keeps the pages of a UMEM for as long as a socket has it.
        let _ = unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}

/// One ring of [`CHUNKS`] entries, shared with the kernel: one side writes entries and then the
/// producer's number, the other reads them and then writes the consumer's.
struct Ring<T> {
    memory: Memory,
    offsets: xdp_ring_offset,
    _entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(socket: &OwnedFd, offsets: &xdp_ring_offset, at: libc::off_t) -> io::Result<Ring<T>> {
        let entries = usize::try_from(offsets.desc).map_err(|_| io::ErrorKind::InvalidData)?;
        let bytes = entries + CHUNKS as usize * size_of::<T>();
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let memory = Memory::map(bytes, flags, socket.as_raw_fd(), at)?;
        Ok(Ring { memory, offsets: *offsets, _entry: std::marker::PhantomData })
    }

    fn number(&self, offset: u64) -> &AtomicU32 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX - 8);
        // SAFETY: in bounds by `at`, and aligned, for the kernel places its numbers so; both sides
        // use them atomically. The reference does not outlive the mapping, which `self` owns.
        unsafe { &*self.memory.at(offset, size_of::<AtomicU32>()).cast::<AtomicU32>() }
    }

    fn entry(&self, number: u32) -> *mut T {
        let place = (number & (CHUNKS - 1)) as usize * size_of::<T>();
        let entries = usize::try_from(self.offsets.desc).unwrap_or(usize::MAX / 2);
        self.memory.at(entries + place, size_of::<T>()).cast()
    }

    /// Adds entries. There is room for them: each has a chunk of its own, of which there are as many
    /// as entries.
    fn put(&self, entries: impl Iterator<Item = T>) {
        let producer = self.number(self.offsets.producer);
        let mut next = producer.load(Ordering::Relaxed);
        for entry in entries {
            // SAFETY: within the mapping by `entry`, aligned as the kernel lays rings out; the kernel
            // does not read it before the number below says that it is there.
            unsafe { self.entry(next).write(entry) };
            next = next.wrapping_add(1);
        }
        producer.store(next, Ordering::Release);
    }

    /// Takes all entries that are there.
    fn take(&self, mut each: impl FnMut(T)) {
        let consumer = self.number(self.offsets.consumer);
        let mut next = consumer.load(Ordering::Relaxed);
        let end = self.number(self.offsets.producer).load(Ordering::Acquire);
        while next != end {
            // SAFETY: as in `put`; the kernel does not write it before the number below says that it
            // was read. Any bits are a value of the entry, an integer.
            each(unsafe { self.entry(next).read() });
            next = next.wrapping_add(1);
        }
        consumer.store(next, Ordering::Release);
    }

    fn has_entries(&self) -> bool {
        self.number(self.offsets.producer).load(Ordering::Relaxed)
            != self.number(self.offsets.consumer).load(Ordering::Acquire)
    }

    fn needs_wakeup(&self) -> bool {
        self.number(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
