//! Maximum connection establishment rate, with validation (RFC 9693 sections 4.4 and 4.5).
//!
//! Each trial starts with an empty table. Phase 1 sends every four tuple exactly once at the rate
//! under test; then the responder answers each connection exactly once, at a part of that rate.
//! Both must be without loss: that a frame was forwarded does not prove that its connection was
//! kept. Nor does an answer that came through, where a gateway filters independently of the
//! endpoint: one binding lets the answers of many sessions in. So the gateway's own counts are read
//! where it has any, and too few sessions fail the trial.
//!
//! With 10^8 connections a trial lasts minutes, and a machine that is shared takes its cores away many times in them. So a
//! loss can be tolerated, of each of the two, and the quantity is named by it.

use std::time::Instant;

use serde_json::json;

use super::known::Known;
use super::measured::{Measured, tolerating};
use crate::bench::{Bench, BenchError, Observer};
use crate::expiry::{check_age, check_timeout};
use crate::gateway::between_ports::TableCounts;
use crate::search::{Found, Verdict};
use crate::trial::{Trial, TrialPlan};

/// Measures the rate, one direction.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let mut proof = Proof::default();
    let found = search(bench, known.connection_rate, &mut proof, observer)?;
    known.connection_rate = Some(found.highest_passing);
    let details = json!({
        "connections": bench.tuples(), "alpha": bench.effort.alpha, "trials": found.trials,
        "lowest_not_passing": found.lowest_not_passing, "gateway_counted": proof.counts,
        "established": proof.established(), "tolerated_loss_percent": bench.effort.tolerated_loss_percent,
    });
    let quantity = tolerating("connection establishment rate", bench.effort.tolerated_loss_percent);
    let measured = Measured::rate(quantity, found.highest_passing as f64, "connections/s", details);
    Ok(vec![match (found.highest_passing, proof.established()) {
        (0, _) => measured.without_value(format!("no rate passed; the last trial: {}", proof.last_reasons)),
        (_, "sessions" | "not counted") => measured.searched(&found),
        (_, what) => measured.searched(&found).doubted(format!("it counts {what}, so those were established")),
    }])
}

/// What the trials of a search proved.
#[derive(Default)]
pub(super) struct Proof {
    /// The gateway's counts after the last attempt that passed.
    counts: Option<TableCounts>,
    /// Why the last attempt that did not pass did not.
    last_reasons: String,
}

impl Proof {
    /// Which of the two the gateway has for each connection.
    fn established(&self) -> &'static str {
        TableCounts::kept(self.counts)
    }
}

/// The highest validated rate for the flows of the bench.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn search(
    bench: &mut Bench,
    hint: Option<u64>,
    proof: &mut Proof,
    observer: &mut dyn Observer,
) -> Result<Found, BenchError> {
    let max = bench.tester_limit;
    bench.search_rate(max, hint, |bench, rate| {
        let trial = attempt(bench, rate, proof, observer)?;
        if trial.verdict == Verdict::Failed || (trial.verdict == Verdict::Invalid && proof.last_reasons.is_empty()) {
            proof.last_reasons = trial.why();
        }
        Ok(trial)
    })
}

/// One attempt at one rate: the validation, or phase 1 if that did not pass.
///
/// # Errors
/// If it cannot be run.
fn attempt(bench: &mut Bench, rate: u64, proof: &mut Proof, observer: &mut dyn Observer) -> Result<Trial, BenchError> {
    let connections = bench.tuples();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a rate")]
    let validation_rate = ((rate as f64 * bench.effort.alpha) as u64).max(1);
    check_timeout(bench, rate, f64::from(connections) / validation_rate as f64)?;
    bench.gateway.flush()?;
    let began = Instant::now();
    let offering = TrialPlan { tolerated_loss: bench.effort.tolerated_loss_percent, ..bench.phase_one(rate) };
    let first = bench.trial(&offering, observer)?;
    if first.verdict != Verdict::Passed {
        return Ok(first);
    }
    check_age(bench, began, f64::from(connections) / validation_rate as f64)?;
    let plan = bench.validation_after(&first, validation_rate, connections);
    let mut trial = bench.trial(&plan, observer)?;
    if trial.verdict == Verdict::Passed {
        let counts = bench.gateway.counts();
        match TableCounts::missing(counts, connections - plan.unheard) {
            Some(missing) => {
                trial.verdict = Verdict::Failed;
                trial.reasons.push(missing);
            }
            None => proof.counts = counts,
        }
    }
    Ok(trial)
}
