//! What the engine decided about a packet, and why.

use std::fmt;

use crate::answered::Answered;

/// The end of a packet's way through the engine. Packets that leave go through the
/// [`Outbox`](crate::packet::Outbox); the verdict says what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Translated (or encapsulated, or decapsulated) and sent on, possibly as several fragments.
    Forward,
    /// Answered: an ICMP error or reply was sent back instead, for the reason given.
    Reply(DropReason),
    /// An echo request to an address of the gateway's own, answered.
    EchoReply,
    /// A request of PCP, answered.
    Pcp(Answered),
    /// Sent to another node of the cluster, which has this number.
    Redirect(u8),
    /// Kept: a fragment that waits for the others, or a SYN that waits for the inside to open.
    Hold,
    /// Not the gateway's; the host may have it. What came to an address of the host itself is given back to it.
    ToHost,
    /// Dropped without an answer.
    Drop(DropReason),
}

impl Verdict {
    /// It in a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reply(_) => "reply",
            Self::EchoReply => "echo-reply",
            Self::Pcp(_) => "pcp-reply",
            Self::Redirect(_) => "redirect",
            Self::Hold => "hold",
            Self::ToHost => "to-host",
            Self::Drop(_) => "drop",
        }
    }

    /// Why the packet was not forwarded, where there is a reason.
    #[must_use]
    pub const fn reason(self) -> Option<DropReason> {
        match self {
            Self::Reply(reason) | Self::Drop(reason) => Some(reason),
            _ => None,
        }
    }
}

macro_rules! drop_reasons {
    ($($(#[doc = $cause:literal])+ $name:ident = $text:literal, remedy: $remedy:literal;)+) => {
        /// Why a packet was dropped. Counters, metrics, logs and the table in
        /// `docs/drop-reasons.md` all derive from this list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $cause])+ #[doc = ""] #[doc = concat!("Remedy: ", $remedy)] $name,)+
        }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in counters, metrics and logs: lower case, words joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// What causes it, for documentation and `show counters`.
            #[must_use]
            pub const fn cause(self) -> &'static str {
                match self { $(Self::$name => concat!($($cause),+),)+ }
            }

            /// What an operator can do about it.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)+ }
            }
        }
    };
}

