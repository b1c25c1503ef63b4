//! Route lookup: how long does a longest-prefix match take, and what becomes of it with many routes, many
//! threads, and routes that change?
//!
//! Method: that of M. Kubecek, "IPv6 route lookup performance and scaling" (NetDev 1.1, 2016), whose figures
//! are printed beside ours ([`published`]): a table of random routes, a million lookups of pseudorandom
//! addresses in each thread, twelve rounds of which the highest and the lowest are dropped, and the time of a
//! dry run without lookups subtracted. Added here: rounds of all contenders alternate; keys that lie inside
//! routes beside keys from the whole address space; tables like the Internet's beside random ones ([`routes`]);
//! a writer that changes routes meanwhile ([`updates`]); and the running kernel measured from inside
//! ([`kernel`]).
//!
//! Reading order: [`routes`] and [`keys`] say what is looked up, [`contenders`] and [`kernel`] who does it,
//! [`timing`] how it is timed, [`verdict`] what the figures have to be.

pub mod contenders;
pub mod kernel;
pub mod keys;
pub mod published;
pub mod routes;
pub mod timing;
pub mod updates;
pub mod verdict;

use std::time::Instant;

use tombolo_lab::LabError;
use tombolo_tables::lpm::{Lpm, LpmError, Shape};
use tombolo_tables::memory::Heap;

use contenders::{Contender, Libraries};
use kernel::{KernelError, KernelTable};
use keys::{Keys, Numbers};
use routes::{Distribution, Shaped};
use timing::{Summary, Work};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// 4 and 6, or one of them.
    pub families: Vec<u8>,
    /// Kinds of tables.
    pub distributions: Vec<Distribution>,
    /// Kinds of keys.
    pub keys: Vec<KeyKind>,
    /// Routes in the tables, one series after the other.
    pub routes: Vec<usize>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Tables that more than one thread is tried on.
    pub thread_routes: Vec<usize>,
    /// Lookups in each thread in a round.
    pub lookups: usize,
    /// Rounds.
    pub rounds: usize,
    /// Measure the running kernel too (root, Linux 6.3 or later).
    pub kernel: bool,
    /// Measure libraries too.
    pub libraries: bool,
    /// Changes a second of the writer beside one reader; none: no such measurement.
    pub updates: Option<f64>,
}

impl Default for Options {
    /// The slides' method, and on to a million routes.
    fn default() -> Self {
        Self {
            families: vec![4, 6],
            distributions: vec![Distribution::Random],
            keys: vec![KeyKind::Random],
            routes: vec![1, 10, 100, 1_000, 10_000, 100_000, 1_000_000],
            threads: vec![1, 2, 4, 8, 16, 24],
            thread_routes: vec![1, 100_000],
            lookups: 1_000_000,
            rounds: 12,
            kernel: true,
            libraries: true,
            updates: Some(100_000.0),
        }
    }
}

/// Which keys are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// Pseudorandom over the whole address space.
    Random,
    /// Inside the table's routes, 32,768 of them.
    Covered,
}

