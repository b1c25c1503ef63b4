//! Random frames: mostly such as the fast path takes, some damaged, some that are none of its
//! business.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::eam::Eam;
use tombolo_fastpath::trial::MAC;
use tombolo_wire::Prefix64;

use crate::compare::{transport_sum, write_ipv4_checksum};
use crate::world::World;

/// A deterministic source of numbers (splitmix64).
pub(crate) struct Numbers(pub u64);

impl Numbers {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % bound as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.draw().to_le_bytes()[3]
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// Ports, or identifiers.
const PORTS: [u16; 8] = [0, 80, 123, 1023, 1024, 5000, 5001, 40_001];

/// Remote addresses; those in lists of special addresses among them.
const REMOTES: [Ipv4Addr; 11] = [
    Ipv4Addr::new(198, 51, 100, 2),
    Ipv4Addr::new(203, 0, 113, 7),
    Ipv4Addr::new(8, 8, 8, 8),
    Ipv4Addr::new(8, 8, 4, 4),
    Ipv4Addr::new(9, 9, 9, 9),
    Ipv4Addr::new(10, 1, 2, 3),
    Ipv4Addr::new(172, 200, 1, 1),
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::new(169, 254, 1, 1),
    Ipv4Addr::new(192, 0, 0, 2),
];

/// The transport header and payload of a packet, with a checksum that is right but for the
/// pseudo-header.
struct Transport {
    protocol: u8,
    bytes: Vec<u8>,
    checksum: usize,
}

fn transport(numbers: &mut Numbers, ports: (u16, u16), is_ipv4: bool) -> Transport {
    let length = match numbers.below(40) {
        0 => 1180 + numbers.below(360),
        1 => 1200 + numbers.below(60),
        _ => numbers.below(40),
    };
    let mut bytes = Vec::new();
    let (protocol, checksum) = match numbers.below(10) {
        0..=3 => {
            bytes.extend(ports.0.to_be_bytes());
            bytes.extend(ports.1.to_be_bytes());
            let datagram = u16::try_from(8 + length).unwrap();
            let datagram = if numbers.one_in(30) {
                datagram.wrapping_add(u16::from(numbers.byte()) % 5).wrapping_sub(2)
            } else {
                datagram
            };
            bytes.extend(datagram.to_be_bytes());
            bytes.extend([0, 0]);
            (17, 6)
        }
        4..=7 => {
            bytes.extend(ports.0.to_be_bytes());
            bytes.extend(ports.1.to_be_bytes());
            bytes.extend(numbers.draw().to_le_bytes());
            let flags = numbers.pick(&[0x02, 0x12, 0x10, 0x18, 0x11, 0x01, 0x04, 0x14, 0x03, 0x07, 0x00, 0xd2, 0x10]);
            bytes.extend([if numbers.one_in(40) { 0x40 } else { 0x50 }, flags, 1, 2, 0, 0, 0, 0]);
            (6, 16)
        }
        _ => {
            let kinds: [u8; 5] = if is_ipv4 { [8, 0, 8, 0, 13] } else { [128, 129, 128, 129, 135] };
            let kind = if numbers.one_in(30) { numbers.pick(&[1, 2, 3, 11, 12]) } else { numbers.pick(&kinds) };
            bytes.extend([kind, if numbers.one_in(20) { 1 } else { 0 }, 0, 0]);
            bytes.extend(ports.0.to_be_bytes());
            // Now and then nothing but zeros, of which the checksum is special.
            let is_zero = numbers.one_in(6);
            bytes.extend([0, if is_zero { 0 } else { 9 }]);
            if is_zero {
                bytes[4..6].fill(0);
                bytes.resize(bytes.len() + length, 0);
                return Transport { protocol: if is_ipv4 { 1 } else { 58 }, bytes, checksum: 2 };
            }
            (if is_ipv4 { 1 } else { 58 }, 2)
        }
    };
    bytes.extend((0..length).map(|_| numbers.byte()));
    if numbers.one_in(100) {
        bytes.truncate(numbers.below(bytes.len()));
    }
    Transport { protocol, bytes, checksum }
}

/// Fills in the checksum: mostly right, sometimes anything, sometimes none.
fn finish(numbers: &mut Numbers, transport: &mut Transport, pseudo: u32) {
    let at = transport.checksum;
    if at + 2 > transport.bytes.len() {
        return;
    }
    let value = match numbers.below(60) {
        0 => numbers.draw().to_le_bytes()[..2].try_into().unwrap(),
        1 => [0, 0],
        2 => [0xff, 0xff],
        _ => {
            let mut sum = pseudo;
            for pair in transport.bytes.chunks(2) {
                sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
                sum = (sum & 0xffff) + (sum >> 16);
            }
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            let sum = !u16::try_from(sum).unwrap();
            (if sum == 0 && transport.protocol == 17 { 0xffff } else { sum }).to_be_bytes()
        }
    };
    transport.bytes[at..at + 2].copy_from_slice(&value);
}

fn words(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum()
}

pub(crate) fn frame(numbers: &mut Numbers, ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
    let mut frame = MAC.to_vec();
    frame.extend([2, 9, 9, 9, 9, 9]);
    frame.extend(ethertype);
    frame.extend(packet);
    if numbers.one_in(10) {
        // Padding.
        frame.extend((0..numbers.below(30)).map(|_| numbers.byte()));
    }
    if frame.len() < 60 {
        frame.resize(60, 0xee);
    }
    frame
}

/// A datagram of four bytes, with right checksums.
pub(crate) fn datagram(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 32, 0, 1, 0x40, 0, 64, 17, 0, 0];
    packet.extend(source.0.octets());
    packet.extend(destination.0.octets());
    write_ipv4_checksum(&mut packet);
    packet.extend(source.1.to_be_bytes());
    packet.extend(destination.1.to_be_bytes());
    packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    let sum = u16::try_from(transport_sum(&packet)).unwrap();
    packet[26..28].copy_from_slice(&(!sum).to_be_bytes());
    frame(&mut Numbers(1), [0x08, 0x00], &packet)
}

