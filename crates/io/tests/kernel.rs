//! TUN queues, workers and the host's settings against the running kernel, each test in a network
//! namespace of its own. Without the privilege to make one, the tests say so and pass.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare its ground has to fail")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use ipnet::IpNet;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use tombolo_engine::DropReason;
use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Outbox, Packet, Segmentation};
use tombolo_io::host::{Family, Host, HostError};
use tombolo_io::merge::Merging;
use tombolo_io::queue::{Buffer, TunQueue};
use tombolo_io::tun::{ExistingDevice, KernelEntry, Tun, TunConfig, TunError};
use tombolo_io::worker::{Handler, Loss, Port as QueuePort, StopSignal, Worker};
use tombolo_wire::{Ipv4Header, Ipv6Header, Port, Protocol, TcpFlags, TcpHeader, ipv4, ipv6, tcp, write_u16};

/// Runs a test on a thread with a network namespace of its own; skips it where that is not allowed.
fn in_namespace(name: &str, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
            Ok(()) => test(),
            // Past the test harness, which hides the output of tests that pass.
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED {name}: no network namespace ({error}); run as root");
            }
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn config(queues: usize) -> TunConfig {
    TunConfig { name: "t0".into(), queues, existing: ExistingDevice::Refuse, entry: KernelEntry::Direct }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

const OURS4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const OURS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const THEIRS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 7);

/// A device with addresses, and one remote network of each family behind it.
fn prepared(config: &TunConfig) -> (Vec<TunQueue>, Host) {
    let tun = Tun::create(config).unwrap();
    let mut host = Host::open().unwrap();
    host.bring_up("t0", 1500, 500).unwrap();
    host.add_address("t0", net("10.0.0.1/24")).unwrap();
    host.add_address("t0", net("2001:db8:1::1/64")).unwrap();
    host.add_route("t0", net("198.51.100.0/24")).unwrap();
    host.add_route("t0", net("2001:db8:2::/64")).unwrap();
    (tun.into_queues(), host)
}

/// Waits up to ten seconds for a packet.
fn receive<'b>(queue: &mut TunQueue, buffer: &'b mut Buffer) -> Packet<'b> {
    let timeout = PollTimeout::try_from(10_000).unwrap();
    let ready = poll(&mut [PollFd::new(queue.as_fd(), PollFlags::POLLIN)], timeout).unwrap();
    assert_eq!(ready, 1, "no packet within ten seconds");
    queue.recv(buffer).unwrap().expect("a packet waits")
}

