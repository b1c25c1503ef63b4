//! A packet's headers in short, out of its first bytes: what a line about it says. Packets may be damaged,
//! and their ends are missing; what is not there is not said.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tombolo_engine::mapping::pool::PortSpace;
use tombolo_wire::tcp::TcpFlags;
use tombolo_wire::{Protocol, read_u16};

/// Extension headers that are walked over.
const MOST_EXTENSIONS: usize = 8;

/// The headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of it, IP header included.
    pub length: usize,
    /// The softwire that it is in: from whom, to whom. All else is of the packet inside.
    pub outer: Option<(Ipv6Addr, Ipv6Addr)>,
    /// From whom.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The protocol's number.
    pub protocol: u8,
    /// Ports; of an echo, its identifier for both.
    pub ports: Option<(u16, u16)>,
    /// Of TCP.
    pub flags: Option<TcpFlags>,
    /// Type and code of an ICMP message.
    pub icmp: Option<(u8, u8)>,
    /// It is a fragment: the offset of what it has, in bytes.
    pub fragment: Option<u16>,
}

impl Summary {
    /// That of a packet of `length` bytes that begins with `bytes`; `None` if there is no IP header.
    #[must_use]
    pub fn of(bytes: &[u8], length: usize) -> Option<Self> {
        let mut summary = match bytes.first()? >> 4 {
            4 => Self::of_ipv4(bytes)?,
            6 => Self::of_ipv6(bytes)?,
            _ => return None,
        };
        summary.length = length;
        Some(summary)
    }

    fn of_ipv4(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = bytes.first_chunk()?;
        let [source, destination] = [12, 16].map(|at| IpAddr::V4(ipv4_at(header, at)));
        let fragment = read_u16(header, 6);
        let mut summary = Self::new(source, destination, header[8], header[9]);
        summary.fragment = (fragment & 0x3fff != 0).then_some((fragment & 0x1fff) * 8);
        let transport = bytes.get(usize::from(header[0] & 15) * 4..).unwrap_or_default();
        summary.add_transport(transport);
        Some(summary)
    }

    fn of_ipv6(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; 40] = bytes.first_chunk()?;
        let [source, destination] = [8, 24].map(|at| ipv6_at(header, at));
        let mut summary = Self::new(source.into(), destination.into(), header[7], header[6]);
        let mut rest = &bytes[40..];
        for _ in 0..MOST_EXTENSIONS {
            let step = match (summary.protocol, rest) {
                // Hop-by-hop options, Routing, Destination options.
                (0 | 43 | 60, [_, words, ..]) => 8 + usize::from(*words) * 8,
                (44, [_, _, _, _, ..]) => {
                    summary.fragment = Some(read_u16(rest, 2) & 0xfff8);
                    8
                }
                _ => break,
            };
            summary.protocol = rest[0];
            rest = rest.get(step..).unwrap_or_default();
        }
        if summary.protocol == Protocol::IPV4.0
            && let Some(inner) = Self::of_ipv4(rest)
        {
            return Some(Self { outer: Some((source, destination)), ..inner });
        }
        summary.add_transport(rest);
        Some(summary)
    }

    const fn new(source: IpAddr, destination: IpAddr, hop_limit: u8, protocol: u8) -> Self {
        Self {
            length: 0,
            outer: None,
            source,
            destination,
            hop_limit,
            protocol,
            ports: None,
            flags: None,
            icmp: None,
            fragment: None,
        }
    }

    fn add_transport(&mut self, bytes: &[u8]) {
        if self.fragment.is_some_and(|offset| offset > 0) {
            return;
        }
        match (Protocol(self.protocol), bytes) {
            (
                Protocol::TCP | Protocol::UDP | Protocol::SCTP | Protocol::DCCP | Protocol::UDP_LITE,
                [_, _, _, _, ..],
            ) => {
                self.ports = Some((read_u16(bytes, 0), read_u16(bytes, 2)));
                let is_tcp = Protocol(self.protocol) == Protocol::TCP;
                self.flags = bytes.get(13).filter(|_| is_tcp).map(|flags| TcpFlags(*flags));
            }
            (Protocol::ICMP | Protocol::ICMPV6, [kind, code, ..]) => {
                self.icmp = Some((*kind, *code));
                let identifier = matches!(kind, 0 | 8 | 128 | 129).then(|| bytes.get(4..6)).flatten();
                self.ports = identifier.map(|bytes| (read_u16(bytes, 0), read_u16(bytes, 0)));
            }
            _ => {}
        }
    }

    /// The protocol's name, or its number.
    #[must_use]
    pub fn protocol_name(&self) -> String {
        let space = match Protocol(self.protocol) {
            Protocol::ICMPV6 => Some(PortSpace::Icmp),
            Protocol(number) => PortSpace::of_protocol(number),
        };
        space.map_or_else(|| self.protocol.to_string(), |space| space.name().to_owned())
    }

    /// What else there is to be said: flags, the kind of an ICMP message, the place of a fragment.
    #[must_use]
    pub fn remarks(&self) -> Option<String> {
        let mut remarks = Vec::new();
        if let Some(flags) = self.flags {
            let names = [
                (TcpFlags::SYN, "SYN"),
                (TcpFlags::FIN, "FIN"),
                (TcpFlags::RST, "RST"),
                (TcpFlags::PSH, "PSH"),
                (TcpFlags::ACK, "ACK"),
                (TcpFlags::URG, "URG"),
            ];
            remarks
                .extend(names.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name.to_owned()));
        }
        remarks.extend(self.icmp.map(|(kind, code)| match kind {
            8 | 128 => "echo request".to_owned(),
            0 | 129 => "echo reply".to_owned(),
            _ => format!("type {kind} code {code}"),
        }));
        remarks.extend(self.fragment.map(|offset| format!("fragment at {offset}")));
        (!remarks.is_empty()).then(|| remarks.join(" "))
    }
}

