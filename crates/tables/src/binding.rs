//! Bindings: inside endpoint to outside endpoint (RFC 6146 calls the table BIB). One cache line
//! each, one shape for NAT64, NAT44, DS-Lite, lw4o6 and MAP: [`BindingRecord`].

use tombolo_records::{from_words, to_words};

use crate::arena::{Arena, MOST_TALLY, Stored, WORDS};
use crate::atomic::Ordering;
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

tombolo_records::records! {
    /// A binding as it lies in the tables. Addresses and ports stand as on the wire. For ICMP
    /// queries the ports hold the identifier.
    plain pub struct BindingRecord as binding {
        /// IPv6 address of the host, the B4 or the CE; zero for NAT44.
        inside: [u64; 2],
        /// Zero for NAT64.
        inside4: u32,
        /// The outside address.
        outside4: u32,
        /// Of the inside endpoint.
        inside_port: u16,
        /// Of the outside endpoint.
        outside_port: u16,
        /// IP protocol number of the IPv4 side.
        protocol: u8,
        /// Number of the service in the plan.
        service: u8,
        /// BINDING_STATIC and the like.
        flags: u16,
        /// The arena's: last touched (tick), generation, stage.
        life: u64,
        /// Number of its subscriber.
        #[cfg(not(other_layout))]
        subscriber: u32,
        /// Its slot in the outside index.
        outside_slot: u32,
        /// As above.
        #[cfg(other_layout)]
        subscriber: u32,
        /// Tick in which it was made.
        created: u32,
        /// Tick in which the first session was last seen; where packets make no sessions, in which the
        /// inside last sent (tables.rs).
        seen: u32,
        /// The first session of a TCP binding: first.rs. 0 if there was none.
        first: u64,
    }
}

const FLAGS_WORD: usize = std::mem::offset_of!(BindingRecord, flags) / 8;

impl BindingRecord {
    fn key(&self) -> InsideKey {
        InsideKey {
            ipv6: join(self.inside),
            ipv4: self.inside4.to_ne_bytes(),
            port: self.inside_port.to_ne_bytes(),
            protocol: self.protocol,
            service: self.service,
        }
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
    tombolo_records::constants! {
        /// Configured, or made by an operator; stays without sessions.
        pub const STATIC: u16 as BINDING_STATIC = 1;
        /// Made by an operator at run time, and [`STATIC`]: not in the configuration, so no reload
        /// takes it away.
        pub const OPERATOR: u16 as BINDING_OPERATOR = 2;
        /// Its host has asked for it, for a time: [`lease`](crate::lease).
        pub const LEASED: u16 as BINDING_LEASED = 4;
        /// Another node has made it, and had a TCP connection open on it: what the connection's ends send goes
        /// on as a session without a SYN.
        pub const RESUMED: u16 as BINDING_RESUMED = 8;
        /// A copy of what another node has: the kernel's programs leave it to the engine, which knows whether the
        /// other node serves.
        pub const COPIED: u16 as BINDING_COPIED = 16;
    }
}

/// Who made a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A packet from inside.
    Dynamic,
    /// The configuration.
    Configured,
    /// An operator, at run time.
    Operator,
    /// Its host, which has asked for it, or for more than packets had made.
    Leased,
}

impl Binding {
    /// Who made it.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        match self.flags & (flags::STATIC | flags::OPERATOR | flags::LEASED) {
            0 => Origin::Dynamic,
            flags::STATIC => Origin::Configured,
            marked if marked & flags::LEASED != 0 => Origin::Leased,
            _ => Origin::Operator,
        }
    }
}

/// So many sessions of a binding that only the outside has sent in can be counted.
pub const MOST_UNANSWERED: u32 = MOST_TALLY;

/// All bindings.
pub type Bindings = Arena<Binding>;

impl Stored for Binding {
    type Id = BindingId;
    const NAMES: [&'static str; 2] = ["bindings", "bindings-used"];

    fn to_words(&self) -> [u64; WORDS] {
        to_words(BindingRecord {
            inside: halves(self.inside.ipv6),
            inside4: u32::from_ne_bytes(self.inside.ipv4),
            outside4: u32::from_ne_bytes(self.outside_ipv4),
            inside_port: u16::from_ne_bytes(self.inside.port),
            outside_port: u16::from_ne_bytes(self.outside_port),
            protocol: self.inside.protocol,
            service: self.inside.service,
            flags: self.flags,
            life: 0,
            subscriber: self.subscriber,
            outside_slot: self.outside_slot,
            created: self.created.0,
            seen: self.created.0,
            first: 0,
        })
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let record: BindingRecord = from_words(words);
        Self {
            inside: record.key(),
            outside_ipv4: record.outside4.to_ne_bytes(),
            outside_port: record.outside_port.to_ne_bytes(),
            flags: record.flags,
            subscriber: record.subscriber,
            outside_slot: record.outside_slot,
            created: Tick(record.created),
        }
    }
}

impl Bindings {
    /// Sessions of binding `id` that only the outside has sent in.
    #[must_use]
    pub fn unanswered(&self, id: BindingId) -> u64 {
        self.tally(id)
    }

    /// Replaces their number by what `change` makes of it.
    pub(crate) fn change_unanswered(&self, id: BindingId, change: impl Fn(u64) -> u64) {
        self.change_tally(id, change);
    }

    /// When the inside last sent on binding `id`, where packets make no sessions.
    #[must_use]
    pub fn seen(&self, id: BindingId) -> Tick {
        self.place_of_first(id).seen()
    }

    /// Notes that the inside sends at `now`. The line is written at most once a tick.
    pub fn see(&self, id: BindingId, now: Tick) {
        let before = self.seen(id);
        if before < now {
            self.place_of_first(id).change_seen(before, now);
        }
    }

    /// Gives binding `id` other flags, if it still has those of `binding`. False if it has not, or is
    /// another one.
    #[must_use]
    pub(crate) fn change_flags(&self, id: BindingId, binding: &Binding, flags: u16) -> bool {
        let word = |flags| Binding { flags, ..*binding }.to_words()[FLAGS_WORD];
        let (from, to) = (word(binding.flags), word(flags));
        let place = self.word(id, FLAGS_WORD);
        if place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let is_same = self.has_key(id.get(), &binding.inside);
        if !is_same {
            let _ = place.compare_exchange(to, from, Ordering::AcqRel, Ordering::Relaxed);
        }
        is_same
    }

    /// True if record `id` is live and has this inside endpoint.
    #[inline]
    #[must_use]
    pub fn has_key(&self, id: u32, key: &InsideKey) -> bool {
        self.matches(id, |[high, low, ipv4, ports]| {
            let record: BindingRecord = from_words([high, low, ipv4, ports, 0, 0, 0, 0]);
            record.key().words() == key.words()
        })
    }
}

/// The address that has these halves.
pub(crate) fn join([high, low]: [u64; 2]) -> [u8; 16] {
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