/// Swaps source and destination address: the host then talks to itself through the device, and no
/// checksum changes.
fn turn_round(packet: &mut Packet<'_>) {
    let bytes = packet.bytes_mut();
    let (offset, length) = if bytes[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
    let (source, destination) = bytes[offset..offset + 2 * length].split_at_mut(length);
    source.swap_with_slice(destination);
}

/// Turns every packet round and notes the largest super-packets.
#[derive(Default)]
struct Mirror {
    largest_tcp: usize,
    largest_udp: usize,
}

impl Handler for Mirror {
    fn batch_start(&mut self, _: u64) {}

    fn packet(&mut self, packet: &mut Packet<'_>, _: u64, outbox: &mut impl Outbox) {
        match packet.offload.segmentation {
            Segmentation::Tcp { .. } => self.largest_tcp = self.largest_tcp.max(packet.len()),
            Segmentation::Udp { .. } => self.largest_udp = self.largest_udp.max(packet.len()),
            Segmentation::None => {}
        }
        turn_round(packet);
        outbox.send(packet).unwrap();
    }

    fn lost(&mut self, loss: Loss) {
        panic!("{loss:?}");
    }

    fn idle(&mut self, _: u64, _: &mut impl Outbox) -> Duration {
        Duration::from_secs(1)
    }
}

#[test]
fn a_datagram_goes_out_through_the_queue_and_its_answer_comes_back() {
    in_namespace("datagram", || {
        let (mut queues, _host) = prepared(&config(1));
        let socket = UdpSocket::bind((OURS4, 4000)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.send_to(b"question", (THEIRS4, 5000)).unwrap();

        let mut buffer = Buffer::new();
        let mut packet = receive(&mut queues[0], &mut buffer);
        assert_eq!(packet.len(), 20 + 8 + 8);
        assert_eq!(packet.headroom(), HEADROOM);
        assert_eq!(packet.bytes()[12..20], [10, 0, 0, 1, 198, 51, 100, 7]);
        assert_eq!(packet.offload.checksum, ChecksumState::Partial { start: 20, offset: 6 });

        turn_round(&mut packet);
        packet.bytes_mut()[20..24].rotate_left(2);
        packet.bytes_mut()[28..36].copy_from_slice(b"response");
        queues[0].send(&mut packet).unwrap();
        let mut answer = [0; 16];
        let (length, from) = socket.recv_from(&mut answer).unwrap();
        assert_eq!(&answer[..length], b"response");
        assert_eq!(from, SocketAddr::from((THEIRS4, 5000)));

        let counters = queues[0].counters();
        assert_eq!(counters.read().received_bytes, 36);
        assert_eq!(counters.read().sent_bytes, 36);
        assert!(queues[0].recv(&mut buffer).unwrap().is_none(), "the device sends nothing of its own");
    });
}

/// Sends a mebibyte over TCP through a mirror; gives the largest super-packet that the mirror saw.
fn tcp_through_mirror(ours: IpAddr, theirs: IpAddr, entry: KernelEntry) -> usize {
    let (queues, _host) = prepared(&TunConfig { entry, ..config(2) });
    let stop = StopSignal::new().unwrap();
    let workers: Vec<_> = queues
        .into_iter()
        .map(|queue| Worker::start("mirror", None, queue, Mirror::default(), stop.clone()).unwrap())
        .collect();

    let listener = TcpListener::bind((ours, 80)).unwrap();
    let sent: Vec<u8> = (0..1_u32 << 20).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
    let received = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            received
        });
        let mut client = TcpStream::connect((theirs, 80)).unwrap();
        client.write_all(&sent).unwrap();
        drop(client);
        reader.join().unwrap()
    });
    assert!(received == sent, "the stream arrived changed");
    stop.stop();
    workers.into_iter().map(|worker| worker.join().unwrap().largest_tcp).max().unwrap()
}

#[test]
fn tcp_super_packets_cross_in_one_piece() {
    for (ours, theirs) in [(OURS4.into(), THEIRS4.into()), (OURS6.into(), THEIRS6.into())] {
        for entry in [KernelEntry::Direct, KernelEntry::Napi] {
            in_namespace("tcp super-packets", || {
                let largest = tcp_through_mirror(ours, theirs, entry);
                assert!(largest > 10 * 1500, "largest super-packet over {ours}: {largest} bytes");
            });
        }
    }
}

#[test]
fn udp_super_packets_cross_in_one_piece() {
    in_namespace("udp super-packets", || {
        let tun = Tun::create(&config(1)).unwrap();
        if !tun.offloads().udp_segmentation {
            let _ = writeln!(std::io::stderr(), "SKIPPED udp super-packets: kernel older than 6.2");
            return;
        }
        drop(tun);
        for (ours, theirs) in [(IpAddr::from(OURS4), IpAddr::from(THEIRS4)), (OURS6.into(), THEIRS6.into())] {
            let (mut queues, _host) = prepared(&config(1));
            let stop = StopSignal::new().unwrap();
            let queue = queues.remove(0);
            let worker = Worker::start("mirror", None, queue, Mirror::default(), stop.clone()).unwrap();
            let receiver = UdpSocket::bind((ours, 5000)).unwrap();
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let sender = UdpSocket::bind((ours, 4000)).unwrap();
            nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::UdpGsoSegment, &1000).unwrap();
            sender.send_to(&[7; 4500], (theirs, 5000)).unwrap();
            let mut lengths = [0; 5];
            for length in &mut lengths {
                *length = receiver.recv(&mut [0; 2000]).unwrap();
            }
            assert_eq!(lengths, [1000, 1000, 1000, 1000, 500]);
            stop.stop();
            assert!(worker.join().unwrap().largest_udp > 4500);
        }
    });
}

