//! From a key to the id of a record: buckets of eight (tag, id) entries, one cache line each, two
//! candidate buckets a key.
//!
//! ```text
//! bucket   | entry 0 | entry 1 | ... | entry 7 |      64 bytes
//! entry    63          32  31       30         0
//!          |    tag     | pending |     id     |      0 = free
//! ```
//!
//! The key itself is in the record that the id names; the tag only saves looking there in vain.
//!
//! # Several writers
//! Two writers may create the same key at the same moment, each in another bucket. So an entry is
//! first published as *pending*, then its writer looks at both buckets again:
//!
//! * another entry with the key that is live: the writer takes its own back and uses the other;
//! * another that is pending, at a lower place: likewise, once that one is live;
//! * another that is pending, at a higher place: the writer waits until it is gone or live.
//!
//! Of two writers at least one sees the other, and only the lower waits for the higher, which never
//! waits before it has taken its entry back: no deadlock, and exactly one entry becomes live. A
//! writer that died in between (its process was killed) is overruled after [`PATIENCE`] looks.

use std::ops::Range;

use crate::atomic::{AtomicU64, Ordering, spin_loop};
use crate::hash::Hash;
use crate::memory::{MemoryError, MemorySource, Record, Slab};

/// How often a pending entry is looked at before its writer is taken for dead.
pub const PATIENCE: u32 = if cfg!(loom) { 1 } else { 1 << 16 };

/// Entries of a bucket. A model checker has fewer steps to order where they are fewer.
const ENTRIES: usize = if cfg!(loom) { 2 } else { 8 };

tombolo_records::constants! {
    pub(crate) const PENDING: u64 as INDEX_PENDING = 1 << 31;
    pub(crate) const ID: u64 as INDEX_ID = PENDING - 1;
}

/// Highest id that an entry can hold.
pub const MAX_ID: u32 = (1 << 31) - 1;

tombolo_records::records! {
    /// One cache line of entries.
    line pub(crate) struct Bucket as index_bucket {
        entry: [AtomicU64; ENTRIES],
    }
}

// SAFETY: an array of atomics.
unsafe impl Record for Bucket {}

/// What came of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The id is now found under the key.
    New,
    /// The key was there already, with this id.
    Existing(u32),
    /// Both buckets are full of other keys.
    Full,
}

/// The index. See the module for its layout.
#[derive(Debug)]
pub struct Index {
    pub(crate) buckets: Slab<Bucket>,
    count: u32,
}

