//! Random packets: mostly such as hosts send, some damaged, some in fragments, some ICMP errors.
//!
//! What the kernel in front of the gateway does not let through is left out: wrong headers of IP,
//! and addresses that no host has. Ports that the gateway has bound are an argument, so that the
//! same packet can be made for two gateways that have drawn different ones.

use std::net::{IpAddr, Ipv6Addr};

use super::datagram::{Datagram, Space, checksum_at, in_fragments, ip, write_checksum};
use super::served::{Facing, Party, Ports, SERVER_PORT};
use crate::numbers::Numbers;

/// Ports of hosts, and identifiers of their echoes.
pub(super) const USUAL: [u16; 8] = [53, 80, 123, 1023, 5000, 5001, 40_001, SERVER_PORT];

/// Routers of IPv6, inside and outside.
const ROUTERS: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 1, 0xf, 0, 0, 0, 0x77), Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 7)];

/// Which outside port stands for a number drawn at random.
pub(super) type Bound<'b> = dyn Fn(Space, u64) -> u16 + 'b;

/// Next packets of one side: one, or the fragments of one.
pub(super) fn next(numbers: &mut Numbers, side: &Facing, from_inside: bool, bound: &Bound<'_>) -> Vec<Vec<u8>> {
    let (ours, theirs) = (*numbers.pick(&side.ours), *numbers.pick(&side.theirs));
    let (source, destination) = if from_inside { (ours, theirs) } else { (theirs, ours) };
    let talk = Talk { source, destination };
    let mut inner = packet(numbers, &talk, bound, ours.softwire.is_some());
    let Some(ends) = ours.softwire else { return split(numbers, inner, true) };
    if numbers.one_in(40) {
        // About a packet that the gateway has sent.
        let about = ip(
            ends.map(IpAddr::from)[1],
            ends.map(IpAddr::from)[0],
            4,
            60,
            &packet(numbers, &talk.back(), bound, true),
        );
        // A router on the side that it comes from, where the gateway has its routes.
        let router = if from_inside { ROUTERS[0] } else { ROUTERS[1] };
        return vec![error(numbers, router.into(), ends[1].into(), &about)];
    }
    let pieces = if numbers.one_in(12) { split(numbers, inner, false) } else { vec![std::mem::take(&mut inner)] };
    pieces.into_iter().flat_map(|inner| tunnelled(numbers, ends.map(IpAddr::from), &inner)).collect()
}

/// A packet from inside that ends at the gateway, which tells its sender.
pub(super) fn expiring(numbers: &mut Numbers, inside: &Facing) -> Vec<u8> {
    let (source, destination) = (inside.ours[0], inside.theirs[0]);
    let port = match source.ports {
        Ports::Set(first, _) => first,
        Ports::Usual | Ports::Bound => USUAL[0],
    };
    let addresses = [source.address, destination.address];
    let datagram = Datagram::tcp(numbers, addresses, [port, USUAL[1]], 4);
    let packet = |limit| ip(addresses[0], addresses[1], datagram.protocol, limit, &datagram.bytes);
    match source.softwire {
        Some([from, to]) => ip(from.into(), to.into(), 4, 64, &packet(1)),
        None => packet(2),
    }
}

/// Who sends to whom.
struct Talk {
    source: Party,
    destination: Party,
}

impl Talk {
    /// The other way round.
    const fn back(&self) -> Self {
        Self { source: self.destination, destination: self.source }
    }

    fn addresses(&self) -> [IpAddr; 2] {
        [self.source.address, self.destination.address]
    }
}

fn port(numbers: &mut Numbers, party: Party, space: Space, bound: &Bound<'_>) -> u16 {
    let draw = numbers.draw();
    match party.ports {
        Ports::Usual => *numbers.pick(&USUAL),
        Ports::Set(first, last) => first + u16::try_from(draw % u64::from(last - first + 1)).unwrap_or(0),
        Ports::Bound => bound(space, draw),
    }
}

