//! Both ends of a technology, this project's gateway twice: a customer's edge and the provider's
//! end, with an IPv6-only network between them (the scenarios of the lab). The client speaks IPv4
//! to the server.

use std::time::Duration;

use tombolo_lab::{Lab, LabError, Scenario, topology::SERVER_V4};

use super::running::{Options, Running};
use super::tombolo::mtu_keys;
use crate::gateway::kind::Kind;
use crate::machine;

/// Starts every gateway of the scenario, each with the settings in front of its service.
pub(super) fn start(kind: Kind, scenario: &Scenario, lab: &Lab, options: &Options) -> Result<Running, LabError> {
    let executable = options.tombolo.display().to_string();
    let mtu = mtu_keys(options.technology, options.mtu);
    let start = |(node, text): &(&str, String)| {
        lab.start_gateway(node, &executable, &format!("{}\n{text}{mtu}", options.settings))
    };
    Ok(Running {
        kind,
        version: machine::version_of(&executable, &["--version"]),
        server_seen_by_client: SERVER_V4.into(),
        client_seen_by_server: None,
        started_in: Duration::ZERO,
        processes: scenario.gateways.iter().map(start).collect::<Result<_, _>>()?,
    })
}
