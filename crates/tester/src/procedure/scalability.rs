//! Scalability series (RFC 9693 section 4.10): the connection rate and the throughput against the
//! number of sessions, and against the number of cores, with the relative scale-up
//! `perf(n) / (n * perf(1))`.
//!
//! Each point is a quantity of its own, so that the repetitions of the series give it a median and
//! a range, and it carries the marks of its own searches.

use serde_json::json;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::{connection_rate, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::trial::Sharing;

/// Measures both series.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let mut measured = sessions(bench, known, observer)?;
    measured.extend(cores(bench, known, observer)?);
    Ok(measured)
}

/// A hundredth, a tenth and all of the flows; inside ports stay, outside ports vary, as in the
/// published tables. Where a gateway's table has buckets, there are as many for each session at
/// every point (draft-lencse-v6ops-transition-scalability-02 section 2.2).
fn sessions(bench: &mut Bench, known: &Known, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
    let whole = bench.test_frames.shape;
    let mut points: Vec<Vec<Measured>> = Vec::new();
    // Where the search of the next point starts.
    let mut last = *known;
    for part in [100, 10, 1] {
        let ports = whole.b_ports / part;
        if ports == 0 {
            continue;
        }
        let sessions = u64::from(ports) * (whole.tuples() / u64::from(whole.b_ports));
        bench.test_frames.shape.b_ports = ports;
        last.fill_rate = known.fill_rate;
        let result = sized_point(bench, sessions, &mut last, observer);
        bench.test_frames.shape = whole;
        points.push(result?);
    }
    bench.gateway.size_tables(whole.tuples())?;
    let ends = points.first().zip(points.last());
    let kept = ends.and_then(|(first, last)| {
        let quantity = "throughput at the most sessions over that at the fewest";
        Some(ratio(quantity, last.last()?, first.last()?, 1.0))
    });
    Ok(points.into_iter().flatten().chain(kept).collect())
}

/// One point of the series over sessions, with the gateway's tables sized for it.
fn sized_point(
    bench: &mut Bench,
    sessions: u64,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let buckets = bench.gateway.size_tables(sessions)?;
    let mut measured = point(bench, &format!("{sessions} sessions"), known, observer)?;
    for one in &mut measured {
        one.details["sessions"] = json!(sessions);
        one.details["buckets"] = json!(buckets);
        one.details["sessions_per_bucket"] = json!(buckets.map(|buckets| sessions as f64 / buckets as f64));
    }
    Ok(measured)
}

/// Connection rate, of stateful gateways, and throughput. Throughput comes last.
fn point(
    bench: &mut Bench,
    at: &str,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let mut measured = match bench.test_frames.technology.is_stateful() {
        true => connection_rate::measure(bench, known, observer)?,
        false => Vec::new(),
    };
    measured.extend(throughput::measure(bench, known, observer)?);
    measured.iter_mut().for_each(|one| one.quantity = format!("{}, {at}", one.quantity));
    Ok(measured)
}

/// 1, 2, 4, ... of the gateway's cores, and all.
fn cores(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
    let all = bench.placement.gateway.clone();
    if all.len() < 2 || bench.placement.sharing == Sharing::Together {
        return Ok(Vec::new());
    }
    let mut all_points: Vec<Measured> = Vec::new();
    let mut single: Vec<Measured> = Vec::new();
    for count in numbers_of_cores(all.len()) {
        bench.place(&all[..count])?;
        let mut own = Known { throughput: None, connection_rate: None, ..*known };
        let at = if count == 1 { "1 core".to_owned() } else { format!("{count} cores") };
        let measured = point(bench, &at, &mut own, observer)?;
        if count == 1 {
            single = measured.clone();
        }
        for (many, one) in measured.iter().zip(&single).filter(|_| count > 1) {
            all_points.push(ratio(&format!("relative scale-up of {}", many.quantity), many, one, count as f64));
        }
        all_points.extend(measured);
    }
    bench.place(&all)?;
    Ok(all_points)
}

/// Powers of two, and the number itself.
fn numbers_of_cores(all: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < all).collect();
    numbers.push(all);
    numbers
}

/// `over / (times * under)`, a bound where one of them is; no value where one has none.
fn ratio(quantity: &str, over: &Measured, under: &Measured, times: f64) -> Measured {
    let doubts = [over, under].into_iter().flat_map(|one| &one.doubts).cloned();
    let value = over.value.zip(under.value).map(|(over, under)| over / (times * under)).filter(|r| r.is_finite());
    let ratio = Measured {
        value,
        bound: Bound::of_ratio(over.bound, under.bound).filter(|_| value.is_some()),
        ..Measured::rate(quantity, 0.0, "ratio", json!({ "over": over.quantity, "under": under.quantity }))
    };
    doubts.fold(ratio, Measured::doubted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_points_carries_their_marks() {
        let rate = |value: f64| Measured::rate("throughput", value, "frames/s", json!({}));
        let limited = rate(800.0).bounded(Bound::AtLeast, "the tester set the limit");
        let scale_up = ratio("scale-up", &limited, &rate(500.0), 2.0);
        assert_eq!((scale_up.value, scale_up.bound, scale_up.doubts.len()), (Some(0.8), Some(Bound::AtLeast), 1));
        let none = ratio("scale-up", &rate(1.0).without_value("no rate passed"), &rate(500.0), 2.0);
        assert_eq!((none.value, none.bound, none.doubts.len()), (None, None, 1));
    }

    #[test]
    fn points_end_with_the_cores_that_there_are() {
        assert_eq!([2, 3, 4, 6].map(numbers_of_cores), [vec![1, 2], vec![1, 2, 3], vec![1, 2, 4], vec![1, 2, 4, 6]]);
    }
}
