//! What a segment of TCP costs on its way out of a TUN device: alone, merged with others before it is
//! written, and in a softwire, where only the kernel could merge it. The figures of
//! `docs/decisions/tun-io.md` come from here:
//!
//! ```text
//! cargo run --release -p tombolo-io --example segment_cost
//! ```
//!
//! One thread writes the 44 segments of a super-packet to the device; the kernel routes them back to
//! it, and cuts what it has merged; the thread reads until all payload has come. The ways take turns, and
//! the medians of their times are printed. Needs root.

use std::cell::RefCell;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Instant;

use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;
use tombolo_engine::DropReason;
use tombolo_engine::packet::{HEADROOM, Offload, Outbox, Packet};
use tombolo_io::host::Host;
use tombolo_io::merge::Merging;
use tombolo_io::queue::{Buffer, TunQueue};
use tombolo_io::tun::{ExistingDevice, KernelEntry, Tun, TunConfig};
use tombolo_io::worker::Port;
use tombolo_wire::{Ipv4Header, Ipv6Header, Protocol, TcpFlags, TcpHeader, ipv4, ipv6, tcp, write_u16};

const SEGMENTS: u16 = 44;
const PAYLOAD: usize = 1400;
const ROUNDS: usize = 15;
const BATCHES: usize = 300;
/// How long the kernel may hold what it merges, in nanoseconds.
const HELD: &str = "20000";

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    let mut cpu = CpuSet::new();
    cpu.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &cpu)?;
    mount_sysfs()?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
    fs::write("/proc/sys/net/ipv4/conf/all/send_redirects", "0")?;
    fs::write("/proc/sys/net/ipv4/conf/default/send_redirects", "0")?;

    let mut host = Host::open()?;
    let mut direct = device("direct", 1, KernelEntry::Direct, &mut host)?;
    let mut napi = device("napi", 2, KernelEntry::Napi, &mut host)?;
    let mut holding = device("holding", 3, KernelEntry::Napi, &mut host)?;
    fs::write("/sys/class/net/holding/gro_flush_timeout", HELD)?;
    let queue = Rc::new(RefCell::new(device("merging", 4, KernelEntry::Direct, &mut host)?));
    let mut merging = Merging::new(Shared { queue: Rc::clone(&queue), node: File::open("/dev/null")? });

    let mut times = [const { Vec::new() }; 7];
    for _ in 0..ROUNDS {
        times[0].push(time(|| one_by_one(&mut direct, &segments(1, false)))?);
        times[1].push(time(|| merged(&mut merging, &queue, &segments(4, false)))?);
        times[2].push(time(|| one_by_one(&mut napi, &segments(2, false)))?);
        times[3].push(time(|| one_by_one(&mut holding, &segments(3, false)))?);
        times[4].push(time(|| one_by_one(&mut direct, &segments(1, true)))?);
        times[5].push(time(|| one_by_one(&mut napi, &segments(2, true)))?);
        times[6].push(time(|| one_by_one(&mut holding, &segments(3, true)))?);
    }
    let names = [
        "TCP, one by one",
        "TCP, merged before it is written",
        "TCP, one by one, IFF_NAPI",
        "TCP, one by one, IFF_NAPI, held 20 us",
        "in a softwire, one by one",
        "in a softwire, IFF_NAPI",
        "in a softwire, IFF_NAPI, held 20 us",
    ];
    println!("segments of {PAYLOAD} bytes, out and back, ns each (median of {ROUNDS} interleaved rounds):");
    for (name, figures) in names.iter().zip(&mut times) {
        figures.sort_by(|a: &(f64, f64), b| a.0.total_cmp(&b.0));
        let (nanoseconds, reads) = figures[ROUNDS / 2];
        println!("  {name:40} {nanoseconds:8.0}   {reads:5.1} packets came back");
    }
    Ok(())
}