pub(crate) fn ports(numbers: &mut Numbers) -> (u16, u16) {
    (numbers.pick(&PORTS), numbers.pick(&PORTS))
}

pub(crate) fn ipv6_frame(numbers: &mut Numbers, source: Ipv6Addr, destination: Ipv6Addr, ports: (u16, u16)) -> Vec<u8> {
    let mut transport = transport(numbers, ports, false);
    let length = u32::try_from(transport.bytes.len()).unwrap();
    let pseudo = words(&source.octets()) + words(&destination.octets()) + length + u32::from(transport.protocol);
    finish(numbers, &mut transport, pseudo);
    let class = if numbers.one_in(3) { numbers.byte() } else { 0 };
    let mut packet = vec![0x60 | class >> 4, class << 4 | numbers.byte() & 15, numbers.byte(), numbers.byte()];
    let extension = numbers.one_in(60);
    let total = length + if extension { 8 } else { 0 };
    let total = if numbers.one_in(100) { total + 7 } else { total };
    packet.extend(u16::try_from(total).unwrap().to_be_bytes());
    let kind = if numbers.one_in(2) { 60 } else { 44 };
    packet.push(if extension { kind } else { transport.protocol });
    packet.push(if numbers.one_in(40) { numbers.byte() % 3 } else { 64 });
    packet.extend(source.octets());
    packet.extend(destination.octets());
    if extension {
        packet.extend([transport.protocol, 0, 0, if numbers.one_in(2) { 1 } else { 0 }, 0, 0, 0, 5]);
    }
    packet.extend(&transport.bytes);
    frame(numbers, [0x86, 0xdd], &packet)
}

