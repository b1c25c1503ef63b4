//! Identifications for IPv4 packets that the gateway makes.
//!
//! Read first: RFC 6864 section 4, RFC 7739 section 5.3 (a counter per destination, hashed with a
//! secret).
//!
//! Fragments of different datagrams with the same addresses, protocol and identification are
//! reassembled wrongly, so numbers must not repeat soon; and who can guess them can inject
//! fragments, so they must not be one global counter. `hash(source, destination) +
//! counter[hash'(destination)]` gives every pair of hosts its own walk through the 16 bits. Workers
//! that share a key and the same number of workers never give the same number to one pair within a
//! cycle, if that number is a power of two.

use std::net::Ipv4Addr;

/// Counters; destinations that share one only skip numbers.
const COUNTERS: usize = 1024;

/// Gives identifications to IPv4 packets. One per worker.
#[derive(Debug, Clone)]
pub struct IdentificationGenerator {
    key: [u64; 2],
    worker: u16,
    workers: u16,
    counters: Box<[u16; COUNTERS]>,
}

impl IdentificationGenerator {
    /// The generator of worker number `worker` of `workers`; all of them get the same secret `key`.
    #[must_use]
    pub fn new(key: [u64; 2], worker: u16, workers: u16) -> Self {
        Self { key, worker, workers: workers.max(1), counters: Box::new([0; COUNTERS]) }
    }

    /// The identification for a packet, and for the `count - 1` after it that segmentation will
    /// make of it.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "hashes are cut to what is needed of them")]
    pub fn next(&mut self, source: Ipv4Addr, destination: Ipv4Addr, count: u16) -> u16 {
        let pair = u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits());
        let hash = mix(pair ^ self.key[0], self.key[1]);
        let counter = &mut self.counters[(hash >> 32) as usize % COUNTERS];
        let steps = *counter;
        *counter = counter.wrapping_add(count);
        // Without the worker's share in it the walk would be the same for all workers.
        (hash as u16).wrapping_add(steps.wrapping_mul(self.workers)).wrapping_add(self.worker)
    }
}

/// Folded multiplication, keyed on both sides. Not a cryptographic hash; what leaks is one number
/// of one pair's walk, and what would be won is the chance to damage a datagram of that pair.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of the product are folded")]
const fn mix(value: u64, key: u64) -> u64 {
    let product = (value ^ 0x9e37_79b9_7f4a_7c15) as u128 * (key | 1) as u128;
    let folded = (product >> 64) as u64 ^ product as u64;
    let again = folded as u128 * 0xd6e8_feb8_6659_fd93;
    (again >> 64) as u64 ^ again as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const B: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

    #[test]
    fn a_pair_of_hosts_sees_every_number_once_before_one_repeats() {
        let mut generator = IdentificationGenerator::new([1, 2], 0, 1);
        let seen: HashSet<_> = (0..65536).map(|_| generator.next(A, B, 1)).collect();
        assert_eq!(seen.len(), 65536);
    }

    #[test]
    fn workers_share_a_key_and_not_a_number() {
        let mut seen = HashSet::new();
        for worker in 0..4 {
            let mut generator = IdentificationGenerator::new([1, 2], worker, 4);
            assert!((0..16384).all(|_| seen.insert(generator.next(A, B, 1))));
        }
    }

    #[test]
    fn segments_of_a_super_packet_are_counted() {
        let mut generator = IdentificationGenerator::new([1, 2], 0, 1);
        let first = generator.next(A, B, 10);
        assert_eq!(generator.next(A, B, 1), first.wrapping_add(10));
    }

    #[test]
    fn other_keys_and_other_pairs_begin_elsewhere() {
        let first = |key, destination| IdentificationGenerator::new(key, 0, 1).next(A, destination, 1);
        assert_ne!(first([1, 2], B), first([3, 2], B));
        assert_ne!(first([1, 2], B), first([1, 2], A));
    }
}
