//! Scalability series (RFC 9693 section 4.10): the connection rate and the throughput against the
//! number of sessions, and against the number of cores, with the relative scale-up
//! `perf(n) / (n * perf(1))`.
//!
//! Each point is a quantity of its own, so that the repetitions of the series give it a median and
//! a range, and it carries the marks of its own searches.

use serde_json::json;

use super::known::Known;
use super::measured::{Bound, Measured, Point};
use super::{connection_rate, teardown, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::scale::{Connections, Rates, numbers_of_cores};
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

/// The points of the series over connections. Where a gateway's table has buckets, there are as many
/// for each session at every point (draft-lencse-v6ops-transition-scalability-02 section 2.2).
fn sessions(bench: &mut Bench, known: &Known, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
    let whole = bench.test_frames.shape;
    let mut points: Vec<Vec<Measured>> = Vec::new();
    // Where the search of the next point starts.
    let mut last = *known;
    for (inside, outside) in bench.scale.points(whole.a_ports, whole.b_ports) {
        let sessions = whole.tuples() / u64::from(whole.a_ports) / u64::from(whole.b_ports);
        let sessions = sessions * u64::from(inside) * u64::from(outside);
        (bench.test_frames.shape.a_ports, bench.test_frames.shape.b_ports) = (inside, outside);
        last.fill_rate = known.fill_rate;
        let result = sized_point(bench, sessions, &mut last, observer);
        bench.test_frames.shape = whole;
        points.push(result?);
    }
    if points.is_empty() {
        return Ok(Vec::new());
    }
    bench.gateway.size_tables(whole.tuples())?;
    let ends = points.first().zip(points.last()).filter(|_| bench.scale.rates == Rates::Forwarding);
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
    let at = ("sessions", sessions, &*format!("{sessions} sessions"));
    let mut measured = point(bench, at, known, observer)?;
    for one in &mut measured {
        one.details["sessions"] = json!(sessions);
        one.details["buckets"] = json!(buckets);
        one.details["sessions_per_bucket"] = json!(buckets.map(|buckets| sessions as f64 / buckets as f64));
    }
    Ok(measured)
}

/// What is measured at a point. Throughput comes last.
fn point(
    bench: &mut Bench,
    (axis, at, words): (&str, u64, &str),
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let stateful = bench.test_frames.technology.is_stateful();
    let measured = match (bench.scale.rates, stateful) {
        (Rates::Teardown, _) => teardown::measure(bench, known, observer)?,
        (Rates::Forwarding, false) => throughput::measure(bench, known, observer)?,
        (Rates::Forwarding, true) => {
            let mut measured = connection_rate::measure(bench, known, observer)?;
            measured.extend(throughput::measure(bench, known, observer)?);
            measured
        }
    };
    Ok(measured.into_iter().map(|one| one.at(axis, at, words)).collect())
}

/// 1, 2, 4, ... of the gateway's cores, and all.
fn cores(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
    let all = bench.placement.gateway.clone();
    let is_alone = bench.scale.connections == Connections::Ports(Vec::new());
    let has_several = all.len() > 1 && bench.placement.sharing == Sharing::Apart;
    if !bench.scale.cores || !(has_several || is_alone) {
        return Ok(Vec::new());
    }
    if !has_several {
        return point(bench, ("cores", 1, "1 core"), known, observer);
    }
    let mut all_points: Vec<Measured> = Vec::new();
    let mut single: Vec<Measured> = Vec::new();
    for count in numbers_of_cores(all.len()) {
        bench.place(&all[..count])?;
        // What other cores reached says nothing of these.
        let mut own = Known { fill_rate: known.fill_rate, sessions: known.sessions, ..Known::default() };
        let at = if count == 1 { "1 core".to_owned() } else { format!("{count} cores") };
        let measured = point(bench, ("cores", count as u64, &at), &mut own, observer)?;
        if count == 1 {
            single = measured.clone();
        }
        for (many, one) in measured.iter().zip(&single).filter(|_| count > 1) {
            all_points.push(scale_up(many, one, count as u64));
        }
        all_points.extend(measured);
    }
    bench.place(&all)?;
    Ok(all_points)
}

/// Of a number of cores, how much each does of what one alone does.
fn scale_up(many: &Measured, one: &Measured, cores: u64) -> Measured {
    let relative = |quantity: &str| format!("relative scale-up of {quantity}");
    let scale_up = ratio(&relative(&many.quantity), many, one, cores as f64);
    let of = many.point.as_ref().map_or(&many.quantity, |point| &point.quantity);
    Measured { point: Some(Point::new(relative(of), "cores", cores)), ..scale_up }
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
}
