//! Back-to-back frames and buffer time (RFC 2544 section 26.4, RFC 9004): the longest burst at the
//! highest rate of which nothing is lost, several times, averaged.
//!
//! A virtual link has no minimum gap, so the burst goes at the tester's own highest rate, which the
//! result states; RFC 9004's maximum theoretical frame rate is that rate.

use serde_json::json;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::{phase_one, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::Search;
use crate::summary::Summary;

/// Measures the average burst and the corrected buffer time.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let throughput = throughput::known_or_measured(bench, known, observer)?;
    phase_one::fill_for(bench.effort.burst_seconds, bench, known, observer)?;
    let max_rate = bench.tester_limit / bench.directions.count();
    let longest = u64::from(Effort::frames(max_rate, bench.effort.burst_seconds));
    let mut bursts = Vec::new();
    let mut sent_rates = Vec::new();
    let (mut unlimited, mut limited_by_tester) = (0, 0);
    for _ in 0..bench.effort.burst_repetitions {
        let search = Search {
            max: longest,
            floor: 0,
            resolution: (longest / 2000).max(1),
            resolution_ppm: 0,
            verify_failures: 0,
            repeat_invalid: 4,
            hint: bursts.last().map(|b: &f64| whole(*b)).filter(|b| *b > 0),
        };
        let found = search.run(|frames, bounds| {
            bench.bounds = Some(bounds);
            let frames = u32::try_from(frames).unwrap_or(u32::MAX);
            let trial = bench.trial(&bench.plain("back-to-back", bench.directions, 0, frames), observer)?;
            sent_rates.extend(trial.directions().map(|d| d.departures.rate()).filter(|r| *r > 0.0));
            Ok::<_, BenchError>(trial.verdict)
        })?;
        bench.bounds = None;
        unlimited += u32::from(found.lowest_not_passing.is_none());
        limited_by_tester += u32::from(found.limited_by_tester);
        bursts.push(found.highest_passing as f64);
    }
    let Some(summary) = Summary::of(&bursts) else {
        return Err(BenchError::Unsuitable("the back-to-back procedure needs at least one repetition".to_owned()));
    };
    let actual_rate = Summary::of(&sent_rates).map_or(max_rate as f64, |s| s.median);
    let implied = summary.mean / actual_rate;
    let corrected = implied * (1.0 - throughput as f64 / actual_rate).max(0.0);
    let details = json!({
        "bursts": bursts, "min": summary.min, "max": summary.max, "standard_deviation": summary.standard_deviation,
        "burst_rate": actual_rate, "throughput_per_direction": throughput, "implied_buffer_ms": implied * 1000.0,
        "longest_burst_tried": longest, "searches_without_loss": unlimited,
    });
    let b2b = Measured::rate("back-to-back frames, average", summary.mean, "frames", details.clone());
    let buffer = Measured::rate("corrected buffer time", corrected * 1000.0, "ms", details);
    let mark = |measured: Measured| match (unlimited, limited_by_tester) {
        (0, 0) => measured,
        (0, invalid) => measured.bounded(Bound::AtLeast, format!("{invalid} searches ended at invalid trials")),
        (unlimited, _) => {
            measured.bounded(Bound::AtLeast, format!("{unlimited} searches found no burst that is too long"))
        }
    };
    Ok(vec![mark(b2b), mark(buffer)])
}

fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a u64")]
    let whole = value as u64;
    whole
}
