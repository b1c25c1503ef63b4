//! The kernel's stateful NAT44: iptables MASQUERADE on the outside interface. No IPv6 in it; it is
//! the yardstick for stateful translation that everybody has.

use std::time::Duration;

use tombolo_lab::{Lab, LabError, topology::SERVER_V4};

use super::running::Running;
use crate::gateway::kind::Kind;
use crate::machine;

pub(super) fn start(lab: &Lab) -> Result<Running, LabError> {
    let masquerade = ["-t", "nat", "-A", "POSTROUTING", "-o", "outside0", "-j", "MASQUERADE"];
    lab.node("gateway")?.command("iptables").args(masquerade).run()?.success()?;
    Ok(Running {
        kind: Kind::Iptables,
        version: machine::version_of("iptables", &["--version"]),
        server_seen_by_client: SERVER_V4.into(),
        client_seen_by_server: None,
        started_in: Duration::ZERO,
        processes: Vec::new(),
    })
}
