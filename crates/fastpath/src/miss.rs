//! Why the fast path passed a packet on. Also read by the build script, which gives the numbers to
//! the programs.

macro_rules! misses {
    ($($(#[doc = $text:literal])+ $name:ident = $word:literal;)+) => {
        /// Why a packet was passed on: to the next stage, and at last to the engine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Miss {
            $($(#[doc = $text])+ $name,)+
        }

        impl Miss {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name used in counters and metrics: lower case, words joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// What it means, for documentation and `show fastpath`.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($text),+),)+ }
            }
        }
    };
}

misses! {
    /// No service has the destination: not the gateway's packet.
    NotOurs = "not-ours";
    /// TTL or hop limit runs out here.
    HopLimit = "hop-limit";
    /// An address that is never translated, or not through the well-known prefix.
    Screened = "screened";
    /// A datagram without checksum, where one is needed.
    UdpChecksum = "udp-checksum";
    /// From inside to the gateway's own pool or hosts: a hairpin.
    Hairpin = "hairpin";
    /// It does not fit the next link: it is fragmented or refused.
    Size = "size";
    /// No binding has the endpoint, and none can be made here.
    NoBinding = "no-binding";
    /// From outside by a binding that nothing has touched for its lifetime: whether it is over the
    /// engine knows.
    BindingOverdue = "binding-overdue";
    /// The subscriber has not been admitted yet.
    NoSubscriber = "no-subscriber";
    /// The subscriber has as many bindings as it may have.
    Limit = "limit";
    /// No free record was found near the last one.
    NoRecord = "no-record";
    /// No free port was found in a few draws.
    NoPort = "no-port";
    /// A new port of a slice of the cluster that this node may not grant: it has no lease, or serves in another one's place.
    NotGranting = "not-granting";
    /// The session was silent for too long: it is dead.
    SessionDead = "session-dead";
    /// No session could be made: no room, or another writer was at it.
    SessionRefused = "session-refused";
    /// Address-dependent filtering: the engine gives the permission of a remote address.
    Permission = "permission";
    /// Policy refuses it.
    Policy = "policy";
    /// Of a connection in which a helper rewrites what is said.
    Helper = "helper";
    /// Another writer changed the same record at the same moment.
    Race = "race";
    /// No mapping covers an address.
    NoMapping = "no-mapping";
    /// XDP: the neighbour is not resolved, or the route leads where XDP cannot send.
    NoNextHop = "no-next-hop";
    /// XDP: a packet or a burst, every eight ticks, that TC sends, so that the kernel hears whether
    /// the neighbour is still there.
    Neighbour = "neighbour";
    /// A source that is not the sender's own: not that of its softwire, or of its share by the
    /// rules.
    Spoofed = "spoofed";
    /// From inside, but not through an interface of the inside: the kernel's stack decides, and drops
    /// it as a rule (`inside-spoofed`).
    ReversePath = "reverse-path";
    /// TC: no next hop is certain, and the kernel's stack takes no packet of the other protocol by the interface that this
    /// one came in by (no IPv6 there, forwarding off, or `rp_filter` 1).
    StackRefuses = "stack-refuses";
    /// Of a slice of the cluster that another node serves, and not to be sent there from here: it is gone, the
    /// packet has been redirected twice, or it would take another header.
    Slice = "slice";
}
