//! A tunnel, by its two ends.

use std::net::Ipv6Addr;

/// The two ends of a softwire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softwire {
    /// Address of this end: the source of what is sent.
    pub local: Ipv6Addr,
    /// Address of the other end.
    pub remote: Ipv6Addr,
}
