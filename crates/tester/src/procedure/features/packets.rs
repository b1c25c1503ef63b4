//! Packets written and read by hand, header by header: what a gateway makes of one is judged by its
//! bytes, and a packet may be wrong on purpose.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
pub(super) const ICMPV6: u8 = 58;
const HOP_LIMIT: u8 = 64;

/// Flags of TCP (RFC 9293 section 3.1).
pub(super) const SYN: u8 = 0x02;
pub(super) const ACK: u8 = 0x10;

/// An IP packet, or a fragment of one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Packet {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) hop_limit: u8,
    pub(super) protocol: u8,
    pub(super) dont_fragment: bool,
    pub(super) fragment: Option<Fragment>,
    /// What follows the IP headers.
    pub(super) payload: Vec<u8>,
}

/// Which part of a packet a fragment is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fragment {
    pub(super) identification: u32,
    /// In bytes.
    pub(super) offset: u16,
    pub(super) more: bool,
}

impl Packet {
    pub(super) fn udp(source: SocketAddr, destination: SocketAddr, data: &[u8]) -> Packet {
        let length = u16::try_from(8 + data.len()).unwrap_or(u16::MAX);
        let mut payload = ports(source, destination);
        payload.extend(length.to_be_bytes());
        payload.extend([0, 0]);
        payload.extend(data);
        Packet::of(source.ip(), destination.ip(), UDP, payload).with_checksum()
    }

    pub(super) fn tcp(
        source: SocketAddr,
        destination: SocketAddr,
        flags: u8,
        (sequence, acknowledged): (u32, u32),
        data: &[u8],
    ) -> Packet {
        let mut payload = ports(source, destination);
        payload.extend(sequence.to_be_bytes());
        payload.extend(acknowledged.to_be_bytes());
        // Five words of header, a window, no checksum yet, nothing urgent.
        payload.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
        payload.extend(data);
        Packet::of(source.ip(), destination.ip(), TCP, payload).with_checksum()
    }

    /// An ICMP message of either version: type, code, and what follows the checksum.
    pub(super) fn icmp(source: IpAddr, destination: IpAddr, (kind, code): (u8, u8), rest: &[u8]) -> Packet {
        let protocol = if source.is_ipv6() { ICMPV6 } else { ICMP };
        let payload = [&[kind, code, 0, 0], rest].concat();
        Packet::of(source, destination, protocol, payload).with_checksum()
    }

    fn of(source: IpAddr, destination: IpAddr, protocol: u8, payload: Vec<u8>) -> Packet {
        Packet { source, destination, hop_limit: HOP_LIMIT, protocol, dont_fragment: false, fragment: None, payload }
    }

    fn with_checksum(mut self) -> Packet {
        let Some(at) = self.checksum_at() else { return self };
        self.payload[at..at + 2].copy_from_slice(&[0, 0]);
        let sum = !self.sum();
        // RFC 768: a computed zero is sent as ones.
        let sum = if self.protocol == UDP && sum == 0 { u16::MAX } else { sum };
        self.payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self
    }

    /// Where the checksum of its protocol is.
    pub(super) fn checksum_at(&self) -> Option<usize> {
        match self.protocol {
            UDP => Some(6),
            TCP => Some(16),
            ICMP | ICMPV6 => Some(2),
            _ => None,
        }
    }

    /// The sum over pseudo header and payload, checksum included: all ones where it is right, and
    /// else what it is off by.
    pub(super) fn sum(&self) -> u16 {
        let mut sum = ones_sum(0, &self.payload);
        if self.protocol != ICMP {
            let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
            for address in [self.source, self.destination] {
                sum = match address {
                    IpAddr::V4(address) => ones_sum(sum, &address.octets()),
                    IpAddr::V6(address) => ones_sum(sum, &address.octets()),
                };
            }
            sum = ones_sum(ones_sum(sum, &length.to_be_bytes()), &[0, self.protocol]);
        }
        sum
    }

    pub(super) fn is_right(&self) -> bool {
        self.sum() == u16::MAX
    }

    /// Source and destination port, or identifier and sequence number of an echo.
    pub(super) fn ports(&self) -> (u16, u16) {
        let at = if matches!(self.protocol, ICMP | ICMPV6) { 4 } else { 0 };
        (self.word(at), self.word(at + 2))
    }

    pub(super) fn from(&self) -> SocketAddr {
        SocketAddr::new(self.source, self.ports().0)
    }

    pub(super) fn to(&self) -> SocketAddr {
        SocketAddr::new(self.destination, self.ports().1)
    }

    /// Type and code of an ICMP message.
    pub(super) fn kind(&self) -> (u8, u8) {
        (self.payload.first().copied().unwrap_or(0), self.payload.get(1).copied().unwrap_or(0))
    }

    /// What follows the header of its protocol.
    pub(super) fn data(&self) -> &[u8] {
        let header = if self.protocol == TCP { 20 } else { 8 };
        self.payload.get(header..).unwrap_or(&[])
    }

