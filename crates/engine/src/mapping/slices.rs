//! Slices: the parts into which a cluster divides subscribers and outside addresses, each of which one node
//! owns.
//!
//! ```text
//! subscriber   the hash of its key under the cluster's secret; where a static binding or a computed share
//!              (pool.rs) says which address it has, that address's slice
//! address      number i of a range of n: i * slices / n, a run of whole addresses for each slice
//! ```
//!
//! All nodes reckon alike, so nothing depends on what only one of them has: neither numbers of services nor
//! the places of ranges in the tables. A range that is added later gives each slice more addresses, and
//! moves none.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;

use tombolo_tables::hash::HashKey;
use tombolo_tables::subscriber::SubscriberKey;

use super::assigned::Span;

/// Slices of a cluster, at most.
pub const MOST_SLICES: u16 = 256;

/// How many slices a cluster has, and how subscribers are spread over them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Slicing {
    secret: HashKey,
    count: u16,
}

impl Slicing {
    /// `count` slices, a power of two and at most [`MOST_SLICES`]; else `None`. Who does not know the secret
    /// cannot choose a slice.
    #[must_use]
    pub fn new(secret: [u64; 4], count: u16) -> Option<Self> {
        let is_possible = count.is_power_of_two() && count <= MOST_SLICES;
        is_possible.then_some(Self { secret: HashKey::new(secret), count })
    }

    /// How many slices there are.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.count
    }

    /// The secret, for the programs in the kernel.
    #[must_use]
    pub const fn key(self) -> HashKey {
        self.secret
    }

    /// The slice of a subscriber of any service.
    #[must_use]
    pub fn of_subscriber(self, key: &SubscriberKey) -> u16 {
        let [high, low] = halves(key.ipv6);
        let hash = self.secret.hash([high, low, u32::from_le_bytes(key.ipv4).into()]).0;
        u16::try_from(hash & u64::from(self.count - 1)).unwrap_or(0)
    }
}

/// Without the secret.
impl fmt::Debug for Slicing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slicing").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Hash for Slicing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.secret.halves(), self.secret.offset(), self.count).hash(state);
    }
}

/// The slices of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolSlices {
    slicing: Slicing,
    /// The ranges as they are configured, by ascending address: a plan may have others, in which they lie.
    ranges: Vec<Span>,
    /// Subscribers that have an address in any case, by their addresses inside.
    pinned: BTreeMap<([u8; 16], [u8; 4]), u16>,
}

impl PoolSlices {
    /// The slices of `ranges`, which must not overlap.
    #[must_use]
    pub fn new(slicing: Slicing, ranges: impl IntoIterator<Item = Span>) -> Self {
        let mut ranges: Vec<Span> = ranges.into_iter().collect();
        ranges.sort_unstable();
        Self { slicing, ranges, pinned: BTreeMap::new() }
    }

    /// Gives a subscriber a slice, whatever its key says.
    ///
    /// # Errors
    /// The slice that it was given before, if that is another.
    pub fn pin(&mut self, key: &SubscriberKey, slice: u16) -> Result<(), u16> {
        match *self.pinned.entry((key.ipv6, key.ipv4)).or_insert(slice) {
            before if before != slice => Err(before),
            _ => Ok(()),
        }
    }

    /// How subscribers are spread.
    #[must_use]
    pub fn slicing(&self) -> Slicing {
        self.slicing
    }

    /// The ranges as they are configured, by ascending address.
    #[must_use]
    pub fn ranges(&self) -> &[Span] {
        &self.ranges
    }

    /// Subscribers that were given a slice, by their IPv6 and IPv4 addresses.
    pub fn pins(&self) -> impl ExactSizeIterator<Item = (([u8; 16], [u8; 4]), u16)> {
        self.pinned.iter().map(|(subscriber, slice)| (*subscriber, *slice))
    }

    /// The slice that a subscriber was given.
    #[must_use]
    pub fn pinned(&self, key: &SubscriberKey) -> Option<u16> {
        if self.pinned.is_empty() { None } else { self.pinned.get(&(key.ipv6, key.ipv4)).copied() }
    }

    /// The slice of an outside address; `None` if it is not in the pool.
    #[must_use]
    pub fn of_address(&self, address: Ipv4Addr) -> Option<u16> {
        let after = self.ranges.partition_point(|(first, _)| *first <= address);
        let (first, last) = self.ranges[..after].last().filter(|(_, last)| address <= *last)?;
        let (place, width) = (address.to_bits() - first.to_bits(), last.to_bits() - first.to_bits());
        u16::try_from(u64::from(place) * u64::from(self.slicing.count) / (u64::from(width) + 1)).ok()
    }

    /// The addresses of a slice: a run of each range, unless that has fewer addresses than there are slices.
    pub fn runs(&self, slice: u16) -> impl Iterator<Item = Span> {
        self.ranges.iter().filter_map(move |(first, last)| {
            let width = u64::from(last.to_bits() - first.to_bits()) + 1;
            let begin = |slice: u64| (slice * width).div_ceil(u64::from(self.slicing.count));
            let (from, to) = (begin(slice.into()), begin(u64::from(slice) + 1));
            let at = |place: u64| Some(Ipv4Addr::from_bits(first.to_bits() + u32::try_from(place).ok()?));
            if from < to { at(from).zip(at(to - 1)) } else { None }
        })
    }
}