pub(crate) fn ipv4_frame(numbers: &mut Numbers, source: Ipv4Addr, destination: Ipv4Addr, ports: (u16, u16)) -> Vec<u8> {
    let mut transport = transport(numbers, ports, true);
    let length = transport.bytes.len();
    let pseudo = words(&source.octets())
        + words(&destination.octets())
        + u32::try_from(length).unwrap()
        + u32::from(transport.protocol);
    let pseudo = if transport.protocol == 1 { 0 } else { pseudo };
    finish(numbers, &mut transport, pseudo);
    let options = numbers.one_in(60);
    let header: usize = if options { 24 } else { 20 };
    let mut packet = vec![if options { 0x46 } else { 0x45 }, if numbers.one_in(3) { numbers.byte() } else { 0 }];
    packet.extend(u16::try_from(header + length).unwrap().to_be_bytes());
    packet.extend(numbers.draw().to_le_bytes()[..2].iter());
    let fragment: u16 = match numbers.below(40) {
        0 => 0x2000,
        1 => 0x0003,
        2 => 0x8000,
        3..=20 => 0x4000,
        _ => 0,
    };
    packet.extend(fragment.to_be_bytes());
    packet.push(if numbers.one_in(40) { numbers.byte() % 3 } else { 64 });
    packet.push(transport.protocol);
    packet.extend([0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    if options {
        packet.extend([1, 1, 1, 0]);
    }
    packet.extend(&transport.bytes);
    ipv4_header_checksum(&mut packet, header);
    if numbers.one_in(100) {
        packet[10] ^= 1;
    }
    frame(numbers, [0x08, 0x00], &packet)
}

fn ipv4_header_checksum(packet: &mut [u8], header: usize) {
    if header == 20 {
        return write_ipv4_checksum(packet);
    }
    packet[10..12].fill(0);
    let mut sum = words(&packet[..header]);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
}

/// An outside endpoint that a binding has, if one was found at random.
pub(crate) fn bound(numbers: &mut Numbers, world: &World) -> Option<(Ipv4Addr, u16)> {
    let ids: Vec<_> = world.tables.bindings.iter().collect();
    let id = *ids.get(numbers.below(ids.len().max(1)))?;
    let (binding, _) = world.tables.bindings.read(id)?;
    Some((binding.outside_ipv4.into(), u16::from_be_bytes(binding.outside_port)))
}

pub(crate) fn remote(numbers: &mut Numbers) -> Ipv4Addr {
    let usual = numbers.pick(&REMOTES[..5]);
    if numbers.one_in(15) { numbers.pick(&REMOTES) } else { usual }
}

/// From inside to a prefix, from outside to the pool, and back and forth.
pub(crate) fn nat64(numbers: &mut Numbers, world: &World, prefix: tombolo_wire::Prefix64, pool: Ipv4Addr) -> Vec<u8> {
    let ports = ports(numbers);
    if numbers.one_in(2) {
        let host = u16::try_from(numbers.below(5)).unwrap();
        let mut source = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2 + host);
        if numbers.one_in(40) {
            source = numbers.pick(&[
                Ipv6Addr::LOCALHOST,
                "fe80::1".parse().unwrap(),
                "ff02::1".parse().unwrap(),
                prefix.embed(Ipv4Addr::new(8, 8, 8, 8)),
            ]);
        }
        let to = if numbers.one_in(30) { pool } else { remote(numbers) };
        let mut destination = prefix.embed(to);
        if numbers.one_in(50) {
            destination = Ipv6Addr::from_bits(destination.to_bits() ^ 1 << numbers.below(128));
        }
        ipv6_frame(numbers, source, destination, ports)
    } else {
        let (address, port) = bound(numbers, world).unwrap_or((pool, 1024 + u16::from(numbers.byte()) % 50));
        let (address, port) = if numbers.one_in(20) { (pool, numbers.pick(&PORTS)) } else { (address, port) };
        let address = if numbers.one_in(50) { remote(numbers) } else { address };
        let from = remote(numbers);
        let remote_port = if numbers.one_in(4) { port } else { ports.0 };
        ipv4_frame(numbers, from, address, (remote_port, port))
    }
}

/// From an IPv4 host inside to anywhere, from outside to the pool, and back and forth.
pub(crate) fn nat44(numbers: &mut Numbers, world: &World, pool: Ipv4Addr) -> Vec<u8> {
    if numbers.one_in(2) { from_inside(numbers, pool) } else { from_outside(numbers, world, pool) }
}

pub(crate) fn host(numbers: &mut Numbers) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, u8::from(numbers.one_in(4)), numbers.byte() % 5)
}

/// From an IPv4 host inside to anywhere.
pub(crate) fn from_inside(numbers: &mut Numbers, pool: Ipv4Addr) -> Vec<u8> {
    let ports = ports(numbers);
    let mut source = host(numbers);
    if numbers.one_in(40) {
        source = remote(numbers);
    }
    let destination = match numbers.below(40) {
        0 => pool,
        1 => Ipv4Addr::new(10, 0, 0, 3),
        _ => remote(numbers),
    };
    ipv4_frame(numbers, source, destination, ports)
}

/// From anywhere to the pool, mostly to a port that is bound.
pub(crate) fn from_outside(numbers: &mut Numbers, world: &World, pool: Ipv4Addr) -> Vec<u8> {
    let ports = ports(numbers);
    let (address, port) = bound(numbers, world).unwrap_or((pool, 1024 + u16::from(numbers.byte()) % 50));
    let address = if numbers.one_in(30) { pool } else { address };
    let from = if numbers.one_in(30) { Ipv4Addr::new(10, 0, 0, 1) } else { remote(numbers) };
    let remote_port = if numbers.one_in(4) { port } else { ports.0 };
    ipv4_frame(numbers, from, address, (remote_port, port))
}

/// Between addresses of rows, of the prefix, and others.
pub(crate) fn stateless(numbers: &mut Numbers, rows: &[Eam], prefix: Option<Prefix64>) -> Vec<u8> {
    let ports = ports(numbers);
    if numbers.one_in(2) {
        let [source, destination] = [(); 2].map(|()| {
            let row = numbers.pick(rows).ipv6();
            let host = u128::MAX.checked_shr(row.prefix_len().into()).unwrap_or(0);
            let draw = u128::from(numbers.draw()) << 64 | u128::from(numbers.draw());
            let explicit = Ipv6Addr::from_bits(row.key() | draw & host);
            match (prefix, numbers.below(20)) {
                (_, 0) => Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1),
                (Some(prefix), 1..=12) => prefix.embed(remote(numbers)),
                _ => explicit,
            }
        });
        ipv6_frame(numbers, source, destination, ports)
    } else {
        let [source, destination] = [(); 2].map(|()| {
            let row = numbers.pick(rows).ipv4();
            let host = u32::MAX.checked_shr(row.prefix_len().into()).unwrap_or(0);
            let draw = u32::from_be_bytes([numbers.byte(), numbers.byte(), numbers.byte(), numbers.byte()]);
            if numbers.one_in(2) { remote(numbers) } else { Ipv4Addr::from_bits(row.key() | draw & host) }
        });
        ipv4_frame(numbers, source, destination, ports)
    }
}
