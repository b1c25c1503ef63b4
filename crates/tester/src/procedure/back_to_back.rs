//! Back-to-back frames and buffer time (RFC 2544 section 26.4, RFC 9004): the longest burst at the
//! highest rate of which nothing is lost, several times, averaged.
//!
//! A virtual link has no minimum gap, so the burst goes at the tester's own highest rate, which the
//! result states; RFC 9004's maximum theoretical frame rate is that rate. A burst with a hole is none:
//! the gateway's buffer empties meanwhile, so such a trial is invalid.

use serde_json::json;

use super::known::Known;
use super::measured::{Bound, Measured};
use super::{phase_one, throughput};
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;
use crate::search::{Search, Verdict};
use crate::summary::Summary;
use crate::trial::Trial;

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
    let (mut holes, mut longest_hole_ns) = (0u32, 0);
    let mut widest = 0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a million")]
    let resolution_ppm = (bench.effort.resolution * 1e6) as u64;
    for _ in 0..bench.effort.burst_repetitions {
        let search = Search {
            max: longest,
            floor: 0,
            resolution: 1,
            resolution_ppm,
            verify_failures: bench.effort.verify_failures,
            repeat_invalid: bench.effort.repeat_invalid,
            hint: bursts.last().map(|b: &f64| whole(*b)).filter(|b| *b > 0),
            second_looks: 0,
        };
        let found = search.run(|frames, bounds| {
            bench.bounds = Some(bounds);
            let frames = u32::try_from(frames).unwrap_or(u32::MAX);
            let trial = bench.trial(&bench.plain("back-to-back", bench.directions, 0, frames), observer)?;
            if let Some(hole_ns) = hole_in_the_burst(&trial) {
                holes += 1;
                longest_hole_ns = longest_hole_ns.max(hole_ns);
                return Ok(Verdict::Invalid);
            }
            sent_rates.extend(trial.directions().map(|d| d.departures.rate()).filter(|r| *r > 0.0));
            Ok::<_, BenchError>(trial.verdict)
        })?;
        bench.bounds = None;
        unlimited += u32::from(found.lowest_not_passing.is_none());
        limited_by_tester += u32::from(found.limited_by_tester);
        widest = widest.max(found.lowest_not_passing.map_or(0, |next| next - found.highest_passing));
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
        "longest_burst_tried": longest, "searches_without_loss": unlimited, "resolution_frames": widest,
        "bursts_with_a_hole": holes, "longest_hole_us": longest_hole_ns as f64 / 1000.0,
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

/// The longest pause between two frames that should have followed each other, where one was long
/// enough to be counted (100 us).
fn hole_in_the_burst(trial: &Trial) -> Option<u64> {
    let torn = trial.directions().filter(|direction| direction.departures.late_bursts > 0);
    torn.map(|direction| direction.departures.late_max_ns).max()
}

fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a u64")]
    let whole = value as u64;
    whole
}
