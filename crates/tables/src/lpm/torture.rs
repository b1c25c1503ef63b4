//! Readers against a writer: every answer must have been right at some moment during its lookup.
//!
//! The writer notes, before each change, from which change on each probed key has which answer. A
//! reader takes the number of the last change that was finished before its lookup and of the last
//! that was begun after it; one of the answers noted between the two must be what it saw. Blocks
//! are few, so that replaced ones are reused within microseconds: a reader that saw a reused block
//! would answer nonsense.
//!
//! Short by default; `TOMBOLO_TORTURE_SECONDS=600` for the long run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::numbers::{Numbers, seconds};
use super::*;
use crate::memory::Heap;

const PROBES: usize = 64;
const CANDIDATES: usize = 400;
const NOTES: usize = 1 << 12;
const READERS: u64 = 3;

/// What a probed key's answers were: change number in the upper half, entry word in the lower.
struct Notes {
    ring: Vec<AtomicU64>,
    count: AtomicU64,
}

impl Notes {
    fn new() -> Self {
        Self { ring: (0..NOTES).map(|_| AtomicU64::new(0)).collect(), count: AtomicU64::new(1) }
    }

    fn add(&self, change: u64, word: u32) {
        let count = self.count.load(Ordering::Relaxed);
        self.ring[count as usize % NOTES].store(change << 32 | u64::from(word), Ordering::SeqCst);
        self.count.store(count + 1, Ordering::SeqCst);
    }

    /// Was `word` an answer between the changes `from` and `to`? Nothing if the notes of then are
    /// gone.
    fn allow(&self, word: u32, from: u64, to: u64) -> Option<bool> {
        let count = self.count.load(Ordering::SeqCst);
        for index in (count.saturating_sub(NOTES as u64 - 8)..count).rev() {
            let note = self.ring[index as usize % NOTES].load(Ordering::SeqCst);
            let (change, noted) = (note >> 32, note as u32);
            if change <= to && noted == word {
                return Some(true);
            }
            if change <= from {
                // Only if it was not overwritten meanwhile.
                let now = self.count.load(Ordering::SeqCst);
                return (now - index < NOTES as u64 - 8).then_some(false);
            }
        }
        None
    }
}

struct Shared {
    notes: Vec<Notes>,
    begun: AtomicU64,
    finished: AtomicU64,
    stop: AtomicBool,
}

/// A candidate prefix of the writer, and its next hop while it is in the table.
struct Candidate<K> {
    prefix: Prefix<K>,
    next_hop: Option<u32>,
}

/// Keys in a few clusters, so that their prefixes nest and branch.
fn probes<K: Key>(numbers: &mut Numbers) -> Vec<K> {
    let bases: Vec<u128> = (0..4).map(|_| numbers.key()).collect();
    let mut probe = |index: usize| {
        let keep = numbers.below(u64::from(K::BITS) + 1) as u32;
        let change = numbers.key::<u128>().checked_shr(keep).unwrap_or(0);
        K::from_left_aligned(bases[index % bases.len()] ^ change)
    };
    (0..PROBES).map(&mut probe).collect()
}

