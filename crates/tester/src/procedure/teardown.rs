//! Connection tear-down rate (RFC 9693 section 4.7): a full table is deleted at once; the time that
//! deleting an empty one takes is subtracted, for it is the command's and not the connections'.

use std::time::Instant;

use serde_json::{Value, json};

use super::known::Known;
use super::measured::{Bound, Measured};
use super::phase_one;
use crate::bench::{Bench, BenchError, Observer};
use crate::gateway::between_ports::TableCounts;
use crate::summary::Summary;

/// Deletions of an empty table whose median is subtracted.
const EMPTY_REPETITIONS: u32 = 9;
/// Seconds: so much the start of a process varies on any machine.
const LEAST_RESOLUTION: f64 = 0.0005;

/// Measures the rate.
///
/// # Errors
/// If trials cannot be run or the table not emptied.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    phase_one::fill_for(0.0, bench, known, observer)?;
    let connections = bench.tuples();
    let before = bench.gateway.counts();
    let full = timed_flush(bench)?;
    let after = bench.gateway.counts();
    let mut empty = Vec::new();
    for _ in 0..EMPTY_REPETITIONS {
        empty.push(timed_flush(bench)?);
    }
    let (empty, varies) = Summary::of(&empty).map_or((0.0, 0.0), |s| (s.median, s.max - s.min));
    let deletion = full - empty;
    let details = json!({
        "connections": connections, "full_s": full, "empty_s": empty, "empty_varies_s": varies, "deletion_s": deletion,
        "gateway_counted_before": before, "gateway_counted_after": after, "deleted": TableCounts::kept(before),
    });
    // A table that is deleted faster than the command's own time varies has no measurable rate:
    // what is known is a bound.
    let resolution = varies.max(LEAST_RESOLUTION);
    let rate = f64::from(connections) / deletion.max(resolution);
    let measured = Measured::rate("connection tear-down rate", rate, "connections/s", details);
    let measured = match deletion < resolution {
        true => measured.bounded(Bound::AtLeast, "the table is deleted faster than the command's own time varies"),
        false => measured,
    };
    let measured = judge(measured, connections, before, after);
    let time = |what: &str, seconds| Measured::cost(format!("deletion of {what} table"), seconds, "s", Value::Null);
    Ok(vec![measured, time("the full", full), time("an empty", empty)])
}

/// Marks a rate by what the gateway had in its tables before and after the deletion. What it keeps unasked, static
/// bindings among it, is there after it as well.
fn judge(measured: Measured, connections: u32, before: Option<TableCounts>, after: Option<TableCounts>) -> Measured {
    let (had, left) = (before.unwrap_or_default(), after.unwrap_or_default());
    match (had, left) {
        (TableCounts { sessions: Some(1..), .. }, TableCounts { sessions: Some(left @ 1..), .. }) => {
            measured.without_value(format!("{left} sessions outlived the deletion"))
        }
        (TableCounts { sessions: Some(there @ 1..), .. }, _) if there < u64::from(connections) => {
            measured.without_value(format!("the table had {there} of {connections} sessions before the deletion"))
        }
        (TableCounts { sessions: Some(1..), .. }, TableCounts { sessions: Some(0), .. }) => measured,
        (TableCounts { bindings: Some(there @ 1..), .. }, TableCounts { bindings: Some(left), .. }) if left < there => {
            let deleted = there - left;
            measured
                .doubted(format!("it counts bindings: {deleted} of them were deleted for {connections} connections"))
        }
        (TableCounts { bindings: Some(there @ 1..), .. }, _) => {
            measured.without_value(format!("{there} bindings outlived the deletion"))
        }
        _ => measured.doubted("the gateway does not count its sessions: that all were there, and went, is not proven"),
    }
}

fn timed_flush(bench: &mut Bench) -> Result<f64, BenchError> {
    let started = Instant::now();
    bench.gateway.flush()?;
    Ok(started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_deleted_is_said_and_what_was_not_has_no_rate() {
        let counts = |sessions, bindings| Some(TableCounts { sessions, bindings });
        let judged = |before, after| {
            let rate = Measured::rate("connection tear-down rate", 1e6, "connections/s", Value::Null);
            judge(rate, 1000, before, after)
        };
        let whole = judged(counts(Some(1000), Some(250)), counts(Some(0), Some(1)));
        assert!(whole.value.is_some() && whole.doubts.is_empty());
        let bindings = judged(counts(Some(0), Some(251)), counts(Some(0), Some(1)));
        assert_eq!(bindings.doubts, ["it counts bindings: 250 of them were deleted for 1000 connections"]);
        assert!(bindings.value.is_some());
        for (before, after) in [
            (counts(Some(1000), None), counts(Some(1), None)),
            (counts(Some(999), None), counts(Some(0), None)),
            (counts(Some(0), Some(251)), counts(Some(0), Some(251))),
        ] {
            assert_eq!(judged(before, after).value, None);
        }
        assert!(!judged(None, None).doubts.is_empty());
    }
}
