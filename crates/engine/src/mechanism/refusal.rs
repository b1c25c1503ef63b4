//! A packet that is not forwarded: why, and the ICMP error for its sender.

use crate::verdict::DropReason;

/// Why a packet is not forwarded, and the ICMP error that its sender may get for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, which is counted.
    pub reason: DropReason,
    /// The error to answer with; `None` for a silent drop.
    pub answer: Option<IcmpAnswer>,
}

/// An ICMP error that the gateway originates, in terms that both families have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpAnswer {
    /// TTL or hop limit ran out: ICMPv4 11/0, ICMPv6 3/0.
    TimeExceeded,
    /// Fragments did not come in time: ICMPv4 11/1, ICMPv6 3/1.
    ReassemblyTimeExceeded,
    /// Too big for a link: ICMPv4 3/4, ICMPv6 2/0.
    TooBig {
        /// The largest packet of the sender's protocol that fits, in bytes.
        mtu: u32,
    },
    /// No way to the host, no resources: ICMPv4 3/1, ICMPv6 1/3.
    HostUnreachable,
    /// Nobody has the port: ICMPv4 3/3, ICMPv6 1/4.
    PortUnreachable,
    /// The transport is not translated: ICMPv4 3/2; in ICMPv6 port unreachable, 1/4 (RFC 6146
    /// section 3.4).
    ProtocolUnreachable,
    /// A next header that the node itself does not know (RFC 8200 section 4): ICMPv4 3/2, ICMPv6 4/1.
    UnknownNextHeader {
        /// Offset of the byte that names it from the start of the packet.
        pointer: u16,
    },
    /// Forbidden: ICMPv4 3/13, ICMPv6 1/1.
    Prohibited,
    /// A source address that policy forbids: ICMPv4 3/13, ICMPv6 1/5.
    SourcePolicy,
    /// A source route that is not used up: ICMPv4 3/5. No ICMPv6 counterpart: 1/1.
    SourceRouteFailed,
    /// A header field is wrong: ICMPv4 12/0, ICMPv6 4/0.
    ParameterProblem {
        /// Offset of the byte from the start of the packet.
        pointer: u16,
    },
}

impl Refusal {
    /// A refusal that is answered with an ICMP error.
    #[must_use]
    pub const fn with(reason: DropReason, answer: IcmpAnswer) -> Self {
        Self { reason, answer: Some(answer) }
    }

    /// A refusal without an ICMP error.
    #[must_use]
    pub const fn silent(reason: DropReason) -> Self {
        Self { reason, answer: None }
    }

    /// The same refusal without its ICMP error.
    #[must_use]
    pub const fn silence(self) -> Self {
        Self::silent(self.reason)
    }
}

/// A silent drop.
impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Self {
        Self::silent(reason)
    }
}
