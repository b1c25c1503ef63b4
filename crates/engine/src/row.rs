//! Services in a row: what one sends is for another of the same gateway.
//!
//! A customer's box with one address hides its LAN behind it by NAT44, and a CLAT carries that address over IPv6: the NAT's
//! pool is inside the CLAT. The kernel would not bring the packet back to the device that it has just come from; so it
//! stays in the engine, and comes in again as if the one service had sent it to the other over a link. It counts for
//! each of them.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use tombolo_wire::ipv4::Ipv4View;

use crate::mapping::address_ranges::AddressRanges;
use crate::packet::{HEADROOM, Offload, Packet};

/// So many services pass a packet on, one after the other, at most.
pub(crate) const LONGEST: usize = 4;

/// Addresses that a service has outside, and those of the hosts inside it: first and last of each range.
pub type Ends = (Vec<(Ipv4Addr, Ipv4Addr)>, Vec<(Ipv4Addr, Ipv4Addr)>);

/// Addresses that are outside of one service and inside another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows(AddressRanges);

impl Rows {
    /// Those of services, each given by the addresses that it has outside and those of the hosts inside.
    #[must_use]
    pub fn of(services: &[Ends]) -> Self {
        let mut shared = Vec::new();
        for (place, (outside, _)) in services.iter().enumerate() {
            let others = services.iter().enumerate().filter(|(other, _)| *other != place);
            for (first, last) in others.flat_map(|(_, (_, inside))| inside) {
                shared.extend(outside.iter().map(|own| own.0.max(*first)..=own.1.min(*last)));
            }
        }
        Self(AddressRanges::new(shared.into_iter().filter(|range: &RangeInclusive<Ipv4Addr>| !range.is_empty())))
    }

    /// True if no service sends what is for another.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.ranges().is_empty()
    }

    /// True if `address` is between two services.
    #[must_use]
    pub fn contain(&self, address: Ipv4Addr) -> bool {
        self.0.contains(address)
    }

    /// True if a service is in a row.
    #[must_use]
    pub fn concern(&self, (outside, inside): &Ends) -> bool {
        let overlaps = |(first, last): &(Ipv4Addr, Ipv4Addr)| {
            self.0.ranges().iter().any(|range| range.start() <= last && first <= range.end())
        };
        outside.iter().chain(inside).any(overlaps)
    }

    /// True if what a service sends goes to the next one: either end is between the two.
    fn take(&self, packet: &Packet<'_>) -> bool {
        Ipv4View::parse_header(packet.bytes())
            .is_ok_and(|header| self.contain(header.source()) || self.contain(header.destination()))
    }
}

/// Packets between two services.
#[derive(Debug, Default)]
pub(crate) struct Between {
    /// Each behind its headroom.
    bytes: Vec<u8>,
    /// Where each ends, and what is left to be done on it.
    ends: Vec<(usize, Offload)>,
}

impl Between {
    /// Keeps a packet for the next service, if it goes there.
    pub(crate) fn keeps(&mut self, rows: &Rows, packet: &Packet<'_>) -> bool {
        let is_kept = rows.take(packet);
        if is_kept {
            self.bytes.resize(self.bytes.len() + HEADROOM, 0);
            self.bytes.extend_from_slice(packet.bytes());
            self.ends.push((self.bytes.len(), packet.offload));
        }
        is_kept
    }

    /// Hands each on, in their order.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&mut Packet<'_>)) {
        let mut begin = 0;
        for &(end, offload) in &self.ends {
            let buffer = &mut self.bytes[begin..end];
            let length = buffer.len() - HEADROOM;
            Packet::new(buffer, HEADROOM, length, offload).iter_mut().for_each(&mut each);
            begin = end;
        }
        self.ends.clear();
        self.bytes.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}
