//! What stands on the wire: header views and values, checksums, IPv4-embedded IPv6 addresses.
//!
//! Every protocol has one file, and every such file the same order: offsets, view, owned value,
//! parse and emit, tests. A `XxxView` borrows bytes whose lengths were checked once, when it was
//! made; a `XxxHeader` owns the fields. Ports, lengths and words are numbers of the machine; only
//! bytes are big-endian.
//!
//! Nothing needs an operating system, and nothing allocates but the two parsers of what a host is
//! told when it starts: [`dhcpv6_softwire`] and [`prefix_discovery`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod crc32c;
pub mod dccp;
pub mod dhcpv6_softwire;
pub mod ethernet;
pub mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod options;
pub mod pcp;
pub mod pref64;
pub mod prefix_discovery;
pub mod rfc6052;
pub mod sctp;
pub mod tcp;
pub mod udp;

mod field;
mod parse_error;
mod port;
mod protocol;

pub use checksum::{Delta, Sum};
pub use ethernet::{EthernetHeader, EthernetView, MacAddress};
pub use field::{read_u16, read_u32, write_u16, write_u32};
pub use icmp::IcmpView;
pub use icmpv4::Icmpv4View;
pub use icmpv6::Icmpv6View;
pub use ipv4::{Ipv4Header, Ipv4View};
pub use ipv6::{FragmentHeader, Ipv6Header, Ipv6View, UpperLayer};
pub use parse_error::ParseError;
pub use port::Port;
pub use pref64::Pref64Option;
pub use protocol::Protocol;
pub use rfc6052::Prefix64;
pub use tcp::{TcpFlags, TcpHeader, TcpView};
pub use udp::{UdpHeader, UdpView};
