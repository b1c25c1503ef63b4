//! No gateway: the node forwards, as its kernel does when nothing else runs.

use std::time::Duration;

use tombolo_lab::topology::{SERVER_V4, SERVER_V6};

use super::{Dut, Gateway};
use crate::machine;

pub(super) fn ipv6() -> Gateway {
    forwarding(Dut::Plain, SERVER_V6.into())
}

pub(super) fn ipv4(dut: Dut) -> Gateway {
    forwarding(dut, SERVER_V4.into())
}

fn forwarding(dut: Dut, server_seen_by_client: std::net::IpAddr) -> Gateway {
    let version = format!("Linux {}", machine::kernel());
    Gateway {
        dut,
        version,
        server_seen_by_client,
        client_seen_by_server: None,
        started_in: Duration::ZERO,
        processes: Vec::new(),
    }
}
