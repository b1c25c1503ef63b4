//! State at scale: sessions made, found, missed, swept and torn down, by how many there are and by
//! how many threads.
//!
//! `cargo bench -p tombolo-daemon --bench state -- [MILLIONS ...]` (default 1 10; 100 takes 2.2
//! GB). Ids are `state/operation/sessions/threads`; rates are sessions a second over all threads.
//! For comparison the same keys in `hashbrown` (one thread) and `DashMap`, at 1 and 10 million.
//! With the word `scaling` or `start` before the numbers, what [`scaling`] or [`start`] measures
//! instead. `--results FILE` writes lines that `tombolo report --bars` reads.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a benchmark")]

use std::hint::black_box;
use std::time::Instant;

mod footprint;
mod keys;
mod scaling;
mod start;

use keys::{FOREVER, REMOTES, Shuffle, UDP, batches, key, rate};
use tombolo_io::memory::AnonymousMemory;
use tombolo_tables::hash::HashKey;
use tombolo_tables::session::{Inserted, SessionKey, Sessions, Sweep};
use tombolo_tables::tick::Tick;
use tombolo_tester::figures::Figures;

fn report(id: &str, millions: u64, threads: u64, rate: f64) {
    println!("state/{id}/{millions}M/{threads}: {:8.2} M/s {:7.1} ns each", rate / 1e6, 1e9 * threads as f64 / rate);
}

fn ours(millions: u64, threads: u64, figures: &mut Figures) {
    let count = millions * 1_000_000;
    let shuffle = Shuffle::new(count);
    let present = |n| key(shuffle.at(n));
    let absent = |n| SessionKey { remote_ipv4: [203, 0, 113, 1], ..present(n) };
    let sessions = Sessions::new(&mut AnonymousMemory, count, HashKey::new([3, 5, 7, 9])).unwrap();
    // The kernel hands out zeroed pages on first touch; that is start-up, not insertion.
    sessions.clear();
    let insert = rate(threads, 0..count, |from, to| {
        batches(&sessions, present, from, to, |key| {
            assert!(matches!(sessions.insert(key, UDP, 0, &FOREVER, Tick(1)), Inserted::New(_)));
        });
    });
    report("insert", millions, threads, insert);
    let hits = count.min(20_000_000);
    let hit = rate(threads, 0..hits, |from, to| {
        batches(&sessions, present, from, to, |key| sessions.find(key).unwrap().refresh(Tick(2)));
    });
    report("hit", millions, threads, hit);
    let one = rate(threads, 0..hits, |from, to| {
        for n in from..to {
            sessions.find(&present(n)).unwrap().refresh(Tick(2));
        }
    });
    report("hit-one-by-one", millions, threads, one);
    let miss = rate(threads, 0..hits, |from, to| {
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
        let bytes = sessions.bytes() as f64 / count as f64;
        println!("state/bytes/{millions}M: {bytes:.2} a session, {} in overflow", sessions.overflowed());
        footprint::write(figures, "bytes of a session in the table", millions, bytes);
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
    let hit = rate(1, 0..count, |from, to| (from..to).for_each(|n| assert!(map.contains_key(&key(shuffle.at(n))))));
    report("hashbrown-hit", millions, 1, hit);
    drop(map);
    let map = dashmap::DashMap::new();
    for threads in [1, 2] {
        map.clear();
        let insert = rate(threads, 0..count, |from, to| {
            (from..to).for_each(|n| assert!(map.insert(key(shuffle.at(n)), (UDP, 1_u32)).is_none()));
        });
        report("dashmap-insert", millions, threads, insert);
        let hit =
            rate(threads, 0..count, |from, to| (from..to).for_each(|n| assert!(map.contains_key(&key(shuffle.at(n))))));
        report("dashmap-hit", millions, threads, hit);
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut figures = Figures::asked_for(&mut arguments, "state at scale", "tables in memory, full").unwrap();
    let mut sizes: Vec<u64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let only = |name: &str| arguments.iter().any(|argument| argument == name);
    if only("scaling") || only("start") {
        for millions in sizes {
            if only("scaling") {
                scaling::run(millions);
            }
            if only("start") {
                start::run(millions);
            }
        }
        return;
    }
    if sizes.is_empty() {
        sizes = vec![1, 10];
    }
    for millions in sizes {
        for threads in [1, 2] {
            ours(millions, threads, &mut figures);
        }
        footprint::run(millions, &mut figures);
        if millions <= 10 {
            theirs(millions);
        }
    }
}
