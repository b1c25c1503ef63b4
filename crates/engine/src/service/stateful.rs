//! What services with bindings and sessions have in common: which table a packet belongs to, and
//! what a host is told that gets no state.

use std::net::IpAddr;

use tombolo_tables::binding::InsideKey;
use tombolo_wire::{Port, TcpFlags};

use crate::engine::{Random, Work};
use crate::mapping::pool::{Pool, PortSpace};
use crate::mechanism::napt::{Endpoint, Napt, Policy};
use crate::mechanism::session_state::Event;
use crate::mechanism::{IcmpAnswer, Refusal};
use crate::parse::{Parsed, Payload};
use crate::verdict::DropReason;

/// The key of an inside endpoint in the tables.
pub(crate) fn inside_key(service: u8, space: PortSpace, address: IpAddr, port: Port) -> InsideKey {
    let (ipv6, ipv4) = match address {
        IpAddr::V6(address) => (address.octets(), [0; 4]),
        IpAddr::V4(address) => ([0; 16], address.octets()),
    };
    InsideKey { ipv6, ipv4, port: port.0.to_be_bytes(), protocol: space.protocol(), service }
}

/// Address and port translation for service number `service`.
pub(crate) fn napt<'a>(service: u8, pool: &'a Pool, policy: &'a Policy, work: &'a mut Work<'_>) -> Napt<'a, Random> {
    Napt {
        tables: work.tables,
        pool,
        policy,
        times: work.times,
        service,
        now: work.now.tick(),
        nanos: work.now.0,
        random: work.random,
        exhausted: work.exhausted,
        admissions: &mut work.admissions[usize::from(service)],
        held: work.held,
    }
}

/// True if the inside of service number `service` has opened a connection from `outside` to
/// `remote`.
pub(crate) fn is_open(service: u8, pool: &Pool, outside: Endpoint, remote: Endpoint, work: &mut Work<'_>) -> bool {
    // No policy decides about what is there already.
    napt(service, pool, &Policy::default(), work).is_open(outside, remote)
}

/// Which table a packet belongs to, and what it is to its session.
pub(crate) fn space_of<A>(parsed: &Parsed<A>) -> Result<(PortSpace, Event), Refusal> {
    match parsed.payload {
        Payload::Tcp => Ok((PortSpace::Tcp, tcp_event(parsed.tcp_flags))),
        Payload::Udp => Ok((PortSpace::Udp, Event::Other)),
        Payload::EchoRequest | Payload::EchoReply => Ok((PortSpace::Icmp, Event::Other)),
        Payload::IcmpError | Payload::IcmpOther => Err(DropReason::IcmpUntranslatable.into()),
        Payload::Piece => Err(DropReason::FragmentUntranslatable.into()),
        Payload::Other => Err(Refusal::with(DropReason::UnsupportedProtocol, IcmpAnswer::ProtocolUnreachable)),
    }
}

/// Which table the packet in an ICMP error belongs to.
pub(crate) fn space_of_embedded<A>(about: &Parsed<A>) -> Result<PortSpace, DropReason> {
    match about.payload {
        Payload::Tcp => Ok(PortSpace::Tcp),
        Payload::Udp => Ok(PortSpace::Udp),
        Payload::EchoRequest | Payload::EchoReply => Ok(PortSpace::Icmp),
        // An error about an error, or about a fragment without ports.
        _ => Err(DropReason::IcmpErrorUnusable),
    }
}

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

/// What an inside host is told when no state can be made for it: address unreachable (RFC 6146
/// section 3.5.1.1), host unreachable in IPv4 (RFC 6888 REQ-11).
pub(crate) fn no_state_inside(reason: DropReason) -> Refusal {
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
