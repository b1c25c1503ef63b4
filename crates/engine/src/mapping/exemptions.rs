//! Ports of remotes to which hosts inside send with their own addresses (RFC 6888 REQ-6).
//!
//! Exempt are TCP and UDP, and ICMP errors about them. Who has to decide sees whole packets: later pieces of
//! a fragmented one have no ports.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use super::pool::{PortRanges, PortSpace};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};

/// Ports of these addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemption {
    /// The addresses of the remotes.
    pub addresses: RangeInclusive<Ipv4Addr>,
    /// Ports of TCP.
    pub tcp: PortRanges,
    /// Ports of UDP.
    pub udp: PortRanges,
}

impl Exemption {
    fn has(&self, remote: Ipv4Addr, space: PortSpace, port: u16) -> bool {
        let ports = match space {
            PortSpace::Tcp => &self.tcp,
            PortSpace::Udp => &self.udp,
            _ => return false,
        };
        self.addresses.contains(&remote) && ports.contains(port)
    }
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exemptions(pub Vec<Exemption>);

impl Exemptions {
    /// True if there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a packet from inside is for one of these ports.
    #[inline]
    pub(crate) fn has_destination(&self, parsed: &Parsed<Ipv4Addr>, packet: &Packet<'_>) -> bool {
        !self.is_empty() && self.concerns(parsed, packet, receiver, sender)
    }

    /// True if a packet from outside comes from one of these ports.
    #[inline]
    pub(crate) fn has_source(&self, parsed: &Parsed<Ipv4Addr>, packet: &Packet<'_>) -> bool {
        !self.is_empty() && self.concerns(parsed, packet, sender, receiver)
    }

    /// Whether the remote of a packet is exempt, or that of the packet in an error, which went the other way.
    fn concerns(
        &self,
        parsed: &Parsed<Ipv4Addr>,
        packet: &Packet<'_>,
        remote: impl Fn(&Parsed<Ipv4Addr>) -> (Ipv4Addr, u16),
        remote_in_error: impl Fn(&Parsed<Ipv4Addr>) -> (Ipv4Addr, u16),
    ) -> bool {
        let has = |payload, (address, port)| match payload {
            Payload::Tcp => self.0.iter().any(|exemption| exemption.has(address, PortSpace::Tcp, port)),
            Payload::Udp => self.0.iter().any(|exemption| exemption.has(address, PortSpace::Udp, port)),
            _ => false,
        };
        match parsed.payload {
            Payload::IcmpError => {
                parsed.embedded(packet).is_ok_and(|about| has(about.payload, remote_in_error(&about)))
            }
            payload => has(payload, remote(parsed)),
        }
    }
}

fn sender(about: &Parsed<Ipv4Addr>) -> (Ipv4Addr, u16) {
    (about.source, about.source_port.0)
}

fn receiver(about: &Parsed<Ipv4Addr>) -> (Ipv4Addr, u16) {
    (about.destination, about.destination_port.0)
}
