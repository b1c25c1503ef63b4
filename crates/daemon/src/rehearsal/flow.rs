//! A packet of a connection, from its ends: as the host would send it, to where the plan shows it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tombolo_engine::Plan;
use tombolo_engine::plan::Service;
use tombolo_engine::side::Side;
use tombolo_wire::{Ipv4Header, Ipv6Header, Port, Protocol, ipv4, ipv6, write_u16};

use super::transport::Transport;
use crate::control::filter;

pub use super::transport::Segment;

/// Hop limit of a host's packets.
const HOPS: u8 = 64;

/// The ends of a connection, in the words of whoever asks.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'p> {
    /// Its name: `tcp`, `udp`, `icmp` and the like.
    pub protocol: &'p str,
    /// Who sends. Of ICMP, the port is the identifier.
    pub source: SocketAddr,
    /// To whom. A host with IPv6 may name the IPv4 address that it means.
    pub destination: SocketAddr,
    /// The softwire that the sender is behind, by its own end.
    pub softwire: Option<Ipv6Addr>,
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
        let space = filter::protocol(self.protocol)?;
        let port = |end: SocketAddr| Port(if space.has_ports() { end.port() } else { 0 });
        let ports = [self.source, self.destination].map(port);
        let Transport { protocol, bytes: mut payload, checksum } =
            Transport::new(space, ports, segment, source.is_ipv6());
        match (source, destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                if let Some(checksum) = checksum {
                    let sum = ipv6::transport_checksum(source, destination, protocol, &payload);
                    write_u16(&mut payload, checksum, sum);
                }
                Ok(ipv6_packet(source, destination, protocol, &payload))
            }
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                if let Some(checksum) = checksum {
                    let sum = match protocol {
                        // Without addresses.
                        Protocol::ICMP => tombolo_wire::Sum::ZERO.bytes(&payload).checksum(),
                        _ => ipv4::transport_checksum(source, destination, protocol, &payload),
                    };
                    write_u16(&mut payload, checksum, sum);
                }
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
