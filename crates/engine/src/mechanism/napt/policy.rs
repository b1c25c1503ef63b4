//! What a service lets its subscribers do.
//!
//! Read first: RFC 4787 REQ-6 and REQ-8, RFC 5382 REQ-4, RFC 6888 REQ-4 and REQ-5, RFC 7785.

use tombolo_tables::binding::InsideKey;
use tombolo_tables::subscriber::SubscriberKey;
use tombolo_tables::tables::Budget;

use super::filtering::{Filtering, Filters};
use super::protocols::Protocols;
use super::session_state::Event;
use crate::mapping::pool::{Parity, PortSpace};
use crate::mechanism::helper::Helpers;
use crate::mechanism::pcp::PcpPolicy;
use crate::verdict::DropReason;

/// What a service lets its subscribers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What is translated.
    pub protocols: Protocols,
    /// Who may send from outside.
    pub filtering: Filters,
    /// Connections may be opened from outside where a binding exists.
    pub inbound_tcp: InboundTcp,
    /// Bindings that a subscriber may have at once; `None` for no limit (RFC 6888 REQ-4).
    pub bindings_per_subscriber: Option<u32>,
    /// Sessions that a subscriber may have at once; `None` for no limit (RFC 6888 REQ-5).
    pub sessions_per_subscriber: Option<u32>,
    /// Which packets make sessions.
    pub sessions: Sessions,
    /// Bindings that a subscriber may make in a tick (about a second), twice as many after a pause;
    /// `None` for no limit (RFC 6888 REQ-4 (c)).
    pub binding_rate: Option<u16>,
    /// Subscribers that may be admitted in a second, by all workers together; `None` for no limit.
    pub subscriber_rate: Option<u32>,
    /// Whether UDP ports keep their parity.
    pub parity: Parity,
    /// Who shares an outside address and its limits.
    pub subscriber: SubscriberIs,
    /// What becomes of a SYN from outside that may not come in.
    pub unsolicited_syn: UnsolicitedSyn,
    /// Sessions that only the outside has sent in. Beyond it datagrams come in without a session,
    /// and SYNs do not: whoever floods a binding from invented sources fills no table, and only
    /// this binding takes no new connections meanwhile.
    pub unanswered: Budget,
    /// What hosts may ask for with PCP; `None` where they may not.
    pub pcp: Option<PcpPolicy>,
    /// What it rewrites of what applications say.
    pub helpers: Helpers,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            protocols: Protocols::default(),
            filtering: Filters::default(),
            inbound_tcp: InboundTcp::default(),
            bindings_per_subscriber: None,
            sessions_per_subscriber: None,
            sessions: Sessions::default(),
            binding_rate: None,
            subscriber_rate: None,
            parity: Parity::default(),
            subscriber: SubscriberIs::default(),
            unsolicited_syn: UnsolicitedSyn::default(),
            unanswered: Budget { of_binding: 256, of_subscriber: 1024 },
            pcp: None,
            helpers: Helpers::default(),
        }
    }
}

/// Who the subscriber is that an inside endpoint belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriberIs {
    /// The host; over IPv6 all hosts whose addresses have the first bits in common.
    Host {
        /// So many bits: 128 tells all hosts apart, 64 makes a /64 one subscriber.
        prefix_length: u8,
    },
    /// The prefix of this many bits that its softwire comes from, whatever hosts are behind it (RFC
    /// 7785).
    Softwire {
        /// Bits of the prefix, 0 to 128.
        prefix_length: u8,
    },
}

impl Default for SubscriberIs {
    fn default() -> Self {
        Self::Host { prefix_length: 128 }
    }
}

impl SubscriberIs {
    /// Bits of an IPv6 address that tell subscribers apart.
    #[must_use]
    pub const fn prefix_length(self) -> u8 {
        match self {
            Self::Host { prefix_length } | Self::Softwire { prefix_length } => prefix_length,
        }
    }

    /// The subscriber of `inside`.
    #[must_use]
    pub fn key(self, inside: &InsideKey) -> SubscriberKey {
        let hidden = u128::MAX.checked_shr(self.prefix_length().into()).unwrap_or(0);
        let ipv6 = (u128::from_be_bytes(inside.ipv6) & !hidden).to_be_bytes();
        let ipv4 = match self {
            Self::Host { .. } => inside.ipv4,
            Self::Softwire { .. } => [0; 4],
        };
        SubscriberKey { ipv6, ipv4, service: inside.service }
    }
}

/// Which packets make sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sessions {
    /// Those whose sessions decide something: the state of a TCP connection says how long its
    /// binding stays; filtering by address asks whom the inside has sent to; a limit counts. Where
    /// neither mapping nor filtering depends on the remote, a session of UDP or ICMP would only keep
    /// its binding, which keeps its own time then.
    #[default]
    WhereTheyDecide,
    /// All.
    Kept,
}

/// What becomes of a SYN from outside for which there is no binding, or which filtering stops (RFC
/// 5382 REQ-4, RFC 6146 section 3.5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnsolicitedSyn {
    /// It is dropped without an ICMP error: no work and no state for scans.
    #[default]
    Drop,
    /// It is held for some seconds, so that both sides may open at once; then an ICMP error is
    /// sent.
    Hold,
}

impl Policy {
    /// True if packets of `space` make sessions; else bindings keep their own time.
    #[inline]
    #[must_use]
    pub fn keeps_sessions(&self, space: PortSpace) -> bool {
        space.has_connections()
            || self.sessions == Sessions::Kept
            || self.sessions_per_subscriber.is_some()
            || self.filtering.of(space) == Filtering::AddressDependent
    }

    /// True if a port of `space` that was closed is kept back for a while. Not where a newcomer cannot get what was meant for
    /// the old owner (RFC 6888 REQ-8 (a): TCP, whose binding outlives its connections by TCP_TRANS; (c): filtering by
    /// address).
    #[must_use]
    pub fn keeps_back(&self, space: PortSpace) -> bool {
        !space.has_connections() && self.filtering.of(space) != Filtering::AddressDependent
    }

    /// True if a packet from outside that is refused for `reason` is to wait for the inside to
    /// open.
    #[must_use]
    pub fn holds(&self, reason: DropReason, space: PortSpace, event: Event) -> bool {
        self.unsolicited_syn == UnsolicitedSyn::Hold
            && (space, event) == (PortSpace::Tcp, Event::Syn)
            && matches!(reason, DropReason::NoBinding | DropReason::Filtered)
    }
}

/// Whether connections, of TCP and what is like it, may be opened from outside where a binding
/// exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InboundTcp {
    /// As for any other packet: what filtering lets in.
    #[default]
    Filtered,
    /// Never, except through static bindings.
    Denied,
}
