//! Lines of the log as messages of IPFIX (RFC 7011) with the events of RFC 8158.
//!
//! ```text
//! message   version 10 | length | export time | sequence number | observation domain 1     16 bytes
//! set       id 2 | length | templates         every connection, and every minute over UDP
//! set       id of a template | length | records of that template
//! ```
//!
//! A record is an event: observationTimeMilliseconds, natEvent, and what the template has. What did not
//! reach the collector counts in the sequence number, so that it sees how much it lacks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::record::{Change, Ports, Record};
use crate::utc::Utc;

/// Bytes of a message at most: they pass any path that IPv6 passes, and most others.
const LONGEST: usize = 1400;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const DOMAIN: u32 = 1;
const TEMPLATES: u16 = 2;

/// Information elements (IANA "IP Flow Information Export (IPFIX) Entities"): number and length.
type Element = (u16, u16);
const OBSERVATION_TIME_MILLISECONDS: Element = (323, 8);
const NAT_EVENT: Element = (230, 1);
const PROTOCOL_IDENTIFIER: Element = (4, 1);
const SOURCE_IPV4_ADDRESS: Element = (8, 4);
const SOURCE_IPV6_ADDRESS: Element = (27, 16);
const SOURCE_TRANSPORT_PORT: Element = (7, 2);
const POST_NAT_SOURCE_IPV4_ADDRESS: Element = (225, 4);
const POST_NAPT_SOURCE_TRANSPORT_PORT: Element = (227, 2);
const PORT_RANGE_START: Element = (361, 2);
const PORT_RANGE_END: Element = (362, 2);
const DESTINATION_IPV4_ADDRESS: Element = (12, 4);
const DESTINATION_TRANSPORT_PORT: Element = (11, 2);
const POST_NAT_DESTINATION_IPV4_ADDRESS: Element = (226, 4);
const POST_NAPT_DESTINATION_TRANSPORT_PORT: Element = (228, 2);

/// What a record is about, and who is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Template {
    Binding(Inside),
    Block(Inside),
    Session(Inside),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Ipv4,
    Ipv6,
    /// An IPv4 address behind a softwire, whose other end is the IPv6 address.
    Softwire,
}

impl Template {
    const ALL: [Self; 9] = [
        Self::Binding(Inside::Ipv4),
        Self::Binding(Inside::Ipv6),
        Self::Binding(Inside::Softwire),
        Self::Block(Inside::Ipv4),
        Self::Block(Inside::Ipv6),
        Self::Block(Inside::Softwire),
        Self::Session(Inside::Ipv4),
        Self::Session(Inside::Ipv6),
        Self::Session(Inside::Softwire),
    ];

    fn of(change: &Change) -> Self {
        let inside = match (change.inside, change.softwire) {
            (IpAddr::V6(_), _) => Inside::Ipv6,
            (IpAddr::V4(_), None) => Inside::Ipv4,
            (IpAddr::V4(_), Some(_)) => Inside::Softwire,
        };
        match change.ports {
            Ports::Binding { .. } => Self::Binding(inside),
            Ports::Block { .. } => Self::Block(inside),
            Ports::Session { .. } => Self::Session(inside),
        }
    }

    /// Data sets have numbers from 256 on.
    fn id(self) -> u16 {
        match self {
            Self::Binding(inside) => 256 + inside as u16,
            Self::Block(inside) => 259 + inside as u16,
            Self::Session(inside) => 262 + inside as u16,
        }
    }

    fn elements(self) -> Vec<Element> {
        let (Self::Binding(inside) | Self::Block(inside) | Self::Session(inside)) = self;
        let addresses: &[Element] = match inside {
            Inside::Ipv4 => &[SOURCE_IPV4_ADDRESS],
            Inside::Ipv6 => &[SOURCE_IPV6_ADDRESS],
            Inside::Softwire => &[SOURCE_IPV4_ADDRESS, SOURCE_IPV6_ADDRESS],
        };
        let rest: &[Element] = match self {
            Self::Binding(_) | Self::Session(_) => &[
                SOURCE_TRANSPORT_PORT,
                POST_NAT_SOURCE_IPV4_ADDRESS,
                POST_NAPT_SOURCE_TRANSPORT_PORT,
                PROTOCOL_IDENTIFIER,
            ],
            Self::Block(_) => &[POST_NAT_SOURCE_IPV4_ADDRESS, PORT_RANGE_START, PORT_RANGE_END],
        };
        // The remote has one address; hosts with IPv6 see it behind a prefix.
        let remote: &[Element] = match self {
            Self::Binding(_) | Self::Block(_) => &[],
            Self::Session(Inside::Ipv6) => &[POST_NAT_DESTINATION_IPV4_ADDRESS, POST_NAPT_DESTINATION_TRANSPORT_PORT],
            Self::Session(_) => &[DESTINATION_IPV4_ADDRESS, DESTINATION_TRANSPORT_PORT],
        };
        [&[OBSERVATION_TIME_MILLISECONDS, NAT_EVENT], addresses, rest, remote].concat()
    }
}