impl Index {
    /// An index that holds `entries` ids at a load of at most 70 %.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, name: &'static str, entries: u32) -> Result<Self, MemoryError> {
        let count = u32::try_from(u64::from(entries) * 10 / (7 * 8) + 2).unwrap_or(u32::MAX);
        Ok(Self { buckets: Slab::take(source, name, count as usize)?, count })
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.buckets.bytes()
    }

    /// Number of buckets.
    #[must_use]
    pub fn buckets(&self) -> u32 {
        self.count
    }

    /// Starts loading the first candidate bucket.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        self.buckets.prefetch(hash.buckets(self.count)[0] as usize);
    }

    /// The id under `hash` for which `is_key` says that its record has the key.
    #[inline]
    pub fn find(&self, hash: Hash, mut is_key: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tagged(hash);
        for bucket in hash.buckets(self.count) {
            for entry in &self.buckets[bucket as usize].entry {
                let word = entry.load(Ordering::Acquire);
                if word & !ID == tag && is_key(id_of(word)) {
                    return Some(id_of(word));
                }
            }
        }
        None
    }

    /// Puts `id` under `hash`, unless another id with the same key is there. The record of `id`
    /// must be complete: it may be found before this returns.
    pub fn insert(&self, hash: Hash, id: u32, mut is_key: impl FnMut(u32) -> bool) -> Inserted {
        debug_assert!(id != 0 && id <= MAX_ID);
        let word = tagged(hash) | u64::from(id);
        loop {
            let Some(place) = self.publish(hash, word | PENDING) else {
                return self.find(hash, is_key).map_or(Inserted::Full, Inserted::Existing);
            };
            match self.settle(hash, place, word | PENDING, &mut is_key) {
                // Fails only if another writer took this one for dead.
                Settled::Mine if self.replace(place, word | PENDING, word) => return Inserted::New,
                Settled::Mine => {}
                Settled::Theirs(other) => return Inserted::Existing(other),
                Settled::Again => {}
            }
        }
    }

    /// Removes `id` from under `hash`; false if it is not there.
    pub fn remove(&self, hash: Hash, id: u32) -> bool {
        let word = tagged(hash) | u64::from(id);
        self.places(hash).any(|place| self.replace(place, word, 0))
    }

    /// Looks at every live entry: `(bucket, tag, id)`. For audits and repair.
    pub fn for_each(&self, mut visit: impl FnMut(Entry)) {
        for (bucket, entries) in self.buckets.iter().enumerate() {
            for (slot, entry) in entries.entry.iter().enumerate() {
                let word = entry.load(Ordering::Acquire);
                if word != 0 {
                    let place = bucket * ENTRIES + slot;
                    visit(Entry { place, tag: tag_of(word), id: id_of(word), pending: word & PENDING != 0 });
                }
            }
        }
    }

    /// True if an entry at `place` may belong to `hash`.
    #[must_use]
    pub fn is_home(&self, hash: Hash, entry: &Entry) -> bool {
        entry.tag == hash.tag()
            && hash.buckets(self.count).iter().any(|&bucket| entry.place / ENTRIES == bucket as usize)
    }

    /// Clears an entry, if it is as it was seen. A writer whose pending entry is cleared starts
    /// again.
    pub fn clear(&self, entry: &Entry) {
        let pending = if entry.pending { PENDING } else { 0 };
        self.replace(entry.place, u64::from(entry.tag) << 32 | pending | u64::from(entry.id), 0);
    }

    fn entry(&self, place: usize) -> &AtomicU64 {
        &self.buckets[place / ENTRIES].entry[place % ENTRIES]
    }

    fn replace(&self, place: usize, from: u64, to: u64) -> bool {
        self.entry(place).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn places(&self, hash: Hash) -> impl Iterator<Item = usize> + use<> {
        let [first, second] = hash.buckets(self.count);
        let second = (second != first).then_some(second);
        [Some(first), second].into_iter().flatten().flat_map(places_of)
    }

    /// Stores `word` in a free entry of the emptier bucket; `None` if both are full.
    fn publish(&self, hash: Hash, word: u64) -> Option<usize> {
        let free =
            |bucket: u32| self.buckets[bucket as usize].entry.iter().filter(|e| e.load(Ordering::Relaxed) == 0).count();
        let [first, second] = hash.buckets(self.count);
        let order = if free(first) >= free(second) { [first, second] } else { [second, first] };
        order.into_iter().flat_map(places_of).find(|&place| {
            let entry = self.entry(place);
            entry.load(Ordering::Relaxed) == 0
                && entry.compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })
    }

    fn settle(&self, hash: Hash, mine: usize, pending: u64, is_key: &mut impl FnMut(u32) -> bool) -> Settled {
        let tag = tagged(hash);
        for place in self.places(hash).filter(|&place| place != mine) {
            let mut patience = PATIENCE;
            loop {
                let word = self.entry(place).load(Ordering::SeqCst);
                if word & !(ID | PENDING) != tag || !is_key(id_of(word)) {
                    break;
                }
                if word & PENDING == 0 {
                    self.replace(mine, pending, 0);
                    return Settled::Theirs(id_of(word));
                }
                if place < mine {
                    self.replace(mine, pending, 0);
                    return self.wait_for(place, word);
                }
                if patience == 0 {
                    self.replace(place, word, 0);
                    break;
                }
                patience -= 1;
                spin_loop();
            }
        }
        Settled::Mine
    }

    /// Waits until the pending `word` at `place` is live or gone.
    fn wait_for(&self, place: usize, word: u64) -> Settled {
        for _ in 0..PATIENCE {
            let now = self.entry(place).load(Ordering::Acquire);
            if now == word & !PENDING {
                return Settled::Theirs(id_of(word));
            }
            if now != word {
                return Settled::Again;
            }
            spin_loop();
        }
        self.replace(place, word, 0);
        Settled::Again
    }
}

