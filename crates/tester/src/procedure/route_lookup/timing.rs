//! One measurement: the same number of lookups in every thread, started together.
//!
//! Time is the processor time of each thread, which on an idle machine is the elapsed time of the
//! slides, and on a shared one leaves out what other programs took. Rounds of all contenders
//! alternate, because on virtual machines speed drifts by a factor of two within minutes; as on the
//! slides, the highest and the lowest round are dropped and a dry run is subtracted.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tombolo_lab::{LabError, Namespace};

use super::contenders::{Contender, Worker};
use super::keys::{Drawn, Keys};

/// What is looked up, by how many threads.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a, K> {
    /// Each thread's keys; a random seed is changed for each thread.
    pub keys: Keys<'a, K>,
    /// Threads.
    pub threads: usize,
    /// Lookups in each thread.
    pub lookups: usize,
}

/// Times of one round, in nanoseconds a lookup.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Sample {
    /// Processor time in each thread, the mean of the threads.
    pub thread_ns: f64,
    /// Elapsed time over the lookups of all threads.
    pub total_ns: f64,
}

/// The processors that this process may use.
#[must_use]
pub fn processors() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let listed: Vec<usize> = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect();
    if listed.is_empty() { vec![0] } else { listed }
}

/// Puts the calling thread on the `index`th processor, counted from the last, around and around.
pub fn pin(processors: &[usize], index: usize) {
    let mut set = CpuSet::new();
    let place = processors.len() - 1 - index % processors.len();
    if set.set(processors[place]).is_ok() {
        // Refused in some containers; the figures are then of unpinned threads.
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Runs one round of a contender.
///
/// # Errors
/// When a thread cannot enter the contender's network namespace.
pub fn measure<K: Drawn>(contender: &Contender<'_, K>, work: Work<'_, K>) -> Result<Sample, LabError> {
    let processors = processors();
    let barrier = Barrier::new(work.threads);
    let times: Vec<Result<(Duration, Instant, Instant), LabError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..work.threads)
            .map(|index| {
                let (barrier, processors) = (&barrier, &processors);
                let keys = match work.keys {
                    Keys::Random(seed) => Keys::Random(seed.wrapping_mul(2 * index as u64 + 1)),
                    covered => covered,
                };
                let body = move || {
                    pin(processors, index);
                    timed(contender.worker(), keys, work.lookups, barrier)
                };
                scope.spawn(move || inside(contender.namespace.as_ref(), body))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let times = times.into_iter().collect::<Result<Vec<_>, _>>()?;
    let lookups = (work.lookups * work.threads) as f64;
    let used: Duration = times.iter().map(|(used, _, _)| *used).sum();
    let begin = times.iter().map(|(_, begin, _)| *begin).min();
    let end = times.iter().map(|(_, _, end)| *end).max();
    let elapsed = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    Ok(Sample { thread_ns: used.as_secs_f64() * 1e9 / lookups, total_ns: elapsed.as_secs_f64() * 1e9 / lookups })
}

fn inside<T: Send>(namespace: Option<&Namespace>, body: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    match namespace {
        Some(namespace) => namespace.run(body),
        None => Ok(body()),
    }
}

fn timed<K: Drawn>(
    mut worker: Worker<'_, K>,
    keys: Keys<'_, K>,
    lookups: usize,
    barrier: &Barrier,
) -> (Duration, Instant, Instant) {
    // The contenders before this one emptied the caches: as many lookups as will be timed fill them
    // again.
    std::hint::black_box(worker(keys, lookups));
    barrier.wait();
    let (begin, used) = (Instant::now(), thread_time());
    std::hint::black_box(worker(keys, lookups));
    (thread_time() - used, begin, Instant::now())
}

/// The rounds of one contender, summed up.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Median of the rounds.
    pub median: f64,
    /// Mean without the highest and the lowest round.
    pub mean: f64,
    /// Mean deviation from that mean.
    pub deviation: f64,
}

/// Sums up rounds (at least one).
#[must_use]
pub fn summarize(rounds: &[f64]) -> Summary {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted);
    let inner = if sorted.len() > 2 { &sorted[1..sorted.len() - 1] } else { &sorted[..] };
    let mean = inner.iter().sum::<f64>() / inner.len().max(1) as f64;
    let deviation = inner.iter().map(|round| (round - mean).abs()).sum::<f64>() / inner.len().max(1) as f64;
    Summary { median, mean, deviation }
}

/// The middle value, or the mean of the two middle ones; zero of none.
#[must_use]
pub fn median_of_sorted(sorted: &[f64]) -> f64 {
    match sorted {
        [] => 0.0,
        sorted => (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_are_dropped_from_the_mean_and_not_from_the_median() {
        let summary = summarize(&[100.0, 1.0, 2.0, 4.0, 0.0]);
        assert_eq!(summary.median, 2.0);
        assert!((summary.mean - 7.0 / 3.0).abs() < 1e-9);
        assert!((summary.deviation - 10.0 / 9.0).abs() < 1e-9);
    }

    #[test]
    fn one_round_is_its_own_mean() {
        assert_eq!(summarize(&[3.0]), Summary { median: 3.0, mean: 3.0, deviation: 0.0 });
    }
}