/// As a little-endian machine loads them.
fn halves(ipv6: [u8; 16]) -> [u64; 2] {
    let bits = u128::from_le_bytes(ipv6);
    [bits, bits >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const SECRET: [u64; 4] = [0x0123_4567_89ab_cdef, 0x1357_9bdf_0246_8ace, 0xdead_beef_cafe_f00d, 42];

    fn slicing(count: u16) -> Slicing {
        Slicing::new(SECRET, count).unwrap()
    }

    fn span(first: [u8; 4], last: [u8; 4]) -> Span {
        (first.into(), last.into())
    }

    #[test]
    fn there_are_so_many_slices_as_a_power_of_two() {
        assert!([1, 2, 64, 256].iter().all(|count| Slicing::new(SECRET, *count).is_some()));
        assert!([0, 3, 255, 512].iter().all(|count| Slicing::new(SECRET, *count).is_none()));
    }

    #[test]
    fn neighbours_are_spread_evenly_and_by_the_secret() {
        let of = |slicing: Slicing, host: u32| {
            let ipv6 = (0x2001_0db8_u128 << 96 | u128::from(host) << 64).to_be_bytes();
            slicing.of_subscriber(&SubscriberKey { ipv6, ..SubscriberKey::default() })
        };
        let mut counts: HashMap<u16, u32> = HashMap::new();
        (0..64_000).for_each(|host| *counts.entry(of(slicing(64), host)).or_default() += 1);
        // 1000 expected, standard deviation 31.
        assert!(counts.len() == 64 && counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
        let other = Slicing::new([1, 2, 3, 4], 64).unwrap();
        let same = (0..64_000).filter(|host| of(slicing(64), *host) == of(other, *host)).count();
        assert!((800..1200).contains(&same), "{same} of 64000 have the same slice under another secret");
    }

    #[test]
    fn the_number_of_a_service_does_not_count() {
        let key = |service| SubscriberKey { ipv4: [10, 1, 2, 3], service, ..SubscriberKey::default() };
        assert!(
            (0..=255).all(|number| slicing(256).of_subscriber(&key(number)) == slicing(256).of_subscriber(&key(0)))
        );
    }

    /// The numbers that another implementation, and every later version, has to reckon.
    #[test]
    fn slices_stay_what_they_are() {
        let of = |ipv6: &str, ipv4: [u8; 4]| {
            let ipv6 = ipv6.parse::<std::net::Ipv6Addr>().unwrap().octets();
            slicing(256).of_subscriber(&SubscriberKey { ipv6, ipv4, service: 0 })
        };
        let hashes = [of("2001:db8::1", [0; 4]), of("2001:db8:1::", [0; 4]), of("::", [100, 64, 0, 2])];
        assert_eq!(hashes, [165, 228, 229]);
    }

    #[test]
    fn every_address_is_of_the_slice_in_whose_run_it_is() {
        let ranges = [span([192, 0, 2, 0], [192, 0, 2, 255]), span([198, 51, 100, 3], [198, 51, 100, 69])];
        for count in [1, 2, 8, 64] {
            let slices = PoolSlices::new(slicing(count), ranges);
            let mut found: HashMap<Ipv4Addr, u16> = HashMap::new();
            for slice in 0..count {
                assert_eq!(slices.runs(slice).count(), 2, "a run of each range");
                for (first, last) in slices.runs(slice) {
                    for address in first.to_bits()..=last.to_bits() {
                        assert_eq!(found.insert(Ipv4Addr::from_bits(address), slice), None, "twice");
                    }
                }
            }
            assert_eq!(found.len(), 256 + 67);
            assert!(found.iter().all(|(address, slice)| slices.of_address(*address) == Some(*slice)));
        }
        let slices = PoolSlices::new(slicing(8), ranges);
        for outside in [[192, 0, 1, 255], [192, 0, 3, 0], [198, 51, 100, 2], [198, 51, 100, 70]] {
            assert_eq!(slices.of_address(outside.into()), None);
        }
    }

    #[test]
    fn another_range_moves_no_address() {
        let (old, new) = (span([192, 0, 2, 0], [192, 0, 2, 15]), span([10, 0, 0, 0], [10, 0, 0, 15]));
        let (before, after) = (PoolSlices::new(slicing(8), [old]), PoolSlices::new(slicing(8), [old, new]));
        for address in (old.0.to_bits()..=old.1.to_bits()).map(Ipv4Addr::from_bits) {
            assert_eq!(before.of_address(address), after.of_address(address));
        }
        assert_eq!(after.runs(3).count(), 2);
    }

    #[test]
    fn a_range_of_all_addresses_and_one_that_is_too_small_have_their_runs() {
        let all = PoolSlices::new(slicing(256), [span([0, 0, 0, 0], [255, 255, 255, 255])]);
        assert_eq!(all.runs(255).collect::<Vec<_>>(), [span([255, 0, 0, 0], [255, 255, 255, 255])]);
        assert_eq!(all.of_address([254, 255, 255, 255].into()), Some(254));
        let small = PoolSlices::new(slicing(8), [span([192, 0, 2, 1], [192, 0, 2, 3])]);
        let runs: Vec<usize> = (0..8).map(|slice| small.runs(slice).count()).collect();
        assert_eq!(runs, [1, 0, 1, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_subscriber_is_given_one_slice() {
        let mut slices = PoolSlices::new(slicing(8), [span([192, 0, 2, 0], [192, 0, 2, 15])]);
        let key = |service| SubscriberKey { ipv4: [10, 1, 2, 3], service, ..SubscriberKey::default() };
        assert_eq!((slices.pinned(&key(0)), slices.pin(&key(0), 5), slices.pin(&key(3), 5)), (None, Ok(()), Ok(())));
        assert_eq!((slices.pin(&key(0), 6), slices.pinned(&key(7))), (Err(5), Some(5)));
    }
}
