//! What an attacker can know of connections that live: their remote, and their outside endpoints.

use std::net::Ipv4Addr;

/// Ports of the remote, [`SERVER`](super::traffic::SERVER), to which the witnesses talk.
pub(super) const UDP_PORT: u16 = 7002;
pub(super) const TCP_PORT: u16 = 7003;

/// Outside endpoints of connections that live.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Of flows to [`UDP_PORT`].
    pub(super) udp: Vec<(Ipv4Addr, u16)>,
    /// Of connections to [`TCP_PORT`].
    pub(super) tcp: Vec<(Ipv4Addr, u16)>,
}
