//! Bindings: inside endpoint to outside endpoint (RFC 6146 calls the table BIB). One cache line
//! each, one shape for NAT64, NAT44, DS-Lite, lw4o6 and MAP.
//!
//! ```text
//!  0   inside IPv6 address (host, B4 or CE; zero for NAT44)                     16
//! 16   inside IPv4 address (zero for NAT64) | outside IPv4 address               4 + 4
//! 24   inside port | outside port | protocol | service | flags                   2 + 2 + 1 + 1 + 2
//! 32   last touched, tick | generation | life                                    4 + 2 + 2
//! 40   subscriber id | outside slot                                              4 + 4
//! 48   created, tick | not used                                                  4 + 4
//! 56   not used                                                                  8
//! ```
//!
//! Addresses and ports stand as on the wire. For ICMP queries the ports hold the identifier.
//!
//! The word at 32 is the [`arena`](crate::arena)'s.

use crate::arena::{Arena, Stored, WORDS};
use crate::tick::Tick;

crate::arena::id! {
    /// Number of a binding; 1 and up.
    BindingId
}

/// An inside endpoint: who is bound. Addresses and port as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InsideKey {
    /// IPv6 address of the host (NAT64) or of its softwire; all zero for NAT44.
    pub ipv6: [u8; 16],
    /// IPv4 address of the host; all zero for NAT64.
    pub ipv4: [u8; 4],
    /// Port, or ICMP identifier.
    pub port: [u8; 2],
    /// IP protocol number of the IPv4 side (1 for ICMP).
    pub protocol: u8,
    /// Number of the service in the plan.
    pub service: u8,
}

impl InsideKey {
    pub(crate) fn words(&self) -> [u64; 3] {
        let [high, low] = halves(self.ipv6);
        [high, low, u64::from_ne_bytes(self.tail())]
    }

    fn tail(&self) -> [u8; 8] {
        let [a, b, c, d] = self.ipv4;
        let [p, q] = self.port;
        [a, b, c, d, p, q, self.protocol, self.service]
    }
}

/// The two halves of an address, each as the bytes lie in memory.
pub(crate) fn halves(address: [u8; 16]) -> [u64; 2] {
    let (mut high, mut low) = ([0; 8], [0; 8]);
    high.copy_from_slice(&address[..8]);
    low.copy_from_slice(&address[8..]);
    [u64::from_ne_bytes(high), u64::from_ne_bytes(low)]
}

/// A binding, copied out of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Binding {
    /// The inside endpoint.
    pub inside: InsideKey,
    /// Outside IPv4 address, as on the wire.
    pub outside_ipv4: [u8; 4],
    /// Outside port or ICMP identifier, as on the wire.
    pub outside_port: [u8; 2],
    /// [`STATIC`](flags::STATIC) and the like.
    pub flags: u16,
    /// Its subscriber.
    pub subscriber: u32,
    /// Its slot in the outside index.
    pub outside_slot: u32,
    /// When it was made.
    pub created: Tick,
}

/// Flags of a binding.
pub mod flags {
    /// Configured, or made by an operator; stays without sessions.
    pub const STATIC: u16 = 1;
    /// Made by an operator at run time, and [`STATIC`]: not in the configuration, so no reload
    /// takes it away.
    pub const OPERATOR: u16 = 2;
}

/// All bindings.
pub type Bindings = Arena<Binding>;

impl Stored for Binding {
    type Id = BindingId;
    const NAMES: [&'static str; 2] = ["bindings", "bindings-used"];

    fn to_words(&self) -> [u64; WORDS] {
        let [high, low] = halves(self.inside.ipv6);
        let [a, b, c, d] = self.inside.ipv4;
        let [e, f, g, h] = self.outside_ipv4;
        let [i, j] = self.inside.port;
        let [o, p] = self.outside_port;
        let [k, l] = self.flags.to_ne_bytes();
        [
            high,
            low,
            u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            u64::from_ne_bytes([i, j, o, p, self.inside.protocol, self.inside.service, k, l]),
            0,
            u64::from(self.subscriber) | u64::from(self.outside_slot) << 32,
            u64::from(self.created.0),
            0,
        ]
    }

    #[expect(clippy::cast_possible_truncation, reason = "fields are cut out of words on purpose")]
    fn from_words([high, low, ipv4, ports, _, owner, created, _]: [u64; WORDS]) -> Self {
        let [a, b, c, d, e, f, g, h] = ipv4.to_ne_bytes();
        let [i, j, o, p, protocol, service, k, l] = ports.to_ne_bytes();
        Self {
            inside: InsideKey { ipv6: join(high, low), ipv4: [a, b, c, d], port: [i, j], protocol, service },
            outside_ipv4: [e, f, g, h],
            outside_port: [o, p],
            flags: u16::from_ne_bytes([k, l]),
            subscriber: owner as u32,
            outside_slot: (owner >> 32) as u32,
            created: Tick(created as u32),
        }
    }
}

impl Bindings {
    /// True if record `id` is live and has this inside endpoint.
    #[inline]
    #[must_use]
    pub fn has_key(&self, id: u32, key: &InsideKey) -> bool {
        let tail = |ipv4: u64, ports: u64| {
            let [a, b, c, d, ..] = ipv4.to_ne_bytes();
            let [p, q, _, _, protocol, service, ..] = ports.to_ne_bytes();
            u64::from_ne_bytes([a, b, c, d, p, q, protocol, service])
        };
        self.matches(id, |[high, low, ipv4, ports]| [high, low, tail(ipv4, ports)] == key.words())
    }
}

fn join(high: u64, low: u64) -> [u8; 16] {
    let mut address = [0; 16];
    address[..8].copy_from_slice(&high.to_ne_bytes());
    address[8..].copy_from_slice(&low.to_ne_bytes());
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    #[test]
    fn what_is_published_is_read_back_whole() {
        let example = Binding {
            inside: InsideKey { ipv6: [7; 16], ipv4: [1, 2, 3, 4], port: [0, 9], protocol: 17, service: 3 },
            outside_ipv4: [192, 0, 2, 1],
            outside_port: [0x12, 0x34],
            flags: flags::STATIC,
            subscriber: 77,
            outside_slot: 0xdead_beef,
            created: Tick(5),
        };
        let bindings = Bindings::new(&mut Heap, 10).unwrap();
        let id = bindings.claim(0).unwrap();
        assert_eq!(bindings.read(id), None, "not live yet");
        bindings.publish(id, &example, Tick(6));
        assert_eq!(bindings.read(id), Some((example, Tick(6))));
        assert!(bindings.has_key(id.get(), &example.inside));
        assert!(!bindings.has_key(id.get(), &InsideKey { port: [0, 10], ..example.inside }));
        assert!(!bindings.has_key(id.get(), &InsideKey { service: 4, ..example.inside }));
    }
}
