//! Route lookup: how long does a longest-prefix match take, and what becomes of it with many
//! routes, many threads, and routes that change?
//!
//! Method: that of M. Kubecek, "IPv6 route lookup performance and scaling" (NetDev 1.1, 2016),
//! whose figures are printed beside ours ([`published`]): a table of random routes, a million
//! lookups of pseudorandom addresses in each thread, twelve rounds of which the highest and the
//! lowest are dropped, and the time of a dry run without lookups subtracted. Added here: rounds of
//! all contenders alternate; keys that lie inside routes beside keys from the whole address space;
//! tables like the Internet's beside random ones ([`routes`]); a writer that changes routes
//! meanwhile ([`updates`]); and the running kernel measured from inside ([`kernel`]).
//!
//! Reading order: [`routes`] and [`keys`] say what is looked up, [`contenders`] and [`kernel`] who
//! does it, [`timing`] how it is timed, [`verdict`] what the figures have to be.

pub mod contenders;
pub mod dpdk;
pub mod kernel;
pub mod keys;
pub mod published;
mod record;
pub mod routes;
mod summaries;
pub mod timing;
pub mod updates;
pub mod verdict;

use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;
use tombolo_lab::LabError;
use tombolo_tables::lpm::{Lpm, LpmError, MemoryReport, Route, Shape};
use tombolo_tables::memory::Heap;

use crate::machine::Machine;
use crate::results::ResultFile;
use contenders::{Contender, Libraries};
use kernel::{KernelError, KernelTable};
use keys::{Keys, Numbers};
pub use record::{KeyKind, Record};
use routes::{Distribution, Shaped};
pub use summaries::summaries;
use timing::{Sample, Work};

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
    /// Run DPDK's benchmark with the same routes and keys, where it is installed.
    pub dpdk: bool,
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
            dpdk: true,
            updates: Some(100_000.0),
        }
    }
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
    /// Results, or the files for DPDK's benchmark, could not be written.
    #[error("the results, or the files for DPDK's benchmark, cannot be written")]
    Files(#[from] std::io::Error),
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
/// Rounds are outermost: within each, both families, all kinds of keys, all numbers of threads and
/// all contenders take their turn, so that any two of them can be compared round by round.
///
/// # Errors
/// [`RouteLookupError`].
pub fn run(options: &Options, mut report: impl FnMut(&Record)) -> Result<Vec<Record>, RouteLookupError> {
    let mut records = Vec::new();
    for &distribution in &options.distributions {
        for &routes in &options.routes {
            let case = Case { options, distribution, routes };
            let mut ipv4 = if options.families.contains(&4) { Some(case.prepare::<u32>()?) } else { None };
            let mut ipv6 = if options.families.contains(&6) { Some(case.prepare::<u128>()?) } else { None };
            for _ in 0..options.rounds {
                ipv4.iter_mut().try_for_each(|prepared| prepared.round(options))?;
                ipv6.iter_mut().try_for_each(|prepared| prepared.round(options))?;
            }
            let mut new: Vec<Record> = ipv4.iter().flat_map(|prepared| prepared.records(&case)).collect();
            new.extend(ipv6.iter().flat_map(|prepared| prepared.records(&case)));
            new.iter().for_each(&mut report);
            records.extend(new);
        }
    }
    Ok(records)
}

/// Measures, and writes everything to a result file.
///
/// # Errors
/// [`RouteLookupError`].
pub fn record(
    options: &Options,
    results: &mut ResultFile,
    mut report: impl FnMut(&Record),
) -> Result<Vec<Record>, RouteLookupError> {
    results.write(&json!({
        "record": "run", "procedure": "route-lookup", "machine": Machine::describe(&["clang"]), "rounds": options.rounds,
        "lookups": options.lookups,
    }))?;
    let mut written = Ok(());
    let records = run(options, |record| {
        report(record);
        if let (Ok(()), Err(error)) = (&written, results.write(&json!({ "record": "result", "lookup": record }))) {
            written = Err(error);
        }
    })?;
    written?;
    summaries(&records).iter().try_for_each(|summary| results.write(summary))?;
    Ok(records)
}

/// One table size and kind.
struct Case<'a> {
    options: &'a Options,
    distribution: Distribution,
    routes: usize,
}