/// The one that is there shows another namespace.
fn mount_sysfs() -> io::Result<()> {
    let mount = |source: &std::ffi::CStr, target: &std::ffi::CStr, kind: *const libc::c_char, flags| {
        // SAFETY: the strings end with zero and outlive the call; the last argument may be null.
        match unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, std::ptr::null()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    mount(c"none", c"/", std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"sysfs", c"/sys", c"sysfs".as_ptr(), 0)
}

fn device(name: &str, net: u8, entry: KernelEntry, host: &mut Host) -> Result<TunQueue, Failure> {
    let config = TunConfig { name: name.to_owned(), queues: 1, existing: ExistingDevice::Refuse, entry };
    let queue = Tun::create(&config)?.into_queues().remove(0);
    host.bring_up(name, 1500, 1000)?;
    host.add_address(name, format!("10.{net}.0.1/24").parse()?)?;
    host.add_route(name, format!("10.{}.0.0/24", net + 100).parse()?)?;
    host.add_address(name, format!("2001:db8:{net}::1/64").parse()?)?;
    host.add_route(name, format!("2001:db8:{}::/64", net + 100).parse()?)?;
    Ok(queue)
}

/// The segments of a super-packet, each with all its checksums; with an IPv6 header in front of each, or not.
fn segments(net: u8, in_softwire: bool) -> Vec<Vec<u8>> {
    const IP: usize = ipv4::HEADER_LENGTH;
    const OUTER: usize = ipv6::HEADER_LENGTH;
    let (source, destination) = ([10, net, 0, 2].into(), [10, net + 100, 0, 2].into());
    let segment = |number: u16| {
        let mut packet = vec![0; OUTER + IP + tcp::HEADER_LENGTH + PAYLOAD];
        let length = u16::try_from(packet.len() - OUTER).unwrap_or(0);
        let outer = Ipv6Header {
            payload_length: length,
            next_header: Protocol::IPV4,
            hop_limit: 64,
            source: [0x2001, 0xdb8, net.into(), 0, 0, 0, 0, 2].into(),
            destination: [0x2001, 0xdb8, 0x100 + u16::from(net), 0, 0, 0, 0, 2].into(),
            traffic_class: 0,
            flow_label: 0,
        };
        outer.emit(&mut packet);
        let inner = Ipv4Header {
            tos: 0,
            total_length: length,
            identification: number,
            fragment_word: ipv4::DF,
            ttl: 64,
            protocol: Protocol::TCP,
            source,
            destination,
        };
        inner.emit(&mut packet[OUTER..]);
        let transport = &mut packet[OUTER + IP..];
        let header = TcpHeader {
            sequence: u32::from(number) * u32::try_from(PAYLOAD).unwrap_or(0),
            flags: TcpFlags::ACK,
            ..TcpHeader::default()
        };
        header.emit(transport);
        let checksum = ipv4::transport_checksum(source, destination, Protocol::TCP, transport);
        write_u16(transport, tcp::CHECKSUM, checksum);
        if in_softwire { packet } else { packet.split_off(OUTER) }
    };
    (0..SEGMENTS).map(segment).collect()
}

/// Nanoseconds a segment, and packets that came back of each batch.
fn time(mut batch: impl FnMut() -> Result<usize, Failure>) -> Result<(f64, f64), Failure> {
    batch()?;
    let (start, mut reads) = (Instant::now(), 0);
    for _ in 0..BATCHES {
        reads += batch()?;
    }
    let nanoseconds = start.elapsed().as_secs_f64() * 1e9;
    Ok((nanoseconds / (BATCHES * usize::from(SEGMENTS)) as f64, reads as f64 / BATCHES as f64))
}

fn one_by_one(queue: &mut TunQueue, segments: &[Vec<u8>]) -> Result<usize, Failure> {
    let mut buffer = Buffer::new();
    for segment in segments {
        buffer.bytes_mut()[HEADROOM..HEADROOM + segment.len()].copy_from_slice(segment);
        let packet = Packet::new(buffer.bytes_mut(), HEADROOM, segment.len(), Offload::default());
        queue.send(&mut packet.unwrap_or_default()).map_err(|reason| reason.to_string())?;
    }
    read_all(queue, &mut buffer)
}

fn merged(merging: &mut Merging<Shared>, queue: &RefCell<TunQueue>, segments: &[Vec<u8>]) -> Result<usize, Failure> {
    let mut buffer = Buffer::new();
    for segment in segments {
        buffer.bytes_mut()[HEADROOM..HEADROOM + segment.len()].copy_from_slice(segment);
        let Some(mut packet) = merging.recv(&mut buffer)? else { continue };
        merging.send(&mut packet).map_err(|reason| reason.to_string())?;
    }
    if let Some(loss) = merging.flush().first() {
        return Err(loss.reason.to_string().into());
    }
    read_all(&mut queue.borrow_mut(), &mut buffer)
}

/// A queue that is read elsewhere; what it is asked for is in the buffer already.
struct Shared {
    queue: Rc<RefCell<TunQueue>>,
    /// What could be waited for.
    node: File,
}

impl Outbox for Shared {
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        self.queue.borrow_mut().send(packet)
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.node.as_fd()
    }
}

impl Port for Shared {
    fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<Option<Packet<'b>>> {
        let bytes = ipv4::HEADER_LENGTH + tcp::HEADER_LENGTH + PAYLOAD;
        Ok(Packet::new(buffer.bytes_mut(), HEADROOM, bytes, Offload::default()))
    }
}

/// Reads until all payload has come. How many packets it took.
fn read_all(queue: &mut TunQueue, buffer: &mut Buffer) -> Result<usize, Failure> {
    let (mut missing, mut count) = (usize::from(SEGMENTS) * PAYLOAD, 0);
    let start = Instant::now();
    while missing > 0 {
        if let Some(packet) = queue.recv(buffer)? {
            // Headers are shorter than a payload, and so is what the kernel says of its own.
            missing = missing.saturating_sub(packet.len() / PAYLOAD * PAYLOAD);
            count += 1;
        }
        if start.elapsed().as_secs() > 5 {
            return Err(format!("{missing} bytes did not come back").into());
        }
    }
    Ok(count)
}
