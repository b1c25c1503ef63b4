//! How packets of a service come and what has to be done before it takes them.

use crate::side::Side;

/// How packets of a service come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The side that IPv6 packets come from.
    pub ipv6: Side,
    /// The side that IPv4 packets come from that are claimed by their destination.
    pub ipv4: Side,
    /// IPv6 fragments have to be reassembled.
    pub gathers_ipv6: bool,
    /// IPv4 fragments have to be reassembled.
    pub gathers_ipv4: bool,
    /// It is the end of a softwire: its ICMPv6 errors come from the address that the packet was sent
    /// to, since the other end believes no other (RFC 7596 section 8.1).
    pub ends_softwires: bool,
}

impl Shape {
    /// At the provider: subscribers come by IPv6, the outside is IPv4.
    pub const PROVIDER: Self =
        Self { ipv6: Side::Inside, ipv4: Side::Outside, gathers_ipv6: true, gathers_ipv4: true, ends_softwires: false };

    /// At the customer: hosts come by IPv4, the outside is IPv6.
    pub const CUSTOMER: Self = Self { ipv6: Side::Outside, ipv4: Side::Inside, ..Self::PROVIDER };

    /// The same, at the end of softwires.
    #[must_use]
    pub const fn with_softwires(self) -> Self {
        Self { ends_softwires: true, ..self }
    }

    /// The same, for a service that takes IPv4 fragments one by one.
    #[must_use]
    pub const fn with_ipv4_fragments(self) -> Self {
        Self { gathers_ipv4: false, ..self }
    }

    /// The same, for a service that takes all fragments one by one.
    #[must_use]
    pub const fn with_fragments(self) -> Self {
        Self { gathers_ipv6: false, gathers_ipv4: false, ..self }
    }
}
