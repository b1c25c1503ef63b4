//! Millions of random and mutated packets through the whole engine: no panic, no packet that is
//! wrong, and tables that keep every invariant.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::net::Ipv4Addr;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::*;
use tombolo_engine::mapping::pool::PortSpace;
use tombolo_engine::packet::{ChecksumState, HEADROOM, Offload, Packet, Segmentation};
use tombolo_engine::plan::StaticBinding;
use tombolo_engine::sweep::Expiry;
use tombolo_engine::{DropReason, Now, Verdict};
use tombolo_tables::audit;
use tombolo_tables::sweep::Sweeper;

const PACKETS: u32 = 3_000_000;

/// A random packet: usually one that the gateway serves, often damaged, sometimes noise.
struct Source {
    random: ChaCha8Rng,
    nat44: bool,
}

impl Source {
    fn below(&mut self, limit: u32) -> u32 {
        self.random.next_u32() % limit
    }

    fn port(&mut self) -> u16 {
        u16::try_from(self.below(64)).unwrap() * 1000 + 7
    }

    fn packet(&mut self, buffer: &mut Vec<u8>) {
        if self.nat44 {
            return self.packet_nat44(buffer);
        }
        let host = if self.below(2) == 0 { HOST } else { OTHER_HOST };
        let remote = Ipv4Addr::new(198, 51, 100, u8::try_from(self.below(6)).unwrap());
        let pool = Ipv4Addr::new(192, 0, 2, u8::try_from(self.below(4)).unwrap());
        let (a, b) = (self.port(), self.port());
        let outside_port = u16::try_from(1024 + self.below(256)).unwrap();
        let flags = u8::try_from(self.below(64)).unwrap();
        let payload = vec![0x42; self.below(200) as usize];
        let packet = match self.below(13) {
            0 => udp((host, a), (embed(remote), b), &payload),
            1 => tcp((host, a), (embed(remote), b), flags, &payload),
            2 => echo(host, embed(remote), flags & 1 == 0, a),
            3 => udp((remote, b), (pool, outside_port), &payload),
            4 => tcp((remote, b), (pool, outside_port), flags, &payload),
            5 => echo(remote, pool, flags & 1 == 0, outside_port),
            6 => udp((host, a), (embed(pool), outside_port), &payload),
            7 => tcp((host, a), (embed(pool), outside_port), flags, &payload),
            8 => {
                let about = udp((pool, outside_port), (remote, b), &payload);
                icmp(remote, pool, 3 + 8 * (flags & 1), flags >> 2, self.below(2000), &about)
            }
            9 => {
                let about = udp((embed(remote), b), (host, a), &payload);
                icmp(host, embed(remote), 1 + flags % 4, flags >> 4, self.below(2000), &about)
            }
            10 => self.piece(fragments_ipv6(&udp((host, a), (embed(remote), b), &[7; 150]), 64)),
            11 => self.piece(fragments_ipv4(&udp((remote, b), (pool, outside_port), &[7; 150]), 64)),
            _ => (0..self.below(120)).map(|_| u8::try_from(self.below(256)).unwrap()).collect(),
        };
        buffer.clear();
        buffer.extend(packet);
        self.damage(buffer);
    }

    /// As [`packet`](Self::packet), with IPv4 on both sides.
    fn packet_nat44(&mut self, buffer: &mut Vec<u8>) {
        let host = if self.below(2) == 0 { HOST4 } else { OTHER_HOST4 };
        let remote = Ipv4Addr::new(198, 51, 100, u8::try_from(self.below(6)).unwrap());
        let pool = Ipv4Addr::new(192, 0, 2, u8::try_from(self.below(4)).unwrap());
        let (a, b) = (self.port(), self.port());
        let outside_port = u16::try_from(1024 + self.below(256)).unwrap();
        let flags = u8::try_from(self.below(64)).unwrap();
        let payload = vec![0x42; self.below(200) as usize];
        let packet = match self.below(13) {
            0 => udp((host, a), (remote, b), &payload),
            1 => tcp((host, a), (remote, b), flags, &payload),
            2 => echo(host, remote, flags & 1 == 0, a),
            3 => udp((remote, b), (pool, outside_port), &payload),
            4 => tcp((remote, b), (pool, outside_port), flags, &payload),
            5 => echo(remote, pool, flags & 1 == 0, outside_port),
            6 => udp((host, a), (pool, outside_port), &payload),
            7 => tcp((host, a), (pool, outside_port), flags, &payload),
            8 => {
                let about = udp((pool, outside_port), (remote, b), &payload);
                icmp(remote, pool, 3 + 8 * (flags & 1), flags >> 2, self.below(2000), &about)
            }
            9 => {
                let about = udp((remote, b), (host, a), &payload);
                icmp(host, remote, 3 + 8 * (flags & 1), flags >> 2, self.below(2000), &about)
            }
            10 => self.piece(fragments_ipv4(&udp((host, a), (remote, b), &[7; 150]), 64)),
            11 => self.piece(fragments_ipv4(&udp((remote, b), (pool, outside_port), &[7; 150]), 64)),
            _ => (0..self.below(120)).map(|_| u8::try_from(self.below(256)).unwrap()).collect(),
        };
        buffer.clear();
        buffer.extend(packet);
        self.damage(buffer);
    }