/// natEvent (RFC 8158 section 4.3): NAT44 and NAT64 session create and delete, BIB create and delete, port
/// block allocation and de-allocation.
fn nat_event(change: &Change) -> u8 {
    match (change.ports, change.inside, change.begins) {
        (Ports::Session { .. }, IpAddr::V4(_), true) => 4,
        (Ports::Session { .. }, IpAddr::V4(_), false) => 5,
        (Ports::Session { .. }, IpAddr::V6(_), true) => 6,
        (Ports::Session { .. }, IpAddr::V6(_), false) => 7,
        (Ports::Binding { .. }, IpAddr::V4(_), true) => 8,
        (Ports::Binding { .. }, IpAddr::V4(_), false) => 9,
        (Ports::Binding { .. }, IpAddr::V6(_), true) => 10,
        (Ports::Binding { .. }, IpAddr::V6(_), false) => 11,
        (Ports::Block { .. }, _, true) => 16,
        (Ports::Block { .. }, _, false) => 17,
    }
}

/// Makes messages for a collector.
#[derive(Debug, Clone, Default)]
pub(super) struct Ipfix {
    sequence: u32,
}

impl Ipfix {
    /// So many records did not reach the collector.
    pub(super) fn lost(&mut self, count: u64) {
        let counted = u32::try_from(count & u64::from(u32::MAX)).unwrap_or_default();
        self.sequence = self.sequence.wrapping_add(counted);
    }

    /// The message with all templates.
    pub(super) fn templates(&self, now: Utc) -> Vec<u8> {
        let mut set = Vec::new();
        for template in Template::ALL {
            let elements = template.elements();
            let count = u16::try_from(elements.len()).unwrap_or_default();
            set.extend([template.id(), count].into_iter().flat_map(u16::to_be_bytes));
            set.extend(elements.iter().flat_map(|&(number, length)| [number, length]).flat_map(u16::to_be_bytes));
        }
        let mut message = self.begin(now);
        push_set(&mut message, TEMPLATES, &set);
        finish(message)
    }

    /// Messages with the events of these lines.
    pub(super) fn messages(&mut self, records: &[Record], now: Utc) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        let mut changes = records.iter().filter_map(|record| Some((record.time, record.change.as_ref()?))).peekable();
        while changes.peek().is_some() {
            let mut message = self.begin(now);
            let mut is_full = false;
            while let Some((_, first)) = changes.peek().filter(|_| !is_full) {
                let template = Template::of(first);
                let length: usize = template.elements().iter().map(|&(_, length)| usize::from(length)).sum();
                let mut room = (LONGEST - message.len()).saturating_sub(SET_HEADER) / length;
                let mut set = Vec::new();
                while let Some((time, change)) = changes.next_if(|(_, next)| room > 0 && Template::of(next) == template)
                {
                    write(change, time, &mut set);
                    self.sequence = self.sequence.wrapping_add(1);
                    room -= 1;
                }
                if !set.is_empty() {
                    push_set(&mut message, template.id(), &set);
                }
                is_full = room == 0;
            }
            messages.push(finish(message));
        }
        messages
    }

    /// The header of a message. Its sequence number is that of the first record in it.
    fn begin(&self, now: Utc) -> Vec<u8> {
        let mut message = Vec::with_capacity(LONGEST);
        message.extend([10_u16, 0].into_iter().flat_map(u16::to_be_bytes));
        let seconds = u32::try_from(now.0 & u64::from(u32::MAX)).unwrap_or_default();
        message.extend([seconds, self.sequence, DOMAIN].into_iter().flat_map(u32::to_be_bytes));
        debug_assert_eq!(message.len(), HEADER);
        message
    }
}

fn push_set(message: &mut Vec<u8>, id: u16, content: &[u8]) {
    let length = u16::try_from(content.len() + SET_HEADER).unwrap_or(u16::MAX);
    message.extend([id, length].into_iter().flat_map(u16::to_be_bytes));
    message.extend_from_slice(content);
}

fn finish(mut message: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    message[2..4].copy_from_slice(&length.to_be_bytes());
    message
}

