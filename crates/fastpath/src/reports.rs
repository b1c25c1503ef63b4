//! Reports of what was made in the kernel (`bpf/report.h`).

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_records::from_bytes;
use tombolo_wire::Port;

use crate::record::{REPORT_SESSION, ReportRecord};

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// A binding.
    Binding,
    /// A session.
    Session,
}

/// Something that was made in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// What it is about.
    pub made: Made,
    /// Inside IPv6 address; unspecified for NAT44.
    pub inside_ipv6: Ipv6Addr,
    /// Inside IPv4 address; unspecified for NAT64.
    pub inside_ipv4: Ipv4Addr,
    /// Inside port or ICMP identifier.
    pub inside_port: Port,
    /// Outside address.
    pub outside_ipv4: Ipv4Addr,
    /// Outside port or ICMP identifier.
    pub outside_port: Port,
    /// IP protocol number of the IPv4 side.
    pub protocol: u8,
    /// Number of the service in the plan.
    pub service: u8,
    /// The remote address of the session, or of the packet that made the binding.
    pub remote_ipv4: Ipv4Addr,
    /// The remote port likewise; 0 for ICMP.
    pub remote_port: Port,
    /// Number of the binding.
    pub binding: u32,
    /// Nanoseconds of the monotonic clock, to a timer interrupt (some milliseconds).
    pub when: u64,
}

impl Report {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let record: ReportRecord = from_bytes(bytes)?;
        let address = |word: u32| Ipv4Addr::from(word.to_ne_bytes());
        let port = |word: u16| Port(u16::from_be(word));
        let [high, low] = record.inside.map(|half| u128::from(u64::from_be(half)));
        Some(Self {
            made: if record.kind == REPORT_SESSION { Made::Session } else { Made::Binding },
            inside_ipv6: Ipv6Addr::from_bits(high << 64 | low),
            inside_ipv4: address(record.inside4),
            inside_port: port(record.inside_port),
            outside_ipv4: address(record.outside4),
            outside_port: port(record.outside_port),
            protocol: record.protocol,
            service: record.service,
            remote_ipv4: address(record.remote),
            remote_port: port(record.remote_port),
            binding: record.binding,
            when: record.when,
        })
    }
}
