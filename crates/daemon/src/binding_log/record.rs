//! A line of the log on its way to collectors: as it stands in the file, and what it says in numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::event::{BindingEvent, BlockEvent, Event, SessionEvent};
use crate::table_rows::{Endpoints, protocol_number};
use crate::utc::Utc;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// When it happened.
    pub(super) time: Utc,
    /// The name of the event.
    pub(super) event: &'static str,
    /// The line, without its line feed.
    pub(super) line: Box<[u8]>,
    /// What happened to a binding or a block; none if the line is about the log.
    pub(super) change: Option<Change>,
}

/// What happened to a binding, a session or a block of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// It begins, or was adopted; else it ends.
    pub(super) begins: bool,
    /// Address inside.
    pub(super) inside: IpAddr,
    /// The softwire that it is behind.
    pub(super) softwire: Option<Ipv6Addr>,
    /// Outside address.
    pub(super) outside: Ipv4Addr,
    /// A binding, or a block.
    pub(super) ports: Ports,
}

/// The ports of a binding or of a block; those of a session with its remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ports {
    Binding { protocol: u8, inside: u16, outside: u16 },
    Block { first: u16, last: u16 },
    Session { protocol: u8, inside: u16, outside: u16, remote: Ipv4Addr, remote_port: u16 },
}

impl Change {
    fn of_endpoints(begins: bool, endpoints: &Endpoints<'_>, ports: Ports) -> Self {
        let Endpoints { inside, softwire, outside, .. } = *endpoints;
        Self { begins, inside, softwire, outside, ports }
    }

    /// What the event says.
    pub(super) fn of(event: &Event<'_>) -> Self {
        match *event {
            Event::Binding(BindingEvent { event, endpoints, .. }) => Self::of_endpoints(
                event != "removed",
                &endpoints,
                Ports::Binding {
                    protocol: protocol_number(endpoints.protocol),
                    inside: endpoints.inside_port,
                    outside: endpoints.outside_port,
                },
            ),
            Event::Session(SessionEvent { binding: BindingEvent { event, endpoints, .. }, remote, remote_port }) => {
                Self::of_endpoints(
                    event != "session-removed",
                    &endpoints,
                    Ports::Session {
                        protocol: protocol_number(endpoints.protocol),
                        inside: endpoints.inside_port,
                        outside: endpoints.outside_port,
                        remote,
                        remote_port,
                    },
                )
            }
            Event::Block(BlockEvent { event, inside, softwire, outside, first_port, last_port, .. }) => Self {
                begins: event != "block-released",
                inside,
                softwire,
                outside,
                ports: Ports::Block { first: first_port, last: last_port },
            },
        }
    }
}
