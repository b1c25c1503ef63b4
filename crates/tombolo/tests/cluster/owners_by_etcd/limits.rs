//! What the design allows for, with what a busy machine of two processors takes besides.

use std::time::Duration;

/// So long a flow may be silent, and so long a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) datagrams: Duration,
    pub(super) tcp: Duration,
}

const fn limits(datagrams: u64, tcp: u64) -> Limits {
    Limits { datagrams: Duration::from_millis(datagrams), tcp: Duration::from_millis(tcp) }
}

/// Nothing is lost. Routers that move flows to other nodes may lose some within 9 ms, on a busy machine; a connection that loses one
/// segment sends it again after 0.2 s.
pub(super) const NOTHING: Limits = limits(25, 500);
/// Something comes back: what is lost is lost while routes change.
pub(super) const RETURN: Limits = limits(100, 500);
/// BFD finds out within 0.3 s, and routers change their routes. A connection sends again after 0.2 s, and then after 0.6 s.
pub(super) const BFD: Limits = limits(400, 1200);
/// The same where FRR is a router.
pub(super) const BFD_OF_FRR: Limits = limits(500, 1500);
/// A link to one side is gone: BFD, and 0.4 s more.
pub(super) const LINK: Limits = limits(700, 2000);
/// The network between the nodes is gone at a node that is an entrance of other nodes' subscribers: until BFD has found out and etcd was
/// silent for half a second, and routers have heard.
pub(super) const CORE: Limits = limits(900, 2000);

/// So long a new subscriber waits at most whose slice's owner is gone: until its lease is over, and its successor knows.
pub(super) const ADMISSION: Duration = Duration::from_millis(2600);
/// The same of those who come to the owner itself: until its successor has said so to it as well.
pub(super) const ADMISSION_BY_DEPOSED: Duration = Duration::from_secs(3);
/// So long at least, if the owner's lease held when it went.
pub(super) const LEASE_LEFT: Duration = Duration::from_secs(1);
/// The same where the leader of etcd is gone with the owner: an election, and all leases begin anew.
pub(super) const ADMISSION_WITHOUT_LEADER: Duration = Duration::from_secs(4);
/// Where nothing keeps a new subscriber waiting.
pub(super) const AT_ONCE: Duration = Duration::from_millis(500);
/// So soon after a backup is gone, or the path to it, another one has the copy, of few bindings: until BFD has found out and it was silent
/// for 0.6 s, and all that there is was sent.
pub(super) const ANOTHER_COPY: Duration = Duration::from_millis(2500);
/// So long slices have no whole copy at most once somebody is there to have it.
pub(super) const PROTECTION: Duration = Duration::from_secs(10);
