//! What a second thread brings, beside what it could bring at most on this machine.
//!
//! A shared virtual machine has no two processors that are always whole, and memory that other
//! guests use too, so two threads without anything in common may be slower than twice one. Each
//! round therefore does the same three times, with one thread and with two, right after one
//! another: arithmetic alone; the same lines of the same memory written by the plainest means; our
//! table. The last beside the second is what the table costs.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_io::memory::AnonymousMemory;
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::Slab;
use tombolo_tables::session::{Inserted, SessionKey, Sessions};
use tombolo_tables::tick::Tick;

use crate::keys::{BATCH, FOREVER, Shuffle, UDP, batches, key, rate};

/// How often the table is filled, and in how many steps, each of which is a round.
const FILLS: u64 = 8;
const STEPS: u64 = 5;
/// A round counts as one on two whole processors if arithmetic gains so much.
const WHOLE: f64 = 1.9;
const KEY: HashKey = HashKey::new([3, 5, 7, 9]);
/// Words in a cache line.
const LINE: usize = 8;

/// Rates of two threads over those of one, a round each.
struct Ratios {
    id: &'static str,
    rounds: Vec<f64>,
}

impl Ratios {
    fn new(id: &'static str) -> Self {
        Self { id, rounds: Vec::new() }
    }

    /// The first half of the numbers by one thread, the second by two; in odd rounds the other way
    /// round.
    fn measure(&mut self, numbers: &Range<u64>, work: impl Fn(u64, u64) + Sync) {
        let middle = u64::midpoint(numbers.start, numbers.end);
        let two_first = self.rounds.len() % 2;
        let halves = [numbers.start..middle, middle..numbers.end];
        let threads = [[1, 2], [2, 1]][two_first];
        let rates = [0, 1].map(|half| rate(threads[half], halves[half].clone(), &work));
        self.rounds.push(rates[1 - two_first] / rates[two_first]);
    }

    fn median(&self, is_wanted: impl Fn(usize) -> bool) -> f64 {
        let mut sorted: Vec<f64> = (0..self.rounds.len()).filter(|n| is_wanted(*n)).map(|n| self.rounds[n]).collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// What an insertion does to memory and nothing else: two lines are asked for, both are read, a
/// word is claimed in one of them, another one written.
fn plain_writes(lines: &Slab<AtomicU64>, present: impl Fn(u64) -> SessionKey, from: u64, to: u64) {
    let count = u32::try_from(lines.len() / LINE).unwrap();
    let mut places = Vec::with_capacity(BATCH as usize);
    let mut next = from;
    while next < to {
        places.clear();
        places.extend((next..to.min(next + BATCH)).map(|n| {
            let key = present(n);
            let word = u64::from(key.binding.get()) << 32 | u64::from(u16::from_ne_bytes(key.remote_port)) << 16;
            KEY.hash([word, u64::from(u32::from_ne_bytes(key.remote_ipv4)), 0]).buckets(count)
        }));
        next += BATCH;
        for place in places.iter().flatten() {
            lines.prefetch(*place as usize * LINE);
        }
        for (n, [first, second]) in places.iter().enumerate() {
            let slot = n % 4 * 2;
            let (first, second) = (*first as usize * LINE + slot, *second as usize * LINE + slot);
            let current = lines[first].load(Ordering::Relaxed);
            black_box(lines[second].load(Ordering::Relaxed));
            let _ = lines[first].compare_exchange(current, current ^ 1, Ordering::SeqCst, Ordering::Relaxed);
            lines[first + 1].store(next, Ordering::Relaxed);
        }
    }
}

pub(crate) fn run(millions: u64) {
    let count = millions * 1_000_000;
    let shuffle = Shuffle::new(count);
    let present = |n| key(shuffle.at(n));
    let sessions = Sessions::new(&mut AnonymousMemory, count, KEY).unwrap();
    let lines: Slab<AtomicU64> = Slab::take(&mut AnonymousMemory, "lines", sessions.main_lines() * LINE).unwrap();
    sessions.clear();
    lines.iter().for_each(|word| word.store(1, Ordering::Relaxed));

    let insert = |from, to| {
        batches(&sessions, present, from, to, |key| {
            assert!(matches!(sessions.insert(key, UDP, 0, &FOREVER, Tick(1)), Inserted::New(_)));
        });
    };
    let hit = |from, to| batches(&sessions, present, from, to, |key| sessions.find(key).unwrap().refresh(Tick(1)));
    let arithmetic = |from, to| (from..to).for_each(|n| _ = black_box(present(n)));
    let ids = ["arithmetic", "plain-writes", "insert", "hit"];
    let mut all = ids.map(Ratios::new);
    for _ in 0..FILLS {
        sessions.clear();
        for step in 0..STEPS {
            let numbers = count * step / STEPS..count * (step + 1) / STEPS;
            let [first, second, third, fourth] = &mut all;
            first.measure(&numbers, arithmetic);
            second.measure(&numbers, |from, to| plain_writes(&lines, present, from, to));
            third.measure(&numbers, insert);
            fourth.measure(&numbers, hit);
        }
    }
    let whole: Vec<bool> = all[0].rounds.iter().map(|ratio| *ratio >= WHOLE).collect();
    let (rounds, count) = (whole.len(), whole.iter().filter(|whole| **whole).count());
    println!("state/two-threads/{millions}M: {rounds} rounds, {count} of them with two whole processors");
    for ratios in &all {
        let (median, of_whole) = (ratios.median(|_| true), ratios.median(|n| whole[n]));
        println!("state/two-threads/{}/{millions}M: {median:.2}, with two whole processors {of_whole:.2}", ratios.id);
    }
}