/// The record of a change, in the order of its template's elements.
fn write(change: &Change, time: Utc, set: &mut Vec<u8>) {
    set.extend((time.0 * 1000).to_be_bytes());
    set.push(nat_event(change));
    match change.inside {
        IpAddr::V4(address) => set.extend(address.octets()),
        IpAddr::V6(address) => set.extend(address.octets()),
    }
    if let (IpAddr::V4(_), Some(softwire)) = (change.inside, change.softwire) {
        set.extend(Ipv6Addr::octets(&softwire));
    }
    let outside = Ipv4Addr::octets(&change.outside);
    match change.ports {
        Ports::Binding { protocol, inside, outside: port } | Ports::Session { protocol, inside, outside: port, .. } => {
            set.extend(inside.to_be_bytes());
            set.extend(outside);
            set.extend(port.to_be_bytes());
            set.push(protocol);
        }
        Ports::Block { first, last } => {
            set.extend(outside);
            set.extend([first, last].into_iter().flat_map(u16::to_be_bytes));
        }
    }
    if let Ports::Session { remote, remote_port, .. } = change.ports {
        set.extend(remote.octets());
        set.extend(remote_port.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(inside: &str, softwire: Option<&str>, ports: Ports, begins: bool) -> Change {
        let softwire = softwire.map(|address| address.parse().unwrap());
        Change { begins, inside: inside.parse().unwrap(), softwire, outside: Ipv4Addr::new(192, 0, 2, 1), ports }
    }

    fn record(change: Change) -> Record {
        Record { time: Utc(1), event: "created", line: Box::default(), change: Some(change) }
    }

    const BINDING: Ports = Ports::Binding { protocol: 17, inside: 43110, outside: 22871 };
    const SESSION: Ports = Ports::Session {
        protocol: 17,
        inside: 43110,
        outside: 22871,
        remote: Ipv4Addr::new(198, 51, 100, 2),
        remote_port: 53,
    };
    const BLOCK: Ports = Ports::Block { first: 2048, last: 2559 };

    #[test]
    fn a_record_is_as_long_as_its_template_says() {
        for template in Template::ALL {
            let (Template::Binding(inside) | Template::Block(inside) | Template::Session(inside)) = template;
            let (inside, softwire) = match inside {
                Inside::Ipv4 => ("10.0.0.7", None),
                Inside::Ipv6 => ("2001:db8::7", None),
                Inside::Softwire => ("10.0.0.7", Some("2001:db8::b4")),
            };
            let ports = match template {
                Template::Binding(_) => BINDING,
                Template::Block(_) => BLOCK,
                Template::Session(_) => SESSION,
            };
            let change = change(inside, softwire, ports, true);
            assert_eq!(Template::of(&change), template);
            let mut written = Vec::new();
            write(&change, Utc(1), &mut written);
            let length: u16 = template.elements().iter().map(|&(_, length)| length).sum();
            assert_eq!(written.len(), usize::from(length), "{template:?}");
        }
    }

    #[test]
    fn a_message_is_as_in_rfc_7011() {
        let mut ipfix = Ipfix { sequence: 7 };
        let messages = ipfix.messages(&[record(change("10.0.0.7", None, BINDING, true))], Utc(2));
        let expected = [
            &[0, 10, 0, 42, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 1][..],
            &[1, 0, 0, 26],
            &[0, 0, 0, 0, 0, 0, 3, 232, 8],
            &[10, 0, 0, 7, 168, 102, 192, 0, 2, 1, 89, 87, 17],
        ];
        assert_eq!(messages, [expected.concat()]);
        assert_eq!(ipfix.sequence, 8);
    }

    #[test]
    fn events_have_the_numbers_of_rfc_8158() {
        let event = |inside, ports, begins| nat_event(&change(inside, None, ports, begins));
        let (v4, v6) = ("10.0.0.7", "2001:db8::7");
        assert_eq!([event(v4, SESSION, true), event(v4, SESSION, false)], [4, 5]);
        assert_eq!([event(v6, SESSION, true), event(v6, SESSION, false)], [6, 7]);
        assert_eq!([event(v4, BINDING, true), event(v4, BINDING, false)], [8, 9]);
        assert_eq!([event(v6, BINDING, true), event(v6, BINDING, false)], [10, 11]);
        assert_eq!([event(v6, BLOCK, true), event(v4, BLOCK, false)], [16, 17]);
    }

    #[test]
    fn messages_are_full_and_not_too_long_and_what_is_lost_counts() {
        let records: Vec<Record> = (0..1000_u16)
            .map(|number| {
                let ports = Ports::Binding { protocol: 6, inside: number, outside: number };
                record(change(if number % 400 < 200 { "10.0.0.7" } else { "2001:db8::7" }, None, ports, true))
            })
            .collect();
        let mut ipfix = Ipfix::default();
        let messages = ipfix.messages(&records, Utc(2));
        assert!(messages.iter().all(|message| message.len() <= LONGEST), "{:?}", messages.iter().map(Vec::len).max());
        assert!(messages.len() < 30, "{}", messages.len());
        assert_eq!(ipfix.sequence, 1000);
        ipfix.lost(5);
        assert_eq!(ipfix.messages(&records[..1], Utc(2))[0][8..12], 1005_u32.to_be_bytes());
        // Lines about the log have no event there.
        assert!(ipfix.messages(&[Record { change: None, ..records[0].clone() }], Utc(2)).is_empty());
    }
}