/// One family's tables, ready to be measured.
struct Prepared<'a, K: Shaped> {
    distribution: Distribution,
    table: Lpm<K>,
    memory: MemoryReport,
    contenders: Vec<Contender<'a, K>>,
    covered: Vec<K>,
    series: Vec<Series>,
    dpdk: Option<DpdkFiles>,
    _kernel: Option<KernelTable>,
}

/// What DPDK's benchmark reads, and what it gave.
struct DpdkFiles {
    folder: TempDir,
    lookups: usize,
    rounds: Vec<f64>,
}

/// What is measured once a round, and what it gave.
struct Series {
    keys: KeyKind,
    threads: usize,
    /// Changes a second of a writer beside the threads.
    updates: Option<f64>,
    /// The changes a second that it managed.
    rates: Vec<f64>,
    /// For each contender, each round.
    samples: Vec<Vec<Sample>>,
}

/// The dry run and our own table: what is measured beside a writer.
const OWN: usize = 3;

impl Case<'_> {
    fn prepare<'a, K: Shaped + Libraries>(&self) -> Result<Prepared<'a, K>, RouteLookupError> {
        let routes = routes::routes::<K>(self.distribution, self.routes, SEED);
        let covered = keys::covered(&routes, &mut Numbers(SEED));
        let begin = Instant::now();
        let table = Lpm::build(&mut Heap, "bench", Shape::for_routes::<K>(self.routes), &routes)?;
        let build_seconds = begin.elapsed().as_secs_f64();
        let mut contenders = vec![contenders::dry(), contenders::tombolo(&table), contenders::tombolo_batched(&table)];
        contenders.iter_mut().for_each(|contender| contender.build_seconds = build_seconds);
        if self.options.libraries {
            contenders.extend(K::libraries(&routes));
        }
        self.compare(&contenders, &covered)?;
        let kernel = if self.options.kernel { Some(KernelTable::new(&routes, &covered)?) } else { None };
        contenders.extend(kernel.iter().flat_map(KernelTable::contenders));
        let series = self.series(contenders.len());
        let dpdk = self.dpdk_files(&routes)?;
        let (distribution, memory) = (self.distribution, table.memory());
        Ok(Prepared { distribution, table, memory, contenders, covered, series, dpdk, _kernel: kernel })
    }

    fn dpdk_files<K: Shaped>(&self, routes: &[Route<K>]) -> Result<Option<DpdkFiles>, RouteLookupError> {
        if !self.options.dpdk || routes.len() > dpdk::MOST_ROUTES || !tombolo_lab::is_installed(dpdk::PROGRAM) {
            return Ok(None);
        }
        let folder = TempDir::new()?;
        dpdk::write_files(folder.path(), routes, Keys::Random(SEED), self.options.lookups)?;
        Ok(Some(DpdkFiles { folder, lookups: self.options.lookups, rounds: Vec::new() }))
    }

    fn series(&self, contenders: usize) -> Vec<Series> {
        let mut series = Vec::new();
        let many = self.options.thread_routes.contains(&self.routes);
        for &keys in &self.options.keys {
            let mut add = |threads, updates| {
                series.push(Series {
                    keys,
                    threads,
                    updates,
                    rates: Vec::new(),
                    samples: vec![Vec::new(); contenders],
                });
            };
            self.options
                .threads
                .iter()
                .filter(|threads| **threads == 1 || many)
                .for_each(|threads| add(*threads, None));
            if many && self.options.updates.is_some() {
                add(1, self.options.updates);
            }
        }
        series
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
}