/// A packet of IP that is whole.
fn packet(numbers: &mut Numbers, talk: &Talk, bound: &Bound<'_>, is_inner: bool) -> Vec<u8> {
    let [source, destination] = talk.addresses();
    if numbers.one_in(12) {
        let back = talk.back();
        let about = datagram(numbers, &back, bound);
        let [from, to] = back.addresses();
        let about = ip(from, to, about.protocol, 60, &about.bytes);
        // From the host itself, or a router before it; which has an address of any kind.
        let router = if numbers.one_in(2) { source } else { router(numbers, source) };
        return error(numbers, router, destination, &about);
    }
    let mut datagram = datagram(numbers, talk, bound);
    datagram.damage(numbers);
    let limit = match numbers.below(40) {
        // The kernel takes one on its way to the gateway: there it ends.
        0 => {
            if is_inner {
                1
            } else {
                2
            }
        }
        1 => 255,
        _ => 64,
    };
    let mut packet = ip(source, destination, datagram.protocol, limit, &datagram.bytes);
    dress(numbers, &mut packet);
    packet
}

fn router(numbers: &mut Numbers, near: IpAddr) -> IpAddr {
    match near {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() ^ 0x40 & u32::from(numbers.byte())).into()),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() ^ u128::from(numbers.byte()) << 8).into()),
    }
}

fn datagram(numbers: &mut Numbers, talk: &Talk, bound: &Bound<'_>) -> Datagram {
    let length = match numbers.below(30) {
        0 => 1180 + numbers.below(360),
        1 => 1400 + numbers.below(700),
        _ => numbers.below(60),
    };
    let addresses = talk.addresses();
    let spaces: &[Space] = match numbers.one_in(20) {
        true => &[Space::Sctp, Space::Dccp, Space::UdpLite],
        false => &[Space::Udp, Space::Udp, Space::Tcp, Space::Tcp, Space::Tcp, Space::Icmp],
    };
    let space = *numbers.pick(spaces);
    let mut ports = |party| port(numbers, party, space, bound);
    let ports = [ports(talk.source), ports(talk.destination)];
    match space {
        _ if numbers.one_in(60) => {
            let protocol = *numbers.pick(&[47, 50, 51, 2, 200]);
            Datagram { protocol, bytes: numbers.bytes(length.max(8)), addresses }
        }
        Space::Sctp => Datagram::other(numbers, addresses, 132, ports, length),
        Space::Dccp => Datagram::other(numbers, addresses, 33, ports, length),
        Space::UdpLite => Datagram::other(numbers, addresses, 136, ports, length),
        Space::Udp => Datagram::udp(numbers, addresses, ports, length),
        Space::Tcp => Datagram::tcp(numbers, addresses, ports, length),
        // A request has the identifier of who sends it, a reply that of who is sent to; but what stands
        // for somebody behind the gateway has only its own.
        Space::Icmp => {
            let [ours, theirs] = ports;
            let identifiers = match [talk.source.ports, talk.destination.ports] {
                [_, Ports::Bound] | [Ports::Usual, Ports::Set(..)] => [theirs, theirs],
                [Ports::Bound, _] | [Ports::Set(..), Ports::Usual] => [ours, ours],
                _ => ports,
            };
            Datagram::echo(numbers, addresses, identifiers, length)
        }
    }
}

