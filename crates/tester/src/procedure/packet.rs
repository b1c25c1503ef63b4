//! What the packet procedures have in common: their names, their results, and the order in which
//! one builds on another.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;
use tombolo_generator::Timed;

use super::{
    back_to_back, capacity, connection_rate, delay, frame_loss, recovery, reset, scalability, teardown, throughput,
};
use crate::bench::{Bench, BenchError, Observer};

/// A procedure on frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Procedure {
    /// RFC 2544 section 26.1.
    Throughput,
    /// RFC 2544 section 26.3.
    FrameLoss,
    /// RFC 8219 section 7.2.
    Latency,
    /// RFC 8219 section 7.3.1.
    Pdv,
    /// RFC 8219 section 7.3.2.
    Ipdv,
    /// RFC 2544 section 26.4, RFC 9004.
    BackToBack,
    /// RFC 2544 section 26.5.
    Recovery,
    /// RFC 2544 section 26.6, RFC 6201.
    Reset,
    /// RFC 9693 section 4.4 and 4.5.
    ConnectionRate,
    /// RFC 9693 section 4.6: throughput in phase 2.
    StatefulThroughput,
    /// RFC 9693 section 4.7.
    Teardown,
    /// RFC 9693 section 4.8.
    Capacity,
    /// RFC 9693 section 4.10.
    Scalability,
}

impl Procedure {
    /// All of them.
    pub const ALL: [Procedure; 13] = [
        Procedure::Throughput,
        Procedure::FrameLoss,
        Procedure::Latency,
        Procedure::Pdv,
        Procedure::Ipdv,
        Procedure::BackToBack,
        Procedure::Recovery,
        Procedure::Reset,
        Procedure::ConnectionRate,
        Procedure::StatefulThroughput,
        Procedure::Teardown,
        Procedure::Capacity,
        Procedure::Scalability,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Procedure::Throughput => "throughput",
            Procedure::FrameLoss => "frame-loss",
            Procedure::Latency => "latency",
            Procedure::Pdv => "pdv",
            Procedure::Ipdv => "ipdv",
            Procedure::BackToBack => "back-to-back",
            Procedure::Recovery => "recovery",
            Procedure::Reset => "reset",
            Procedure::ConnectionRate => "connection-rate",
            Procedure::StatefulThroughput => "stateful-throughput",
            Procedure::Teardown => "teardown",
            Procedure::Capacity => "capacity",
            Procedure::Scalability => "scalability",
        }
    }

    /// Whether it is about connections, which stateless gateways do not have.
    pub fn needs_state(self) -> bool {
        matches!(
            self,
            Procedure::ConnectionRate | Procedure::StatefulThroughput | Procedure::Teardown | Procedure::Capacity
        )
    }

    /// Measures once.
    ///
    /// # Errors
    /// If there is no result.
    pub fn measure(
        self,
        bench: &mut Bench,
        known: &mut Known,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Measured>, BenchError> {
        if self.needs_state() && !bench.setup.technology.is_stateful() {
            return Err(BenchError::Unsuitable(format!(
                "{} is about connections, and {} keeps none",
                self.name(),
                bench.setup.technology
            )));
        }
        match self {
            Procedure::Throughput | Procedure::StatefulThroughput => throughput::measure(bench, known, observer),
            Procedure::FrameLoss => frame_loss::measure(bench, known, observer),
            Procedure::Latency => delay::latency(bench, known, observer),
            Procedure::Pdv => delay::pdv(bench, known, observer),
            Procedure::Ipdv => delay::ipdv(bench, known, observer),
            Procedure::BackToBack => back_to_back::measure(bench, known, observer),
            Procedure::Recovery => recovery::measure(bench, known, observer),
            Procedure::Reset => reset::measure(bench, known, observer),
            Procedure::ConnectionRate => connection_rate::measure(bench, known, observer),
            Procedure::Teardown => teardown::measure(bench, known, observer),
            Procedure::Capacity => capacity::measure(bench, known, observer),
            Procedure::Scalability => scalability::measure(bench, known, observer),
        }
    }
}

impl fmt::Display for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Procedure {
    type Err = String;

    fn from_str(text: &str) -> Result<Procedure, String> {
        Procedure::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| format!("no procedure is called `{text}`"))
    }
}