/// Offset of the TCP header in a segment of [`segments`], by whether it is of IPv6.
fn ip_bytes(is_ipv6: bool) -> usize {
    if is_ipv6 { ipv6::HEADER_LENGTH } else { ipv4::HEADER_LENGTH }
}

/// Segments of one connection through the device, 1,400 bytes of payload in each but the last.
fn segments(is_ipv6: bool, dont_fragment: bool, count: u16) -> Vec<Vec<u8>> {
    let segment = |number: u16| {
        let payload = if number + 1 == count { 77 } else { 1400 };
        let ip = ip_bytes(is_ipv6);
        let mut packet = vec![0; ip + tcp::HEADER_LENGTH + payload];
        let transport = TcpHeader {
            source_port: Port(80),
            destination_port: Port(4000),
            sequence: 0xffff_ff00_u32.wrapping_add(u32::from(number) * 1400),
            acknowledgement: 99,
            flags: TcpFlags(TcpFlags::ACK.0 | if number + 1 == count { TcpFlags::PSH.0 | TcpFlags::FIN.0 } else { 0 }),
            window: 1000,
            checksum: 0,
        };
        transport.emit(&mut packet[ip..]);
        packet[ip + tcp::HEADER_LENGTH..]
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at % 251).to_le_bytes()[0] ^ number.to_le_bytes()[0]);
        let length = u16::try_from(packet.len()).unwrap();
        let checksum = if is_ipv6 {
            let header = Ipv6Header {
                traffic_class: 2,
                flow_label: 0x54321,
                payload_length: length - 40,
                next_header: Protocol::TCP,
                hop_limit: 64,
                source: THEIRS6,
                destination: BEHIND6,
            };
            header.emit(&mut packet);
            ipv6::transport_checksum(THEIRS6, BEHIND6, Protocol::TCP, &packet[ip..])
        } else {
            let header = Ipv4Header {
                tos: 2,
                total_length: length,
                identification: 0xfffe_u16.wrapping_add(number),
                fragment_word: if dont_fragment { ipv4::DF } else { 0 },
                ttl: 64,
                protocol: Protocol::TCP,
                source: THEIRS4,
                destination: BEHIND4,
            };
            header.emit(&mut packet);
            ipv4::transport_checksum(THEIRS4, BEHIND4, Protocol::TCP, &packet[ip..])
        };
        write_u16(&mut packet, ip + tcp::CHECKSUM, checksum);
        packet
    };
    (0..count).map(segment).collect()
}

const BEHIND4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const BEHIND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 9);

/// A port that has a packet when it is asked, so that a batch begins.
struct Sending(TunQueue);

impl Outbox for Sending {
    fn send(&mut self, packet: &mut Packet<'_>) -> Result<(), DropReason> {
        self.0.send(packet)
    }
}

impl AsFd for Sending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl QueuePort for Sending {
    fn recv<'b>(&mut self, buffer: &'b mut Buffer) -> std::io::Result<Option<Packet<'b>>> {
        Ok(Packet::new(buffer.bytes_mut(), HEADROOM, 1, Offload::default()))
    }
}

