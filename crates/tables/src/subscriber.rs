//! Subscribers: who was admitted, and what it was granted. One cache line each:
//! [`SubscriberRecord`].
//!
//! Sessions are counted only where a limit asks for it (see [`COUNTED`](crate::session::COUNTED)).
//!
//! All bindings of a subscriber use the granted address, whatever the protocol (paired pooling: RFC
//! 4787 REQ-2, RFC 6888 REQ-2, RFC 6146 section 3.5.1.1).

use std::mem::offset_of;

use tombolo_records::{from_words, to_words};

use crate::arena::{Arena, Stored, WORDS};
use crate::atomic::Ordering;
use crate::binding::{halves, join};
use crate::tick::Tick;

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
}

/// All subscribers.
pub type Subscribers = Arena<Subscriber>;

tombolo_records::constants! {
    /// A copy of what another node has: nobody makes a binding for it but by the engine, which knows whether the other
    /// node serves.
    const COPIED: u8 as SUBSCRIBER_COPIED = 1;
    /// Blocks of ports that a subscriber may have.
    pub const MOST_BLOCKS: usize = 4;
}

tombolo_records::records! {
    /// A subscriber as it lies in the tables. Addresses stand as on the wire.
    plain pub struct SubscriberRecord as subscriber {
        /// IPv6 address or prefix of the host (NAT64), or of its softwire; zero for NAT44.
        inside: [u64; 2],
        /// Address of a NAT44's host; zero where the IPv6 address says it all.
        inside4: u32,
        /// The address that it was granted.
        outside4: u32,
        /// Number of the service in the plan.
        service: u8,
        /// SUBSCRIBER_COPIED.
        flags: u8,
        /// Always 0.
        unused: [u8; 2],
        /// Sessions that only the outside has sent in (tables.rs says how they are counted).
        unanswered: u32,
        /// The arena's: last touched (tick), generation, stage.
        life: u64,
        /// Bindings in use in the lower half, sessions that are counted in the upper one.
        counts: u64,
        /// Bindings that may still be made (tick, count: 2 + 2 bytes), and the first block of its
        /// address (4 bytes).
        bucket: u64,
        /// Blocks of ports that it has, each as its place in the address plus one (2 bytes).
        blocks: u64,
    }
}

const UNANSWERED_WORD: usize = offset_of!(SubscriberRecord, unanswered) / 8;
pub(crate) const COUNTS_WORD: usize = offset_of!(SubscriberRecord, counts) / 8;
const BUCKET_WORD: usize = offset_of!(SubscriberRecord, bucket) / 8;
pub(crate) const BLOCKS_WORD: usize = offset_of!(SubscriberRecord, blocks) / 8;
const ONE_SESSION: u64 = 1 << 32;
const LOW: u64 = 0xffff_ffff;
const _: () = assert!(offset_of!(SubscriberRecord, unanswered) % 8 == 4, "the upper half of its word");
const FLAGS_WORD: usize = offset_of!(SubscriberRecord, flags) / 8;
const FLAGS_SHIFT: usize = offset_of!(SubscriberRecord, flags) % 8 * 8;

impl Stored for Subscriber {
    type Id = SubscriberId;
    const NAMES: [&'static str; 2] = ["subscribers", "subscribers-used"];

    fn to_words(&self) -> [u64; WORDS] {
        to_words(SubscriberRecord {
            inside: halves(self.key.ipv6),
            inside4: u32::from_ne_bytes(self.key.ipv4),
            outside4: u32::from_ne_bytes(self.outside_ipv4),
            service: self.key.service,
            ..SubscriberRecord::default()
        })
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let record: SubscriberRecord = from_words(words);
        Self { key: record.key(), outside_ipv4: record.outside4.to_ne_bytes() }
    }
}

impl SubscriberRecord {
    fn key(&self) -> SubscriberKey {
        SubscriberKey { ipv6: join(self.inside), ipv4: self.inside4.to_ne_bytes(), service: self.service }
    }
}

impl Subscribers {
    /// True if record `id` is live and has this key.
    #[inline]
    #[must_use]
    pub fn has_key(&self, id: u32, key: &SubscriberKey) -> bool {
        self.matches(id, |[high, low, ipv4, granted]| {
            let record: SubscriberRecord = from_words([high, low, ipv4, granted, 0, 0, 0, 0]);
            record.key().words() == key.words()
        })
    }

    /// Whether subscriber `id` is a copy of what another node has.
    #[must_use]
    pub fn is_copied(&self, id: SubscriberId) -> bool {
        self.word(id, FLAGS_WORD).load(Ordering::Relaxed) >> FLAGS_SHIFT & u64::from(COPIED) != 0
    }

    /// Says whether subscriber `id` is a copy of what another node has.
    pub fn set_copied(&self, id: SubscriberId, is_copied: bool) {
        let (word, bit) = (self.word(id, FLAGS_WORD), u64::from(COPIED) << FLAGS_SHIFT);
        let _ = if is_copied { word.fetch_or(bit, Ordering::AcqRel) } else { word.fetch_and(!bit, Ordering::AcqRel) };
    }

