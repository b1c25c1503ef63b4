//! What is in a packet of IP, and the packet around it.

use std::net::IpAddr;

use tombolo_wire::crc32c;

use crate::numbers::Numbers;

/// A space of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Udp,
    Tcp,
    /// Identifiers of echoes.
    Icmp,
    Sctp,
    Dccp,
    UdpLite,
}

impl Space {
    /// Of a protocol number.
    pub(super) const fn of(protocol: u8) -> Option<Self> {
        match protocol {
            17 => Some(Self::Udp),
            6 => Some(Self::Tcp),
            1 | 58 => Some(Self::Icmp),
            132 => Some(Self::Sctp),
            33 => Some(Self::Dccp),
            136 => Some(Self::UdpLite),
            _ => None,
        }
    }
}

/// A transport header and what follows it.
pub(super) struct Datagram {
    pub(super) protocol: u8,
    pub(super) bytes: Vec<u8>,
    /// Of who sends it, and to whom.
    pub(super) addresses: [IpAddr; 2],
}

/// Where the checksum is in what a protocol carries.
pub(super) const fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        // DCCP and UDP-Lite have it where UDP has it.
        17 | 33 | 136 => Some(6),
        6 => Some(16),
        1 | 58 => Some(2),
        _ => None,
    }
}

fn length16(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

impl Datagram {
    pub(super) fn udp(numbers: &mut Numbers, addresses: [IpAddr; 2], ports: [u16; 2], length: usize) -> Self {
        let mut bytes = ports.map(u16::to_be_bytes).concat();
        bytes.extend(length16(8 + length));
        bytes.extend([0, 0]);
        bytes.extend(numbers.bytes(length));
        let mut datagram = Self { protocol: 17, bytes, addresses };
        datagram.finish();
        if numbers.one_in(40) {
            datagram.bytes[6..8].fill(0);
        }
        datagram
    }

    pub(super) fn tcp(numbers: &mut Numbers, addresses: [IpAddr; 2], ports: [u16; 2], length: usize) -> Self {
        let mut bytes = ports.map(u16::to_be_bytes).concat();
        bytes.extend(numbers.bytes(8));
        let flags = *numbers.pick(&[0x02, 0x02, 0x12, 0x10, 0x18, 0x11, 0x01, 0x04, 0x14, 0x03, 0x07, 0x00, 0xc2]);
        let options: &[u8] = if flags & 2 != 0 && numbers.one_in(2) { &[2, 4, 0x05, 0xb4, 1, 1, 1, 0] } else { &[] };
        bytes.extend([0x50 + (u8::try_from(options.len()).unwrap_or(0) << 2), flags, 1, 2, 0, 0, 0, 0]);
        bytes.extend(options);
        bytes.extend(numbers.bytes(length));
        let mut datagram = Self { protocol: 6, bytes, addresses };
        datagram.finish();
        datagram
    }

    /// An echo request with the first of the identifiers, or a reply with the second.
    pub(super) fn echo(numbers: &mut Numbers, addresses: [IpAddr; 2], [ours, theirs]: [u16; 2], length: usize) -> Self {
        let is_reply = numbers.one_in(2);
        let (protocol, kind) = if addresses[0].is_ipv4() { (1, 8) } else { (58, 128) };
        let kind = match (is_reply, protocol) {
            (false, _) => kind,
            (true, 1) => 0,
            (true, _) => 129,
        };
        // Timestamps, router solicitations: what is no echo.
        let kind = if numbers.one_in(30) { *numbers.pick(&[13, 17, 133, 135]) } else { kind };
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend(if is_reply { theirs } else { ours }.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(numbers.bytes(length));
        let mut datagram = Self { protocol, bytes, addresses };
        datagram.finish();
        datagram
    }

    /// SCTP, DCCP or UDP-Lite; all of the latter two is covered by the checksum.
    pub(super) fn other(
        numbers: &mut Numbers,
        addresses: [IpAddr; 2],
        protocol: u8,
        ports: [u16; 2],
        length: usize,
    ) -> Self {
        let mut bytes = ports.map(u16::to_be_bytes).concat();
        match protocol {
            136 => bytes.extend([0; 4]),
            33 => bytes.extend([3, 0, 0, 0, 4, 0, 0, 1]),
            _ => bytes.extend(numbers.bytes(8)),
        }
        bytes.extend(numbers.bytes(length));
        let mut datagram = Self { protocol, bytes, addresses };
        datagram.finish();
        datagram
    }

    /// Writes the checksum.
    pub(super) fn finish(&mut self) {
        if self.protocol == 132 {
            self.bytes[8..12].fill(0);
            let right = crc32c::of(&self.bytes);
            return self.bytes[8..12].copy_from_slice(&right);
        }
        let Some(at) = checksum_at(self.protocol) else { return };
        self.bytes[at..at + 2].fill(0);
        let mut all = if self.protocol == 1 { Vec::new() } else { self.pseudo_header() };
        all.extend(&self.bytes);
        let sum = !fold(sum(&all));
        let sum = if sum == 0 && matches!(self.protocol, 17 | 136) { 0xffff } else { sum };
        self.bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn pseudo_header(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for address in self.addresses {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        bytes.extend([0, self.protocol]);
        bytes.extend(length16(self.bytes.len()));
        bytes
    }

    /// Changes what is none of the ports, now and then.
    pub(super) fn damage(&mut self, numbers: &mut Numbers) {
        let Some(at) = checksum_at(self.protocol).filter(|_| numbers.one_in(8)) else { return };
        match numbers.below(6) {
            0 => self.bytes.truncate(numbers.below(self.bytes.len())),
            // As far from right as in the same packet with other ports.
            1 | 2 => {
                let wrong = sum(&self.bytes[at..at + 2]) + u64::from(numbers.word());
                let without = matches!(self.protocol, 17 | 136) && self.bytes[at..at + 2] == [0, 0];
                let wrong = if without { 0 } else { wrong };
                self.bytes[at..at + 2].copy_from_slice(&fold(wrong).to_be_bytes());
            }
            // The length of a datagram, the length of the header and flags, or the code.
            3 => {
                let at = match self.protocol {
                    17 => 4 + numbers.below(2),
                    6 => 12 + numbers.below(2),
                    _ => 1,
                };
                self.bytes[at] ^= 1 << numbers.below(8);
            }
            4 => self.bytes.extend(numbers.bytes(7)),
            _ => {
                if let Some(last) = self.bytes.get_mut(8..).and_then(<[u8]>::last_mut) {
                    *last ^= 0x55;
                }
            }
        }
    }
}

/// A packet of IP around `payload`.
pub(super) fn ip(source: IpAddr, destination: IpAddr, protocol: u8, limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, limit, protocol, 0, 0];
            packet.extend(source.octets());
            packet.extend(destination.octets());
            packet
        }
        (source, destination) => {
            let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, limit];
            for address in [source, destination] {
                packet.extend(match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                });
            }
            packet
        }
    };
    packet.extend(payload);
    write_checksum(&mut packet);
    packet
}

