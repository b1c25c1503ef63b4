//! No gateway: the node forwards, as its kernel does when nothing else runs.

use std::time::Duration;

use tombolo_lab::topology::{SERVER_V4, SERVER_V6};

use super::running::Running;
use crate::gateway::kind::Kind;
use crate::machine;

pub(super) fn ipv6() -> Running {
    forwarding(Kind::Plain, SERVER_V6.into())
}

pub(super) fn ipv4(kind: Kind) -> Running {
    forwarding(kind, SERVER_V4.into())
}

fn forwarding(kind: Kind, server_seen_by_client: std::net::IpAddr) -> Running {
    let version = format!("Linux {}", machine::kernel());
    Running {
        kind,
        version,
        server_seen_by_client,
        client_seen_by_server: None,
        started_in: Duration::ZERO,
        processes: Vec::new(),
    }
}
