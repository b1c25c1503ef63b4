//! One line of results.

use super::routes::Distribution;
use super::timing::Summary;

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
    /// Nanoseconds of elapsed time over the lookups of all threads, the dry run not subtracted:
    /// median.
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
