//! The records as summaries over an axis, like those of the other procedures: over the table's size,
//! and over the threads.

use serde_json::Value;

use super::record::{KeyKind, Record};
use super::routes::Distribution;
use crate::procedure::{Measured, Point};
use crate::readings::{GatewaySummary, Reading, Readings, summarise};

/// The name of a lookup's time over the table's size.
pub(super) fn quantity(family: u8) -> String {
    format!("route lookup, IPv{family}")
}

/// That of a lookup's time over the number of threads.
pub(super) fn quantity_of_threads(family: u8, routes: usize) -> String {
    let plural = if routes == 1 { "" } else { "s" };
    format!("{}, {routes} route{plural}", quantity(family))
}

/// Median and range over the rounds, and ratios to this project's table; what was looked up beside a
/// writer is left out.
#[must_use]
pub fn summaries(records: &[Record]) -> Vec<GatewaySummary> {
    let mut readings = Readings::new();
    let mut contenders = vec!["tombolo".to_owned()];
    for record in records.iter().filter(|record| record.updates_per_second == 0.0) {
        if !contenders.iter().any(|known| known == record.contender) {
            contenders.push(record.contender.to_owned());
        }
        let over_threads = records
            .iter()
            .any(|other| other.threads > 1 && (other.family, other.routes) == (record.family, record.routes));
        for point in points(record, over_threads) {
            let name = format!("{}, {} {}", point.quantity, point.at, point.axis);
            for (repetition, ns) in (1..).zip(&record.rounds) {
                let measured = Measured::cost(name.clone(), *ns, "ns", Value::Null);
                let reading = Reading::of(&Measured { point: Some(point.clone()), ..measured });
                readings.entry((record.contender.to_owned(), name.clone())).or_default().insert(repetition, reading);
            }
        }
    }
    summarise(&readings, &contenders)
}

/// One thread is a point of both axes, where there are others to set it beside.
fn points(record: &Record, over_threads: bool) -> Vec<Point> {
    let table = if record.distribution == Distribution::Global { ", table as in the Internet" } else { "" };
    let keys = if record.keys == KeyKind::Covered { ", keys inside routes" } else { "" };
    let of = |quantity: String, axis, at: usize| Point::new(format!("{quantity}{table}{keys}"), axis, at as u64);
    let threads = of(quantity_of_threads(record.family, record.routes), "threads", record.threads);
    match record.threads {
        1 if over_threads => vec![of(quantity(record.family), "routes", record.routes), threads],
        1 => vec![of(quantity(record.family), "routes", record.routes)],
        _ => vec![threads],
    }
}

#[cfg(test)]
mod tests {
    use super::super::timing;
    use super::*;

    #[test]
    fn one_thread_is_a_point_over_routes_and_over_threads() {
        let record = |contender, threads, rounds: &[f64]| Record {
            contender,
            family: 6,
            distribution: Distribution::Random,
            routes: 100_000,
            keys: KeyKind::Random,
            threads,
            updates_per_second: 0.0,
            lookups: 1,
            ns: timing::summarize(rounds),
            total_ns: 0.0,
            rounds: rounds.to_vec(),
            published_ns: None,
            build_seconds: 0.0,
            bytes_per_route: None,
            reader_bytes_per_route: None,
        };
        let alone = [record("kernel", 1, &[90.0, 120.0]), record("tombolo", 1, &[30.0, 30.0])];
        assert_eq!(summaries(&alone).len(), 2);
        let [kernel, own] = alone;
        let all = summaries(&[kernel, own, record("tombolo", 2, &[31.0, 33.0])]);
        assert_eq!(all.len(), 5);
        let kernel = all.iter().find(|s| s.gateway == "kernel" && s.point.as_ref().unwrap().axis == "routes").unwrap();
        assert_eq!(kernel.point, Some(Point::new("route lookup, IPv6", "routes", 100_000)));
        assert_eq!((kernel.ratio.unwrap().median, kernel.summary.unwrap().max), (3.5, 120.0));
        assert_eq!(summaries(&[record("tombolo", 2, &[30.0])]).len(), 1);
    }
}
