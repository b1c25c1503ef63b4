//! Reports of what was made in the kernel: `struct report` of `bpf/report.h`.

use std::net::{Ipv4Addr, Ipv6Addr};

use tombolo_wire::Port;

/// Bytes of a report.
pub(crate) const BYTES: usize = 56;

const SESSION: u8 = 2;

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// A binding.
    Binding,
    /// A session.
    Session,
}

/// Something that was made in the kernel. The bytes:
///
/// ```text
///  0  inside IPv6 address                                   16
/// 16  inside IPv4 address | outside IPv4 address             4 + 4
/// 24  inside port | outside port | protocol | service        2 + 2 + 1 + 1
/// 30  what was made | not used | remote IPv4 | remote port   1 + 1 + 4 + 2
/// 38  not used | binding | not used                          2 + 4 + 4
/// 48  nanoseconds of the monotonic clock                     8
/// ```
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
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let port = |at: usize| Port(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[..16]);
        let mut when = [0; 8];
        when.copy_from_slice(&bytes[48..]);
        Some(Self {
            made: if bytes[30] == SESSION { Made::Session } else { Made::Binding },
            inside_ipv6: Ipv6Addr::from(address),
            inside_ipv4: Ipv4Addr::from(word(16)),
            inside_port: port(24),
            outside_ipv4: Ipv4Addr::from(word(20)),
            outside_port: port(26),
            protocol: bytes[28],
            service: bytes[29],
            remote_ipv4: Ipv4Addr::from(word(32)),
            remote_port: port(36),
            binding: u32::from_ne_bytes(word(40)),
            when: u64::from_ne_bytes(when),
        })
    }
}
