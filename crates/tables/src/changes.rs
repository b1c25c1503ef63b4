//! Which records have changed since somebody last asked: a bit for each, set by whoever makes, frees or
//! changes one, programs in the kernel among them. Who copies the tables elsewhere asks, and reads what the
//! records say *now*: a record that has changed ten times meanwhile is copied once, and one that has come
//! and gone is gone.
//!
//! ```text
//! words     a bit for each record
//! summary   a bit for each 64 words, of which one may not be zero
//! ```
//!
//! Whoever sets a bit sets it in the word, and then in the summary, unless that has it. Whoever asks takes
//! the summary, and then every word that it stands for, by exchange, zero or not: an exchange that comes too
//! early for a bit is seen by whoever sets it, who then sees the summary taken as well, and sets that anew.
//! So no bit stays behind, whichever way the two meet, and what was written before a bit was set is seen by
//! whoever takes it.
//!
//! Nothing is noted unless it is asked for ([`Tables::noting_changes`](crate::tables::Tables::noting_changes)).

use crate::atomic::{AtomicU64, Ordering};
use crate::memory::{MemoryError, MemorySource, Slab};

/// Bits of a word.
const BITS: u32 = 64;

/// Records of one kind that have changed.
#[derive(Debug)]
pub struct Changes {
    pub(crate) words: Slab<AtomicU64>,
    pub(crate) summary: Slab<AtomicU64>,
    /// Of the records: number 0 is none.
    last: u32,
    are_noted: bool,
}

impl Changes {
    /// For records up to number `last`, of which none has changed.
    ///
    /// # Errors
    /// [`MemoryError`] if `source` does not have the memory.
    pub fn new(source: &mut dyn MemorySource, names: [&'static str; 2], last: u32) -> Result<Self, MemoryError> {
        let words = (last / BITS + 1) as usize;
        Ok(Self {
            words: Slab::take(source, names[0], words)?,
            summary: Slab::take(source, names[1], words.div_ceil((BITS * BITS) as usize))?,
            last,
            are_noted: false,
        })
    }

    /// From now on changes are noted. What an earlier process has left is not: one that died between word and
    /// summary has left a bit that nobody would find.
    pub(crate) fn note(&mut self) {
        for word in self.summary.iter().chain(self.words.iter()) {
            word.swap(0, Ordering::AcqRel);
        }
        self.are_noted = true;
    }

    /// Whether changes are noted.
    #[must_use]
    pub fn are_noted(&self) -> bool {
        self.are_noted
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.bytes() + self.summary.bytes()
    }

    /// Record `number` has changed, and can be read as it is now.
    #[inline]
    pub(crate) fn set(&self, number: u32) {
        if self.are_noted {
            self.set_bit(number);
        }
    }

    fn set_bit(&self, number: u32) {
        let (at, bit) = (number / BITS, 1 << (number % BITS));
        let Some(word) = self.words.get(at as usize) else { return };
        if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            // Whoever set it sets the summary.
            return;
        }
        let (part, of_summary) = (at / BITS, 1 << (at / BITS % BITS));
        let Some(summary) = self.summary.get((part / BITS) as usize) else { return };
        if summary.load(Ordering::Relaxed) & of_summary == 0 {
            summary.fetch_or(of_summary, Ordering::AcqRel);
        }
    }

    /// Takes all bits that are set, and gives the numbers of their records to `each`.
    pub fn take(&self, each: &mut dyn FnMut(u32)) {
        for (place, summary) in (0_u32..).zip(self.summary.iter()) {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for part in bits(summary.swap(0, Ordering::AcqRel)) {
                let first = (place * BITS + part) * BITS;
                for at in first..first + BITS {
                    let Some(word) = self.words.get(at as usize) else { break };
                    let taken = word.swap(0, Ordering::AcqRel);
                    bits(taken).map(|bit| at * BITS + bit).filter(|number| *number <= self.last).for_each(&mut *each);
                }
            }
        }
    }
}

/// Places of the bits that are set in a word.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.checked_sub(1)?;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use super::*;
    use crate::memory::Heap;

    const NAMES: [&str; 2] = ["test-changed", "test-changed-words"];

    fn noted(last: u32) -> Changes {
        let mut changes = Changes::new(&mut Heap, NAMES, last).unwrap();
        changes.note();
        changes
    }

    fn taken(changes: &Changes) -> Vec<u32> {
        let mut all = Vec::new();
        changes.take(&mut |number| all.push(number));
        all
    }

    #[test]
    fn what_was_set_is_taken_once() {
        let changes = noted(1_000_000);
        let numbers = [1, 63, 64, 4095, 4096, 262_143, 262_144, 1_000_000];
        for number in numbers.into_iter().chain([64, 64]) {
            changes.set(number);
        }
        assert_eq!(taken(&changes), numbers);
        assert!(taken(&changes).is_empty());
        changes.set(64);
        assert_eq!(taken(&changes), [64]);
        changes.set(2_000_000);
        assert!(taken(&changes).is_empty(), "there is no such record");
    }

    #[test]
    fn nothing_is_noted_that_nobody_asks_for() {
        let changes = Changes::new(&mut Heap, NAMES, 100).unwrap();
        changes.set(7);
        assert!(taken(&changes).is_empty());
    }

    /// Records that are counted up, and a reader that has to see each of them as it is at last.
    #[test]
    fn no_change_is_missed_whichever_way_writers_and_reader_meet() {
        const RECORDS: u32 = 200;
        let changes = noted(RECORDS);
        let records: Vec<AtomicU32> = (0..=RECORDS).map(|_| AtomicU32::new(0)).collect();
        let is_over = AtomicBool::new(false);
        let mut seen = vec![0; RECORDS as usize + 1];
        std::thread::scope(|scope| {
            let writer = |first: u32| {
                let (changes, records) = (&changes, &records);
                move || {
                    for round in 0..100_000 {
                        let number = 1 + (first + round * 7) % RECORDS;
                        records[number as usize].fetch_add(1, Ordering::Relaxed);
                        changes.set(number);
                    }
                }
            };
            let writers = [scope.spawn(writer(0)), scope.spawn(writer(3))];
            let reader = scope.spawn(|| {
                let mut seen = vec![0; RECORDS as usize + 1];
                loop {
                    let was_over = is_over.load(Ordering::Acquire);
                    changes.take(&mut |n| seen[n as usize] = records[n as usize].load(Ordering::Relaxed));
                    if was_over {
                        return seen;
                    }
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Release);
            seen = reader.join().unwrap();
        });
        let missed: BTreeSet<_> =
            (1..=RECORDS as usize).filter(|&n| seen[n] != records[n].load(Ordering::Relaxed)).collect();
        assert!(missed.is_empty(), "{missed:?}");
    }
}