drop_reasons! {
    /// The packet ends before its headers do, or a length field contradicts another.
    Malformed = "malformed", remedy: "look at the sender; the packet is damaged or crafted";
    /// An IPv4 header checksum or an ICMP checksum is wrong.
    BadChecksum = "bad-checksum", remedy: "look for a faulty link or an offload that is not completed";
    /// Neither IPv4 nor IPv6.
    NotIp = "not-ip", remedy: "none needed";
    /// The source address may not appear on the wire (RFC 7915 sections 4.1, 5.1).
    IllegalSource = "illegal-source", remedy: "filter such sources at the edge";
    /// The destination is multicast, broadcast or otherwise no host (RFC 7915 covers unicast only).
    IllegalDestination = "illegal-destination", remedy: "none needed";
    /// The IPv6 source lies inside a translation prefix: the packet loops (RFC 6146 section 3.5).
    SourceInPrefix = "source-in-prefix", remedy: "check the routes towards the translation prefix";
    /// The well-known prefix with an IPv4 address that is not global (RFC 6052 section 3.1).
    PrivateInWellKnownPrefix = "private-in-well-known-prefix", remedy: "use a network-specific prefix, or well_known_prefix_strict = false";
    /// An IPv4 link-local address without an explicit mapping: no router forwards it (RFC 3927
    /// section 7).
    LinkLocal = "link-local-address", remedy: "map the address explicitly if it is to be reached";
    /// An address has no counterpart in the other protocol.
    Untranslatable = "untranslatable-address", remedy: "add an address mapping or a prefix that covers it";
    /// TTL or hop limit ran out in the gateway.
    HopLimit = "hop-limit-exceeded", remedy: "look for a routing loop; traceroute causes a few";
    /// Too big for the next link, and may not be fragmented.
    TooBig = "packet-too-big", remedy: "none needed: path MTU discovery; else raise the MTU or lower the MSS";
    /// An IPv4 source route that has not been used up (RFC 7915 section 4.1).
    SourceRoute = "source-route", remedy: "none needed";
    /// An IPv6 Routing header with segments left (RFC 7915 section 5.1).
    RoutingHeader = "routing-header", remedy: "none needed";
    /// An extension header after the Fragment header (RFC 7915 section 5.1.1).
    HeaderAfterFragment = "header-after-fragment", remedy: "look at the sender; such packets are mostly crafted";
    /// An ICMP type or code that has no counterpart (RFC 7915 sections 4.2, 5.2).
    IcmpUntranslatable = "icmp-untranslatable", remedy: "none needed";
    /// An ICMP error that is about an ICMP error, or is too short to tell what it is about.
    IcmpErrorUnusable = "icmp-error-unusable", remedy: "none needed";
    /// A transport protocol that the service does not translate.
    UnsupportedProtocol = "unsupported-protocol", remedy: "add it to further_protocols where that knows it; else use a stateless service for it";
    /// UDP over IPv4 with checksum zero where it is not computed, or over IPv6 with checksum zero.
    UdpChecksumZero = "udp-checksum-zero", remedy: "set udp_zero_checksum to what the application needs";
    /// A fragment that a stateless service cannot translate (fragmented ICMP).
    FragmentUntranslatable = "fragment-untranslatable", remedy: "none needed";
    /// A fragment that overlaps another, is tiny, or contradicts its siblings (RFC 8200 section
    /// 4.5, RFC 3128).
    FragmentInvalid = "fragment-invalid", remedy: "look at the sender; such packets are mostly crafted";
    /// The other fragments did not arrive in time.
    FragmentTimeout = "fragment-timeout", remedy: "look for loss; raise fragment_timeout on slow paths";
    /// The memory for waiting fragments is used up.
    FragmentMemory = "fragment-memory", remedy: "raise fragment_memory, or look for a flood of fragments";
    /// From outside, for a port that nobody has (no binding).
    NoBinding = "no-binding", remedy: "none needed: scans; for a service add a static binding";
    /// From outside, from a remote that the inside host never talked to (address-dependent
    /// filtering).
    Filtered = "filtered", remedy: "filtering = \"endpoint-independent\" if peer-to-peer traffic is wanted";
    /// A subscriber sends from an address or port that is not its own, or from nowhere in the
    /// domain (RFC 7597 section 8.1).
    SpoofedSource = "spoofed-source", remedy: "look at the subscriber, or at the mapping rules: both ends must have the same";
    /// An ICMP error about a session that does not exist.
    NoSession = "no-session", remedy: "none needed";
    /// From inside, and of no binding: a TCP packet other than SYN, or one of SCTP or DCCP that opens nothing.
    TcpNotSyn = "tcp-not-syn", remedy: "none needed: connections older than the gateway's state";
    /// A SYN from outside where policy forbids opening from outside.
    InboundSyn = "inbound-syn", remedy: "add a static binding for servers inside";
    /// No outside port is free for this subscriber.
    PoolExhausted = "pool-exhausted", remedy: "add addresses or ports to the pool";
    /// The table of bindings is full.
    BindingTableFull = "binding-table-full", remedy: "raise capacity.bindings";
    /// The table of sessions is full.
    SessionTableFull = "session-table-full", remedy: "raise capacity.sessions";
    /// The table of subscribers is full.
    SubscriberTableFull = "subscriber-table-full", remedy: "raise capacity.subscribers";
    /// The subscriber has reached one of its limits.
    SubscriberLimit = "subscriber-limit", remedy: "raise the limit, or look for a compromised host";
    /// A SYN from outside, where as many sessions as may be wait for an answer from inside.
    UnansweredLimit = "unanswered-limit", remedy: "none needed in a flood of SYNs; else raise limits.unanswered_per_binding or limits.unanswered";
    /// New state is being made faster than the configured rate.
    RateLimited = "rate-limited", remedy: "raise the rate, or look for a flood";
    /// The gateway is being drained: what is open goes on, and nothing new begins.
    Draining = "draining", remedy: "tombolo drain --off, when the gateway is to serve again";
    /// Policy excludes it: an address of a deny list, or ICMP from outside to a lwAFTR.
    Denied = "denied", remedy: "change the deny list, or inbound_icmp of the lwaftr";
    /// From a host that is not one of those that may use the service: not in its `inside`.
    NotInside = "not-inside", remedy: "add the host's prefix to inside of the service, if it may use it";
    /// A packet for an end of a softwire that holds no IPv4 packet (RFC 2473 section 3.1).
    NotIpv4Inside = "no-packet-inside", remedy: "look at the sender; only IPv4 belongs into the softwire";
    /// A packet for an end of a softwire that holds another tunnel's packet (RFC 2473 section 4).
    TunnelInTunnel = "tunnel-in-tunnel", remedy: "check the routes towards the tunnel addresses for a loop";
    /// Congestion marked on the tunnel header of a packet whose sender does not understand it (RFC
    /// 6040 section 4.2).
    CongestionNotEct = "congestion-not-ect", remedy: "none needed: loss signals the congestion";
    /// From a softwire that is not provisioned, or that the gateway does not serve.
    UnknownSoftwire = "unknown-softwire", remedy: "add the softwire to the table, or look for a misconfigured B4";
    /// An inner source address or port that does not belong to its softwire (RFC 6333 section 11,
    /// RFC 7596 section 6.2).
    InnerSourceSpoofed = "inner-source-spoofed", remedy: "look at the host behind that softwire, or correct its row";
    /// From inside the softwire, for an address or port that is not its end's (RFC 7596 section
    /// 5.2).
    NotOurs = "not-ours", remedy: "compare the binding here with the one at the other end";
    /// The other end of the softwire says that it has no binding for this one (RFC 7596 section
    /// 8.1).
    SoftwireRefused = "softwire-refused", remedy: "provision the softwire at the other end, or this end anew";
    /// For the other end of a softwire whose name the resolver has no address for yet.
    FarEndUnknown = "far-end-unknown", remedy: "see the health of the gateway, and ask the resolver for the name";
    /// From one subscriber of the gateway to another, where hairpinning is switched off.
    HairpinningOff = "hairpinning-off", remedy: "set hairpinning = true if subscribers are to reach each other";
    /// A request of PCP from a host that is inside no service that takes any (RFC 6887 section 8.2).
    NotPcpClient = "not-pcp-client", remedy: "give the service of the host a table pcp, if its hosts may ask for ports";
    /// A helper would rewrite a line before what it rewrote last has been acknowledged; the sender
    /// sends it again (RFC 6384 section 4).
    RewritingUnacknowledged = "rewriting-unacknowledged", remedy: "none needed: the sender sends it again";
    /// Of a slice whose owner in the cluster does not serve, nor anybody who could bring it there.
    SliceUnowned = "slice-unowned", remedy: "see show slices and show peers; bring the owner back, or name another one in the file of slices on all nodes";
    /// Needs an address, a block or a port that only the owner of its slice may grant, in whose place this node of the
    /// cluster serves, or whose lease in etcd is over; or more blocks at a time than the slice's backup knows to be offered.
    NotGranting = "not-granting", remedy: "see show slices and show peers; bring the owner back, or name another one in the file of slices on all nodes; none needed if it is admitted when it sends again";
    /// Nodes of the cluster have redirected it twice, and the last one does not own its slice either.
    RedirectLoop = "redirect-loop", remedy: "compare the files of slices of all nodes; they must be the same";
    /// To the address for what nodes of the cluster redirect to each other, but from none of them, or not
    /// something that they redirect.
    RedirectRefused = "redirect-refused", remedy: "compare the nodes in the files of all of them; filter their locators where packets enter the network";
    /// The kernel had no memory or no room for what was to be sent.
    DeviceBusy = "device-busy", remedy: "give the host more memory, or look for who takes it";
    /// The device was down, or gone, when the packet or an answer to it was to be sent.
    DeviceDown = "device-down", remedy: "set the device up (ip link set DEVICE up), and find out who set it down";
    /// What was to be sent and its virtio header contradict each other.
    DeviceInvalid = "device-invalid", remedy: "this is a defect of the gateway; report it";
    /// The kernel did not take what was to be sent, for another reason.
    DeviceRefused = "device-refused", remedy: "look for the kernel's messages about the device (dmesg), and report it";
    /// The buffer has no room for the larger header.
    NoHeadroom = "no-headroom", remedy: "this is a defect of the gateway; report it";
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_fit_for_metrics() {
        let names: HashSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }

    #[test]
    fn numbers_follow_the_order_of_the_list() {
        for (number, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
        }
    }
}
