//! How long a series will take and how much memory, told before it starts.
//!
//! The time is an estimate from the lengths that the effort gives: a search halves its interval
//! until the resolution, invalid trials come on top. The memory is what the tester allocates, and
//! what the gateways' tables take when they are full, as far as that is known. More than the machine
//! has left is refused before anything is sent.

use serde::Serialize;

use crate::effort::Effort;
use crate::procedure::packet::Procedure;
use crate::scale::Rates;

/// Between two trials: building the page pools, starting, waiting for the last frames.
const BETWEEN_TRIALS_S: f64 = 0.25;
/// The first repetition of a search knows nothing; the next ones start at what it found.
const STEPS_AROUND_A_HINT: f64 = 6.0;
/// Tables are filled at half of the rate of connections, so that every one comes to be.
const PART_OF_THE_RATE: f64 = 0.5;
/// What connection tracking reached on one core of a current processor (docs/results), where
/// nothing is known of the gateway.
const USUAL_RATE: f64 = 185_000.0;

/// What a series will take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Measurements: gateways times repetitions, less those that are known.
    pub measurements: u32,
    /// Seconds in all.
    pub seconds: f64,
    /// Bytes of the tester.
    pub memory_bytes: u64,
    /// Bytes of the tables of all gateways on this machine when they are full, as far as known.
    pub gateway_bytes: u64,
}

/// Connections that are made before each trial, or once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Filling {
    /// How many; 0 for what keeps none.
    pub(crate) tuples: u64,
    /// How many a second.
    pub(crate) per_second: f64,
}

impl Filling {
    pub(crate) const NONE: Filling = Filling { tuples: 0, per_second: USUAL_RATE };

    /// So many, of a gateway of which an earlier run found this rate of connections.
    pub(crate) fn of(tuples: u64, connection_rate: Option<f64>) -> Filling {
        Filling { tuples, per_second: connection_rate.unwrap_or(USUAL_RATE) * PART_OF_THE_RATE }
    }

    fn seconds(self) -> f64 {
        self.tuples as f64 / self.per_second.max(1.0)
    }
}

/// Seconds of one measurement, and of what the first one has to find out before.
pub(crate) fn seconds_of(procedure: Procedure, effort: &Effort, filling: Filling) -> (f64, f64) {
    let tuples = filling.tuples;
    let drain = if effort.always_drain { effort.drain_ms } else { 0 };
    let between = BETWEEN_TRIALS_S + (drain + effort.pause_ms) as f64 / 1000.0;
    let fill = filling.seconds() + between;
    let steps = (1.0 / effort.resolution).log2().ceil();
    let refill = if effort.refill_each_trial && tuples > 0 { fill } else { 0.0 };
    let trial = |seconds: f64| seconds + between;
    // A second look upwards fails at two rates as a rule, each as often as it is verified.
    let looks = f64::from(effort.second_looks * 2 * (1 + effort.verify_failures));
    let search = |steps: f64| (steps + looks) * (trial(effort.trial_seconds) + refill) + fill;
    let validated = |steps: f64| steps * (fill + fill / effort.alpha);
    let first = match effort.exploring() {
        None => search(steps),
        Some(short) => {
            let explored = (1.0 / short.resolution).log2().ceil() * (short.trial_seconds + BETWEEN_TRIALS_S);
            explored + search(STEPS_AROUND_A_HINT)
        }
    };
    match procedure {
        Procedure::Throughput | Procedure::StatefulThroughput => {
            let has_turns = effort.up_and_down_trials > 0;
            let searches = if effort.tolerated_loss_percent > 0.0 && !has_turns { 2.0 } else { 1.0 };
            let turns = f64::from(effort.up_and_down_trials) * (trial(effort.trial_seconds) + refill);
            (searches * search(STEPS_AROUND_A_HINT) + turns, searches * (first - search(STEPS_AROUND_A_HINT)).max(0.0))
        }
        Procedure::FrameLoss => {
            (fill + f64::from(100 / effort.loss_step_percent.max(1)) * trial(effort.trial_seconds), 0.0)
        }
        Procedure::Latency => (fill + trial(effort.latency_seconds), first),
        Procedure::Pdv | Procedure::Ipdv => (fill + trial(effort.variation_seconds), first),
        Procedure::BackToBack => {
            let one = steps * trial(effort.burst_seconds / 4.0);
            (fill + f64::from(effort.burst_repetitions) * one, first)
        }
        Procedure::Recovery => (fill + trial(3.0 * effort.overload_seconds), first),
        Procedure::Reset => (fill + trial(effort.reset_seconds) + fill, first),
        Procedure::ReceivedRate => (fill + trial(effort.trial_seconds), 0.0),
        Procedure::ConnectionRate => {
            (validated(STEPS_AROUND_A_HINT), validated((steps - STEPS_AROUND_A_HINT).max(0.0)))
        }
        Procedure::Teardown => (2.0 * fill, 0.0),
        Procedure::Capacity => (4.0 * fill, 0.0),
        Procedure::Mlrsearch => {
            // Half of the trials decide where all are alike.
            let load = effort.short_trials as f64 / 2.0 * trial(effort.short_trial_seconds);
            (fill + 1.5 * steps * load, 0.0)
        }
        Procedure::Overload | Procedure::OverloadIncremental => {
            // One flow, ten, ... up to all of some millions; a trial is longer by the time in which they begin.
            let beginning = if procedure == Procedure::Overload { 0.0 } else { effort.trial_seconds };
            let effort = &Effort { trial_seconds: effort.trial_seconds + beginning, ..*effort };
            let search = |steps: f64| steps * (trial(effort.trial_seconds) + refill) + fill;
            let points = if tuples > 0 { (tuples as f64).log10().ceil() + 1.0 } else { 11.0 };
            (points * (search(steps) + fill + trial(effort.latency_seconds + beginning)), 0.0)
        }
        // Of the usual three points.
        Procedure::Scalability => {
            seconds_of_series(Rates::Forwarding, effort, filling, &[tuples / 100, tuples / 10, tuples])
        }
    }
}

