//! Scalability series (RFC 9693 section 4.10): the connection rate and the throughput against the
//! number of sessions, and the throughput against the number of cores, with the relative scale-up
//! `perf(n) / (n * perf(1))`.

use serde_json::json;

use super::known::Known;
use super::measured::Measured;
use super::{connection_rate, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::trial::Sharing;

/// Measures both series; the value is the throughput at the most sessions over that at the fewest.
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
/// published tables.
fn sessions(bench: &mut Bench, known: &Known, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
    let whole = bench.test_frames.shape;
    let stateful = bench.test_frames.technology.is_stateful();
    let mut points = Vec::new();
    let mut rates = Vec::new();
    // Where the search of the next point starts.
    let mut last = Known { sessions: known.sessions, ..Known::default() };
    for part in [100, 10, 1] {
        let ports = whole.b_ports / part;
        if ports == 0 {
            continue;
        }
        bench.test_frames.shape.b_ports = ports;
        last.fill_rate = None;
        let result = point(bench, stateful, &mut last, observer);
        bench.test_frames.shape = whole;
        let (connections, rate) = result?;
        rates.push(rate);
        points.push(json!({ "sessions": u64::from(ports) * (whole.tuples() / u64::from(whole.b_ports)),
            "inside_ports": whole.a_ports, "outside_ports": ports, "connections_per_second": connections,
            "throughput": rate }));
    }
    let kept = match (rates.first(), rates.last()) {
        (Some(first), Some(last)) if *first > 0.0 => last / first,
        _ => 0.0,
    };
    let details = json!({ "points": points });
    Ok(vec![Measured::rate("throughput at the most sessions over that at the fewest", kept, "ratio", details)])
}

fn point(
    bench: &mut Bench,
    stateful: bool,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<(Option<f64>, f64), BenchError> {
    let connections = match stateful {
        true => connection_rate::measure(bench, known, observer)?.first().and_then(|m| m.value),
        false => None,
    };
    let rate = throughput::measure(bench, known, observer)?.first().and_then(|m| m.value).unwrap_or(0.0);
    Ok((connections, rate))
}

/// 1, 2, 4, ... of the gateway's cores.
fn cores(bench: &mut Bench, known: &mut Known, observer: &mut dyn Observer) -> Result<Vec<Measured>, BenchError> {
    let all = bench.placement.gateway.clone();
    if all.len() < 2 || bench.placement.sharing == Sharing::Together {
        return Ok(Vec::new());
    }
    let mut points = Vec::new();
    let mut single = 0.0;
    let mut scale_up = 1.0;
    let mut count = 1;
    while count <= all.len() {
        bench.place(&all[..count])?;
        known.throughput = None;
        let rate = throughput::measure(bench, known, observer)?.first().and_then(|m| m.value).unwrap_or(0.0);
        if count == 1 {
            single = rate;
        }
        scale_up = if single > 0.0 { rate / (count as f64 * single) } else { 0.0 };
        points.push(json!({ "cores": count, "throughput": rate, "relative_scale_up": scale_up }));
        count *= 2;
    }
    bench.place(&all)?;
    Ok(vec![Measured::rate("relative scale-up at the most cores", scale_up, "ratio", json!({ "points": points }))])
}
