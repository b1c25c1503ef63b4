//! A TCP or UDP port, or the identifier of an ICMP query, which takes its place.

use core::fmt;

/// A TCP or UDP port, or the identifier of an ICMP query (RFC 6146 section 3.5.3). Host byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Port(pub u16);

impl Port {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// True for 0 to 1023 (RFC 6335 section 6).
    #[must_use]
    pub const fn is_well_known(self) -> bool {
        self.0 < 1024
    }
}

impl From<u16> for Port {
    fn from(number: u16) -> Self {
        Self(number)
    }
}

impl From<Port> for u16 {
    fn from(port: Port) -> Self {
        port.0
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
