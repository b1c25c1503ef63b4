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
    // One that stays as it is.
    let mut gateway = [InTurn { bench, known, make: Box::new(|| Err(BenchError::Interrupted)) }];
    measure_throughput_in_turns(&mut gateway, None, observer).pop().unwrap_or(Err(BenchError::Interrupted))
}

/// A gateway whose trials take turns with others'.
pub(crate) struct InTurn<'a> {
    pub(crate) bench: &'a mut Bench,
    pub(crate) known: &'a mut Known,
    /// Makes it anew.
    pub(crate) make: Box<dyn Fn() -> Result<Bench, BenchError> + 'a>,
}

impl InTurn<'_> {
    /// Goes on with a gateway made anew.
    ///
    /// # Errors
    /// If it cannot be made, or does not answer.
    fn make_anew(&mut self, observer: &mut dyn Observer) -> Result<(), BenchError> {
        let mut anew = (self.make)()?;
        anew.probe(observer)?;
        anew.carry_on(self.bench);
        *self.bench = anew;
        Ok(())
    }
}

/// The same of several gateways; in turns only without connections, which would age meanwhile. Those that go up and down are made
/// anew after so many trials, where that is said.
pub(crate) fn measure_throughput_in_turns(
    gateways: &mut [InTurn],
    anew_after: Option<u32>,
    observer: &mut dyn Observer,
) -> Vec<Result<Vec<Measured>, BenchError>> {
    let mut all: Vec<Result<Vec<Measured>, BenchError>> = gateways.iter().map(|_| Ok(Vec::new())).collect();
    let parts = gateways.first().map_or_else(Vec::new, |gateway| Part::all(gateway.bench));
    for part in parts {
        for (all, measured) in all.iter_mut().zip(part.measure(gateways, anew_after, observer)) {
            match (all.as_mut(), measured) {
                (Ok(before), Ok(measured)) => before.push(measured),
                (Ok(_), Err(error)) => *all = Err(error),
                (Err(_), _) => {}
            }
        }
    }
    all
}

/// The gateways in the order of a turn: nobody is always the one after whom.
fn order_of(turn: u32, gateways: usize) -> impl Iterator<Item = usize> {
    (0..gateways).map(move |at| if turn.is_multiple_of(2) { at } else { gateways - 1 - at })
}

impl Part {
    fn measure(
        self,
        gateways: &mut [InTurn],
        anew_after: Option<u32>,
        observer: &mut dyn Observer,
    ) -> Vec<Result<Measured, BenchError>> {
        let anew_after = anew_after.filter(|_| matches!(self, Part::UpAndDown(_)));
        let mut under_way = Vec::new();
        for gateway in gateways {
            let begun = self.begin(gateway.bench, gateway.known, observer);
            under_way.push((gateway, begun));
        }
        let several = under_way.len();
        for round in 0.. {
            if let Some(trials) = anew_after.filter(|trials| round > 0 && round % trials == 0) {
                for at in order_of(round / trials, several) {
                    let (gateway, begun) = &mut under_way[at];
                    if let Err(error) = gateway.make_anew(observer) {
                        *begun = Err(error);
                    }
                }
            }
            let mut goes_on = false;
            for at in order_of(round, several) {
                let (gateway, begun) = &mut under_way[at];
                let Ok(steps) = begun else { continue };
                match steps.try_once(gateway.bench, observer) {
                    Ok(tried) => goes_on |= tried,
                    Err(error) => *begun = Err(error),
                }
            }
            if !goes_on {
                break;
            }
        }
        under_way.into_iter().map(|(gateway, begun)| begun.map(|steps| steps.end(gateway.known))).collect()
    }
}