    /// Sixteen bits of the payload.
    pub(super) fn word(&self, at: usize) -> u16 {
        self.payload.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]))
    }

    /// Itself in two parts, of which the first has so many bytes of payload, a multiple of eight.
    pub(super) fn in_two(&self, identification: u32, first: u16) -> [Packet; 2] {
        let (head, tail) = self.payload.split_at(usize::from(first).min(self.payload.len()));
        [(head, 0, true), (tail, first, false)].map(|(payload, offset, more)| Packet {
            fragment: Some(Fragment { identification, offset, more }),
            payload: payload.to_vec(),
            ..self.clone()
        })
    }

    /// As bytes, from the IP header on.
    pub(super) fn emit(&self) -> Vec<u8> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => self.emit_ipv4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => self.emit_ipv6(source, destination),
            _ => Vec::new(),
        }
    }

    fn emit_ipv4(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
        let length = u16::try_from(20 + self.payload.len()).unwrap_or(u16::MAX);
        let (identification, place) = self.fragment.map_or((0, 0), |fragment| {
            let low = fragment.identification.to_be_bytes();
            (u16::from_be_bytes([low[2], low[3]]), (fragment.offset / 8) | (u16::from(fragment.more) << 13))
        });
        let mut header = vec![0x45, 0];
        header.extend(length.to_be_bytes());
        header.extend(identification.to_be_bytes());
        header.extend((place | (u16::from(self.dont_fragment) << 14)).to_be_bytes());
        header.extend([self.hop_limit, self.protocol, 0, 0]);
        header.extend(source.octets());
        header.extend(destination.octets());
        let sum = !ones_sum(0, &header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [header, self.payload.clone()].concat()
    }

    fn emit_ipv6(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let extension = self.fragment.map_or_else(Vec::new, |fragment| {
            let place = fragment.offset | u16::from(fragment.more);
            [&[self.protocol, 0][..], &place.to_be_bytes(), &fragment.identification.to_be_bytes()].concat()
        });
        let next = if extension.is_empty() { self.protocol } else { FRAGMENT };
        let length = u16::try_from(extension.len() + self.payload.len()).unwrap_or(u16::MAX);
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([next, self.hop_limit]);
        packet.extend(source.octets());
        packet.extend(destination.octets());
        [packet, extension, self.payload.clone()].concat()
    }

    /// Reads a packet; an ICMP error's embedded one may be cut off. Nothing where it is no packet, or
    /// the checksum of its IPv4 header is wrong.
    pub(super) fn parse(bytes: &[u8]) -> Option<Packet> {
        match bytes.first()? >> 4 {
            4 => Packet::parse_ipv4(bytes),
            6 => Packet::parse_ipv6(bytes),
            _ => None,
        }
    }

    fn parse_ipv4(bytes: &[u8]) -> Option<Packet> {
        let header = usize::from(bytes[0] & 0xf) * 4;
        let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        if header < 20 || ones_sum(0, bytes.get(..header)?) != u16::MAX {
            return None;
        }
        let (place, end) = (word(6)?, usize::from(word(2)?).min(bytes.len()));
        let (offset, more) = (place << 3, place & 0x2000 != 0);
        let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
        Some(Packet {
            source: address(12)?.into(),
            destination: address(16)?.into(),
            hop_limit: bytes[8],
            protocol: bytes[9],
            dont_fragment: place & 0x4000 != 0,
            fragment: (offset != 0 || more).then_some(Fragment { identification: word(4)?.into(), offset, more }),
            payload: bytes.get(header..end)?.to_vec(),
        })
    }

    fn parse_ipv6(bytes: &[u8]) -> Option<Packet> {
        let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?));
        let length = u16::from_be_bytes(bytes.get(4..6)?.try_into().ok()?);
        let end = (40 + usize::from(length)).min(bytes.len());
        let (mut protocol, mut from, mut fragment) = (bytes[6], 40, None);
        if protocol == FRAGMENT {
            let extension: [u8; 8] = bytes.get(40..48)?.try_into().ok()?;
            let place = u16::from_be_bytes([extension[2], extension[3]]);
            let identification = u32::from_be_bytes([extension[4], extension[5], extension[6], extension[7]]);
            fragment = Some(Fragment { identification, offset: place & !7, more: place & 1 != 0 });
            (protocol, from) = (extension[0], 48);
        }
        Some(Packet {
            source: address(8)?.into(),
            destination: address(24)?.into(),
            hop_limit: bytes[7],
            protocol,
            dont_fragment: false,
            fragment,
            payload: bytes.get(from..end)?.to_vec(),
        })
    }
}

fn ports(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat()
}

/// The ones' complement sum (RFC 1071).
fn ones_sum(start: u16, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)));
    words.fold(start, |sum, word| {
        let sum = u32::from(sum) + word;
        // Both fit: the carry is at most one.
        u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(u16::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn packets_are_read_as_they_are_written_and_their_checksums_are_right() {
        let (four, six) = ((at("192.0.2.1:7"), at("192.0.2.2:9")), (at("[2001:db8::1]:7"), at("[2001:db8::2]:9")));
        for (source, destination) in [four, six] {
            let echo = Packet::icmp(source.ip(), destination.ip(), (8, 0), &[0, 1, 0, 2, 3]);
            let all = [
                Packet::udp(source, destination, b"odd"),
                Packet::tcp(source, destination, SYN | ACK, (1, 2), b""),
                echo,
            ];
            for packet in all {
                assert!(packet.is_right(), "{packet:?}");
                assert_eq!(Packet::parse(&packet.emit()), Some(packet.clone()));
                for part in Packet::udp(source, destination, &[7; 100]).in_two(0x1234, 64) {
                    assert_eq!(Packet::parse(&part.emit()), Some(part));
                }
            }
        }
    }

    #[test]
    fn a_checksum_that_is_wrong_is_seen() {
        let mut packet = Packet::udp(at("192.0.2.1:7"), at("192.0.2.2:9"), b"data");
        packet.payload[8] ^= 1;
        assert!(!packet.is_right() && packet.sum() != 0);
        let mut bytes = packet.emit();
        bytes[8] -= 1;
        assert_eq!(Packet::parse(&bytes), None, "the checksum of the IPv4 header");
    }

    /// The example of RFC 1071 section 3.
    #[test]
    fn the_sum_is_that_of_the_rfc() {
        assert_eq!(ones_sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }
}
