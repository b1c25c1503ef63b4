//! A line of the log on its way to collectors: as it stands in the file, and what it says in numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::event::{BindingEvent, BlockEvent, Event};
use crate::table_rows::protocol_number;
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

/// What happened to a binding or a block of ports.
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

/// The ports of a binding, or of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ports {
    Binding { protocol: u8, inside: u16, outside: u16 },
    Block { first: u16, last: u16 },
}

impl Change {
    /// What the event says.
    pub(super) fn of(event: &Event<'_>) -> Self {
        match *event {
            Event::Binding(BindingEvent { event, endpoints, .. }) => Self {
                begins: event != "removed",
                inside: endpoints.inside,
                softwire: endpoints.softwire,
                outside: endpoints.outside,
                ports: Ports::Binding {
                    protocol: protocol_number(endpoints.protocol),
                    inside: endpoints.inside_port,
                    outside: endpoints.outside_port,
                },
            },
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