/// Fields of the header that say nothing about where it goes, options and extension headers.
fn dress(numbers: &mut Numbers, packet: &mut Vec<u8>) {
    let class = if numbers.one_in(3) { numbers.byte() } else { 0 };
    if packet[0] >> 4 == 4 {
        packet[1] = class;
        packet[4..6].copy_from_slice(&numbers.word().to_be_bytes());
        packet[6] = if numbers.one_in(2) { 0x40 } else { 0 };
        if numbers.one_in(40) {
            packet[0] = 0x46;
            packet.splice(20..20, [1, 1, 1, 0]);
        }
        return write_checksum(packet);
    }
    packet[0] = 0x60 | class >> 4;
    packet[1] = class << 4 | numbers.byte() & 15;
    packet[2..4].copy_from_slice(&numbers.word().to_be_bytes());
    if numbers.one_in(40) {
        let next = packet[6];
        let extension = match numbers.below(3) {
            0 => [next, 0, 1, 4, 0, 0, 0, 0],
            // With and without segments left.
            1 => [next, 0, 4, numbers.byte() & 1, 0, 0, 0, 0],
            _ => [next, 0, 0, 0, 0, 0, 9, numbers.byte()],
        };
        packet[6] = [60, 43, 44][usize::from(extension[2] == 4) + 2 * usize::from(extension[2] == 0)];
        packet.splice(40..40, extension);
        write_checksum(packet);
    }
}

/// An ICMP error about a packet.
fn error(numbers: &mut Numbers, source: IpAddr, destination: IpAddr, about: &[u8]) -> Vec<u8> {
    let is_ipv4 = source.is_ipv4();
    let kinds: &[(u8, u8)] = if is_ipv4 {
        &[(3, 0), (3, 1), (3, 3), (3, 4), (3, 13), (11, 0), (11, 1), (12, 0), (4, 0), (5, 1), (3, 2)]
    } else {
        &[(1, 0), (1, 1), (1, 3), (1, 4), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (1, 6), (137, 0)]
    };
    let &(kind, code) = numbers.pick(kinds);
    let mut bytes = vec![kind, code, 0, 0, 0, 0];
    bytes.extend((*numbers.pick(&[0_u16, 1280, 1400, 1500, 60_000])).to_be_bytes());
    let least = if about[0] >> 4 == 4 { 28 } else { 48 };
    let quoted = if numbers.one_in(3) { about.len() } else { least + numbers.below(40) };
    bytes.extend(&about[..quoted.min(about.len()).min(1232)]);
    let protocol = if is_ipv4 { 1 } else { 58 };
    let mut datagram = Datagram { protocol, bytes, addresses: [source, destination] };
    datagram.finish();
    let mut packet = ip(source, destination, protocol, 64, &datagram.bytes);
    if numbers.one_in(30) {
        // A wrong checksum.
        let at = packet.len() - datagram.bytes.len() + checksum_at(protocol).unwrap_or(2);
        packet[at] ^= 0x10;
    }
    packet
}

/// The packet, now and then in fragments, one of which may not come, or come in disorder.
fn split(numbers: &mut Numbers, packet: Vec<u8>, may_miss: bool) -> Vec<Vec<u8>> {
    if !numbers.one_in(12) {
        return vec![packet];
    }
    let Some(mut pieces) = in_fragments(numbers, &packet) else { return vec![packet] };
    if numbers.one_in(4) {
        pieces.reverse();
    }
    if may_miss && numbers.one_in(20) {
        pieces.pop();
    }
    pieces
}

/// The packet in a softwire, now and then in fragments.
fn tunnelled(numbers: &mut Numbers, [source, destination]: [IpAddr; 2], inner: &[u8]) -> Vec<Vec<u8>> {
    let limit = if numbers.one_in(60) { 2 } else { 64 };
    let mut outer = if numbers.one_in(60) {
        let protocol = *numbers.pick(&[41, 47, 59]);
        ip(source, destination, protocol, limit, &numbers.bytes(inner.len()))
    } else {
        ip(source, destination, 4, limit, inner)
    };
    let class = if numbers.one_in(2) { inner[1] } else { numbers.byte() };
    outer[0] = 0x60 | class >> 4;
    outer[1] = class << 4;
    if numbers.one_in(60) {
        // RFC 2473 section 4.1.1.
        outer.splice(40..40, [outer[6], 0, 4, 1, 4, 1, 1, 0]);
        outer[6] = 60;
        write_checksum(&mut outer);
    }
    let whole = !numbers.one_in(20);
    let pieces = if whole { None } else { in_fragments(numbers, &outer) };
    pieces.unwrap_or_else(|| vec![outer])
}