    /// One of several pieces: often their siblings follow.
    fn piece(&mut self, pieces: Vec<Vec<u8>>) -> Vec<u8> {
        let which = self.below(u32::try_from(pieces.len()).unwrap()) as usize;
        pieces[which].clone()
    }

    fn damage(&mut self, packet: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            if packet.is_empty() {
                return;
            }
            let at = self.below(u32::try_from(packet.len().min(80)).unwrap()) as usize;
            match self.below(8) {
                0 => packet.truncate(at),
                1 => packet.extend_from_slice(&[0; 13]),
                2 => packet[at] = u8::try_from(self.below(256)).unwrap(),
                3 => packet[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }

    fn offload(&mut self) -> Offload {
        let any = |random: &mut ChaCha8Rng| u16::try_from(random.next_u32() % 1600).unwrap();
        let start = if self.nat44 { 20 } else { 40 };
        match self.below(8) {
            0 => Offload {
                segmentation: Segmentation::Tcp { size: any(&mut self.random), ecn: false },
                checksum: ChecksumState::Partial { start: any(&mut self.random), offset: any(&mut self.random) },
            },
            1 => Offload {
                segmentation: Segmentation::Udp { size: any(&mut self.random) },
                checksum: ChecksumState::Partial { start, offset: 6 },
            },
            2 => Offload { checksum: ChecksumState::Partial { start, offset: 16 }, ..Offload::default() },
            _ => Offload::default(),
        }
    }
}

#[test]
fn millions_of_random_packets_do_no_harm_to_a_nat64() {
    torture(false, static_binding(PortSpace::Tcp, 8080, 1080));
}

#[test]
fn millions_of_random_packets_do_no_harm_to_a_nat44() {
    torture(true, StaticBinding { inside: HOST4.into(), ..static_binding(PortSpace::Tcp, 8080, 1080) });
}

fn torture(nat44: bool, binding: StaticBinding) {
    let mut gateway = Gateway::new(Setup {
        ports: 1024..=1279,
        last_address: Ipv4Addr::new(192, 0, 2, 3),
        sessions: 3000,
        static_bindings: vec![binding],
        nat44,
        ..Setup::default()
    });
    let mut source = Source { random: ChaCha8Rng::seed_from_u64(20), nat44 };
    let mut sweeper = Sweeper::new(&gateway.tables, gateway.now.tick());
    let mut expiry = Expiry::new(&gateway.plan);
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 4096]);
    let mut forwarded = 0_u32;
    let mut reasons = [0_u32; DropReason::COUNT];
    for n in 0..PACKETS {
        source.packet(&mut bytes);
        let offload = source.offload();
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(&bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), offload).unwrap();
        let mut sent = 0;
        let mut outbox = |packet: &mut Packet<'_>| {
            sent += 1;
            check_structure(packet);
        };
        match gateway.engine.process(&gateway.plan, &mut packet, gateway.now, &mut outbox) {
            Verdict::Forward => {
                assert!(sent > 0);
                forwarded += 1;
            }
            Verdict::Drop(reason) => {
                assert_eq!(sent, 0, "{reason}");
                reasons[reason as usize] += 1;
            }
            Verdict::Reply(reason) => {
                assert_eq!(sent, 1, "{reason}");
                reasons[reason as usize] += 1;
            }
            Verdict::EchoReply | Verdict::Pcp(_) => assert_eq!(sent, 1),
            Verdict::Hold | Verdict::ToHost | Verdict::Redirect(_) => assert_eq!(sent, 0),
        }
        if n % 1000 == 0 {
            gateway.now = Now(gateway.now.0 + 20 * SECOND);
            sweeper.advance(&gateway.tables, 2000, gateway.now.tick(), &mut expiry);
        }
        if n % 500_000 == 0 {
            assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
        }
    }
    assert_eq!(audit::check(&gateway.tables), Vec::<String>::new());
    let met = reasons.iter().filter(|&&count| count > 0).count();
    assert!(forwarded > PACKETS / 10, "only {forwarded} were forwarded: the test would prove little");
    assert!(met >= 10 && expiry.sessions > 1000 && expiry.bindings > 100, "{met} reasons, {expiry:?}");
}

/// What leaves is a packet: its version, lengths and IPv4 header checksum are right.
fn check_structure(packet: &Packet<'_>) {
    let bytes = packet.bytes();
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    match bytes[0] >> 4 {
        4 => {
            assert_eq!(word(2), bytes.len());
            assert_eq!(sum(&bytes[..usize::from(bytes[0] & 15) * 4]), 0xffff);
        }
        6 => assert_eq!(word(4) + 40, bytes.len()),
        version => panic!("version {version}"),
    }
    if let ChecksumState::Partial { start, offset } = packet.offload.checksum {
        assert!(usize::from(start) + usize::from(offset) + 2 <= bytes.len());
    }
}