/// One entry as [`Index::for_each`] saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number of the entry, counted over all buckets.
    pub place: usize,
    /// Tag of its key.
    pub tag: u32,
    /// Id of its record.
    pub id: u32,
    /// Its writer has not finished.
    pub pending: bool,
}

enum Settled {
    Mine,
    Theirs(u32),
    Again,
}

fn places_of(bucket: u32) -> Range<usize> {
    let first = bucket as usize * ENTRIES;
    first..first + ENTRIES
}

fn tagged(hash: Hash) -> u64 {
    u64::from(hash.tag()) << 32
}

fn id_of(word: u64) -> u32 {
    (word & ID) as u32
}

fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKey;
    use crate::memory::Heap;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const KEY: HashKey = HashKey::new([11, 22, 33, 44]);

    fn hash(key: u64) -> Hash {
        KEY.hash([key, 0, 0])
    }

    proptest! {
        #[test]
        fn equals_a_naive_map(operations in prop::collection::vec((0..3_u8, 1..200_u64), 1..2000)) {
            // Record `id` has key `keys[id]`.
            let index = Index::new(&mut Heap, "index", 200).unwrap();
            let mut keys = vec![0_u64];
            let mut model: HashMap<u64, u32> = HashMap::new();
            for (operation, key) in operations {
                match operation {
                    0 => {
                        let id = u32::try_from(keys.len()).unwrap();
                        keys.push(key);
                        match index.insert(hash(key), id, |other| keys[other as usize] == key) {
                            Inserted::New => prop_assert!(model.insert(key, id).is_none()),
                            Inserted::Existing(other) => prop_assert_eq!(model.get(&key), Some(&other)),
                            Inserted::Full => prop_assert!(false, "full at {} entries", model.len()),
                        }
                    }
                    1 => {
                        let removed = model.remove(&key).is_some_and(|id| index.remove(hash(key), id));
                        prop_assert!(removed || index.find(hash(key), |id| keys[id as usize] == key).is_none());
                    }
                    _ => prop_assert_eq!(index.find(hash(key), |id| keys[id as usize] == key), model.get(&key).copied()),
                }
            }
            let mut seen = 0;
            index.for_each(|entry| { seen += 1; assert!(!entry.pending && index.is_home(hash(keys[entry.id as usize]), &entry)); });
            prop_assert_eq!(seen, model.len());
        }
    }

    #[test]
    fn of_writers_that_race_for_a_key_exactly_one_wins() {
        const KEYS: u32 = 20_000;
        const WRITERS: u32 = 4;
        let index = Index::new(&mut Heap, "index", KEYS).unwrap();
        // Writer w uses id = 1 + key * WRITERS + w, so the key of an id is known without a record.
        let key_of = |id: u32| (id - 1) / WRITERS;
        let winners: Vec<Vec<(u32, Inserted)>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS)
                .map(|w| {
                    let index = &index;
                    scope.spawn(move || {
                        (0..KEYS)
                            .map(|key| {
                                let id = 1 + key * WRITERS + w;
                                (id, index.insert(hash(u64::from(key)), id, |other| key_of(other) == key))
                            })
                            .collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for key in 0..KEYS {
            let live = index.find(hash(u64::from(key)), |id| key_of(id) == key).expect("every key is there");
            for results in &winners {
                let (id, inserted) = results[key as usize];
                match inserted {
                    Inserted::New => assert_eq!(id, live, "two winners for key {key}"),
                    Inserted::Existing(other) => assert_eq!(other, live),
                    Inserted::Full => panic!("full at a load below 70 %"),
                }
            }
        }
        let mut entries = 0;
        index.for_each(|_| entries += 1);
        assert_eq!(entries, KEYS);
    }

    #[test]
    fn a_writer_that_died_is_overruled() {
        let index = Index::new(&mut Heap, "index", 100).unwrap();
        let place = index.publish(hash(5), tagged(hash(5)) | PENDING | 1).unwrap();
        assert_eq!(index.find(hash(5), |_| true), None, "pending entries are not found");
        assert_eq!(index.insert(hash(5), 2, |_| true), Inserted::New);
        assert_eq!(index.find(hash(5), |_| true), Some(2));
        assert_ne!(id_of(index.entry(place).load(Ordering::Relaxed)), 1);
    }
}
