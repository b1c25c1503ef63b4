//! The kernel's stateful NAT44 by nftables: masquerade on the outside interface.

use std::time::Duration;

use tombolo_lab::{Lab, LabError, topology::SERVER_V4};

use super::running::Running;
use crate::gateway::kind::Kind;
use crate::machine;

pub(super) fn start(lab: &Lab) -> Result<Running, LabError> {
    let gateway = lab.node("gateway")?;
    let nft = |arguments: &[&str]| gateway.command("nft").args(arguments.iter().copied()).run()?.success().map(drop);
    nft(&["add", "table", "ip", "nat"])?;
    nft(&["add", "chain", "ip", "nat", "postrouting", "{ type nat hook postrouting priority srcnat; }"])?;
    nft(&["add", "rule", "ip", "nat", "postrouting", "oifname", "outside0", "masquerade"])?;
    Ok(Running {
        kind: Kind::Nftables,
        version: machine::version_of("nft", &["--version"]),
        server_seen_by_client: SERVER_V4.into(),
        client_seen_by_server: None,
        started_in: Duration::ZERO,
        processes: Vec::new(),
    })
}
