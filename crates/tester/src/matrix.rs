//! Every technology by every procedure that applies to it: one gateway after another, each measured
//! once by all procedures, which share what they find (throughput, rate of connections).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bench::BenchError;
use crate::effort::Effort;
use crate::gateway::{Spec, Technology};
use crate::procedure::{Measured, packet::Procedure};
use crate::results::ResultFile;
use crate::scale::{Connections, Scale};
use crate::series::{Progress, Recorder, SeriesPlan};

/// What to measure.
#[derive(Clone, Debug)]
pub struct MatrixPlan {
    /// Everything but the technology and the procedure, which differ from cell to cell.
    pub base: SeriesPlan,
    /// The rows.
    pub technologies: Vec<Technology>,
    /// The columns.
    pub procedures: Vec<Procedure>,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub technology: Technology,
    /// Which gateway.
    pub gateway: Spec,
    /// What each procedure came to, or in words why it came to nothing.
    pub cells: BTreeMap<&'static str, Result<Vec<Measured>, String>>,
    /// How long it took.
    pub took: Duration,
}

impl MatrixPlan {
    /// Shorter than the quick form: a cell in a few seconds, and overload by one flow and by all.
    pub const EFFORT: Effort = Effort {
        form: "matrix",
        trial_seconds: 0.15,
        repetitions: 1,
        resolution: 0.1,
        latency_seconds: 0.4,
        latency_from_seconds: 0.1,
        timed_frames: 500,
        variation_seconds: 0.4,
        burst_seconds: 0.05,
        burst_repetitions: 1,
        overload_seconds: 0.4,
        reset_seconds: 1.5,
        loss_step_percent: 20,
        flows_step: 1 << 32,
        // Nothing is certain here, so nothing is made sure of.
        verify_failures: 0,
        repeat_invalid: 1,
        drain_ms: 60,
        short_trials: 3,
        ..Effort::QUICK
    };

    /// Measures every cell, row by row. What fails is a cell in words.
    ///
    /// # Errors
    /// If the machine or the result file does not play along, or the run was interrupted.
    pub fn run(&self, results: &mut ResultFile, progress: &mut dyn Progress) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        for technology in &self.technologies {
            for gateway in self.base.gateways.iter().filter(|gateway| gateway.does(*technology)) {
                rows.push(self.row(*technology, gateway, results, progress)?);
            }
        }
        Ok(rows)
    }

    /// Whether a procedure says anything of a technology.
    pub fn applies(procedure: Procedure, technology: Technology) -> bool {
        technology.is_stateful() || !procedure.needs_state()
    }

    fn row(
        &self,
        technology: Technology,
        gateway: &Spec,
        results: &mut ResultFile,
        progress: &mut dyn Progress,
    ) -> Result<Row, BenchError> {
        let began = Instant::now();
        let scale = Scale { connections: Connections::Ends, ..Scale::default() };
        let gateways = vec![gateway.clone()];
        let plan = SeriesPlan { technology: Some(technology), gateways, scale, ..self.base.clone() };
        let mut cells = BTreeMap::new();
        let procedures = || self.procedures.iter().filter(|procedure| MatrixPlan::applies(**procedure, technology));
        let mut station = match plan.alone(results) {
            Ok(station) => station,
            Err(error) => {
                let why = if_it_goes_on(error)?;
                cells.extend(procedures().map(|procedure| (procedure.name(), Err(why.clone()))));
                return Ok(Row { technology, gateway: gateway.clone(), cells, took: began.elapsed() });
            }
        };
        let count = u32::try_from(procedures().count()).unwrap_or(u32::MAX);
        let mut is_probed = false;
        for (done, procedure) in (0..).zip(procedures()) {
            let mut recorder = Recorder { results, progress, done: (done, count) };
            let outcome = match is_probed {
                true => station.measure(*procedure, &mut recorder),
                false => plan.measure_as(*procedure, &mut station, &mut recorder),
            };
            // After a restart everything is asked anew, and after a failure.
            is_probed = outcome.is_ok() && *procedure != Procedure::Reset;
            let cell = match outcome {
                Ok(measured) => Ok(measured),
                Err(error) => Err(if_it_goes_on(error)?),
            };
            results.write(&json!({
                "record": "cell", "technology": technology, "gateway": gateway.to_string(), "procedure": procedure,
                "measured": cell.as_ref().ok(), "error": cell.as_ref().err(),
            }))?;
            if let Ok(measured) = &cell {
                progress.measured(&format!("{technology}, {procedure}"), 1, measured);
            }
            cells.insert(procedure.name(), cell);
        }
        Ok(Row { technology, gateway: gateway.clone(), cells, took: began.elapsed() })
    }
}

/// Why there is no value; the error itself where nothing else can be measured either.
fn if_it_goes_on(error: BenchError) -> Result<String, BenchError> {
    match error {
        BenchError::Interrupted | BenchError::Results(_) => Err(error),
        _ if tombolo_lab::interrupted() => Err(BenchError::Interrupted),
        other => Ok(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_measured_where_there_are_any() {
        let applies = MatrixPlan::applies;
        assert!(applies(Procedure::ConnectionRate, Technology::DsLite));
        assert!(!applies(Procedure::ConnectionRate, Technology::Lwaftr));
        assert!(Technology::ALL.into_iter().all(|technology| applies(Procedure::Throughput, technology)));
    }
}