fn ipv4_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|n| bytes[at + n]))
}

fn ipv6_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|n| bytes[at + n]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: [u8; 24] = [0x45, 0, 0, 40, 0, 0, 0, 0, 63, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2, 0x9c, 0x40, 0, 80];

    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        bytes.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("64:ff9b::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn ends_ports_and_flags_are_read() {
        let mut bytes = IPV4.to_vec();
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x12]);
        let summary = Summary::of(&bytes, 40).unwrap();
        assert_eq!((summary.source, summary.ports), ("192.0.2.1".parse().unwrap(), Some((40_000, 80))));
        assert_eq!((summary.remarks().as_deref(), summary.length), (Some("SYN ACK"), 40));
        let echo = Summary::of(&ipv6(58, &[128, 0, 0, 0, 0x12, 0x34, 0, 1]), 48).unwrap();
        assert_eq!((echo.ports, echo.remarks().as_deref()), (Some((0x1234, 0x1234)), Some("echo request")));
    }

    #[test]
    fn a_softwire_s_packet_is_the_one_inside() {
        let summary = Summary::of(&ipv6(4, &IPV4), 80).unwrap();
        assert_eq!((summary.destination, summary.ports), ("198.51.100.2".parse().unwrap(), Some((40_000, 80))));
        assert_eq!(summary.outer.map(|(from, _)| from), Some("2001:db8::2".parse().unwrap()));
    }

    #[test]
    fn extension_headers_are_walked_over_and_later_fragments_have_no_ports() {
        let options = [44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 0x10, 0, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef];
        let summary = Summary::of(&ipv6(0, &options), 60).unwrap();
        assert_eq!((summary.protocol, summary.fragment, summary.ports), (17, Some(16), None));
    }

    #[test]
    fn whatever_is_missing_is_not_said() {
        let whole = ipv6(6, &[1, 2, 3, 4, 5]);
        for length in 0..whole.len() {
            let summary = Summary::of(&whole[..length], 90);
            assert_eq!(summary.is_some(), length >= 40);
            assert_eq!(summary.and_then(|summary| summary.ports).is_some(), length >= 44);
        }
        assert_eq!(Summary::of(&[0xff; 60], 60), None);
        assert!(Summary::of(&[0x4f; 20], 20).is_some_and(|summary| summary.ports.is_none()));
    }
}