/// One line of results.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Record {
    /// Who.
    pub contender: &'static str,
    /// 4 or 6.
    pub family: u8,
    /// Kind of table.
    pub distribution: Distribution,
    /// Routes in the table.
    pub routes: usize,
    /// Kind of keys.
    pub keys: KeyKind,
    /// Threads.
    pub threads: usize,
    /// Changes a second that a writer made meanwhile; 0: none.
    pub updates_per_second: f64,
    /// Lookups in each thread in a round.
    pub lookups: usize,
    /// Nanoseconds of processor time a lookup in each thread, the dry run subtracted.
    pub ns: Summary,
    /// Nanoseconds of elapsed time over the lookups of all threads, the dry run not subtracted: median.
    pub total_ns: f64,
    /// Every round's `ns`, in the order in which the contenders alternated.
    pub rounds: Vec<f64>,
    /// What the slides give for Linux 4.4, if they do.
    pub published_ns: Option<f64>,
    /// Seconds to build the table.
    pub build_seconds: f64,
    /// Bytes a route, root, nodes, gaps and the writer's exact routes included; ours only.
    pub bytes_per_route: Option<f64>,
    /// The part of `bytes_per_route` that readers see.
    pub reader_bytes_per_route: Option<f64>,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum RouteLookupError {
    /// Our table refused.
    #[error("the table under test refused a route")]
    Table(#[from] LpmError),
    /// The kernel's side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A thread could not enter its namespace.
    #[error("a thread could not enter its network namespace")]
    Lab(#[from] LabError),
    /// Two contenders answered differently.
    #[error("{contender} and {other} answer differently for IPv{family} with {routes} routes")]
    Disagreement {
        /// One.
        contender: &'static str,
        /// The other.
        other: &'static str,
        /// 4 or 6.
        family: u8,
        /// Routes in the table.
        routes: usize,
    },
}

/// Seed of tables and keys; the keys' must not be zero.
const SEED: u64 = 88_172_645_463_325_252;

/// Measures, and hands over each line as soon as it is there.
///
/// # Errors
/// [`RouteLookupError`].
pub fn run(options: &Options, mut report: impl FnMut(&Record)) -> Result<Vec<Record>, RouteLookupError> {
    let mut records = Vec::new();
    for &distribution in &options.distributions {
        for &routes in &options.routes {
            for family in &options.families {
                let case = Case { options, distribution, routes };
                let new = if *family == 4 { case.run::<u32>()? } else { case.run::<u128>()? };
                new.iter().for_each(&mut report);
                records.extend(new);
            }
        }
    }
    Ok(records)
}

/// One table of one family.
struct Case<'a> {
    options: &'a Options,
    distribution: Distribution,
    routes: usize,
}

impl Case<'_> {
    fn run<K: Shaped + Libraries>(&self) -> Result<Vec<Record>, RouteLookupError> {
        let routes = routes::routes::<K>(self.distribution, self.routes, SEED);
        let covered = keys::covered(&routes, &mut Numbers(SEED));
        let begin = Instant::now();
        let mut table = Lpm::build(&mut Heap, "bench", Shape::for_routes::<K>(self.routes), &routes)?;
        let build_seconds = begin.elapsed().as_secs_f64();
        let memory = table.memory();

        let mut contenders = vec![contenders::dry(), contenders::tombolo(&table), contenders::tombolo_batched(&table)];
        contenders.iter_mut().for_each(|contender| contender.build_seconds = build_seconds);
        if self.options.libraries {
            contenders.extend(K::libraries(&routes));
        }
        self.compare(&contenders, &covered)?;
        let kernel = if self.options.kernel { Some(KernelTable::new(&routes, &covered)?) } else { None };
        contenders.extend(kernel.iter().flat_map(KernelTable::contenders));

        let mut records = Vec::new();
        for &kind in &self.options.keys {
            let keys = match kind {
                KeyKind::Random => Keys::Random(SEED),
                KeyKind::Covered => Keys::Covered(&covered),
            };
            for &threads in &self.options.threads {
                if threads == 1 || self.options.thread_routes.contains(&self.routes) {
                    let work = Work { keys, threads, lookups: self.options.lookups };
                    records.extend(self.rounds(&contenders, work, kind)?);
                }
            }
            if let Some(updates) = self.options.updates
                && self.options.thread_routes.contains(&self.routes)
            {
                let work = Work { keys, threads: 1, lookups: self.options.lookups };
                records.extend(self.updated(&mut table, &contenders[..3], work, kind, updates)?);
            }
        }
        let touched = |bytes: usize| Some(bytes as f64 / self.routes as f64);
        for record in records.iter_mut().filter(|record| record.contender.starts_with("tombolo")) {
            record.bytes_per_route = touched(memory.touched());
            record.reader_bytes_per_route = touched(memory.touched() - memory.exact);
        }
        Ok(records)
    }

    /// All in user space must find the same.
    fn compare<K: Shaped>(&self, contenders: &[Contender<'_, K>], covered: &[K]) -> Result<(), RouteLookupError> {
        for keys in [Keys::Random(SEED), Keys::Covered(covered)] {
            let sums: Vec<u64> =
                contenders[1..].iter().map(|contender| (contender.worker())(keys, covered.len())).collect();
            if let Some(place) = sums.iter().position(|sum| *sum != sums[0]) {
                return Err(RouteLookupError::Disagreement {
                    contender: contenders[1].name,
                    other: contenders[place + 1].name,
                    family: K::FAMILY,
                    routes: self.routes,
                });
            }
        }
        Ok(())
    }

    /// Alternating rounds of all contenders, one record each.
    fn rounds<K: Shaped>(
        &self,
        contenders: &[Contender<'_, K>],
        work: Work<'_, K>,
        kind: KeyKind,
    ) -> Result<Vec<Record>, RouteLookupError> {
        let mut samples = vec![Vec::with_capacity(self.options.rounds); contenders.len()];
        for _ in 0..self.options.rounds {
            for (contender, samples) in contenders.iter().zip(&mut samples) {
                samples.push(timing::measure(contender, work)?);
            }
        }
        Ok(self.records(contenders, &samples, work, kind, 0.0))
    }

    /// A record of each contender but the dry runs.
    fn records<K: Shaped>(
        &self,
        contenders: &[Contender<'_, K>],
        samples: &[Vec<timing::Sample>],
        work: Work<'_, K>,
        kind: KeyKind,
        updates_per_second: f64,
    ) -> Vec<Record> {
        let dry = |name: &str| contenders.iter().position(|contender| contender.name == name);
        let mut records = Vec::new();
        for (contender, own) in contenders.iter().zip(samples) {
            let dry_name = if contender.namespace.is_some() { "kernel dry" } else { "dry" };
            if contender.name == dry_name {
                continue;
            }
            let empty = dry(dry_name).map_or(0.0, |place| timing::summarize(&thread_ns(&samples[place])).median);
            let rounds: Vec<f64> = thread_ns(own).iter().map(|ns| ns - empty).collect();
            let mut total: Vec<f64> = own.iter().map(|sample| sample.total_ns).collect();
            total.sort_by(f64::total_cmp);
            records.push(Record {
                contender: contender.name,
                family: K::FAMILY,
                distribution: self.distribution,
                routes: self.routes,
                keys: kind,
                threads: work.threads,
                updates_per_second,
                lookups: work.lookups,
                ns: timing::summarize(&rounds),
                total_ns: timing::median_of_sorted(&total),
                rounds,
                published_ns: published::published(K::FAMILY, self.routes, work.threads),
                build_seconds: contender.build_seconds,
                bytes_per_route: None,
                reader_bytes_per_route: None,
            });
        }
        records
    }

    /// One reader, in turn alone and beside a writer; rounds alternate, so that both see the same machine.
    fn updated<K: Shaped>(
        &self,
        table: &mut Lpm<K>,
        contenders: &[Contender<'_, K>],
        work: Work<'_, K>,
        kind: KeyKind,
        updates: f64,
    ) -> Result<Vec<Record>, RouteLookupError> {
        let mut samples = [vec![Vec::new(); contenders.len()], vec![Vec::new(); contenders.len()]];
        let mut rates = Vec::new();
        let round = |samples: &mut [Vec<timing::Sample>]| {
            contenders.iter().zip(samples).try_for_each(|(contender, samples)| {
                samples.push(timing::measure(contender, work)?);
                Ok::<_, LabError>(())
            })
        };
        for _ in 0..self.options.rounds {
            round(&mut samples[0])?;
            let (outcome, rate) = updates::with_updates(table, self.distribution, updates, || round(&mut samples[1]))?;
            outcome?;
            rates.push(rate);
        }
        rates.sort_by(f64::total_cmp);
        let mut records = self.records(contenders, &samples[0], work, kind, 0.0);
        records.extend(self.records(contenders, &samples[1], work, kind, timing::median_of_sorted(&rates)));
        Ok(records)
    }
}

fn thread_ns(samples: &[timing::Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.thread_ns).collect()
}
