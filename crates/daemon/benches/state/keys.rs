//! Keys as traffic would make them, in an order that memory does not like, by batches and by
//! threads.

use std::ops::Range;
use std::sync::Barrier;
use std::time::Instant;

use tombolo_tables::binding::BindingId;
use tombolo_tables::session::{Lifetimes, SessionKey, Sessions, State};

pub(crate) const UDP: State = State(1);
pub(crate) const FOREVER: Lifetimes = Lifetimes([u32::MAX; 16]);
/// Packets that a worker takes at once.
pub(crate) const BATCH: u64 = 64;
/// Sessions that each binding has: 4,000 inside ports and 1,000 remote ports a subscriber, as in
/// the published tests.
pub(crate) const REMOTES: u64 = 1_000;

/// Session number `n`, as traffic would make it.
pub(crate) fn key(n: u64) -> SessionKey {
    let remote = n % REMOTES;
    SessionKey {
        binding: BindingId::new((n / REMOTES) as u32 + 1).unwrap(),
        remote_ipv4: [198, 18, (remote >> 10) as u8, 1],
        remote_port: ((remote as u16) + 1024).to_be_bytes(),
    }
}

/// A permutation of the numbers below `count`, so that every session comes once, in no order that
/// memory likes.
#[derive(Clone, Copy)]
pub(crate) struct Shuffle {
    pub(crate) count: u64,
    bits: u32,
}

impl Shuffle {
    pub(crate) fn new(count: u64) -> Self {
        Self { count, bits: (64 - (count - 1).leading_zeros()).next_multiple_of(2) }
    }

    pub(crate) fn at(self, mut n: u64) -> u64 {
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

/// Runs `work` on `threads` threads, each on a processor of its own and with its share of the
/// numbers; the rate over all, from the moment when all are there to the end of the last.
pub(crate) fn rate(threads: u64, numbers: Range<u64>, work: impl Fn(u64, u64) + Sync) -> f64 {
    let (first, count) = (numbers.start, numbers.end - numbers.start);
    let processors = tombolo_io::worker::processors().unwrap();
    let all_there = Barrier::new(threads as usize);
    let times: Vec<_> = std::thread::scope(|scope| {
        let start = |thread: u64| {
            let (work, all_there, processors) = (&work, &all_there, &processors);
            scope.spawn(move || {
                let _ = tombolo_io::worker::stay_on(processors[thread as usize % processors.len()]);
                all_there.wait();
                let begin = Instant::now();
                work(first + count * thread / threads, first + count * (thread + 1) / threads);
                (begin, Instant::now())
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let begin = times.iter().map(|(begin, _)| *begin).min().unwrap();
    let end = times.iter().map(|(_, end)| *end).max().unwrap();
    count as f64 / (end - begin).as_secs_f64()
}

/// Calls `each` with the keys of a range in batches whose lines were asked for ahead.
pub(crate) fn batches(
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
