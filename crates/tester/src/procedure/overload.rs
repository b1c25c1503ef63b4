//! Overload scalability (RFC 8219 section 10): what many network flows at once take away from what
//! one has.
//!
//! Throughput and latency are measured with one flow and then with ten, a hundred and so on, all
//! flows starting at the same time, or one after another, each a time T after the one before: then a
//! trial is longer by that of all, and its rate is that of all flows that have begun. The performance degradation of X is `(X1 - Xn) / X1` where more
//! is better and `(Xn - X1) / X1` where less is, in percent; where a point is only a bound, so is
//! what follows from it. A flow is a four tuple. Flows are of different subscribers first, as many
//! as there are, then of different ports.

use serde_json::json;
use tombolo_generator::TupleShape;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::{delay, throughput};
use crate::bench::{Bench, BenchError, Observer};

/// When the flows of a trial begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// At once (RFC 8219 section 10.2.1).
    Together,
    /// One after another, all within the length of a trial, by which it is longer (10.2.2).
    OneAfterAnother,
}

/// Measures every point, and what it loses.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    start: Start,
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let whole = bench.test_frames.shape;
    let mut all: Vec<Measured> = Vec::new();
    let mut single: Vec<Measured> = Vec::new();
    for shape in shapes(whole, bench.effort.flows_step) {
        let flows = shape.tuples();
        bench.test_frames.shape = shape;
        let beginning = if start == Start::OneAfterAnother && flows > 1 { bench.effort.trial_seconds } else { 0.0 };
        bench.beginning_seconds = beginning;
        let point = point(bench, known, observer);
        bench.test_frames.shape = whole;
        bench.beginning_seconds = 0.0;
        let point = point?;
        match single.is_empty() {
            true => single.clone_from(&point),
            false => all.extend(point.iter().zip(&single).map(|(many, one)| degradation(many, one, flows))),
        }
        all.extend(point.into_iter().map(|mut one| {
            one.details["flows"] = json!(flows);
            if beginning > 0.0 {
                one.details["interval_us"] = json!(beginning * 1e6 / (flows - 1) as f64);
            }
            one.at("flows", flows, &in_words(flows))
        }));
    }
    Ok(all)
}

/// Throughput, and the latency at that throughput.
fn point(bench: &mut Bench, known: &Known, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
    // A throughput that is known is where the search begins, no more.
    let mut own = Known { connection_rate: None, ..*known };
    let mut measured = throughput::measure(bench, &mut own, observer)?;
    measured.extend(delay::latency(bench, &mut own, observer)?);
    Ok(measured)
}

fn in_words(flows: u64) -> String {
    let plural = if flows == 1 { "" } else { "s" };
    format!("{flows} flow{plural}")
}

/// Shapes of 1, 10, 100, ... tuples, and of all.
fn shapes(whole: TupleShape, step: u64) -> Vec<TupleShape> {
    let numbers =
        std::iter::successors(Some(1_u64), |flows| flows.checked_mul(step)).take_while(|flows| *flows < whole.tuples());
    let mut shapes: Vec<TupleShape> = numbers.map(|flows| part(whole, flows)).collect();
    shapes.push(whole);
    shapes.dedup_by_key(|shape| shape.tuples());
    shapes
}

/// At most so many of the tuples.
fn part(whole: TupleShape, flows: u64) -> TupleShape {
    let mut left = flows;
    let mut take = |most: u32| {
        let taken = u32::try_from(left).unwrap_or(u32::MAX).min(most);
        left /= u64::from(taken.max(1));
        taken.max(1)
    };
    let a_hosts = take(whole.a_hosts);
    let a_ports = take(whole.a_ports);
    let b_ports = take(whole.b_ports);
    let b_hosts = take(whole.b_hosts);
    TupleShape { a_hosts, a_ports, b_ports, b_hosts, ..whole }
}

/// What X loses from one flow to many, percent (RFC 8219 section 10.2).
fn degradation(many: &Measured, one: &Measured, flows: u64) -> Measured {
    let ratio = many.value.zip(one.value).map(|(many, one)| many / one).filter(|ratio| ratio.is_finite());
    let bound = Bound::of_ratio(many.bound, one.bound);
    let (lost, bound) = match one.higher_is_better {
        true => (ratio.map(|ratio| (1.0 - ratio) * 100.0), bound.map(Bound::opposite)),
        false => (ratio.map(|ratio| (ratio - 1.0) * 100.0), bound),
    };
    let quantity = format!("{} degradation", one.quantity);
    let details = json!({ "flows": flows, "of_one": one.value, "of_many": many.value });
    let lost = Measured {
        value: lost,
        bound: bound.filter(|_| lost.is_some()),
        ..Measured::cost(quantity, 0.0, "%", details)
    };
    let doubts = [many, one].into_iter().flat_map(|point| &point.doubts).cloned();
    doubts.fold(lost, Measured::doubted).at("flows", flows, &in_words(flows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_of_different_subscribers_first() {
        let whole = TupleShape { a_hosts: 50, ..TupleShape::plain(1024, 100, 1, 10) };
        let tuples: Vec<u64> = shapes(whole, 10).iter().map(TupleShape::tuples).collect();
        assert_eq!(tuples, [1, 10, 100, 1000, 10_000, 50_000]);
        let hosts: Vec<u32> = shapes(whole, 10).iter().map(|shape| shape.a_hosts).collect();
        assert_eq!(hosts, [1, 10, 50, 50, 50, 50]);
    }

    #[test]
    fn degradation_goes_the_way_that_is_worse_and_carries_the_marks() {
        let rate = |value| Measured::rate("throughput", value, "frames/s", json!({}));
        let delay = |value| Measured::cost("latency", value, "us", json!({}));
        let value = |measured: Measured| measured.value.unwrap();
        assert_eq!(value(degradation(&rate(75.0), &rate(100.0), 10)), 25.0);
        assert_eq!(value(degradation(&delay(30.0), &delay(20.0), 10)), 50.0);
        let limited = rate(100.0).bounded(Bound::AtLeast, "the tester set the limit");
        // One flow may do more than was measured, so many lose this or more.
        let lost = degradation(&rate(75.0), &limited, 10);
        assert_eq!((lost.bound, lost.doubts.len()), (Some(Bound::AtLeast), 1));
        assert_eq!(degradation(&limited, &limited, 10).bound, Some(Bound::Unknown));
        let none = rate(1.0).without_value("no rate passed");
        let lost = degradation(&none, &rate(100.0), 10);
        assert_eq!((lost.value, lost.bound, lost.doubts.len()), (None, None, 1));
    }
}