fn write<K: Key>(table: &mut Lpm<K>, probes: &[K], shared: &Shared, numbers: &mut Numbers, until: Instant) -> u64 {
    let mut candidates: Vec<Candidate<K>> = (0..CANDIDATES)
        .map(|_| {
            let key = probes[numbers.below(PROBES as u64) as usize];
            let prefix = Prefix::covering(key, numbers.below(u64::from(K::BITS) + 1) as u8);
            Candidate { prefix, next_hop: None }
        })
        .collect();
    candidates.sort_by_key(|candidate| candidate.prefix);
    candidates.dedup_by_key(|candidate| candidate.prefix);
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.prefix.prefix_len()));
    let mut change = 0;
    while change % 256 != 0 || Instant::now() < until {
        change += 1;
        let pick = numbers.below(candidates.len() as u64) as usize;
        let before = candidates[pick].next_hop;
        let insert = before.is_none() || numbers.below(3) == 0;
        candidates[pick].next_hop = insert.then(|| numbers.below(1 << 24) as u32);
        let Candidate { prefix, next_hop } = candidates[pick];
        for (probe, notes) in probes.iter().zip(&shared.notes).filter(|(probe, _)| prefix.contains(**probe)) {
            let best = candidates.iter().find(|other| other.next_hop.is_some() && other.prefix.contains(*probe));
            let word = best.map_or(layout::NONE, |best| {
                layout::route(best.prefix.prefix_len(), best.next_hop.unwrap_or_default())
            });
            notes.add(change, word);
        }
        shared.begun.store(change, Ordering::SeqCst);
        loop {
            let done = match next_hop {
                Some(hop) => table.insert(Route { prefix, next_hop: NextHop::new(hop).unwrap() }),
                None => table.remove(prefix),
            };
            match done {
                Ok(had) => {
                    assert_eq!(had.map(NextHop::number), before);
                    break;
                }
                // A reader was put to sleep while pinned; the table is as before, so try again.
                Err(LpmError::Full { retired: 1.., .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        shared.finished.store(change, Ordering::SeqCst);
    }
    shared.stop.store(true, Ordering::SeqCst);
    change
}

fn read<K: Key>(mut reader: Reader<K>, probes: &[K], shared: &Shared, numbers: &mut Numbers) -> (u64, u64) {
    let (mut checked, mut unknown) = (0, 0);
    let mut found = vec![None; PROBES];
    while !shared.stop.load(Ordering::Relaxed) {
        let start = numbers.below(PROBES as u64) as usize;
        let length = 1 + numbers.below((PROBES - start) as u64) as usize;
        let from = shared.finished.load(Ordering::SeqCst);
        let pinned = reader.pin();
        if numbers.below(2) == 0 {
            pinned.lookup_batch(&probes[start..start + length], &mut found[..length]);
        } else {
            for (found, probe) in found.iter_mut().zip(&probes[start..start + length]) {
                *found = pinned.lookup(*probe);
            }
        }
        drop(pinned);
        let to = shared.begun.load(Ordering::SeqCst);
        for (index, found) in found[..length].iter().enumerate() {
            let word = found.map_or(layout::NONE, |found| layout::route(found.prefix_len(), found.next_hop().number()));
            match shared.notes[start + index].allow(word, from, to) {
                Some(true) => checked += 1,
                Some(false) => panic!("{word:#x} was never right for {:x?} from {from} to {to}", probes[start + index]),
                None => unknown += 1,
            }
        }
    }
    (checked, unknown)
}

fn torture<K: Key>(seed: u64, time: f64) {
    let mut numbers = Numbers(seed);
    let probes = probes::<K>(&mut numbers);
    let shared = Shared {
        notes: (0..PROBES).map(|_| Notes::new()).collect(),
        begun: AtomicU64::new(0),
        finished: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let mut table = Lpm::<K>::new(&mut Heap, "test", Shape { root_bits: 8, bytes: 96 << 10 }).unwrap();
    let until = Instant::now() + Duration::from_secs_f64(time);
    let (changes, reads) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|index| {
                let (reader, probes, shared) = (table.reader(), &probes, &shared);
                scope.spawn(move || {
                    struct Stop<'a>(&'a AtomicBool);
                    impl Drop for Stop<'_> {
                        fn drop(&mut self) {
                            // A reader that fails ends the test.
                            self.0.store(true, Ordering::SeqCst);
                        }
                    }
                    let _stop = Stop(&shared.stop);
                    read(reader, probes, shared, &mut Numbers(seed + index + 1))
                })
            })
            .collect();
        let changes = write(&mut table, &probes, &shared, &mut numbers, until);
        (changes, readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>())
    });
    let (checked, unknown) = reads.iter().fold((0, 0), |sum, read| (sum.0 + read.0, sum.1 + read.1));
    println!("{} bits: {changes} changes, {checked} answers right, {unknown} not checked", K::BITS);
    assert!(changes > 1000 && checked > 1000 && unknown < checked / 20 + 1000);
}

#[test]
fn answers_under_change_were_right_at_some_moment_ipv4() {
    torture::<u32>(11, seconds() / 2.0);
}

#[test]
fn answers_under_change_were_right_at_some_moment_ipv6() {
    torture::<u128>(12, seconds() / 2.0);
}