/// The kernel routes a super-packet to a device that takes segments alone, and so cuts it.
#[test]
fn the_kernel_cuts_what_was_merged_as_it_was() {
    in_namespace("merged and cut", || {
        for setting in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/{setting}"), "1").unwrap();
        }
        let (mut queues, mut host) = prepared(&config(1));
        let sent = queues[0].counters();
        let mut merging = Merging::new(Sending(queues.remove(0)));
        let mut behind = Tun::create(&TunConfig { name: "t1".into(), ..config(1) }).unwrap().into_queues().remove(0);
        // SAFETY: the queue is open; TUNSETOFFLOAD takes a number and follows no pointer.
        assert_eq!(unsafe { libc::ioctl(behind.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, 0) }, 0);
        host.bring_up("t1", 1500, 500).unwrap();
        host.add_route("t1", net("203.0.113.0/24")).unwrap();
        host.add_route("t1", net("2001:db8:3::/64")).unwrap();
        let mut buffer = Buffer::new();
        let mut super_packets = 0;
        for (is_ipv6, dont_fragment) in [(false, true), (false, false), (true, false)] {
            let singly = segments(is_ipv6, dont_fragment, 45);
            for bytes in &singly {
                merging.recv(&mut buffer).unwrap().unwrap();
                buffer.bytes_mut()[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
                let mut packet = Packet::new(buffer.bytes_mut(), HEADROOM, bytes.len(), Offload::default()).unwrap();
                merging.send(&mut packet).unwrap();
            }
            assert!(merging.flush().is_empty());
            super_packets += 1;
            assert_eq!(sent.read().sent_packets, super_packets);
            for mut expected in singly {
                let arrived = loop {
                    let packet = receive(&mut behind, &mut buffer);
                    // The kernel's own are of ICMPv6.
                    if packet.bytes().len() >= 77 && packet.bytes()[0] == expected[0] {
                        break packet;
                    }
                };
                assert_eq!(arrived.offload, Offload::default());
                if is_ipv6 {
                    expected[ipv6::HOP_LIMIT] -= 1;
                } else {
                    expected[ipv4::TTL] -= 1;
                    ipv4::write_checksum(&mut expected);
                }
                assert_eq!(arrived.bytes()[..60], expected[..60], "{is_ipv6} {dont_fragment}");
                assert!(arrived.bytes() == expected, "{is_ipv6} {dont_fragment}: payload");
            }
        }
    });
}

#[test]
fn a_name_in_use_is_refused_and_not_joined() {
    in_namespace("name in use", || {
        let _first = Tun::create(&config(1)).unwrap();
        let error = Tun::create(&config(1)).unwrap_err();
        assert!(matches!(error, TunError::NameTaken { .. }), "{error}");
        let error = Tun::create(&TunConfig { name: "lo".into(), ..config(1) }).unwrap_err();
        assert!(matches!(error, TunError::NameTaken { .. }), "{error}");
        let adopt = TunConfig { name: "lo".into(), existing: ExistingDevice::Adopt, ..config(1) };
        let error = Tun::create(&adopt).unwrap_err();
        assert!(matches!(error, TunError::NotAdoptable { .. }), "{error}");
    });
}

#[test]
fn what_the_kernel_refuses_is_said_with_the_reason() {
    in_namespace("refusals", || {
        let mut queue = Tun::create(&config(1)).unwrap().into_queues().remove(0);
        let counters = queue.counters();
        let mut buffer = Buffer::new();
        buffer.bytes_mut()[HEADROOM] = 0x45;
        let mut send = |headroom, offload| {
            queue.send(&mut Packet::new(buffer.bytes_mut(), headroom, 100, offload).unwrap()).unwrap_err()
        };
        assert_eq!(send(HEADROOM, Offload::default()), DropReason::DeviceDown);

        let mut host = Host::open().unwrap();
        host.bring_up("t0", 1500, 500).unwrap();
        let outside = ChecksumState::Partial { start: 5000, offset: 16 };
        let offload = Offload { checksum: outside, ..Offload::default() };
        assert_eq!(send(HEADROOM, offload), DropReason::DeviceInvalid, "the checksum lies outside the packet");
        assert_eq!(send(VNET_SHORT, Offload::default()), DropReason::NoHeadroom, "for the virtio header");
        assert_eq!(counters.read().sent_packets, 0);
    });
}

/// Headroom that is one byte short of the virtio header.
const VNET_SHORT: usize = 9;

