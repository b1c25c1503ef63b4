//! Requests of PCP that the host has received itself, at an address of its own: hosts inside that are told nothing else ask
//! their default router (RFC 6887 section 8.1). Whoever takes them from the host's socket has them answered here, by the
//! same code as those that come the way of packets.

use std::net::IpAddr;

use tombolo_wire::pcp::LONGEST;

use crate::counters::Whose;
use crate::engine::Engine;
use crate::mechanism::napt::{Host, KnownBy};
use crate::mechanism::screen::{is_illegal_source_ipv4, is_illegal_source_ipv6};
use crate::mechanism::slice;
use crate::now::Now;
use crate::packet::{HEADROOM, Offload, Packet};
use crate::pcp;
use crate::plan::{Plan, Service};
use crate::side::Side;
use crate::trace::Notes;
use crate::verdict::Verdict;

/// The service that takes requests of the host with this address; none if it is inside none.
#[must_use]
pub fn asked_service(plan: &Plan, client: IpAddr) -> Option<(u8, &Service)> {
    let (host, known_by) = known(client)?;
    pcp::service_of(plan, host, known_by)
}

impl Engine {
    /// Writes the response to what `client` has sent, and counts it: how many bytes of `response` it is. `None` if there is
    /// none.
    pub fn respond_to_request(
        &mut self,
        plan: &Plan,
        client: IpAddr,
        message: &[u8],
        now: Now,
        response: &mut [u8; LONGEST],
    ) -> Option<usize> {
        let (host, known_by) = known(client)?;
        // There is no packet: the host has taken the request out of it.
        let mut buffer = [0; HEADROOM];
        let packet = Packet::new(&mut buffer, HEADROOM, 0, Offload::default())?;
        let mut nobody = |_: &mut Packet<'_>| ();
        let (mut work, _) = self.work(plan, packet, now, &mut nobody, Notes(None));
        let asking = pcp::client(plan, host, known_by, client, &mut work).ok()?;
        // Another node has the ports of this host, and cannot answer from an address of this one.
        if slice::node_of_host(asking.nat, asking.host, 0, &mut work).ok()?.is_some() {
            return None;
        }
        let (answered, length) = asking.respond(message, &mut work, response)?;
        let whose = Whose { side: Side::Inside, service: Some(work.number) };
        self.counters().count(whose, message.len(), Verdict::Pcp(answered));
        Some(length)
    }
}

/// Who it is by the address; none if nobody may have it.
fn known(client: IpAddr) -> Option<(Host, KnownBy)> {
    match client {
        IpAddr::V4(address) => (!is_illegal_source_ipv4(address)).then(|| (address.into(), KnownBy::Ipv4)),
        // Nobody outside reaches a port of a link-local address.
        IpAddr::V6(address) => (!is_illegal_source_ipv6(address) && !address.is_unicast_link_local())
            .then(|| (address.into(), KnownBy::Ipv6)),
    }
}
