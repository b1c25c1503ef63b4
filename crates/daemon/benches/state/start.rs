//! What pages cost that are made when they are first written to, and what it takes to make them all
//! at the start.

use std::time::Instant;

use tombolo_io::memory::{AnonymousMemory, Populated, RunDirectory};
use tombolo_tables::hash::HashKey;
use tombolo_tables::memory::MemorySource;
use tombolo_tables::session::{Inserted, Sessions};
use tombolo_tables::tick::Tick;

use crate::keys::{FOREVER, Shuffle, UDP, batches, key, rate};

const NAMES: [&str; 4] = ["as-needed", "at-start", "directory-as-needed", "directory-at-start"];

/// Seconds to make the table, and sessions a second that fill it.
fn fill(source: &mut dyn MemorySource, threads: u64, count: u64) -> [f64; 2] {
    let begin = Instant::now();
    let sessions = Sessions::new(source, count, HashKey::new([3, 5, 7, 9])).unwrap();
    let made = begin.elapsed().as_secs_f64();
    let shuffle = Shuffle::new(count);
    let filled = rate(threads, 0..count, |from, to| {
        batches(
            &sessions,
            |n| key(shuffle.at(n)),
            from,
            to,
            |key| {
                assert!(matches!(sessions.insert(key, UDP, 0, &FOREVER, Tick(1)), Inserted::New(_)));
            },
        );
    });
    [made, filled]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn run(millions: u64) {
    let count = millions * 1_000_000;
    let mut results = [const { Vec::new() }; 8];
    let rounds = if millions > 10 { 1 } else { 7 };
    for _ in 0..rounds {
        for (n, results) in results.iter_mut().enumerate() {
            let threads = n as u64 % 2 + 1;
            let home = tempfile::tempdir_in("/dev/shm").unwrap();
            let mut directory = RunDirectory::open(home.path(), "bench").unwrap();
            results.push(match n / 2 {
                0 => fill(&mut AnonymousMemory, threads, count),
                1 => fill(&mut Populated::new(&mut AnonymousMemory, threads as usize), threads, count),
                2 => fill(&mut directory, threads, count),
                _ => fill(&mut Populated::new(&mut directory, threads as usize), threads, count),
            });
        }
    }
    for (memory, both) in NAMES.into_iter().zip(results.chunks(2)) {
        let ratio = median(both[0].iter().zip(&both[1]).map(|(one, two)| two[1] / one[1]).collect());
        println!("state/start/{memory}/{millions}M: two threads fill it {ratio:.2} times as fast as one");
    }
    for (n, results) in results.into_iter().enumerate() {
        let (memory, threads) = (NAMES[n / 2], n % 2 + 1);
        let [made, filled] = [0, 1].map(|field| median(results.iter().map(|result| result[field]).collect()));
        println!(
            "state/start/{memory}/{millions}M/{threads}: made in {:.3} s, filled at {:.2} M/s",
            made,
            filled / 1e6
        );
    }
}
