//! The number that says what follows an IP header.

use core::fmt;

/// IPv4 "Protocol" and IPv6 "Next Header" (IANA protocol numbers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 Hop-by-Hop Options header (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: Self = Self(1);
    /// IGMP (RFC 3376).
    pub const IGMP: Self = Self(2);
    /// IPv4 inside another header (RFC 2003, RFC 2473).
    pub const IPV4: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// DCCP (RFC 4340).
    pub const DCCP: Self = Self(33);
    /// IPv6 inside another header (RFC 2473).
    pub const IPV6: Self = Self(41);
    /// IPv6 Routing header (RFC 8200 section 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 Fragment header (RFC 8200 section 4.5).
    pub const IPV6_FRAGMENT: Self = Self(44);
    /// GRE (RFC 2784).
    pub const GRE: Self = Self(47);
    /// ESP (RFC 4303).
    pub const ESP: Self = Self(50);
    /// AH (RFC 4302).
    pub const AH: Self = Self(51);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 Destination Options header (RFC 8200 section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);
    /// Mobility header (RFC 6275).
    pub const MOBILITY: Self = Self(135);
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: Self = Self(136);
    /// Host Identity Protocol (RFC 7401).
    pub const HIP: Self = Self(139);
    /// Shim6 (RFC 5533).
    pub const SHIM6: Self = Self(140);

    /// True for the headers that a translator skips: Hop-by-Hop, Routing, Destination Options
    /// (RFC 7915 section 5.1). The Fragment header is not among them.
    #[must_use]
    pub const fn is_skippable(self) -> bool {
        matches!(self, Self::HOP_BY_HOP | Self::ROUTING | Self::DESTINATION_OPTIONS)
    }

    /// True for every IPv6 extension header except ESP (RFC 7915 section 5.1.1 forbids them behind
    /// a Fragment header; list: RFC 7045 section 4).
    #[must_use]
    pub const fn is_extension_header(self) -> bool {
        self.is_skippable() || matches!(self, Self::IPV6_FRAGMENT | Self::AH | Self::MOBILITY | Self::HIP | Self::SHIM6)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ICMP => f.write_str("icmp"),
            Self::TCP => f.write_str("tcp"),
            Self::UDP => f.write_str("udp"),
            Self::ICMPV6 => f.write_str("icmpv6"),
            Self(number) => write!(f, "protocol {number}"),
        }
    }
}
