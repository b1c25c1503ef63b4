//! Records of one cache line that are claimed, made live, retired and freed by several writers.
//!
//! ```text
//! record   words 0-3 | life | words 5-7                     64 bytes
//! life     63      32  31         16  15   4  3     0
//!          | touched  | generation  | tally | stage |
//! ```
//!
//! A record goes `FREE -> BUILDING -> OPENING -> LIVE -> DYING -> FREE`. What claims it is a bit in
//! a bitmap (512 records a line), so that a search for a free one reads little. It is readable
//! while OPENING, when its maker links it into indexes, and while LIVE; only a LIVE one can be
//! retired, so nobody unlinks what is still being linked. The generation changes with each claim,
//! so a reader that copied a record while it was being reused notices. `touched` is when the record
//! was last built upon: one that was touched meanwhile is not retired. The tally is a small count that
//! is its owner's, 0 in a new record.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::memory::{MemoryError, MemorySource, Record, Slab};
use crate::tick::Tick;

/// Words of a record.
pub const WORDS: usize = 8;

pub(crate) const LIFE_WORD: usize = 4;

tombolo_records::constants! {
    const TOUCHED: u64 as LIFE_TOUCHED = 0xffff_ffff << 32;
    pub(crate) const STAGE: u64 as LIFE_STAGE = 0xf;
    pub(crate) const ONE: u64 as LIFE_ONE = 1 << 4;
    pub(crate) const TALLY: u64 as LIFE_TALLY = 0xfff << 4;
    pub(crate) const FREE: u64 as STAGE_FREE = 0;
    pub(crate) const BUILDING: u64 as STAGE_BUILDING = 1;
    pub(crate) const LIVE: u64 as STAGE_LIVE = 2;
    const DYING: u64 as STAGE_DYING = 3;
    pub(crate) const OPENING: u64 as STAGE_OPENING = 4;
    pub(crate) const GENERATION: u64 as LIFE_GENERATION = 0xffff << 16;
    pub(crate) const ONE_GENERATION: u64 as LIFE_ONE_GENERATION = 1 << 16;
}

/// The highest tally.
pub(crate) const MOST_TALLY: u32 = 0xfff;
const _: () = assert!(TALLY == MOST_TALLY as u64 * ONE);

/// Declares the type of a record's number.
macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(std::num::NonZeroU32);

        impl $name {
            /// The id `number`; `None` for zero.
            #[must_use]
            pub const fn new(number: u32) -> Option<Self> {
                match std::num::NonZeroU32::new(number) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// Its number.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0.get()
            }
        }

        impl From<std::num::NonZeroU32> for $name {
            fn from(number: std::num::NonZeroU32) -> Self {
                Self(number)
            }
        }

        impl From<$name> for std::num::NonZeroU32 {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}
pub(crate) use id;

/// What is kept in the records of an arena.
pub trait Stored: Sized + PartialEq {
    /// Type of its number.
    type Id: Copy + From<NonZeroU32> + Into<NonZeroU32>;
    /// Names of the records' span and of the bitmap's.
    const NAMES: [&'static str; 2];
    /// The words of the record. Word 4 is the arena's and is not stored.
    fn to_words(&self) -> [u64; WORDS];
    /// The value that the words stand for. Word 4 is zero.
    fn from_words(words: [u64; WORDS]) -> Self;
}

/// One record. All access goes through atomics; see the module for the bytes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Cell(pub(crate) [AtomicU64; WORDS]);

// SAFETY: an array of atomics.
unsafe impl Record for Cell {}

impl Cell {
    /// The words as they stand, but for the arena's.
    fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|n| if n == LIFE_WORD { 0 } else { self.0[n].load(Ordering::Relaxed) })
    }
}

const _: () = assert!(cfg!(loom) || size_of::<Cell>() == 64);

/// Records and the bitmap of those in use. Number 0 stands for "none" and is never given out.
#[derive(Debug)]
pub struct Arena<T> {
    pub(crate) cells: Slab<Cell>,
    pub(crate) used: Slab<AtomicU64>,
    capacity: u32,
    stored: PhantomData<T>,
}

