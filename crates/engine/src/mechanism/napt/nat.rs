//! The walk of a packet through a NAT: which endpoint it gets on the other side.
//!
//! Read first: RFC 6146 section 3.5, RFC 4787, RFC 5382, RFC 5508.
//!
//! ```text
//!             a packet                   an ICMP error about a packet
//! to outside  leave:  host -> endpoint   error_leaves
//! to inside   arrive: endpoint -> host   error_arrives
//! ```
//!
//! All services with bindings stand on these four. They give endpoints; the service translates,
//! readdresses or encapsulates. Errors look at state and change none (RFC 6146 section 3.5.3, RFC
//! 5508 REQ-6).

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_tables::binding::InsideKey;
use tombolo_wire::Port;

use super::classify::{classify, classify_embedded, refuse_query};
use super::held::SynEnds;
use super::host::Host;
use super::policy::Policy;
use super::state::Napt;
use super::static_binding::StaticBinding;
use crate::cluster::Granting;
use crate::endpoint::Endpoint;
use crate::mapping::pool::{Pool, PortSpace};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::parse::Parsed;
use crate::random::Random;
use crate::verdict::DropReason;
use crate::work::Work;

/// The NAT of one service.
#[derive(Debug, Clone, Default)]
pub struct Nat {
    /// Outside addresses and ports.
    pub pool: Pool,
    /// What subscribers may do.
    pub policy: Policy,
    /// Bindings that are always there.
    pub static_bindings: Vec<StaticBinding>,
}

/// Where a packet from outside goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// To this inside endpoint.
    At(InsideKey),
    /// Nowhere yet: a SYN that waits for the inside to open.
    Held,
}

impl Nat {
    /// A packet from `host` to `remote`: the outside endpoint that it leaves from. What state it
    /// needs is made.
    ///
    /// # Errors
    /// [`Refusal`]: as [`Napt::outbound`], ICMP that is no echo, a protocol that the service does not
    /// translate.
    #[inline]
    pub(crate) fn leave<A>(
        &self,
        parsed: &Parsed<A>,
        host: Host,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Endpoint, Refusal> {
        let (space, event) = classify(parsed, &work.packet, &self.policy)
            .map_err(|refusal| refuse_query(refusal, parsed, &work.packet))?;
        let remote = Endpoint { address: remote, port: parsed.destination_port };
        let inside = host.key(work.number, space, parsed.source_port);
        let outside =
            self.state_at(work, space, remote).outbound(&inside, space, remote, event).map_err(no_state_inside)?;
        work.notes.add(clause(&inside), || {
            let outside = describe_outside(space, outside);
            format!("{} is bound to {outside}, towards {}", describe(&inside), remote.address)
        });
        Ok(outside)
    }

    /// A packet from `remote` to the outside address `outside`: the inside endpoint that it is for.
    ///
    /// # Errors
    /// [`Refusal`]: as [`Napt::inbound`], ICMP that is no echo, a protocol that the service does not
    /// translate.
    #[inline]
    pub(crate) fn arrive<A>(
        &self,
        parsed: &Parsed<A>,
        outside: Ipv4Addr,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Arrival, Refusal> {
        let (space, event) = classify(parsed, &work.packet, &self.policy)?;
        let outside = Endpoint { address: outside, port: parsed.destination_port };
        let remote = Endpoint { address: remote, port: parsed.source_port };
        match self.state_at(work, space, remote).inbound(outside, space, remote, event) {
            Ok(inside) => {
                work.notes.add(clause(&inside), || {
                    format!("{} is bound to {}", describe_outside(space, outside), describe(&inside))
                });
                Ok(Arrival::At(inside))
            }
            Err(reason) if self.policy.holds(reason, space, event) => {
                self.hold(SynEnds { outside, remote }, reason, work)
            }
            Err(reason) => Err(reason.into()),
        }
    }

    /// An ICMP error from `host` about packet `about`, which came to it from `remote`: the outside
    /// endpoint that the remote has sent to.
    ///
    /// # Errors
    /// [`DropReason::NoSession`], [`DropReason::IcmpErrorUnusable`].
    pub(crate) fn error_leaves<A>(
        &self,
        about: &Parsed<A>,
        host: Host,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Endpoint, DropReason> {
        let space = classify_embedded(about)?;
        let remote = Endpoint { address: remote, port: about.source_port };
        let inside = host.key(work.number, space, about.destination_port);
        self.state(work).outbound_error(&inside, space, remote).ok_or(DropReason::NoSession)
    }

    /// An ICMP error from outside about packet `about`, which left from `outside` for `remote`: the
    /// inside endpoint that has sent it.
    ///
    /// # Errors
    /// [`DropReason::NoSession`], [`DropReason::IcmpErrorUnusable`].
    pub(crate) fn error_arrives<A>(
        &self,
        about: &Parsed<A>,
        outside: Ipv4Addr,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<InsideKey, DropReason> {
        let space = classify_embedded(about)?;
        let remote = Endpoint { address: remote, port: about.destination_port };
        let outside = Endpoint { address: outside, port: about.source_port };
        self.state(work).inbound_error(outside, space, remote).ok_or(DropReason::NoSession)
    }

    /// True if the inside has opened the connection of a SYN that was held.
    pub(crate) fn is_open(&self, ends: SynEnds, work: &mut Work<'_>) -> bool {
        self.state(work).is_open(ends.outside, ends.remote)
    }

    /// Holds the SYN at hand, which was refused for `reason`.
    #[cold]
    fn hold(&self, ends: SynEnds, reason: DropReason, work: &mut Work<'_>) -> Result<Arrival, Refusal> {
        let due = work.now.after_ticks(work.times.incoming_syn());
        work.worker.held.hold(&work.packet, work.number, ends, reason, work.now..due)?;
        if reason == DropReason::Filtered {
            self.state(work).hold(ends.outside, ends.remote);
        }
        Ok(Arrival::Held)
    }

    /// For a packet to or from `remote`.
    #[inline]
    fn state_at<'b>(&'b self, work: &'b mut Work<'_>, space: PortSpace, remote: Endpoint) -> Napt<'b, Random> {
        let counts_as = work.times.short_ports.counts_as(space, remote.port, work.now.tick());
        Napt { counts_as, ..self.state(work) }
    }

    #[inline]
    pub(super) fn state<'b>(&'b self, work: &'b mut Work<'_>) -> Napt<'b, Random> {
        Napt {
            tables: work.tables,
            pool: &self.pool,
            policy: &self.policy,
            times: work.times,
            service: work.number,
            now: work.now.tick(),
            counts_as: work.now.tick(),
            nanos: work.now.0,
            random: &mut work.worker.random,
            exhausted: &mut work.worker.exhausted,
            admissions: &mut work.worker.admissions[usize::from(work.number)],
            granting: match work.standing {
                Some(standing) if !standing.cluster.may_grant(work.now) => Granting::Nothing,
                _ => work.granting,
            },
        }
    }
}

