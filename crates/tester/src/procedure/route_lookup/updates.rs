//! A writer beside the readers: routes come and go at a steady pace.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tombolo_tables::lpm::{Lpm, LpmError};

use super::keys::Numbers;
use super::routes::{Distribution, Shaped, routes};
use super::timing::{pin, processors};

/// Changes between two looks at the clock.
const BURST: u32 = 100;

/// Counts the writer's changes.
#[derive(Debug, Default)]
pub struct Pace {
    stop: AtomicBool,
    changes: AtomicU64,
}

/// Changes the table at `per_second` until `while_running` returns; its result, and the changes a
/// second that were made.
///
/// # Errors
/// [`LpmError`] when the table is too small.
pub fn with_updates<K: Shaped, T>(
    table: &mut Lpm<K>,
    distribution: Distribution,
    per_second: f64,
    while_running: impl FnOnce() -> T,
) -> Result<(T, f64), LpmError> {
    let pace = Pace::default();
    let changing = routes::<K>(distribution, 20_000, 99);
    let changing: Vec<_> = changing.into_iter().filter(|route| table.find(route.prefix).is_none()).collect();
    let begin = Instant::now();
    let (result, rate, outcome) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // The readers count processors from the last: the writer takes the one before it.
            pin(&processors(), 1);
            let mut numbers = Numbers(5);
            let mut present = vec![false; changing.len()];
            let mut outcome = Ok(());
            while !pace.stop.load(Ordering::Relaxed) && outcome.is_ok() {
                for _ in 0..BURST {
                    let pick = numbers.index(changing.len());
                    present[pick] = !present[pick];
                    let route = changing[pick];
                    outcome = if present[pick] { table.insert(route) } else { table.remove(route.prefix) }.map(|_| ());
                }
                let changes = pace.changes.fetch_add(u64::from(BURST), Ordering::Relaxed) + u64::from(BURST);
                let due = Duration::from_secs_f64(changes as f64 / per_second);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
            for (route, _) in changing.iter().zip(&present).filter(|(_, present)| **present) {
                outcome = outcome.and(table.remove(route.prefix).map(|_| ()));
            }
            outcome
        });
        let result = while_running();
        let rate = pace.changes.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
        pace.stop.store(true, Ordering::Relaxed);
        let outcome = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, rate, outcome)
    });
    outcome.map(|()| (result, rate))
}
