//! Measurements of many trials that take turns trial by trial, so that a moment in which the machine is slower meets
//! all gateways.

use super::known::Known;
use super::measured::Measured;
use super::steps::Steps;
use super::throughput::Throughput;
use super::up_and_down::UpAndDown;
use crate::bench::{Bench, BenchError, Observer};
use crate::effort::Effort;

/// What is measured of the throughput, one after the other.
#[derive(Clone, Copy)]
enum Part {
    /// The search in which so many percent may be lost.
    Search(f64),
    /// The turns around what the search without loss found, in which so many may be.
    UpAndDown(f64),
}

impl Part {
    fn all(bench: &Bench) -> Vec<Part> {
        let Effort { tolerated_loss_percent: tolerated, up_and_down_trials: turns, .. } = bench.effort;
        let all = [
            (true, Part::Search(0.0)),
            (tolerated > 0.0 && turns == 0, Part::Search(tolerated)),
            (turns > 0, Part::UpAndDown(tolerated)),
        ];
        all.into_iter().filter_map(|(is_asked, part)| is_asked.then_some(part)).collect()
    }

    /// # Errors
    /// What filling a table returns.
    fn begin(
        self,
        bench: &mut Bench,
        known: &mut Known,
        observer: &mut dyn Observer,
    ) -> Result<Box<dyn Steps>, BenchError> {
        Ok(match self {
            Part::Search(tolerated) => Box::new(Throughput::begin(tolerated, bench, known, observer)?),
            Part::UpAndDown(tolerated) => Box::new(UpAndDown::begin(tolerated, bench, known, observer)?),
        })
    }
}

/// The throughput, and what else of it is asked for.
///
/// # Errors
/// If trials cannot be run.
pub(super) fn measure_throughput(
    bench: &mut Bench,
    known: &mut Known,
    observer: &mut dyn Observer,
) -> Result<Vec<Measured>, BenchError> {
    let mut gateway = [(bench, known)];
    measure_throughput_in_turns(&mut gateway, observer).pop().unwrap_or(Err(BenchError::Interrupted))
}

/// The same of several gateways; in turns only without connections, which would age meanwhile.
pub(crate) fn measure_throughput_in_turns(
    gateways: &mut [(&mut Bench, &mut Known)],
    observer: &mut dyn Observer,
) -> Vec<Result<Vec<Measured>, BenchError>> {
    let mut all: Vec<Result<Vec<Measured>, BenchError>> = gateways.iter().map(|_| Ok(Vec::new())).collect();
    let parts = gateways.first().map_or_else(Vec::new, |(bench, _)| Part::all(bench));
    for part in parts {
        for (all, measured) in all.iter_mut().zip(part.measure(gateways, observer)) {
            match (all.as_mut(), measured) {
                (Ok(before), Ok(measured)) => before.push(measured),
                (Ok(_), Err(error)) => *all = Err(error),
                (Err(_), _) => {}
            }
        }
    }
    all
}

impl Part {
    fn measure(
        self,
        gateways: &mut [(&mut Bench, &mut Known)],
        observer: &mut dyn Observer,
    ) -> Vec<Result<Measured, BenchError>> {
        let mut under_way = Vec::new();
        for (bench, known) in gateways {
            let begun = self.begin(bench, known, observer);
            under_way.push((bench, known, begun));
        }
        let mut order: Vec<usize> = (0..under_way.len()).collect();
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for &at in &order {
                let (bench, _, begun) = &mut under_way[at];
                let Ok(steps) = begun else { continue };
                match steps.try_once(bench, observer) {
                    Ok(tried) => goes_on |= tried,
                    Err(error) => *begun = Err(error),
                }
            }
            // Nobody is always the one after whom.
            order.reverse();
        }
        under_way.into_iter().map(|(_, known, begun)| begun.map(|steps| steps.end(known))).collect()
    }
}
