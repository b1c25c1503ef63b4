//! Packets that no honest host sends, and where they are aimed. Each function makes the next one.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::ipv4::{self, MF};
use tombolo_wire::ipv6::{self, FragmentHeader};
use tombolo_wire::udp::UdpHeader;
use tombolo_wire::{Ipv4Header, Ipv6Header, Port, Protocol, TcpFlags, TcpHeader, icmpv4, write_u16};

use super::known::{Known, TCP_PORT};
use super::traffic::{Family, Random, SERVER};

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Outside hosts that the gateway has a route to: packets from anywhere else could fall to the
/// kernel's own source check.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);
/// The pools of both services: 192.0.2.0/27.
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);
const INSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0xf, 0, 0, 0, 0);

/// Makes the next packet of an attack; nothing while it has no target.
pub(super) type Forger = fn(&mut Random, &Known) -> Option<Vec<u8>>;

/// Datagrams from ever other remotes to one bound port.
pub(super) fn to_a_bound_port(random: &mut Random, known: &Known) -> Option<Vec<u8>> {
    let &(address, port) = random.pick(&known.udp)?;
    Some(udp4((outside_host(random), random.port()), (address, port)))
}

/// SYNs of hosts that nobody has, from inside.
pub(super) fn from_new_hosts(random: &mut Random, _: &Known) -> Option<Vec<u8>> {
    let low = u128::from(random.next()) << 32 | u128::from(random.next());
    let source = Ipv6Addr::from_bits(INSIDE.to_bits() | low);
    Some(tcp6(source, random.port(), random.port(), TcpFlags::SYN))
}

/// Hosts whose addresses differ in the highest bits of the interface identifier alone, where a hash
/// that only multiplies loses them.
pub(super) fn from_chosen_hosts(random: &mut Random, _: &Known) -> Option<Vec<u8>> {
    let source = Ipv6Addr::from_bits(INSIDE.to_bits() | u128::from(random.next() & 0xffc0_0000) << 32 | 1);
    Some(tcp6(source, 4000, 80, TcpFlags::SYN))
}

/// SYNs to every port of the pools.
pub(super) fn scan(random: &mut Random, _: &Known) -> Option<Vec<u8>> {
    let to = (pool_address(random), random.port());
    Some(tcp4((outside_host(random), random.port()), to, TcpFlags::SYN, random.next()))
}

/// Resets to connections that live, from their own remote, with sequence numbers that are guessed.
pub(super) fn resets(random: &mut Random, known: &Known) -> Option<Vec<u8>> {
    let &to = random.pick(&known.tcp)?;
    Some(tcp4((SERVER, TCP_PORT), to, TcpFlags::RST, random.next()))
}

/// Fragments that are never completed, and some that overlap, from both sides.
pub(super) fn fragments(random: &mut Random, known: &Known) -> Option<Vec<u8>> {
    let piece = [0xa5; 64];
    let offset = u16::try_from(random.next() % 100).unwrap_or(0);
    let more = random.next() & 1 != 0;
    if random.next() & 1 == 0 {
        let &(address, _) = random.pick(&known.udp)?;
        let word = offset | if more { MF } else { 0 };
        let mut packet = packet4(outside_host(random), address, Protocol::UDP, 64, &piece);
        // Few identifications, so that many pieces meet.
        write_u16(&mut packet, 4, 1 + u16::try_from(random.next() % 512).unwrap_or(0));
        write_u16(&mut packet, 6, word);
        ipv4::write_checksum(&mut packet);
        return Some(packet);
    }
    let mut payload = [0_u8; 8 + 64];
    payload[8..].copy_from_slice(&piece);
    let identification = random.next() % 512;
    let header = FragmentHeader { header_offset: 0, next_header: Protocol::UDP, offset, more, identification };
    header.emit(&mut payload);
    let source = Ipv6Addr::from_bits(INSIDE.to_bits() | 0x1_0000_0000 | u128::from(random.next() % 64));
    Some(packet6(source, server6(), Protocol::IPV6_FRAGMENT, 64, &payload))
}

/// Echo requests to the pools, and ICMP errors about packets that nobody sent.
pub(super) fn icmp(random: &mut Random, known: &Known) -> Option<Vec<u8>> {
    let source = outside_host(random);
    let mut message = vec![0; 8];
    let to = if random.next() & 1 == 0 {
        message[0] = icmpv4::ECHO_REQUEST;
        write_u16(&mut message, 4, random.port());
        pool_address(random)
    } else {
        let &(address, port) = random.pick(&known.udp)?;
        message[0] = icmpv4::DESTINATION_UNREACHABLE;
        message[1] = u8::try_from(random.next() % 5).unwrap_or(0);
        message.extend(udp4((address, port), (outside_host(random), random.port())));
        address
    };
    let checksum = tombolo_wire::Sum::ZERO.bytes(&message).checksum();
    write_u16(&mut message, 2, checksum);
    Some(packet4(source, to, Protocol::ICMP, 64, &message))
}

