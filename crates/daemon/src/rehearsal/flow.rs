//! A packet of a connection, from its ends: as the host would send it, to where the plan shows it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tombolo_engine::Plan;
use tombolo_engine::plan::Service;
use tombolo_engine::side::Side;
use tombolo_wire::{
    Ipv4Header, Ipv6Header, Port, Protocol, TcpFlags, TcpHeader, UdpHeader, icmp, ipv4, ipv6, tcp, udp, write_u16,
};

/// Hop limit of a host's packets.
const HOPS: u8 = 64;
const ECHO_REQUEST: [u8; 2] = [8, 128];

/// The ends of a connection, in the words of whoever asks.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'p> {
    /// `tcp`, `udp` or `icmp`.
    pub protocol: &'p str,
    /// Who sends. Of ICMP, the port is the identifier.
    pub source: SocketAddr,
    /// To whom. A host with IPv6 may name the IPv4 address that it means.
    pub destination: SocketAddr,
    /// The softwire that the sender is behind, by its own end.
    pub softwire: Option<Ipv6Addr>,
}

/// Which packet of a connection of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// The SYN.
    First,
    /// One with ACK.
    Later,
}

impl Ends<'_> {
    /// The packet.
    ///
    /// # Errors
    /// In words, if there is none.
    pub fn packet(&self, plan: &Plan, segment: Segment) -> Result<Vec<u8>, String> {
        let destination = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V6(_), IpAddr::V4(remote)) => IpAddr::V6(shown(plan, remote)?),
            (IpAddr::V4(_), IpAddr::V6(_)) => return Err("a host with IPv4 sends to no IPv6 address".to_owned()),
            (_, destination) => destination,
        };
        let packet = self.plain(self.source.ip(), destination, segment)?;
        match self.softwire {
            None => Ok(packet),
            Some(_) if packet[0] >> 4 != 4 => Err("only IPv4 is carried by a softwire".to_owned()),
            Some(end) => Ok(ipv6_packet(end, gateways_end(plan)?, Protocol::IPV4, &packet)),
        }
    }

    fn plain(&self, source: IpAddr, destination: IpAddr, segment: Segment) -> Result<Vec<u8>, String> {
        let (source_port, destination_port) = (Port(self.source.port()), Port(self.destination.port()));
        let is_ipv6 = source.is_ipv6();
        let (protocol, mut payload, checksum) = match self.protocol {
            "tcp" => {
                let flags = if segment == Segment::First { TcpFlags::SYN } else { TcpFlags::ACK };
                let header = TcpHeader {
                    source_port,
                    destination_port,
                    sequence: 1,
                    acknowledgement: u32::from(segment == Segment::Later),
                    flags,
                    window: u16::MAX,
                    checksum: 0,
                };
                let mut bytes = vec![0; tcp::HEADER_LENGTH];
                header.emit(&mut bytes);
                (Protocol::TCP, bytes, tcp::CHECKSUM)
            }
            "udp" => {
                let length = u16::try_from(udp::HEADER_LENGTH).unwrap_or(0);
                let mut bytes = vec![0; udp::HEADER_LENGTH];
                UdpHeader { source_port, destination_port, length, checksum: 0 }.emit(&mut bytes);
                (Protocol::UDP, bytes, udp::CHECKSUM)
            }
            "icmp" => {
                let mut bytes = vec![0; icmp::HEADER_LENGTH];
                bytes[0] = ECHO_REQUEST[usize::from(is_ipv6)];
                write_u16(&mut bytes, 4, source_port.0);
                (if is_ipv6 { Protocol::ICMPV6 } else { Protocol::ICMP }, bytes, 2)
            }
            other => return Err(format!("no protocol is called \"{other}\"; use tcp, udp, icmp")),
        };
        match (source, destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let sum = ipv6::transport_checksum(source, destination, protocol, &payload);
                write_u16(&mut payload, checksum, sum);
                Ok(ipv6_packet(source, destination, protocol, &payload))
            }
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let sum = match protocol {
                    // Without addresses.
                    Protocol::ICMP => tombolo_wire::Sum::ZERO.bytes(&payload).checksum(),
                    _ => ipv4::transport_checksum(source, destination, protocol, &payload),
                };
                write_u16(&mut payload, checksum, sum);
                Ok(ipv4_packet(source, destination, protocol, &payload))
            }
            _ => Err("the ends are of different families".to_owned()),
        }
    }
}

fn ipv6_packet(source: Ipv6Addr, destination: Ipv6Addr, next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let payload_length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut packet = vec![0; ipv6::HEADER_LENGTH];
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length,
        next_header,
        hop_limit: HOPS,
        source,
        destination,
    };
    header.emit(&mut packet);
    packet.extend(payload);
    packet
}

fn ipv4_packet(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::HEADER_LENGTH];
    let total_length = u16::try_from(packet.len() + payload.len()).unwrap_or(u16::MAX);
    let header = Ipv4Header {
        tos: 0,
        total_length,
        identification: 0,
        fragment_word: ipv4::DF,
        ttl: HOPS,
        protocol,
        source,
        destination,
    };
    header.emit(&mut packet);
    packet.extend(payload);
    packet
}

/// What hosts inside know an IPv4 host as.
fn shown(plan: &Plan, remote: Ipv4Addr) -> Result<Ipv6Addr, String> {
    let inside = |service: &&Service| service.kind.shape().ipv6 == Side::Inside;
    let prefix = plan.services.iter().filter(inside).find_map(|service| service.kind.pref64());
    let prefix =
        prefix.ok_or_else(|| format!("no service shows {remote} to hosts with IPv6; write the IPv6 address"))?;
    Ok(prefix.embed(remote))
}

/// The address that softwires end at.
fn gateways_end(plan: &Plan) -> Result<Ipv6Addr, String> {
    let mut ends = plan.services.iter().filter(|service| service.kind.shape().ends_softwires);
    let end = ends.find_map(|service| service.kind.routed().ipv6.first().map(|(address, _)| *address));
    end.ok_or_else(|| "no service ends softwires".to_owned())
}
