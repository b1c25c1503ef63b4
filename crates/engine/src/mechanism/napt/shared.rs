//! Addresses that the gateway shares with its host: what nobody inside is bound to is the host's.
//!
//! Such an address has three kinds of ports: those that somebody inside is bound to, those that may be
//! handed out and are not, and the host's own. Only packets for the first are translated. Echo requests
//! are the host's always: it answers for the address, whatever identifier they have. So is what is
//! none of TCP, UDP and ICMP.

use std::net::Ipv4Addr;

use tombolo_tables::outside::Slot;
use tombolo_wire::Port;

use super::classify::classify_embedded;
use super::nat::Nat;
use crate::mapping::pool::PortSpace;
use crate::parse::{Parsed, Payload};
use crate::work::Work;

impl Nat {
    /// True if a packet from outside, to an address that the host has as well, is the host's.
    #[inline]
    pub(crate) fn leaves_to_host(&self, parsed: &Parsed<Ipv4Addr>, work: &Work<'_>) -> bool {
        self.pool.is_shared(parsed.destination) && !self.concerns_inside(parsed, work)
    }

    #[cold]
    fn concerns_inside(&self, parsed: &Parsed<Ipv4Addr>, work: &Work<'_>) -> bool {
        if parsed.payload != Payload::IcmpError {
            return self.receives(parsed.destination, parsed, work);
        }
        let about = parsed.embedded(&work.packet);
        about.is_ok_and(|about| about.source == parsed.destination && self.sent(about.source, &about, work))
    }

    /// True if a packet to `address`, which has the ports of `parsed`, is for somebody inside, or for
    /// nobody. `address` is that of `parsed` on the outside.
    #[inline]
    pub(crate) fn receives<A>(&self, address: Ipv4Addr, parsed: &Parsed<A>, work: &Work<'_>) -> bool {
        if !self.pool.is_shared(address) {
            return self.pool.contains(address);
        }
        let space = match parsed.payload {
            Payload::Tcp => PortSpace::Tcp,
            Payload::Udp => PortSpace::Udp,
            Payload::EchoReply => PortSpace::Icmp,
            _ => return false,
        };
        self.is_bound(address, space, parsed.destination_port, work)
    }

    /// True if the packet `about`, which an ICMP error is about and which came from `address` on the
    /// outside, was sent by somebody inside, or by nobody.
    pub(crate) fn sent<A>(&self, address: Ipv4Addr, about: &Parsed<A>, work: &Work<'_>) -> bool {
        if !self.pool.is_shared(address) {
            return self.pool.contains(address);
        }
        classify_embedded(about).is_ok_and(|space| self.is_bound(address, space, about.source_port, work))
    }

    /// Whether a binding has the outside endpoint.
    fn is_bound(&self, address: Ipv4Addr, space: PortSpace, port: Port, work: &Work<'_>) -> bool {
        let slot = self.pool.slot(address, space, port.0);
        slot.is_some_and(|slot| matches!(work.tables.outside.read(slot), Slot::Taken(_)))
    }
}
