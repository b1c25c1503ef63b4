//! What the figures have to be, and whether they are.

use super::routes::Distribution;
use super::timing::median_of_sorted;
use super::{KeyKind, Record};

/// One requirement, beside what was measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// What is required, in words.
    pub requirement: String,
    /// The measured value, in the requirement's unit.
    pub measured: f64,
    /// The most that it may be.
    pub at_most: f64,
    /// True if it is.
    pub met: bool,
}

impl Verdict {
    fn new(requirement: String, measured: f64, at_most: f64) -> Self {
        Self { requirement, measured, at_most, met: measured <= at_most }
    }
}

/// The median over the rounds of `a`'s time divided by `b`'s in the same round.
fn ratio(a: &Record, b: &Record) -> f64 {
    let mut ratios: Vec<f64> = a.rounds.iter().zip(&b.rounds).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    median_of_sorted(&ratios)
}

/// The table size that the requirements are about.
const ROUTES: usize = 100_000;

/// Judges the records; requirements whose figures were not measured are left out.
#[must_use]
pub fn verdicts(records: &[Record]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for keys in [KeyKind::Random, KeyKind::Covered] {
        let of = |contender: &str, family: u8, threads: usize| {
            records.iter().find(|record| {
                record.contender == contender
                    && (record.family, record.threads, record.routes) == (family, threads, ROUTES)
                    && record.distribution == Distribution::Random
                    && record.keys == keys
                    && record.updates_per_second == 0.0
            })
        };
        if let (Some(four), Some(six)) = (of("tombolo", 4, 1), of("tombolo", 6, 1)) {
            verdicts.push(Verdict::new(format!("{keys:?} keys: IPv6 / IPv4"), ratio(six, four), 1.5));
        }
        for family in [4, 6] {
            let Some(ours) = of("tombolo", family, 1) else { continue };
            let mut compare = |name: &str, at_most: f64| {
                if let Some(other) = of(name, family, 1) {
                    let what = format!("{keys:?} keys, IPv{family}: tombolo / {name}");
                    verdicts.push(Verdict::new(what, ratio(ours, other), at_most));
                }
            };
            compare("kernel", 1.0 / 3.0);
            compare("poptrie", 1.0);
            compare("prefix-trie", 1.0);
            compare("ip_network_table", 1.0);
            if let Some(batched) = of("tombolo batched", family, 1) {
                let what = format!("{keys:?} keys, IPv{family}: batched / single");
                verdicts.push(Verdict::new(what, ratio(batched, ours), 1.0));
            }
            // DPDK looks up in bulk: so do we for this one.
            if let (Some(batched), Some(dpdk)) = (of("tombolo batched", family, 1), of(super::dpdk::PROGRAM, family, 1))
            {
                let what = format!("{keys:?} keys, IPv{family}: tombolo batched / {}", dpdk.contender);
                verdicts.push(Verdict::new(what, ratio(batched, dpdk), 1.0));
            }
            for threads in [2, 24] {
                if let Some(many) = of("tombolo", family, threads) {
                    let what = format!("{keys:?} keys, IPv{family}: {threads} threads / 1");
                    verdicts.push(Verdict::new(what, ratio(many, ours), 1.1));
                }
            }
            verdicts.extend(beside_updates(records, ours));
        }
    }
    verdicts.extend(records.iter().filter(|record| record.contender == "tombolo").flat_map(full_table));
    verdicts
}

/// A reader beside a writer against the same reader alone.
fn beside_updates(records: &[Record], alone: &Record) -> Option<Verdict> {
    let beside = records.iter().find(|record| {
        record.contender == alone.contender
            && (record.family, record.routes, record.keys) == (alone.family, alone.routes, alone.keys)
            && record.updates_per_second > 0.0
    })?;
    let thousands = (beside.updates_per_second / 1000.0).round();
    let (keys, family) = (alone.keys, alone.family);
    let what = format!("{keys:?} keys, IPv{family}: beside {thousands}k updates a second / alone");
    Some(Verdict::new(what, ratio(beside, alone), 1.15))
}

/// Build time and memory of tables like the Internet's.
fn full_table(record: &Record) -> Vec<Verdict> {
    let limit = match (record.family, record.routes) {
        (4, 900_000..) => 24.0,
        (6, 200_000..=300_000) => 64.0,
        _ => return Vec::new(),
    };
    if record.distribution != Distribution::Global || record.threads != 1 || record.updates_per_second != 0.0 {
        return Vec::new();
    }
    let what = |what: &str| format!("{} IPv{} routes as in the Internet: {what}", record.routes, record.family);
    let mut verdicts = vec![Verdict::new(what("seconds to build"), record.build_seconds, 1.0)];
    verdicts.extend(record.bytes_per_route.map(|bytes| Verdict::new(what("bytes a route"), bytes, limit)));
    verdicts
}