impl<K: Shaped> Prepared<'_, K> {
    /// Every contender's turn in every series.
    fn round(&mut self, options: &Options) -> Result<(), RouteLookupError> {
        for series in &mut self.series {
            let keys = match series.keys {
                KeyKind::Random => Keys::Random(SEED),
                KeyKind::Covered => Keys::Covered(&self.covered),
            };
            let work = Work { keys, threads: series.threads, lookups: options.lookups };
            let samples = &mut series.samples;
            match series.updates {
                None => turns(&self.contenders, samples, work)?,
                Some(pace) => {
                    let contenders = &self.contenders[..OWN];
                    let reading = || turns(contenders, samples, work);
                    let (outcome, rate) = updates::with_updates(&mut self.table, self.distribution, pace, reading)?;
                    outcome?;
                    series.rates.push(rate);
                }
            }
        }
        if let Some(dpdk) = &mut self.dpdk {
            dpdk.rounds.extend(dpdk::run::<K>(dpdk.folder.path(), self.memory.routes));
        }
        Ok(())
    }

    /// A record of each contender but the dry runs, series by series.
    fn records(&self, case: &Case<'_>) -> Vec<Record> {
        let mut records = Vec::new();
        for series in &self.series {
            for (contender, samples) in self.contenders.iter().zip(&series.samples) {
                let dry_name = if contender.namespace.is_some() { "kernel dry" } else { "dry" };
                let dry = self.contenders.iter().position(|other| other.name == dry_name);
                let Some(dry) = dry.filter(|_| contender.name != dry_name && !samples.is_empty()) else { continue };
                let empty = timing::summarize(&thread_ns(&series.samples[dry])).median;
                let rounds: Vec<f64> = thread_ns(samples).iter().map(|ns| ns - empty).collect();
                let mut total: Vec<f64> = samples.iter().map(|sample| sample.total_ns).collect();
                total.sort_by(f64::total_cmp);
                let mut rates = series.rates.clone();
                rates.sort_by(f64::total_cmp);
                let ours = contender.name.starts_with("tombolo");
                let each = |bytes: usize| ours.then(|| bytes as f64 / case.routes as f64);
                records.push(Record {
                    contender: contender.name,
                    family: K::FAMILY,
                    distribution: case.distribution,
                    routes: case.routes,
                    keys: series.keys,
                    threads: series.threads,
                    updates_per_second: timing::median_of_sorted(&rates),
                    lookups: case.options.lookups,
                    ns: timing::summarize(&rounds),
                    total_ns: timing::median_of_sorted(&total),
                    rounds,
                    published_ns: published::published(K::FAMILY, case.routes, series.threads),
                    build_seconds: contender.build_seconds,
                    bytes_per_route: each(self.memory.touched()),
                    reader_bytes_per_route: each(self.memory.touched() - self.memory.exact),
                });
            }
        }
        records.extend(self.dpdk_record(case));
        records
    }
}

impl<K: Shaped> Prepared<'_, K> {
    /// DPDK's figures: one thread, random keys, in bulk.
    fn dpdk_record(&self, case: &Case<'_>) -> Option<Record> {
        let dpdk = self.dpdk.as_ref().filter(|dpdk| !dpdk.rounds.is_empty())?;
        let ns = timing::summarize(&dpdk.rounds);
        Some(Record {
            contender: dpdk::PROGRAM,
            family: K::FAMILY,
            distribution: case.distribution,
            routes: case.routes,
            keys: KeyKind::Random,
            threads: 1,
            updates_per_second: 0.0,
            lookups: dpdk.lookups,
            total_ns: ns.median,
            ns,
            rounds: dpdk.rounds.clone(),
            published_ns: published::published(K::FAMILY, case.routes, 1),
            build_seconds: 0.0,
            bytes_per_route: None,
            reader_bytes_per_route: None,
        })
    }
}

/// One turn of each contender.
fn turns<K: Shaped>(
    contenders: &[Contender<'_, K>],
    samples: &mut [Vec<Sample>],
    work: Work<'_, K>,
) -> Result<(), LabError> {
    contenders.iter().zip(samples).try_for_each(|(contender, samples)| {
        samples.push(timing::measure(contender, work)?);
        Ok(())
    })
}

fn thread_ns(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.thread_ns).collect()
}