/// Packets from inside whose hop limit ends at the gateway: each asks for an ICMP error.
pub(super) fn expiring(random: &mut Random, _: &Known) -> Option<Vec<u8>> {
    let mut packet = udp6(Family::ipv6_host(3), random.port(), random.port());
    // The kernel takes one on the way to the gateway's device.
    packet[7] = 2;
    Some(packet)
}

fn outside_host(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::from_bits(OUTSIDE.to_bits() + 3 + random.next() % 250)
}

fn pool_address(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::from_bits(POOL.to_bits() + random.next() % 32)
}

fn server6() -> Ipv6Addr {
    Family::ipv6_server()
}

fn udp4(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut datagram = udp(from.1, to.1);
    let checksum = ipv4::transport_checksum(from.0, to.0, Protocol::UDP, &datagram);
    write_u16(&mut datagram, 6, checksum);
    packet4(from.0, to.0, Protocol::UDP, 64, &datagram)
}

fn udp6(source: Ipv6Addr, from: u16, to: u16) -> Vec<u8> {
    let mut datagram = udp(from, to);
    let checksum = ipv6::transport_checksum(source, server6(), Protocol::UDP, &datagram);
    write_u16(&mut datagram, 6, checksum);
    packet6(source, server6(), Protocol::UDP, 64, &datagram)
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    let mut datagram = vec![0; 8 + 12];
    let length = u16::try_from(datagram.len()).unwrap_or(0);
    UdpHeader { source_port: Port(from), destination_port: Port(to), length, checksum: 0 }.emit(&mut datagram);
    datagram
}

fn tcp4(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: TcpFlags, sequence: u32) -> Vec<u8> {
    let mut segment = tcp(from.1, to.1, flags, sequence);
    let checksum = ipv4::transport_checksum(from.0, to.0, Protocol::TCP, &segment);
    write_u16(&mut segment, 16, checksum);
    packet4(from.0, to.0, Protocol::TCP, 64, &segment)
}

fn tcp6(source: Ipv6Addr, from: u16, to: u16, flags: TcpFlags) -> Vec<u8> {
    let mut segment = tcp(from, to, flags, 1);
    let checksum = ipv6::transport_checksum(source, server6(), Protocol::TCP, &segment);
    write_u16(&mut segment, 16, checksum);
    packet6(source, server6(), Protocol::TCP, 64, &segment)
}

fn tcp(from: u16, to: u16, flags: TcpFlags, sequence: u32) -> Vec<u8> {
    let mut segment = vec![0; 20];
    let (source_port, destination_port) = (Port(from), Port(to));
    TcpHeader { source_port, destination_port, sequence, flags, window: 1024, ..TcpHeader::default() }
        .emit(&mut segment);
    segment
}

fn packet4(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IPV4_HEADER + payload.len()];
    let total_length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    // An identification of zero would be replaced by the sending kernel.
    Ipv4Header { tos: 0, total_length, identification: 1, fragment_word: 0, ttl, protocol, source, destination }
        .emit(&mut packet);
    packet[IPV4_HEADER..].copy_from_slice(payload);
    packet
}

fn packet6(source: Ipv6Addr, destination: Ipv6Addr, next_header: Protocol, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IPV6_HEADER + payload.len()];
    let payload_length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    Ipv6Header { traffic_class: 0, flow_label: 0, payload_length, next_header, hop_limit, source, destination }
        .emit(&mut packet);
    packet[IPV6_HEADER..].copy_from_slice(payload);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use tombolo_engine::packet::{HEADROOM, Offload, Packet};
    use tombolo_engine::parse::parse;

    const KNOWN_ENDPOINT: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 4000);

    #[test]
    fn what_is_forged_is_well_formed() {
        let known = Known { udp: vec![KNOWN_ENDPOINT], tcp: vec![KNOWN_ENDPOINT] };
        let forgers: [Forger; 8] =
            [to_a_bound_port, from_new_hosts, from_chosen_hosts, scan, resets, fragments, icmp, expiring];
        for forger in forgers {
            let mut random = Random(7);
            for _ in 0..100 {
                let bytes = forger(&mut random, &known).unwrap();
                let mut buffer = vec![0; HEADROOM + bytes.len()];
                buffer[HEADROOM..].copy_from_slice(&bytes);
                let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()).unwrap();
                parse(&mut packet).unwrap();
            }
        }
    }

    #[test]
    fn an_attack_without_a_target_waits() {
        assert_eq!(resets(&mut Random(7), &Known::default()), None);
    }
}