impl<T: Stored> Arena<T> {
    /// Room for `capacity` records.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, capacity: u32) -> Result<Self, MemoryError> {
        let [records, used] = T::NAMES;
        let count = capacity as usize + 1;
        Ok(Self {
            cells: Slab::take(source, records, count)?,
            used: Slab::take(source, used, count.div_ceil(64))?,
            capacity,
            stored: PhantomData,
        })
    }

    /// How many records there is room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.cells.bytes() + self.used.bytes()
    }

    /// How many records are in use.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.used.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Copies record `id` and when it was last touched; `None` if it is not live.
    #[inline]
    #[must_use]
    pub fn read(&self, id: T::Id) -> Option<(T, Tick)> {
        let cell = self.cells.get(number(id) as usize)?;
        let life = cell.0[LIFE_WORD].load(Ordering::Acquire);
        if !is_readable(life) {
            return None;
        }
        let words = cell.words();
        fence(Ordering::Acquire);
        let after = cell.0[LIFE_WORD].load(Ordering::Relaxed);
        let unchanged = is_readable(after) && (after ^ life) & GENERATION == 0;
        unchanged.then(|| (T::from_words(words), touched(life)))
    }

    /// As [`read`](Self::read), but also while the record is dying: until it is freed.
    pub(crate) fn read_until_free(&self, id: T::Id) -> Option<T> {
        let cell = self.cells.get(number(id) as usize)?;
        let is_there = |life: u64| is_readable(life) || life & STAGE == DYING;
        let life = cell.0[LIFE_WORD].load(Ordering::Acquire);
        let words = cell.words();
        fence(Ordering::Acquire);
        let after = cell.0[LIFE_WORD].load(Ordering::Relaxed);
        (is_there(life) && is_there(after) && (after ^ life) & GENERATION == 0).then(|| T::from_words(words))
    }

    /// True if record `id` is live and its first four words are what `is_key` looks for.
    #[inline]
    pub(crate) fn matches(&self, id: u32, is_key: impl FnOnce([u64; 4]) -> bool) -> bool {
        self.cells.get(id as usize).is_some_and(|cell| {
            is_key(std::array::from_fn(|n| cell.0[n].load(Ordering::Relaxed)))
                && is_readable(cell.0[LIFE_WORD].load(Ordering::Acquire))
        })
    }

    /// True if record `number` is live, and linked by its maker.
    #[inline]
    pub(crate) fn is_settled(&self, number: u32) -> bool {
        self.cells.get(number as usize).is_some_and(|cell| cell.0[LIFE_WORD].load(Ordering::Acquire) & STAGE == LIVE)
    }

    /// A word of record `id` that is changed while the record lives: a counter.
    pub(crate) fn word(&self, id: T::Id, word: usize) -> &AtomicU64 {
        &self.cells[number(id) as usize].0[word]
    }

    /// The tally of record `id`.
    pub(crate) fn tally(&self, id: T::Id) -> u64 {
        (self.word(id, LIFE_WORD).load(Ordering::Relaxed) & TALLY) / ONE
    }

    /// Replaces the tally of record `id`, if it is live, by what `change` makes of it; no more than
    /// there is room for.
    pub(crate) fn change_tally(&self, id: T::Id, change: impl Fn(u64) -> u64) {
        let changed = |life: u64| {
            let next = change((life & TALLY) / ONE).min(MOST_TALLY.into()) * ONE;
            (is_readable(life) && next != life & TALLY).then_some(life & !TALLY | next)
        };
        let _ = self.word(id, LIFE_WORD).fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
    }

    /// Starts loading record `id`.
    #[inline]
    pub fn prefetch(&self, id: T::Id) {
        self.cells.prefetch(number(id) as usize);
    }

    /// Claims a free record; the search starts near `hint` (any number; one per writer keeps
    /// writers apart). `None` if all are in use.
    pub fn claim(&self, hint: u32) -> Option<T::Id> {
        let words = self.used.len();
        let start = hint as usize % words;
        (0..words).find_map(|step| self.claim_in((start + step) % words))
    }

    fn claim_in(&self, index: usize) -> Option<T::Id> {
        loop {
            let taken = self.used[index].load(Ordering::Relaxed) | u64::from(index == 0);
            if taken == u64::MAX {
                return None;
            }
            let number = u32::try_from(index * 64).ok()? + taken.trailing_ones();
            if number > self.capacity {
                return None;
            }
            if let Some(id) = self.claim_number(number) {
                return Some(id);
            }
        }
    }

    /// True if record `number` is in use, or there is none.
    pub(crate) fn is_used(&self, number: u32) -> bool {
        let word = self.used.get(number as usize / 64).map_or(u64::MAX, |word| word.load(Ordering::Relaxed));
        number == 0 || number > self.capacity || word >> (number % 64) & 1 != 0
    }

    /// Claims record `number`, if it is free.
    pub(crate) fn claim_number(&self, number: u32) -> Option<T::Id> {
        let bit = 1 << (number % 64);
        if self.is_used(number) || self.used[number as usize / 64].fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return None;
        }
        let life = &self.cells[number as usize].0[LIFE_WORD];
        let generation = life.load(Ordering::Relaxed).wrapping_add(ONE_GENERATION) & GENERATION;
        life.store(generation | BUILDING, Ordering::Relaxed);
        NonZeroU32::new(number).map(T::Id::from)
    }

    /// Fills a claimed record and makes it readable. Its maker links it and then calls
    /// [`settle`](Self::settle), or [`free`](Self::free) if it was not needed.
    pub fn publish(&self, id: T::Id, value: &T, now: Tick) {
        let cell = &self.cells[number(id) as usize];
        // Whoever reads one of the new words sees that the record is being built.
        fence(Ordering::Release);
        for (n, word) in value.to_words().into_iter().enumerate().filter(|&(n, _)| n != LIFE_WORD) {
            if cfg!(loom) {
                // loom does not know that what an exchange has written comes right behind what it has
                // read, and would let an earlier one come after a store.
                let _ = cell.0[n].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |_| Some(word));
            } else {
                cell.0[n].store(word, Ordering::Relaxed);
            }
        }
        let life = cell.0[LIFE_WORD].load(Ordering::Relaxed) & GENERATION | OPENING | u64::from(now.0) << 32;
        cell.0[LIFE_WORD].store(life, Ordering::Release);
    }

    /// Makes a published record live: it is linked, and may be retired from now on.
    pub fn settle(&self, id: T::Id) {
        let word = &self.cells[number(id) as usize].0[LIFE_WORD];
        let mut life = word.load(Ordering::Acquire);
        while life & STAGE == OPENING {
            match word.compare_exchange(life, life & !STAGE | LIVE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(changed) => life = changed,
            }
        }
    }

    /// Notes that something was built upon the record at `now`; false if it is not live any more.
    /// The line is written at most once a tick.
    #[inline]
    #[must_use]
    pub fn touch(&self, id: T::Id, now: Tick) -> bool {
        let word = &self.cells[number(id) as usize].0[LIFE_WORD];
        let mut life = word.load(Ordering::Acquire);
        loop {
            if !is_readable(life) {
                return false;
            }
            if touched(life) >= now {
                return true;
            }
            let next = life & 0xffff_ffff | u64::from(now.0) << 32;
            match word.compare_exchange(life, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(changed) => life = changed,
            }
        }
    }

    /// Takes a live record out of use, if it still is `value`, last touched at `seen`. Only the one
    /// caller that gets `true` goes on to unlink and [`free`](Self::free) it. Its number and `seen`
    /// alone would not do: within a tick another caller may have removed it, and a writer made
    /// another in its place.
    #[must_use]
    pub fn retire(&self, id: T::Id, value: &T, seen: Tick) -> bool {
        let cell = &self.cells[number(id) as usize];
        let life = cell.0[LIFE_WORD].load(Ordering::Acquire);
        life & STAGE == LIVE
            && touched(life) == seen
            && T::from_words(cell.words()) == *value
            // The generation in `life` says that the words were this record's.
            && cell.0[LIFE_WORD].compare_exchange(life, life & !STAGE | DYING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Frees a record that was claimed and did not get further, or was retired and unlinked.
    pub fn free(&self, id: T::Id) {
        let number = number(id);
        let word = &self.cells[number as usize].0[LIFE_WORD];
        word.store(word.load(Ordering::Relaxed) & GENERATION | FREE, Ordering::Release);
        self.used[number as usize / 64].fetch_and(!(1 << (number % 64)), Ordering::AcqRel);
    }

    /// What tells the records that had a number one after another apart.
    #[must_use]
    pub fn generation(&self, id: T::Id) -> u64 {
        self.cells.get(number(id) as usize).map_or(0, |cell| cell.0[LIFE_WORD].load(Ordering::Acquire) & GENERATION)
    }

    /// Words of the bitmap, for [`Self::used`].
    #[must_use]
    pub fn parts(&self) -> usize {
        self.used.len()
    }

    /// Records in use (claimed, live or dying) in the 64 of bitmap word `part`.
    pub fn used(&self, part: usize) -> impl Iterator<Item = T::Id> + use<T> {
        let mut bits = self.used.get(part).map_or(0, |word| word.load(Ordering::Acquire));
        std::iter::from_fn(move || {
            let bit = bits.trailing_zeros();
            bits &= bits.checked_sub(1)?;
            NonZeroU32::new(u32::try_from(part * 64).ok()? + bit).map(T::Id::from)
        })
    }

    /// All records that a former process has left, for an index of this one; those that were left half-done are
    /// freed.
    pub(crate) fn find_again(&self) -> impl Iterator<Item = (T::Id, T)> + '_ {
        self.iter().filter_map(|id| {
            self.settle(id);
            let found = self.read(id);
            if found.is_none() {
                self.free(id);
            }
            Some((id, found?.0))
        })
    }

    /// All records in use.
    pub fn iter(&self) -> impl Iterator<Item = T::Id> + '_ {
        (0..self.parts()).flat_map(|part| self.used(part))
    }
}

