//! The gateway's own addresses, and what it says from them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Addresses of the gateway itself, and what it says from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnAddresses {
    /// Source of ICMPv4 errors; without it none are sent.
    pub ipv4: Option<Ipv4Addr>,
    /// Source of ICMPv6 errors; without it none are sent.
    pub ipv6: Option<Ipv6Addr>,
    /// Who answers what is sent to these addresses.
    pub answered_by: AnsweredBy,
    /// Which errors are sent, and how many.
    pub errors: ErrorPolicy,
}

/// Who answers what is sent to the gateway's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnsweredBy {
    /// The host, which has them on an interface: packets to them do not come here, unless a service
    /// has the address too.
    #[default]
    Host,
    /// The gateway: no interface has them. It answers echo requests, and refuses everything else.
    Gateway,
}

/// ICMP errors of the gateway's own, each worker by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorPolicy {
    /// Errors a second (RFC 4443 section 2.4 (f)); 0 sends none.
    pub rate: u32,
    /// Errors that may be sent at once.
    pub burst: u32,
    /// Whether ICMP errors are sent for packets that are refused for want of a mapping or by
    /// policy.
    pub refusals: Refusals,
}

/// Whether ICMP errors are sent for packets that are refused for want of a mapping or by policy
/// (RFC 7915 sections 4.4, 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refusals {
    /// They are: "administratively prohibited".
    #[default]
    Told,
    /// They are not, and so learn nothing about what is mapped.
    Silent,
}

impl Default for ErrorPolicy {
    fn default() -> Self {
        Self { rate: 100, burst: 50, refusals: Refusals::Told }
    }
}
