//! What came of the demo, and why it failed.

use serde::Serialize;
use tombolo_lab::LabError;
use tombolo_tester::{gateway::start::StartError, iperf3::Iperf3Error};

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The gateway's name.
    pub(crate) gateway: String,
    /// Its version.
    pub(crate) version: String,
    /// From starting the gateway to its first packet, in milliseconds.
    pub(crate) start_ms: u128,
    /// The steps in order.
    pub(crate) steps: Vec<StepReport>,
    /// The five technologies; none if another gateway is shown.
    pub(crate) technologies: Vec<TechnologyReport>,
    /// The gateway's last lines, when a step failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) log: String,
}

/// What came of one technology with a gateway at either end.
#[derive(Debug, Serialize)]
pub(crate) struct TechnologyReport {
    /// Its name, which is that of its scenario too.
    pub(crate) technology: &'static str,
    /// From starting the gateways to the first packet through both, in milliseconds.
    pub(crate) start_ms: u128,
    /// The steps in order.
    pub(crate) steps: Vec<StepReport>,
}

/// What came of one step.
#[derive(Debug, Serialize)]
pub(crate) struct StepReport {
    /// What was tried.
    pub(crate) what: &'static str,
    /// Whether it worked through the gateway.
    pub(crate) worked: bool,
    /// What was seen, or why it failed.
    pub(crate) result: String,
    /// The figure through the gateway, the median of the rounds.
    pub(crate) ours: Option<f64>,
    /// The figure over plain forwarding, likewise.
    pub(crate) plain: Option<f64>,
    /// The unit of both.
    pub(crate) unit: &'static str,
    /// `ours` divided by `plain`, the median of the rounds.
    pub(crate) ratio: Option<f64>,
}

/// What a step has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) text: String,
    pub(super) figure: f64,
}

/// Why a step, or the whole demo, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Gateway(#[from] StartError),
    #[error(transparent)]
    Iperf3(#[from] Iperf3Error),
    /// Something came through, but not what was sent.
    #[error("{0}")]
    Wrong(String),
}

impl DemoError {
    /// The error with its causes.
    pub(super) fn describe(&self) -> String {
        let causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }
}