/// Writes the length and, of IPv4, the checksum of a packet's header.
pub(super) fn write_checksum(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        let length = length16(packet.len() - 40);
        return packet[4..6].copy_from_slice(&length);
    }
    let length = length16(packet.len());
    packet[2..4].copy_from_slice(&length);
    packet[10..12].fill(0);
    let header = usize::from(packet[0] & 15) * 4;
    let sum = !fold(sum(&packet[..header]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The sum of 16-bit words.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from)).sum()
}

/// The sum in 16 bits, as the Internet's checksum adds.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Takes the hop of a router.
pub(super) fn take_hop(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
    } else {
        packet[8] -= 1;
        write_checksum(packet);
    }
}

/// Two to four fragments, if there is something to cut, and nothing forbids it.
pub(super) fn in_fragments(numbers: &mut Numbers, packet: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_ipv4 = packet[0] >> 4 == 4;
    let header = if is_ipv4 { usize::from(packet[0] & 15) * 4 } else { 40 };
    let payload = &packet[header..];
    if payload.len() < 24 || !is_ipv4 && matches!(packet[6], 0 | 43 | 44 | 60) {
        return None;
    }
    let step = (payload.len() / (2 + numbers.below(3))).next_multiple_of(8).max(8);
    let identification = numbers.draw().to_le_bytes();
    let count = payload.len().div_ceil(step);
    let pieces = payload.chunks(step).enumerate().map(|(number, bytes)| {
        let more = number + 1 < count;
        let at = length16(number * step);
        let mut piece = packet[..header].to_vec();
        if is_ipv4 {
            piece[4..6].copy_from_slice(&identification[..2]);
            let word = u16::from_be_bytes(at) >> 3 | if more { 0x2000 } else { 0 };
            piece[6..8].copy_from_slice(&word.to_be_bytes());
        } else {
            piece.extend([packet[6], 0, at[0], at[1] | u8::from(more)]);
            piece.extend(&identification[..4]);
            piece[6] = 44;
        }
        piece.extend(bytes);
        write_checksum(&mut piece);
        piece
    });
    Some(pieces.collect())
}