/// The port of an inside endpoint.
#[inline]
pub(crate) const fn port_of(inside: &InsideKey) -> Port {
    Port(u16::from_be_bytes(inside.port))
}

/// The clause that asks for a binding.
fn clause(inside: &InsideKey) -> &'static str {
    if inside.ipv4 == [0; 4] { "RFC 6146 section 3.5" } else { "RFC 4787 REQ-1" }
}

/// An inside endpoint in words.
fn describe(inside: &InsideKey) -> String {
    let (ipv6, ipv4) = (Ipv6Addr::from(inside.ipv6), Ipv4Addr::from(inside.ipv4));
    let port =
        PortSpace::of_protocol(inside.protocol).map_or(String::new(), |space| port_in_words(space, port_of(inside)));
    match (ipv4.is_unspecified(), ipv6.is_unspecified()) {
        (true, _) => format!("{ipv6}{port}"),
        (false, true) => format!("{ipv4}{port}"),
        (false, false) => format!("{ipv4}{port} behind {ipv6}"),
    }
}

/// An outside endpoint in words.
fn describe_outside(space: PortSpace, outside: Endpoint) -> String {
    format!("{}{}", outside.address, port_in_words(space, outside.port))
}

/// A port as it stands behind its address; of what has none, the protocol.
fn port_in_words(space: PortSpace, port: Port) -> String {
    if space.has_ports() { format!(" port {}", port.0) } else { format!(" with {}", space.name()) }
}

/// The ICMP error that an inside host gets when no state can be made for it: address unreachable
/// (RFC 6146 section 3.5.1.1), host unreachable in IPv4 (RFC 6888 REQ-11).
fn no_state_inside(reason: DropReason) -> Refusal {
    match reason {
        DropReason::PoolExhausted
        | DropReason::SubscriberLimit
        | DropReason::BindingTableFull
        | DropReason::SessionTableFull
        | DropReason::SubscriberTableFull
        | DropReason::NotGranting
        | DropReason::Draining => Refusal::with(reason, IcmpAnswer::HostUnreachable),
        DropReason::Denied => Refusal::with(reason, IcmpAnswer::Prohibited),
        _ => reason.into(),
    }
}
