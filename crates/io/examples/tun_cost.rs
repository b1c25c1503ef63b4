//! What a packet costs at a TUN queue: one system call each way, against batches through io_uring,
//! against a device with NAPI. The figures of `docs/decisions/tun-io.md` come from here:
//!
//! ```text
//! cargo run --release -p tombolo-io --example tun_cost
//! ```
//!
//! One thread writes a batch of packets to the device; the kernel routes them back to it; the
//! thread reads them. The ways take turns, and the medians of their times are printed. Needs root.

use std::error::Error;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Instant;

use io_uring::{IoUring, opcode, types};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;
use tombolo_engine::packet::{ChecksumState, Offload, Segmentation};
use tombolo_io::host::Host;
use tombolo_io::queue::{BUFFER_BYTES, TunQueue};
use tombolo_io::tun::{ExistingDevice, KernelEntry, Tun, TunConfig};
use tombolo_io::vnet::{VNET_HEADER_BYTES, VnetHeader};

const BATCH: usize = 64;
const ROUNDS: usize = 15;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let mut cpu = CpuSet::new();
    cpu.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &cpu)?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    fs::write("/proc/sys/net/ipv4/conf/all/send_redirects", "0")?;
    fs::write("/proc/sys/net/ipv4/conf/default/send_redirects", "0")?;

    let mut host = Host::open()?;
    let direct = device("direct", 1, KernelEntry::Direct, &mut host)?;
    let napi = device("napi", 2, KernelEntry::Napi, &mut host)?;
    let mut ring = IoUring::builder().setup_single_issuer().build(u32::try_from(BATCH)?)?;
    for (label, bytes, batches) in [("84-byte UDP packets", 84, 400), ("64,000-byte TCP super-packets", 64_000, 20)] {
        measure(label, bytes, batches, &direct, &napi, &mut ring)?;
    }
    Ok(())
}

fn device(name: &str, net: u8, entry: KernelEntry, host: &mut Host) -> Result<TunQueue, Failure> {
    let config = TunConfig { name: name.to_owned(), queues: 1, existing: ExistingDevice::Refuse, entry };
    let queue = Tun::create(&config)?.into_queues().remove(0);
    host.bring_up(name, 65_535, 1000)?;
    host.add_address(name, format!("10.{net}.0.1/24").parse()?)?;
    host.add_route(name, format!("10.{}.0.0/24", net + 100).parse()?)?;
    Ok(queue)
}

/// A packet from one network behind the device to the other, with its virtio header in front.
fn packet(net: u8, bytes: usize) -> Vec<u8> {
    let is_tcp = bytes > 1500;
    let mut packet = vec![0; bytes];
    let length = u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    packet[..20].copy_from_slice(&[
        0x45,
        0,
        length[0],
        length[1],
        0,
        0,
        0x40,
        0,
        64,
        if is_tcp { 6 } else { 17 },
        0,
        0,
        10,
        net,
        0,
        2,
        10,
        net + 100,
        0,
        2,
    ]);
    let mut sum: u32 = packet[..20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    let sum = (!(sum + (sum >> 16))).to_be_bytes();
    packet[10..12].copy_from_slice(&sum[2..]);
    packet[20..24].copy_from_slice(&[0x13, 0x88, 0x13, 0x89]);
    let mut offload = Offload::default();
    if is_tcp {
        packet[32] = 5 << 4;
        offload.segmentation = Segmentation::Tcp { size: 1448, ecn: false };
        offload.checksum = ChecksumState::Partial { start: 20, offset: 16 };
    } else {
        let length = (u16::from_be_bytes(length) - 20).to_be_bytes();
        packet[24..26].copy_from_slice(&length);
    }
    [&VnetHeader::from_offload(offload, &packet).emit()[..], &packet].concat()
}

fn measure(
    label: &str,
    bytes: usize,
    batches: usize,
    direct: &TunQueue,
    napi: &TunQueue,
    ring: &mut IoUring,
) -> Result<(), Failure> {
    let mut room = vec![vec![0; BUFFER_BYTES]; BATCH];
    let (mut calls, mut uring, mut with_napi) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        calls.push(time(batches, || by_calls(direct, &packet(1, bytes), &mut room))?);
        uring.push(time(batches, || by_ring(ring, direct, &packet(1, bytes), &mut room))?);
        with_napi.push(time(batches, || by_calls(napi, &packet(2, bytes), &mut room))?);
    }
    let base = median(&mut calls);
    println!(
        "{label}, there and back, ns a packet (median of {ROUNDS} interleaved rounds of {} packets):",
        batches * BATCH
    );
    println!("  one system call a packet    {base:8.0}   1.00");
    for (name, figures) in [("io_uring, 64 a call", &mut uring), ("IFF_NAPI", &mut with_napi)] {
        let figure = median(figures);
        println!("  {name:27} {figure:8.0}   {:.2}", figure / base);
    }
    Ok(())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Nanoseconds a packet.
fn time(batches: usize, mut batch: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    batch()?;
    let start = Instant::now();
    for _ in 0..batches {
        batch()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / (batches * BATCH) as f64)
}

fn by_calls(queue: &TunQueue, packet: &[u8], room: &mut [Vec<u8>]) -> Result<(), Failure> {
    for _ in 0..BATCH {
        nix::unistd::write(queue, packet)?;
    }
    for buffer in room {
        let length = nix::unistd::read(queue, buffer)?;
        check(length, packet)?;
    }
    Ok(())
}

fn by_ring(ring: &mut IoUring, queue: &TunQueue, packet: &[u8], room: &mut [Vec<u8>]) -> Result<(), Failure> {
    let queue: RawFd = queue.as_fd().as_raw_fd();
    let length = u32::try_from(packet.len())?;
    for _ in 0..BATCH {
        let entry = opcode::Write::new(types::Fd(queue), packet.as_ptr(), length).build();
        // SAFETY: `packet` outlives the operation, which `complete` waits for.
        unsafe { ring.submission().push(&entry) }?;
    }
    complete(ring, packet)?;
    for buffer in room {
        let entry = opcode::Read::new(types::Fd(queue), buffer.as_mut_ptr(), u32::try_from(BUFFER_BYTES)?).build();
        // SAFETY: as above; each operation has a buffer of its own, of the length given.
        unsafe { ring.submission().push(&entry) }?;
    }
    complete(ring, packet)
}

fn complete(ring: &mut IoUring, packet: &[u8]) -> Result<(), Failure> {
    ring.submit_and_wait(BATCH)?;
    for entry in ring.completion() {
        check(usize::try_from(entry.result())?, packet)?;
    }
    Ok(())
}

fn check(length: usize, packet: &[u8]) -> Result<(), Failure> {
    debug_assert!(packet.len() > VNET_HEADER_BYTES);
    if length == packet.len() { Ok(()) } else { Err(format!("{length} bytes instead of {}", packet.len()).into()) }
}
