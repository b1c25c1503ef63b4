//! What a packet is to a NAT: by what its host is told apart, and what it is to its session.
//!
//! Read first: RFC 6146 section 3.5; RFC 9260 sections 3.3 and 5 to 9, RFC 4340 section 5.1 and RFC
//! 5596 for what opens and closes connections of SCTP and DCCP.
//!
//! | event | TCP | SCTP | DCCP |
//! |---|---|---|---|
//! | SYN | SYN | INIT, INIT ACK | Request, Response, Listen |
//! | FIN | FIN | SHUTDOWN, SHUTDOWN ACK, SHUTDOWN COMPLETE | CloseReq, Close |
//! | RST | RST | ABORT | Reset |

use tombolo_wire::{Protocol, TcpFlags, dccp, icmpv4, sctp};

use super::policy::Policy;
use super::session_state::Event;
use crate::mapping::pool::PortSpace;
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::packet::Packet;
use crate::parse::{Parsed, Payload};
use crate::verdict::DropReason;

/// By what the host of a packet is told apart, and what the packet is to its session.
///
/// # Errors
/// [`Refusal`]: ICMP that is no echo, a protocol that the service does not translate.
#[inline]
pub(super) fn classify<A>(
    parsed: &Parsed<A>,
    packet: &Packet<'_>,
    policy: &Policy,
) -> Result<(PortSpace, Event), Refusal> {
    match parsed.payload {
        Payload::Tcp => Ok((PortSpace::Tcp, tcp_event(parsed.tcp_flags))),
        Payload::Udp => Ok((PortSpace::Udp, Event::Other)),
        Payload::EchoRequest | Payload::EchoReply => Ok((PortSpace::Icmp, Event::Other)),
        Payload::IcmpError | Payload::IcmpOther => Err(DropReason::IcmpUntranslatable.into()),
        Payload::Piece => Err(DropReason::FragmentUntranslatable.into()),
        Payload::Sctp | Payload::Dccp | Payload::UdpLite | Payload::Other => further(parsed, packet, policy),
    }
}

#[cold]
fn further<A>(parsed: &Parsed<A>, packet: &Packet<'_>, policy: &Policy) -> Result<(PortSpace, Event), Refusal> {
    let space = further_space(parsed).filter(|space| policy.protocols.has(*space));
    let space = space.ok_or(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::ProtocolUnreachable))?;
    let transport = packet.bytes().get(usize::from(parsed.transport_offset)..).unwrap_or_default();
    let event = match space {
        PortSpace::Sctp => sctp_event(transport),
        PortSpace::Dccp => dccp_event(transport),
        _ => Event::Other,
    };
    Ok((space, event))
}

fn further_space<A>(parsed: &Parsed<A>) -> Option<PortSpace> {
    match (parsed.payload, parsed.protocol) {
        (Payload::Sctp, _) => Some(PortSpace::Sctp),
        (Payload::Dccp, _) => Some(PortSpace::Dccp),
        (Payload::UdpLite, _) => Some(PortSpace::UdpLite),
        (Payload::Other, Protocol::ESP) => Some(PortSpace::Esp),
        (Payload::Other, Protocol::GRE) => Some(PortSpace::Gre),
        _ => None,
    }
}

/// By what the host is told apart of the packet in an ICMP error.
///
/// # Errors
/// [`DropReason::IcmpErrorUnusable`]: an error about an error, or about what has no state here.
pub(super) fn classify_embedded<A>(about: &Parsed<A>) -> Result<PortSpace, DropReason> {
    match about.payload {
        Payload::Tcp => Ok(PortSpace::Tcp),
        Payload::Udp => Ok(PortSpace::Udp),
        Payload::EchoRequest | Payload::EchoReply => Ok(PortSpace::Icmp),
        _ => further_space(about).ok_or(DropReason::IcmpErrorUnusable),
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

/// The first chunk counts that says anything.
fn sctp_event(packet: &[u8]) -> Event {
    use sctp::chunk;
    let event = |kind| match kind {
        chunk::INIT | chunk::INIT_ACK => Some(Event::Syn),
        chunk::SHUTDOWN | chunk::SHUTDOWN_ACK | chunk::SHUTDOWN_COMPLETE => Some(Event::Fin),
        chunk::ABORT => Some(Event::Rst),
        _ => None,
    };
    sctp::control_chunks(packet).find_map(event).unwrap_or(Event::Other)
}

fn dccp_event(packet: &[u8]) -> Event {
    use dccp::kind;
    match dccp::kind_of(packet) {
        Some(kind::REQUEST | kind::RESPONSE | kind::LISTEN) => Event::Syn,
        Some(kind::CLOSE_REQ | kind::CLOSE) => Event::Fin,
        Some(kind::RESET) => Event::Rst,
        _ => Event::Other,
    }
}

/// ICMPv4 has queries besides the echo, which a NAT does not translate. Their senders wait for an
/// answer; they are told that there will be none (RFC 5508 REQ-1: a policy). Other messages that are
/// not known get no error (RFC 1122 section 3.2.2).
#[cold]
pub(super) fn refuse_query<A>(refusal: Refusal, parsed: &Parsed<A>, packet: &Packet<'_>) -> Refusal {
    let kind = packet.bytes().get(usize::from(parsed.transport_offset));
    let is_query = parsed.protocol == Protocol::ICMP && kind.is_some_and(|&kind| icmpv4::is_query(kind));
    if parsed.payload == Payload::IcmpOther && is_query {
        return Refusal::with(refusal.reason, IcmpAnswer::ProtocolUnreachable);
    }
    refusal
}
