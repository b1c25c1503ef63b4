//! The procedures on frames, by name.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::known::Known;
use super::measured::Measured;
use super::overload::Start;
use super::{
    back_to_back, capacity, connection_rate, delay, frame_loss, mlrsearch, overload, received_rate, recovery, reset,
    scalability, teardown, turns,
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
    /// What is received while more is sent than the gateway forwards (CSIT "MRR").
    ReceivedRate,
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
    /// RFC 8219 section 10, simultaneous start.
    Overload,
    /// RFC 8219 section 10, incremental start.
    OverloadIncremental,
    /// Non-drop and partial-drop rate by MLRsearch's rules.
    Mlrsearch,
}

impl Procedure {
    /// All of them.
    pub const ALL: [Procedure; 17] = [
        Procedure::Throughput,
        Procedure::FrameLoss,
        Procedure::Latency,
        Procedure::Pdv,
        Procedure::Ipdv,
        Procedure::BackToBack,
        Procedure::Recovery,
        Procedure::Reset,
        Procedure::ReceivedRate,
        Procedure::ConnectionRate,
        Procedure::StatefulThroughput,
        Procedure::Teardown,
        Procedure::Capacity,
        Procedure::Scalability,
        Procedure::Overload,
        Procedure::OverloadIncremental,
        Procedure::Mlrsearch,
    ];

    /// Whether it begins with a search for the throughput, unless that is known.
    pub(crate) fn rests_on_throughput(self) -> bool {
        use Procedure::{BackToBack, Ipdv, Latency, Pdv, Recovery, Reset};
        matches!(self, Latency | Pdv | Ipdv | BackToBack | Recovery | Reset)
    }

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
            Procedure::ReceivedRate => "received-rate",
            Procedure::ConnectionRate => "connection-rate",
            Procedure::StatefulThroughput => "stateful-throughput",
            Procedure::Teardown => "teardown",
            Procedure::Capacity => "capacity",
            Procedure::Scalability => "scalability",
            Procedure::Overload => "overload",
            Procedure::OverloadIncremental => "overload-incremental",
            Procedure::Mlrsearch => "mlrsearch",
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
        if self.needs_state() && !bench.test_frames.technology.is_stateful() {
            return Err(BenchError::Unsuitable(format!(
                "{} is about connections, and {} keeps none",
                self.name(),
                bench.test_frames.technology
            )));
        }
        match self {
            Procedure::Throughput | Procedure::StatefulThroughput => turns::measure_throughput(bench, known, observer),
            Procedure::FrameLoss => frame_loss::measure(bench, known, observer),
            Procedure::Latency => delay::latency(bench, known, observer),
            Procedure::Pdv => delay::pdv(bench, known, observer),
            Procedure::Ipdv => delay::ipdv(bench, known, observer),
            Procedure::BackToBack => back_to_back::measure(bench, known, observer),
            Procedure::Recovery => recovery::measure(bench, known, observer),
            Procedure::Reset => reset::measure(bench, known, observer),
            Procedure::ReceivedRate => received_rate::measure(bench, known, observer),
            Procedure::ConnectionRate => connection_rate::measure(bench, known, observer),
            Procedure::Teardown => teardown::measure(bench, known, observer),
            Procedure::Capacity => capacity::measure(bench, known, observer),
            Procedure::Scalability => scalability::measure(bench, known, observer),
            Procedure::Overload => overload::measure(Start::Together, bench, known, observer),
            Procedure::OverloadIncremental => overload::measure(Start::OneAfterAnother, bench, known, observer),
            Procedure::Mlrsearch => mlrsearch::measure(bench, known, observer),
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
