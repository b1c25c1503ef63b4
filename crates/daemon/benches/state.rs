//! State at scale: sessions made, found, missed, swept and torn down, by how many there are and by how many threads.
//!
//! `cargo bench -p tombolo-daemon --bench state -- [MILLIONS ...]` (default 1 10; 100 takes 2.2 GB). Ids are
//! `state/operation/sessions/threads`; rates are sessions a second over all threads. For comparison the same keys in
//! `hashbrown` (one thread) and `DashMap`, at 1 and 10 million.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a benchmark")]

use std::hint::black_box;
use std::time::Instant;

use tombolo_io::memory::AnonymousMemory;
use tombolo_tables::binding::BindingId;
use tombolo_tables::hash::HashKey;
use tombolo_tables::session::{Inserted, Lifetimes, SessionKey, Sessions, State, Sweep};
use tombolo_tables::tick::Tick;

const UDP: State = State(1);
const FOREVER: Lifetimes = Lifetimes([u32::MAX; 16]);
/// Packets that a worker takes at once.
const BATCH: u64 = 64;
/// Sessions that each binding has: 4,000 inside ports and 1,000 remote ports a subscriber, as in the published tests.
const REMOTES: u64 = 1_000;

/// Session number `n`, as traffic would make it.
fn key(n: u64) -> SessionKey {
    let remote = n % REMOTES;
    SessionKey {
        binding: BindingId::new((n / REMOTES) as u32 + 1).unwrap(),
        remote_ipv4: [198, 18, (remote >> 10) as u8, 1],
        remote_port: ((remote as u16) + 1024).to_be_bytes(),
    }
}

/// A permutation of the numbers below `count`, so that every session comes once, in no order that memory likes.
#[derive(Clone, Copy)]
struct Shuffle {
    count: u64,
    bits: u32,
}

impl Shuffle {
    fn new(count: u64) -> Self {
        Self { count, bits: (64 - (count - 1).leading_zeros()).next_multiple_of(2) }
    }

    fn at(self, mut n: u64) -> u64 {
        let (half, mask) = (self.bits / 2, (1 << (self.bits / 2)) - 1);
        loop {
            let (mut left, mut right) = (n >> half, n & mask);
            for round in 1..=4_u64 {
                let mixed = (right ^ (round << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                (left, right) = (right, left ^ (mixed & mask));
            }
            n = left << half | right;
            if n < self.count {
                return n;
            }
        }
    }
}

/// Runs `work` on `threads` threads, each with its share of the numbers below `count`; the rate over all.
fn rate(threads: u64, count: u64, work: impl Fn(u64, u64) + Sync) -> f64 {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(count * thread / threads, count * (thread + 1) / threads));
        }
    });
    count as f64 / begin.elapsed().as_secs_f64()
}

/// Calls `each` with the keys of a range in batches whose lines were asked for ahead.
fn batches(
    sessions: &Sessions,
    key: impl Fn(u64) -> SessionKey,
    from: u64,
    to: u64,
    mut each: impl FnMut(&SessionKey),
) {
    let mut keys = Vec::with_capacity(BATCH as usize);
    let mut next = from;
    while next < to {
        keys.clear();
        keys.extend((next..to.min(next + BATCH)).map(&key));
        next += BATCH;
        for key in &keys {
            sessions.prefetch(key);
        }
        keys.iter().for_each(&mut each);
    }
}

fn report(id: &str, millions: u64, threads: u64, rate: f64) {
    println!("state/{id}/{millions}M/{threads}: {:8.2} M/s {:7.1} ns each", rate / 1e6, 1e9 * threads as f64 / rate);
}

fn ours(millions: u64, threads: u64) {
    let count = millions * 1_000_000;
    let shuffle = Shuffle::new(count);
    let present = |n| key(shuffle.at(n));
    let absent = |n| SessionKey { remote_ipv4: [203, 0, 113, 1], ..present(n) };
    let sessions = Sessions::new(&mut AnonymousMemory, count, HashKey::new([3, 5, 7, 9])).unwrap();
    // The kernel hands out zeroed pages on first touch; that is start-up, not insertion.
    sessions.clear();
    let insert = rate(threads, count, |from, to| {
        batches(&sessions, present, from, to, |key| {
            assert!(matches!(sessions.insert(key, UDP, 0, &FOREVER, Tick(1)), Inserted::New(_)));
        });
    });
    report("insert", millions, threads, insert);
    let hits = count.min(20_000_000);
    let hit = rate(threads, hits, |from, to| {
        batches(&sessions, present, from, to, |key| sessions.find(key).unwrap().refresh(Tick(2)));
    });
    report("hit", millions, threads, hit);
    let one = rate(threads, hits, |from, to| {
        for n in from..to {
            sessions.find(&present(n)).unwrap().refresh(Tick(2));
        }
    });
    report("hit-one-by-one", millions, threads, one);
    let miss = rate(threads, hits, |from, to| {
        batches(&sessions, absent, from, to, |key| assert!(sessions.find(black_box(key)).is_none()));
    });
    report("miss", millions, threads, miss);
    if threads == 1 {
        let mut marks = vec![0_u64; (count / REMOTES / 64 + 2) as usize];
        let begin = Instant::now();
        let mut kept = 0_u64;
        sessions.sweep(0, sessions.lines(), |session| {
            let id = session.key.binding.get();
            marks[(id / 64) as usize] |= 1 << (id % 64);
            kept += 1;
            Sweep::Keep
        });
        assert_eq!(kept, count);
        report("sweep", millions, threads, count as f64 / begin.elapsed().as_secs_f64());
        println!(
            "state/bytes/{millions}M: {:.2} a session, {} in overflow",
            sessions.bytes() as f64 / count as f64,
            sessions.overflowed()
        );
        let begin = Instant::now();
        sessions.clear();
        report("tear-down", millions, threads, count as f64 / begin.elapsed().as_secs_f64());
    }
}

fn theirs(millions: u64) {
    let count = millions * 1_000_000;
    let shuffle = Shuffle::new(count);
    let mut map = hashbrown::HashMap::new();
    report("hashbrown-insert", millions, 1, {
        let begin = Instant::now();
        for n in 0..count {
            map.insert(key(shuffle.at(n)), (UDP, 1_u32));
        }
        count as f64 / begin.elapsed().as_secs_f64()
    });
    let hit = rate(1, count, |from, to| (from..to).for_each(|n| assert!(map.contains_key(&key(shuffle.at(n))))));
    report("hashbrown-hit", millions, 1, hit);
    drop(map);
    let map = dashmap::DashMap::new();
    for threads in [1, 2] {
        map.clear();
        let insert = rate(threads, count, |from, to| {
            (from..to).for_each(|n| assert!(map.insert(key(shuffle.at(n)), (UDP, 1_u32)).is_none()));
        });
        report("dashmap-insert", millions, threads, insert);
        let hit =
            rate(threads, count, |from, to| (from..to).for_each(|n| assert!(map.contains_key(&key(shuffle.at(n))))));
        report("dashmap-hit", millions, threads, hit);
    }
}

fn main() {
    let mut sizes: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1, 10];
    }
    for millions in sizes {
        for threads in [1, 2] {
            ours(millions, threads);
        }
        if millions <= 10 {
            theirs(millions);
        }
    }
}
