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
use tombolo_wire::{Port, Protocol, TcpFlags, icmpv4};

use super::held::SynEnds;
use super::host::Host;
use super::policy::Policy;
use super::session_state::Event;
use super::state::Napt;
use super::static_binding::StaticBinding;
use crate::endpoint::Endpoint;
use crate::mapping::pool::{Pool, PortSpace};
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
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
    /// [`Refusal`]: as [`Napt::outbound`], ICMP that is no echo, a protocol without ports.
    #[inline]
    pub(crate) fn leave<A>(
        &self,
        parsed: &Parsed<A>,
        host: Host,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Endpoint, Refusal> {
        let (space, event) = space_of(parsed).map_err(|refusal| refuse_query(refusal, parsed, &work.packet))?;
        let remote = Endpoint { address: remote, port: parsed.destination_port };
        let inside = host.key(work.number, space, parsed.source_port);
        let outside =
            self.state_at(work, space, remote).outbound(&inside, space, remote, event).map_err(no_state_inside)?;
        work.notes.add(clause(&inside), || {
            let outside = format!("{} port {}", outside.address, outside.port.0);
            format!("{} is bound to {outside}, towards {}", describe(&inside), remote.address)
        });
        Ok(outside)
    }

    /// A packet from `remote` to the outside address `outside`: the inside endpoint that it is for.
    ///
    /// # Errors
    /// [`Refusal`]: as [`Napt::inbound`], ICMP that is no echo, a protocol without ports.
    #[inline]
    pub(crate) fn arrive<A>(
        &self,
        parsed: &Parsed<A>,
        outside: Ipv4Addr,
        remote: Ipv4Addr,
        work: &mut Work<'_>,
    ) -> Result<Arrival, Refusal> {
        let (space, event) = space_of(parsed)?;
        let outside = Endpoint { address: outside, port: parsed.destination_port };
        let remote = Endpoint { address: remote, port: parsed.source_port };
        match self.state_at(work, space, remote).inbound(outside, space, remote, event) {
            Ok(inside) => {
                work.notes.add(clause(&inside), || {
                    format!("{} port {} is bound to {}", outside.address, outside.port.0, describe(&inside))
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
        let space = space_of_embedded(about)?;
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
        let space = space_of_embedded(about)?;
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
    fn state<'b>(&'b self, work: &'b mut Work<'_>) -> Napt<'b, Random> {
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
    let (ipv6, ipv4, port) = (Ipv6Addr::from(inside.ipv6), Ipv4Addr::from(inside.ipv4), port_of(inside).0);
    match (ipv4.is_unspecified(), ipv6.is_unspecified()) {
        (true, _) => format!("{ipv6} port {port}"),
        (false, true) => format!("{ipv4} port {port}"),
        (false, false) => format!("{ipv4} port {port} behind {ipv6}"),
    }
}

/// Which table a packet belongs to, and what it is to its session.
#[inline]
fn space_of<A>(parsed: &Parsed<A>) -> Result<(PortSpace, Event), Refusal> {
    match parsed.payload {
        Payload::Tcp => Ok((PortSpace::Tcp, tcp_event(parsed.tcp_flags))),
        Payload::Udp => Ok((PortSpace::Udp, Event::Other)),
        Payload::EchoRequest | Payload::EchoReply => Ok((PortSpace::Icmp, Event::Other)),
        Payload::IcmpError | Payload::IcmpOther => Err(DropReason::IcmpUntranslatable.into()),
        Payload::Piece => Err(DropReason::FragmentUntranslatable.into()),
        Payload::Sctp | Payload::Dccp | Payload::UdpLite | Payload::Other => {
            Err(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::ProtocolUnreachable))
        }
    }
}

/// ICMPv4 has queries besides the echo, which a NAT does not translate. Their senders wait for an
/// answer; they are told that there will be none (RFC 5508 REQ-1: a policy). Other messages that are
/// not known get no error (RFC 1122 section 3.2.2).
#[cold]
fn refuse_query<A>(refusal: Refusal, parsed: &Parsed<A>, packet: &Packet<'_>) -> Refusal {
    let kind = packet.bytes().get(usize::from(parsed.transport_offset));
    let is_query = parsed.protocol == Protocol::ICMP && kind.is_some_and(|&kind| icmpv4::is_query(kind));
    if parsed.payload == Payload::IcmpOther && is_query {
        return Refusal::with(refusal.reason, IcmpAnswer::ProtocolUnreachable);
    }
    refusal
}

/// Which table the packet in an ICMP error belongs to.
pub(super) fn space_of_embedded<A>(about: &Parsed<A>) -> Result<PortSpace, DropReason> {
    match about.payload {
        Payload::Tcp => Ok(PortSpace::Tcp),
        Payload::Udp => Ok(PortSpace::Udp),
        Payload::EchoRequest | Payload::EchoReply => Ok(PortSpace::Icmp),
        // An error about an error, or about a fragment without ports.
        _ => Err(DropReason::IcmpErrorUnusable),
    }
}

#[inline]
fn tcp_event(flags: TcpFlags) -> Event {
    if flags.contains(TcpFlags::RST) {
        Event::Rst
    } else if flags.contains(TcpFlags::SYN) {
        Event::Syn
    } else if flags.contains(TcpFlags::FIN) {
        Event::Fin
    } else {
        Event::Other
    }
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
        | DropReason::Draining => Refusal::with(reason, IcmpAnswer::HostUnreachable),
        DropReason::Denied => Refusal::with(reason, IcmpAnswer::Prohibited),
        _ => reason.into(),
    }
}
