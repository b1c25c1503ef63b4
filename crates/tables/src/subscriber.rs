//! Subscribers: who was admitted, and what it was granted. One cache line each.
//!
//! ```text
//!  0   inside IPv6 address or prefix (NAT64: the host; DS-Lite: the softwire)   16
//! 16   inside IPv4 address (NAT44) | outside IPv4 address granted                4 + 4
//! 24   service | not used | place of the address in the service's pool           1 + 3 + 4
//! 32   last touched, tick | generation | life                                    8
//! 40   bindings in use                                                           8
//! 48   not used                                                                 16
//! ```
//!
//! All bindings of a subscriber use the granted address, whatever the protocol (paired pooling: RFC 4787
//! REQ-2, RFC 6888 REQ-2, RFC 6146 section 3.5.1.1).

use std::sync::atomic::Ordering;

use crate::arena::{Arena, Stored, WORDS};
use crate::binding::halves;

crate::arena::id! {
    /// Number of a subscriber; 1 and up.
    SubscriberId
}

/// What a subscriber is found by. Addresses as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SubscriberKey {
    /// Inside IPv6 address, or prefix with zero host bits.
    pub ipv6: [u8; 16],
    /// Inside IPv4 address; zero where the IPv6 address says it all.
    pub ipv4: [u8; 4],
    /// Number of the service in the plan.
    pub service: u8,
}

impl SubscriberKey {
    pub(crate) fn words(&self) -> [u64; 3] {
        let [high, low] = halves(self.ipv6);
        [high, low, u64::from(u32::from_ne_bytes(self.ipv4)) << 8 | u64::from(self.service)]
    }
}

/// A subscriber and its grant, copied out of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscriber {
    /// Who it is.
    pub key: SubscriberKey,
    /// The outside address that it was granted, as on the wire.
    pub outside_ipv4: [u8; 4],
    /// Which address of the service's pool that is.
    pub pool_address: u32,
}

/// All subscribers.
pub type Subscribers = Arena<Subscriber>;

const BINDINGS_WORD: usize = 5;

impl Stored for Subscriber {
    type Id = SubscriberId;
    const NAMES: [&'static str; 2] = ["subscribers", "subscribers-used"];

    fn to_words(&self) -> [u64; WORDS] {
        let [high, low] = halves(self.key.ipv6);
        let [a, b, c, d] = self.key.ipv4;
        let [e, f, g, h] = self.outside_ipv4;
        let granted = u64::from(self.pool_address) << 32 | u64::from(self.key.service);
        [high, low, u64::from_ne_bytes([a, b, c, d, e, f, g, h]), granted, 0, 0, 0, 0]
    }

    #[expect(clippy::cast_possible_truncation, reason = "fields are cut out of words on purpose")]
    fn from_words([high, low, ipv4, granted, ..]: [u64; WORDS]) -> Self {
        let [a, b, c, d, e, f, g, h] = ipv4.to_ne_bytes();
        let mut ipv6 = [0; 16];
        ipv6[..8].copy_from_slice(&high.to_ne_bytes());
        ipv6[8..].copy_from_slice(&low.to_ne_bytes());
        Self {
            key: SubscriberKey { ipv6, ipv4: [a, b, c, d], service: granted as u8 },
            outside_ipv4: [e, f, g, h],
            pool_address: (granted >> 32) as u32,
        }
    }
}

impl Subscribers {
    /// True if record `id` is live and has this key.
    #[inline]
    #[must_use]
    pub fn has_key(&self, id: u32, key: &SubscriberKey) -> bool {
        self.matches(id, |[high, low, ipv4, granted]| {
            let [a, b, c, d, ..] = ipv4.to_ne_bytes();
            let tail = u64::from(u32::from_ne_bytes([a, b, c, d])) << 8 | granted & 0xff;
            [high, low, tail] == key.words()
        })
    }

    /// Bindings that subscriber `id` has now.
    #[must_use]
    pub fn bindings(&self, id: SubscriberId) -> u64 {
        self.word(id, BINDINGS_WORD).load(Ordering::Relaxed)
    }

    pub(crate) fn count_binding(&self, id: SubscriberId) {
        self.word(id, BINDINGS_WORD).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn uncount_binding(&self, id: SubscriberId) {
        self.word(id, BINDINGS_WORD).fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn set_bindings(&self, id: SubscriberId, count: u64) {
        self.word(id, BINDINGS_WORD).store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;
    use crate::tick::Tick;

    #[test]
    fn what_is_published_is_read_back_whole() {
        let example = Subscriber {
            key: SubscriberKey { ipv6: [9; 16], ipv4: [10, 0, 0, 1], service: 200 },
            outside_ipv4: [192, 0, 2, 7],
            pool_address: 0xdead_beef,
        };
        let subscribers = Subscribers::new(&mut Heap, 4).unwrap();
        let id = subscribers.claim(0).unwrap();
        subscribers.publish(id, &example, Tick(3));
        assert_eq!(subscribers.read(id), Some((example, Tick(3))));
        assert!(subscribers.has_key(id.get(), &example.key));
        assert!(!subscribers.has_key(id.get(), &SubscriberKey { service: 201, ..example.key }));
        assert!(!subscribers.has_key(id.get(), &SubscriberKey { ipv4: [10, 0, 0, 2], ..example.key }));
    }
}