/// One value of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What it is.
    pub quantity: &'static str,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The tester set the limit: the gateway may be better.
    pub limited_by_tester: bool,
    /// Everything else that the procedure has to report.
    pub details: Value,
}

impl Measured {
    /// A value of which more is better.
    pub fn rate(quantity: &'static str, value: f64, unit: &'static str, details: Value) -> Measured {
        Measured { quantity, value, unit, higher_is_better: true, limited_by_tester: false, details }
    }

    /// A value of which less is better.
    pub fn cost(quantity: &'static str, value: f64, unit: &'static str, details: Value) -> Measured {
        Measured { quantity, value, unit, higher_is_better: false, limited_by_tester: false, details }
    }
}

/// What is known of a gateway from before: one procedure needs what another found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// Throughput of each direction, frames a second; given by the user or measured.
    pub throughput: Option<u64>,
    /// Validated connection establishment rate.
    pub connection_rate: Option<u64>,
    /// Rate of phase 1 of stateful procedures, frames a second; given by the user.
    pub fill_rate: Option<u64>,
    /// Largest number of sessions of a series; 0 where the user did not say.
    pub sessions: u32,
}

impl Known {
    /// Rate at which phase 1 fills the table: safely below the connection establishment rate (RFC
    /// 9693 section 4.4).
    ///
    /// # Errors
    /// What measuring the connection establishment rate returns.
    pub fn fill_rate(&mut self, bench: &mut Bench, observer: &mut dyn Observer) -> Result<u64, BenchError> {
        if let Some(rate) = self.fill_rate {
            return Ok(rate);
        }
        if !bench.setup.technology.is_stateful() {
            return Ok(0);
        }
        if bench.effort.quick {
            return self.quick_fill_rate(bench, observer);
        }
        if self.connection_rate.is_none() {
            connection_rate::measure(bench, self, observer)?;
        }
        let rate = (self.connection_rate.unwrap_or(0) / 2).max(1000);
        self.fill_rate = Some(rate);
        Ok(rate)
    }

    /// A quick run takes the first of some modest rates at which the table can be filled at all.
    fn quick_fill_rate(&mut self, bench: &mut Bench, observer: &mut dyn Observer) -> Result<u64, BenchError> {
        let mut result = Ok(0);
        for rate in [50_000, 20_000, 5_000] {
            result = bench.fill(rate, observer).map(|()| rate);
            if !matches!(result, Err(BenchError::Unfilled { .. })) {
                break;
            }
        }
        self.fill_rate = Some(result?);
        Ok(self.fill_rate.unwrap_or(0))
    }

    /// The throughput, measured now if it is not known.
    ///
    /// # Errors
    /// What measuring returns; also if no rate at all passes.
    pub fn throughput(&mut self, bench: &mut Bench, observer: &mut dyn Observer) -> Result<u64, BenchError> {
        if self.throughput.is_none() {
            throughput::measure(bench, self, observer)?;
        }
        self.throughput.filter(|rate| *rate > 0).ok_or_else(|| {
            BenchError::Unsuitable(format!(
                "{}: loses frames at every rate, so there is no throughput",
                bench.gateway.name()
            ))
        })
    }
}

/// Refuses where connections would expire during the measurement (RFC 9693 section 4.4).
///
/// # Errors
/// If the gateway's timeout is known and too short.
pub fn check_timeout(bench: &Bench, fill_rate: u64, seconds: f64) -> Result<(), BenchError> {
    let Some(timeout) = bench.gateway.udp_timeout_seconds() else { return Ok(()) };
    if !bench.setup.technology.is_stateful() {
        return Ok(());
    }
    let needed = f64::from(bench.tuples()) / fill_rate.max(1) as f64 + 1.0 + seconds;
    if needed < timeout as f64 {
        return Ok(());
    }
    Err(BenchError::Unsuitable(format!(
        "{} forgets UDP connections after {timeout} s, but phase 1 and the trial take {needed:.0} s; raise its timeout, or \
         take fewer sessions or a shorter trial",
        bench.gateway.name()
    )))
}

/// Timed frames: `count` of them, evenly from `from_seconds` to the end.
pub fn timed(rate: u64, frames: u32, from_seconds: f64, count: u32) -> Timed {
    let from = crate::effort::Effort::frames(rate, from_seconds).min(frames / 2);
    Timed { from, every: ((frames - from) / count.max(1)).max(1) }
}