#[test]
fn the_host_is_left_as_it_was_found() {
    in_namespace("clean up", || {
        let (queues, host) = prepared(&config(1));
        drop(host);
        let mut host = Host::open().unwrap();
        assert_eq!(host.addresses().unwrap(), []);
        assert!(!is_up("t0"));
        // Nothing is in the way of doing it all again.
        host.bring_up("t0", 1500, 500).unwrap();
        assert!(is_up("t0"));
        host.add_address("t0", net("10.0.0.1/24")).unwrap();
        host.add_route("t0", net("198.51.100.0/24")).unwrap();
        assert_eq!(queues.len(), 1);
    });
}

fn is_up(device: &str) -> bool {
    let flags = nix::ifaddrs::getifaddrs().unwrap().find(|entry| entry.interface_name == device).unwrap().flags;
    flags.contains(nix::net::if_::InterfaceFlags::IFF_UP)
}

#[test]
fn conflicts_name_the_owner() {
    in_namespace("conflicts", || {
        let (_queues, _other) = prepared(&config(1));
        let _second = Tun::create(&TunConfig { name: "t1".into(), ..config(1) }).unwrap();
        let mut host = Host::open().unwrap();
        host.bring_up("t1", 1500, 500).unwrap();

        let error = host.add_route("t1", net("198.51.100.0/24")).unwrap_err();
        assert!(matches!(&error, HostError::RouteTaken { owner, .. } if owner == "t0"), "{error}");
        let error = host.add_route("t1", net("2001:db8:2::/64")).unwrap_err();
        assert!(matches!(&error, HostError::RouteTaken { owner, .. } if owner == "t0"), "{error}");
        let error = host.add_route("t1", net("10.0.0.0/28")).unwrap_err();
        assert!(matches!(&error, HostError::AddressInPrefix { owner, .. } if owner == "t0"), "{error}");
        let error = host.add_address("t1", net("2001:db8:1::1/128")).unwrap_err();
        assert!(matches!(&error, HostError::AddressTaken { owner, .. } if owner == "t0"), "{error}");
        // An address whose own network is more specific stays with its network; a pool would miss it.
        host.add_route("t1", net("2001:db8::/40")).unwrap();
        let error = host.add_route("t1", net("10.0.0.0/16")).unwrap_err();
        assert!(matches!(&error, HostError::AddressInPrefix { owner, .. } if owner == "t0"), "{error}");
        let error = host.add_route("t1", net("2001:db8:1::/80")).unwrap_err();
        assert!(matches!(&error, HostError::AddressInPrefix { owner, .. } if owner == "t0"), "{error}");
        // A more specific route, and one beside it, are nobody's yet.
        host.add_route("t1", net("198.51.100.128/25")).unwrap();
        host.add_route("t1", net("2001:db8:3::/64")).unwrap();
    });
}

#[test]
fn icmp_sources_are_global_addresses_of_the_side() {
    in_namespace("icmp sources", || {
        let (_queues, mut host) = prepared(&config(1));
        assert_eq!(host.icmp_source(Family::Ipv4, "t0").unwrap(), Some(OURS4.into()));
        assert_eq!(host.icmp_source(Family::Ipv6, "t0").unwrap(), Some(OURS6.into()));
        let _second = Tun::create(&TunConfig { name: "t1".into(), ..config(1) }).unwrap();
        host.bring_up("t1", 1500, 500).unwrap();
        host.add_address("t1", net("192.0.2.9/32")).unwrap();
        assert_eq!(host.icmp_source(Family::Ipv4, "t0").unwrap(), Some("192.0.2.9".parse().unwrap()));
    });
}

#[test]
fn queues_can_be_polled() {
    in_namespace("poll", || {
        let queue = Tun::create(&config(1)).unwrap().into_queues().remove(0);
        assert!(queue.as_fd().as_raw_fd() > 2);
        assert_eq!((queue.device(), queue.number()), ("t0", 0));
    });
}