/// The same of a scalability series with so many connections at its points.
pub(crate) fn seconds_of_series(rates: Rates, effort: &Effort, filling: Filling, points: &[u64]) -> (f64, f64) {
    let is_stateful = filling.tuples > 0;
    let procedures: &[Procedure] = match (rates, is_stateful) {
        (Rates::Teardown, _) => &[Procedure::Teardown],
        (Rates::Forwarding, true) => &[Procedure::ConnectionRate, Procedure::Throughput],
        (Rates::Forwarding, false) => &[Procedure::Throughput],
    };
    let all = points.iter().flat_map(|point| procedures.iter().map(move |procedure| (*procedure, *point)));
    all.fold((0.0, 0.0), |(each, first), (procedure, connections)| {
        let tuples = if is_stateful { connections } else { 0 };
        let one = seconds_of(procedure, effort, Filling { tuples, ..filling });
        (each + one.0, first + one.1)
    })
}

/// Memory that is left on this machine, bytes.
pub(crate) fn memory_left() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Whether the gateways' tables fit into what is left; in words why not. The tester has its own already.
///
/// # Errors
/// In words.
pub(crate) fn check_memory(forecast: &Forecast, left: Option<u64>) -> Result<(), String> {
    match left.filter(|left| forecast.gateway_bytes > *left) {
        None => Ok(()),
        Some(left) => Err(format!(
            "the gateways' tables will take {} MiB, and the machine has {} MiB left; ask for fewer connections or gateways",
            forecast.gateway_bytes >> 20,
            left >> 20
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_memory_is_refused_before() {
        let forecast = Forecast { measurements: 1, seconds: 1.0, memory_bytes: 0, gateway_bytes: 3 << 30 };
        assert!(check_memory(&forecast, Some(2 << 30)).unwrap_err().contains("3072 MiB"));
        assert!(check_memory(&forecast, Some(4 << 30)).is_ok() && check_memory(&forecast, None).is_ok());
        assert!(memory_left().is_some_and(|left| left > 1 << 20));
    }

    #[test]
    fn a_gateway_that_is_known_to_be_slow_takes_longer() {
        let seconds = |rate| seconds_of(Procedure::ConnectionRate, &Effort::FULL, Filling::of(4_000_000, rate)).0;
        assert!(seconds(Some(10_000.0)) > 5.0 * seconds(None) && seconds(Some(1e6)) < seconds(None));
    }

    #[test]
    fn a_full_search_takes_hours_and_a_quick_one_seconds() {
        let total = |procedure, effort: &Effort, tuples| {
            let (each, first) = seconds_of(procedure, effort, Filling::of(tuples, None));
            f64::from(effort.repetitions) * each + first
        };
        let full = total(Procedure::Throughput, &Effort::FULL, 0);
        let without_short_trials = Effort { exploring_seconds: 0.0, repetitions: 1, ..Effort::FULL };
        let once = Effort { repetitions: 1, ..Effort::FULL };
        let (long, short) =
            (total(Procedure::Throughput, &without_short_trials, 0), total(Procedure::Throughput, &once, 0));
        assert!(short < 0.7 * long, "{short} s, {long} s");
        let looking = Effort { second_looks: 10, ..without_short_trials };
        assert!(total(Procedure::Throughput, &looking, 0) > 2.0 * long);
        assert!((1.5 * 3600.0..5.0 * 3600.0).contains(&full), "{full} s");
        let quick = total(Procedure::Throughput, &Effort::QUICK, 0);
        assert!((5.0..60.0).contains(&quick), "{quick} s");
        let standard = total(Procedure::Throughput, &Effort::STANDARD, 0);
        assert!(quick < standard && standard < full, "{standard} s");
    }
}