fn is_readable(life: u64) -> bool {
    matches!(life & STAGE, LIVE | OPENING)
}

fn number(id: impl Into<NonZeroU32>) -> u32 {
    id.into().get()
}

fn touched(life: u64) -> Tick {
    Tick((life >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;
    use std::collections::HashSet;

    id! {
        /// Number of a test record.
        Number
    }

    #[derive(Debug, PartialEq)]
    struct Words([u64; WORDS]);

    impl Stored for Words {
        type Id = Number;
        const NAMES: [&'static str; 2] = ["test", "test-used"];
        fn to_words(&self) -> [u64; WORDS] {
            self.0
        }
        fn from_words(words: [u64; WORDS]) -> Self {
            Self(words)
        }
    }

    #[test]
    fn exactly_the_capacity_can_be_claimed() {
        for capacity in [1, 63, 64, 65, 1000] {
            let arena: Arena<Words> = Arena::new(&mut Heap, capacity).unwrap();
            let ids: HashSet<_> = std::iter::from_fn(|| arena.claim(12345)).collect();
            assert_eq!(ids.len(), capacity as usize);
            assert_eq!(arena.count(), capacity);
            assert!(ids.iter().all(|id| (1..=capacity).contains(&id.get())));
            assert_eq!(arena.iter().collect::<HashSet<_>>(), ids);
        }
    }

    #[test]
    fn a_record_that_was_touched_is_not_retired() {
        let arena: Arena<Words> = Arena::new(&mut Heap, 10).unwrap();
        let id = arena.claim(0).unwrap();
        let words = Words([1, 1, 1, 1, 0, 1, 1, 1]);
        arena.publish(id, &words, Tick(6));
        assert!(!arena.retire(id, &words, Tick(6)), "not while its maker links it");
        arena.settle(id);
        let (_, seen) = arena.read(id).unwrap();
        assert!(arena.touch(id, Tick(20)));
        assert!(!arena.retire(id, &words, seen));
        assert!(!arena.retire(id, &Words([2; WORDS]), Tick(20)), "not another in its place");
        assert!(arena.retire(id, &words, Tick(20)));
        assert!(!arena.retire(id, &words, Tick(20)), "only one caller retires it");
        assert!(!arena.touch(id, Tick(21)));
        assert!(arena.read(id).is_none());
        arena.free(id);
        assert_eq!(arena.count(), 0);
    }

    #[test]
    fn writers_never_claim_the_same_record() {
        let arena: Arena<Words> = Arena::new(&mut Heap, 10_000).unwrap();
        let claimed: Vec<Vec<Number>> = std::thread::scope(|scope| {
            let writer = |w: u32| (0..2500).map(|_| arena.claim(w * 40).unwrap()).collect();
            let threads: Vec<_> = (0..4).map(|w| scope.spawn(move || writer(w))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(claimed.iter().flatten().collect::<HashSet<_>>().len(), 10_000);
        assert!(arena.claim(0).is_none());
    }

    #[test]
    fn a_reader_never_sees_half_of_one_record_and_half_of_another() {
        let arena: Arena<Words> = Arena::new(&mut Heap, 1).unwrap();
        let id = Number::new(1).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..200_000_u64 {
                    let id = arena.claim(0).unwrap();
                    let words = Words([round, round, round, round, 0, round, round, round]);
                    arena.publish(id, &words, Tick(1));
                    arena.settle(id);
                    assert!(arena.retire(id, &words, Tick(1)));
                    arena.free(id);
                }
            });
            while !writer.is_finished() {
                if let Some((Words([a, rest @ ..]), _)) = arena.read(id) {
                    assert!(rest.iter().enumerate().all(|(n, &word)| n == LIFE_WORD - 1 || word == a));
                }
            }
        });
    }
}