    /// Bindings that subscriber `id` has now.
    #[must_use]
    pub fn bindings(&self, id: SubscriberId) -> u64 {
        self.word(id, COUNTS_WORD).load(Ordering::Relaxed) & LOW
    }

    /// Sessions of subscriber `id` that are counted.
    #[must_use]
    pub fn sessions(&self, id: SubscriberId) -> u64 {
        self.word(id, COUNTS_WORD).load(Ordering::Relaxed) >> 32
    }

    pub(crate) fn count_binding(&self, id: SubscriberId) {
        self.word(id, COUNTS_WORD).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn uncount_binding(&self, id: SubscriberId) {
        self.word(id, COUNTS_WORD).fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a session, unless the subscriber has `limit` already; false if it has.
    #[must_use]
    pub fn count_session(&self, id: SubscriberId, limit: u32) -> bool {
        let word = self.word(id, COUNTS_WORD);
        let before = word.fetch_add(ONE_SESSION, Ordering::Relaxed);
        if before >> 32 >= u64::from(limit) {
            word.fetch_sub(ONE_SESSION, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// A session that was counted is gone, or was not made.
    pub fn uncount_session(&self, id: SubscriberId) {
        // None is counted where the record is a newcomer's by now.
        let less = |counts: u64| counts.checked_sub(ONE_SESSION);
        let _ = self.word(id, COUNTS_WORD).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Sessions of subscriber `id` that only the outside has sent in.
    #[must_use]
    pub fn unanswered(&self, id: SubscriberId) -> u32 {
        high(self.word(id, UNANSWERED_WORD).load(Ordering::Relaxed))
    }

    /// Replaces their number by what `change` makes of it.
    pub(crate) fn change_unanswered(&self, id: SubscriberId, change: impl Fn(u32) -> u32) {
        let changed = |word: u64| {
            let count = change(high(word));
            (count != high(word)).then_some(word & LOW | u64::from(count) << 32)
        };
        let _ = self.word(id, UNANSWERED_WORD).fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    /// Adds to both counts, of which neither becomes negative.
    pub(crate) fn add_counts(&self, id: SubscriberId, bindings: i64, sessions: i64) {
        let sum = bindings.wrapping_add(sessions << 32).cast_unsigned();
        self.word(id, COUNTS_WORD).fetch_add(sum, Ordering::Relaxed);
    }

    /// Takes one of the bindings that subscriber `id` may make: `rate` more a tick, of which it may
    /// save up `burst`. False if none is left.
    #[must_use]
    pub fn take_turn(&self, id: SubscriberId, rate: u16, burst: u16, now: Tick) -> bool {
        let word = self.word(id, BUCKET_WORD);
        let mut current = word.load(Ordering::Relaxed);
        loop {
            let Some(next) = turn(current, rate, burst, now) else { return false };
            match word.compare_exchange_weak(current, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => current = changed,
            }
        }
    }

    /// Blocks of ports that subscriber `id` has: places in its address, in the order in which it
    /// got them.
    pub fn blocks(&self, id: SubscriberId) -> impl Iterator<Item = u16> + use<> {
        lanes(self.word(id, BLOCKS_WORD).load(Ordering::Acquire))
    }

    /// Words in the block index of the blocks that subscriber `id` has.
    pub fn block_words(&self, id: SubscriberId) -> impl Iterator<Item = u32> + use<> {
        let first = high(self.word(id, BUCKET_WORD).load(Ordering::Acquire));
        self.blocks(id).map(move |place| first.wrapping_add(u32::from(place)))
    }

    /// Notes that subscriber `id` has the block at `place` of its address, whose place 0 is word
    /// `first` of the block index (modulo 2^32: place 0 need not exist); false if it has `most`
    /// already.
    pub(crate) fn add_block(&self, id: SubscriberId, first: u32, place: u16, most: usize) -> bool {
        let bucket = self.word(id, BUCKET_WORD);
        let with_first = |word: u64| Some(word & LOW | u64::from(first) << 32);
        let _ = bucket.fetch_update(Ordering::AcqRel, Ordering::Acquire, with_first);
        let added = |word: u64| {
            let held = lanes(word).count();
            (held < most.min(MOST_BLOCKS)).then(|| word | (u64::from(place) + 1) << (16 * held))
        };
        self.word(id, BLOCKS_WORD).fetch_update(Ordering::AcqRel, Ordering::Acquire, added).is_ok()
    }

    /// As [`set_blocks`](Self::set_blocks), of an address whose place 0 is word `first`.
    #[cfg(not(loom))]
    pub(crate) fn set_blocks_of(&self, id: SubscriberId, first: u32, places: &[u16]) {
        let with_first = |word: u64| Some(word & LOW | u64::from(first) << 32);
        let _ = self.word(id, BUCKET_WORD).fetch_update(Ordering::AcqRel, Ordering::Acquire, with_first);
        self.set_blocks(id, places);
    }

    pub(crate) fn set_blocks(&self, id: SubscriberId, places: &[u16]) {
        let lane = |(n, place): (usize, &u16)| (u64::from(*place) + 1) << (16 * n);
        let word = places.iter().take(MOST_BLOCKS).enumerate().map(lane).fold(0, |word, lane| word | lane);
        self.word(id, BLOCKS_WORD).store(word, Ordering::Release);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "lanes are cut out of the word on purpose")]
fn lanes(word: u64) -> impl Iterator<Item = u16> {
    (0..MOST_BLOCKS).filter_map(move |n| ((word >> (16 * n)) as u16).checked_sub(1))
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The bucket after one binding was taken out at `now`; `None` if it is empty. Ticks are kept in 16
/// bits: a bucket that was not looked at for exactly 19 hours fills more slowly, which harms
/// nobody.
#[expect(clippy::cast_possible_truncation, reason = "fields are cut out of the word on purpose")]
fn turn(word: u64, rate: u16, burst: u16, now: Tick) -> Option<u64> {
    let (then, taken, now) = (word as u16, (word >> 16) as u16, now.0 as u16);
    let gained = u32::from(now.wrapping_sub(then)) * u32::from(rate);
    let taken = u32::from(taken).saturating_sub(gained);
    let taken = u16::try_from(taken + 1).ok().filter(|&taken| taken <= burst)?;
    Some(word & !LOW | u64::from(taken) << 16 | u64::from(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    #[test]
    fn what_is_published_is_read_back_whole() {
        let example = Subscriber {
            key: SubscriberKey { ipv6: [9; 16], ipv4: [10, 0, 0, 1], service: 200 },
            outside_ipv4: [192, 0, 2, 7],
        };
        let subscribers = Subscribers::new(&mut Heap, 4).unwrap();
        let id = subscribers.claim(0).unwrap();
        subscribers.publish(id, &example, Tick(3));
        assert_eq!(subscribers.read(id), Some((example, Tick(3))));
        assert!(subscribers.has_key(id.get(), &example.key));
        assert!(!subscribers.has_key(id.get(), &SubscriberKey { service: 201, ..example.key }));
        assert!(!subscribers.has_key(id.get(), &SubscriberKey { ipv4: [10, 0, 0, 2], ..example.key }));
    }

    fn one() -> (Subscribers, SubscriberId) {
        let subscribers = Subscribers::new(&mut Heap, 4).unwrap();
        let id = subscribers.claim(0).unwrap();
        subscribers.publish(id, &Subscriber::default(), Tick(3));
        (subscribers, id)
    }

    #[test]
    fn sessions_are_counted_up_to_the_limit_and_beside_bindings() {
        let (subscribers, id) = one();
        subscribers.count_binding(id);
        assert!(subscribers.count_session(id, 2) && subscribers.count_session(id, 2));
        assert!(!subscribers.count_session(id, 2));
        assert_eq!((subscribers.bindings(id), subscribers.sessions(id)), (1, 2));
        subscribers.uncount_session(id);
        subscribers.uncount_binding(id);
        assert_eq!((subscribers.bindings(id), subscribers.sessions(id)), (0, 1));
    }

    #[test]
    fn turns_come_at_the_rate_and_are_saved_up_to_the_burst() {
        let (subscribers, id) = one();
        let take = |count, now| (0..count).filter(|_| subscribers.take_turn(id, 10, 15, Tick(now))).count();
        assert_eq!(take(100, 70_000), 15);
        assert_eq!(take(100, 70_001), 10);
        assert_eq!(take(3, 70_002), 3);
        assert_eq!(take(100, 70_009), 15);
        assert_eq!(take(100, 70_009), 0);
    }

    #[test]
    fn blocks_are_noted_in_order_and_not_more_than_may_be() {
        let (subscribers, id) = one();
        assert!(subscribers.take_turn(id, 10, 15, Tick(1)));
        for place in [7, 0, 1023] {
            assert!(subscribers.add_block(id, 500, place, 3));
        }
        assert!(!subscribers.add_block(id, 500, 9, 3) && subscribers.add_block(id, 500, 9, 9));
        assert!(!subscribers.add_block(id, 500, 10, 9));
        assert_eq!(subscribers.blocks(id).collect::<Vec<_>>(), [7, 0, 1023, 9]);
        assert_eq!(subscribers.block_words(id).collect::<Vec<_>>(), [507, 500, 1523, 509]);
        assert_eq!(
            (0..100).filter(|_| subscribers.take_turn(id, 10, 15, Tick(1))).count(),
            14,
            "the bucket is as it was"
        );
        subscribers.set_blocks(id, &[0]);
        assert_eq!(subscribers.blocks(id).collect::<Vec<_>>(), [0]);
    }
}
