//! The transport of a packet that is rehearsed: the least that its protocol has.

use tombolo_engine::mapping::pool::PortSpace;
use tombolo_wire::sctp::chunk;
use tombolo_wire::{
    Port, Protocol, TcpFlags, TcpHeader, UdpHeader, crc32c, dccp, icmp, sctp, tcp, udp, write_u16, write_u32,
};

/// Which packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// The one that opens it: of TCP the SYN.
    First,
    /// One in the middle of it.
    Later,
}

const ECHO_REQUEST: [u8; 2] = [8, 128];

/// Header and payload of a packet, and where it has a checksum that its addresses are in.
pub(super) struct Transport {
    pub(super) protocol: Protocol,
    pub(super) bytes: Vec<u8>,
    pub(super) checksum: Option<usize>,
}

impl Transport {
    pub(super) fn new(space: PortSpace, ports: [Port; 2], segment: Segment, is_ipv6: bool) -> Self {
        let [source_port, destination_port] = ports;
        let protocol = match space {
            PortSpace::Icmp if is_ipv6 => Protocol::ICMPV6,
            _ => Protocol(space.protocol()),
        };
        let is_first = segment == Segment::First;
        let (bytes, checksum) = match space {
            PortSpace::Tcp => {
                let header = TcpHeader {
                    source_port,
                    destination_port,
                    sequence: 1,
                    acknowledgement: u32::from(!is_first),
                    flags: if is_first { TcpFlags::SYN } else { TcpFlags::ACK },
                    window: u16::MAX,
                    checksum: 0,
                };
                let mut bytes = vec![0; tcp::HEADER_LENGTH];
                header.emit(&mut bytes);
                (bytes, Some(tcp::CHECKSUM))
            }
            // The length of the one is the coverage of the other, and either is all.
            PortSpace::Udp | PortSpace::UdpLite => {
                let length = u16::try_from(udp::HEADER_LENGTH).unwrap_or(0);
                let mut bytes = vec![0; udp::HEADER_LENGTH];
                UdpHeader { source_port, destination_port, length, checksum: 0 }.emit(&mut bytes);
                (bytes, Some(udp::CHECKSUM))
            }
            PortSpace::Icmp => {
                let mut bytes = vec![0; icmp::HEADER_LENGTH];
                bytes[0] = ECHO_REQUEST[usize::from(is_ipv6)];
                write_u16(&mut bytes, 4, source_port.0);
                (bytes, Some(2))
            }
            PortSpace::Sctp => (sctp_packet(ports, is_first), None),
            PortSpace::Dccp => (dccp_packet(ports, is_first), Some(dccp::CHECKSUM)),
            // SPI and sequence number; flags and EtherType.
            PortSpace::Esp => (vec![0, 0, 1, 0, 0, 0, 0, 1], None),
            PortSpace::Gre => (vec![0, 0, 8, 0], None),
        };
        Self { protocol, bytes, checksum }
    }
}

fn with_ports(ports: [Port; 2], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    write_u16(&mut bytes, 0, ports[0].0);
    write_u16(&mut bytes, 2, ports[1].0);
    bytes
}

/// INIT, or HEARTBEAT without information.
fn sctp_packet(ports: [Port; 2], is_first: bool) -> Vec<u8> {
    const HEARTBEAT: u8 = 4;
    let (kind, length) = if is_first { (chunk::INIT, 20) } else { (HEARTBEAT, 4) };
    let mut bytes = with_ports(ports, sctp::HEADER_LENGTH + usize::from(length));
    bytes[sctp::HEADER_LENGTH] = kind;
    write_u16(&mut bytes, sctp::HEADER_LENGTH + 2, length);
    if is_first {
        // Tag, window and streams must not be zero (RFC 9260 section 3.3.2).
        write_u32(&mut bytes, sctp::HEADER_LENGTH + 4, 1);
        write_u32(&mut bytes, sctp::HEADER_LENGTH + 8, 1 << 16);
        write_u32(&mut bytes, sctp::HEADER_LENGTH + 12, 1 << 16 | 1);
    } else {
        write_u32(&mut bytes, 4, 1);
    }
    let checksum = crc32c::of(&bytes);
    bytes[sctp::CHECKSUM..sctp::HEADER_LENGTH].copy_from_slice(&checksum);
    bytes
}

/// Request, or Data, with a long sequence number.
fn dccp_packet(ports: [Port; 2], is_first: bool) -> Vec<u8> {
    const DATA: u8 = 2;
    const LONG: u8 = 1;
    let (kind, words) = if is_first { (dccp::kind::REQUEST, 5) } else { (DATA, 4) };
    let mut bytes = with_ports(ports, usize::from(words) * 4);
    bytes[4] = words;
    bytes[8] = kind << 1 | LONG;
    bytes[15] = 1;
    bytes
}
