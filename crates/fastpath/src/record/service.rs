//! A service, as the programs have it.

tombolo_records::constants! {
    /// Ranges of each kind that a service may have.
    pub(crate) const RANGES: usize as RANGES_MAX = 8;
    /// Groups of runs of ports that an address may have.
    pub(crate) const PORT_GROUPS: usize as PORT_GROUPS_MAX = 4;
    /// Addresses of its own that a lwAFTR may have.
    pub(crate) const LOCALS: usize as LOCALS_MAX = 8;

    /// Values of `kind`: which code takes a service's packets (dispatch.h).
    pub(crate) const KIND_NONE: u8 = 0;
    pub(crate) const KIND_NAT64: u8 = 1;
    pub(crate) const KIND_NAT44: u8 = 2;
    pub(crate) const KIND_SIIT: u8 = 3;
    /// Left to the engine, but earlier in the list than others: its packets are not theirs.
    pub(crate) const KIND_ENGINE: u8 = 4;
    pub(crate) const KIND_B4: u8 = 5;
    pub(crate) const KIND_AFTR: u8 = 6;
    /// A NAT44 in front of one softwire: the lwB4 and the customer's edge of MAP-E.
    pub(crate) const KIND_EDGE: u8 = 7;
    pub(crate) const KIND_MAP_T_CE: u8 = 8;
    pub(crate) const KIND_LWAFTR: u8 = 9;
    pub(crate) const KIND_MAP_E_BR: u8 = 10;
    pub(crate) const KIND_MAP_T_BR: u8 = 11;

    /// Bits of `claims`: which packets are a service's (classify.h). IPv6 packets to addresses in
    /// `prefix`.
    pub(crate) const CLAIM_PREFIX: u16 = 1;
    /// IPv6 packets to `tunnel.local`.
    pub(crate) const CLAIM_LOCAL: u16 = 2;
    /// IPv6 packets to one of the addresses in `local`.
    pub(crate) const CLAIM_LOCALS: u16 = 4;
    /// IPv6 packets to addresses that have an explicit mapping.
    pub(crate) const CLAIM_MAPPED_IPV6: u16 = 8;
    /// IPv4 packets to addresses of the pool. A customer's edge has a pool, too, but what is for it
    /// comes in IPv6.
    pub(crate) const CLAIM_POOL: u16 = 16;
    /// IPv4 packets to addresses in `inside`.
    pub(crate) const CLAIM_INSIDE: u16 = 32;
    /// IPv4 packets to addresses that have an explicit mapping.
    pub(crate) const CLAIM_MAPPED_IPV4: u16 = 64;
    /// IPv4 packets to addresses that have none.
    pub(crate) const CLAIM_UNMAPPED_IPV4: u16 = 128;
    /// IPv4 packets to addresses of the MAP domain.
    pub(crate) const CLAIM_RULES: u16 = 256;
    /// IPv4 packets from addresses in `inside` to others.
    pub(crate) const CLAIM_SOURCES: u16 = 512;
    /// Not what is ICMP: the host has addresses of the pool, and answers for them.
    pub(crate) const CLAIM_NO_ICMP: u16 = 1024;

    /// Bits of `flags`. The well-known prefix must not stand for addresses that are not global (RFC
    /// 6052 section 3.1).
    pub(crate) const SERVICE_STRICT: u16 = 1;
    /// IPv4 packets come to it in softwires.
    pub(crate) const SERVICE_ENDS_SOFTWIRES: u16 = 2;
    /// TCP may not be opened from outside.
    pub(crate) const SERVICE_NO_INBOUND_TCP: u16 = 4;
    /// UDP ports keep their parity (RFC 4787 REQ-4).
    pub(crate) const SERVICE_PARITY: u16 = 8;
    /// Hairpins as RFC 7757 section 4.2.2 has them.
    pub(crate) const SERVICE_HAIRPIN_INTRINSIC: u16 = 16;
    /// Hairpins as RFC 7757 section 4.2.1 has them.
    pub(crate) const SERVICE_HAIRPIN_SIMPLE: u16 = 32;
    /// At the customer: IPv4 hosts are inside, and IPv6 is the outside.
    pub(crate) const SERVICE_AT_CUSTOMER: u16 = 64;
    /// The engine makes the bindings: at a limited rate, or for more networks, or of other shares, than the
    /// programs know.
    pub(crate) const SERVICE_ENGINE_BINDS: u16 = 128;
    /// The engine makes the sessions: they are counted.
    pub(crate) const SERVICE_ENGINE_OPENS: u16 = 256;
    /// The engine opens TCP: it may hold a SYN from outside.
    pub(crate) const SERVICE_ENGINE_OPENS_TCP: u16 = 512;
    /// The segment size that a SYN announces may have to be lowered.
    pub(crate) const SERVICE_CLAMPS: u16 = 1024;
    /// ICMP from outside is the engine's to drop.
    pub(crate) const SERVICE_NO_INBOUND_ICMP: u16 = 2048;
    /// Filtering by remote address (RFC 4787 REQ-8) of TCP; UDP's and ICMP's are the next bits.
    /// What makes or renews a permission is the engine's.
    pub(crate) const SERVICE_ADDRESS_DEPENDENT: u16 = 4096;
    /// UDP and ICMP make sessions, whatever the filtering.
    pub(crate) const SERVICE_KEEPS_SESSIONS: u16 = 32768;

    /// Value of a range's `first_shortcut`.
    pub(crate) const NO_SHORTCUTS: u32 = u32::MAX;
}

tombolo_records::records! {
    /// IPv4 addresses from `first` to `last`, in the processor's byte order.
    plain pub(crate) struct Range as range {
        first: u32,
        last: u32,
    }

    /// Ports from `first` to `last`, in the processor's byte order. None if `first` is the larger.
    plain pub(crate) struct Ports as ports {
        first: u16,
        last: u16,
    }

    /// Runs of ports, each as long as the first, at equal distances. Ports in the processor's byte order.
    plain pub(crate) struct PortRuns as port_runs {
        /// First port of the first run.
        first: u16,
        /// How many runs there are.
        runs: u16,
        /// Ports of a run.
        length: u32,
        /// From the first port of a run to that of the next.
        step: u32,
    }

    /// Ports that are handed out: groups of runs, ascending.
    plain pub(crate) struct PoolPorts as pool_ports {
        /// How many ports there are.
        count: u32,
        /// How many of the groups there are.
        groups: u32,
        group: [PortRuns; PORT_GROUPS],
    }

    /// Outside addresses that share their ports (crates/engine/src/mapping/pool.rs).
    plain pub(crate) struct PoolRecord as pool_range {
        addresses: Range,
        first_slot: u32,
        /// Ports that have a slot.
        span: Ports,
        /// The first of its shortcuts (shortcut.h); NO_SHORTCUTS if it has none.
        first_shortcut: u32,
        /// Ports that are handed out in the kernel, by space (the fourth is for the verifier); the
        /// engine may know more.
        handed_out: [PoolPorts; 4],
    }

    /// In which portions a pool hands out its ports (crates/engine/src/mapping/allocation.rs): one by one, if
    /// there are neither blocks nor shares.
    plain pub(crate) struct AllocationRecord as allocation {
        /// Ports in a block; 0 if there are no blocks.
        block_size: u32,
        /// Ports in a subscriber's share; 0 if there are no shares.
        share_size: u32,
        /// Subscribers that have shares.
        subscribers: u32,
        /// Shares of an outside address.
        shares_of_address: u32,
        /// Outside addresses, if subscribers are spread over them in turn; 0 if one is filled before the next.
        addresses_in_turn: u32,
        /// Subscribers are the hosts in `inside`; else IPv6 prefixes, from `first` on,
        are_hosts: u8,
        /// of which so many bits are not the prefix's.
        host_bits: u8,
        unused: u16,
        /// As on the wire.
        first: [u64; 2],
    }

    /// A translation prefix (RFC 6052 section 2.2; crates/wire/src/rfc6052.rs).
    plain pub(crate) struct PrefixRecord as prefix {
        /// As on the wire, and so is the mask, which covers the prefix and the u octet.
        bits: [u64; 2],
        mask: [u64; 2],
        /// Zero bits behind the IPv4 address, were there no u octet.
        shift: u8,
        /// By how much what lies behind the u octet moves.
        gap: u8,
        /// There is a prefix.
        present: u8,
        unused: [u8; 5],
    }

    /// This end of a softwire (crates/engine/src/mechanism/tunnel/softwire.rs). Addresses as on the
    /// wire.
    plain pub(crate) struct TunnelRecord as tunnel {
        local: [u64; 2],
        /// The other end. The AFTR has many, those in `networks`.
        remote: [u64; 2],
        /// Bytes of the largest IPv4 packet that crosses in one packet.
        mtu: u32,
        /// The DSCP of this octet for the outer header; copied both ways if negative.
        traffic_class: i16,
        hop_limit: u8,
        unused: u8,
    }

    /// IPv6 addresses as on the wire.
    plain pub(crate) struct Network as network {
        bits: [u64; 2],
        mask: [u64; 2],
    }

    /// Ports of remotes that hosts inside reach with their own addresses.
    plain pub(crate) struct ExemptRecord as exempt {
        addresses: Range,
        ports: Ports,
        /// A bit for each space.
        spaces: u32,
    }

    /// A service. Fields that its kind does not use are zero.
    plain pub(crate) struct ServiceRecord as service {
        kind: u8,
        /// How many of the ranges below there are.
        pool_ranges: u8,
        inside_ranges: u8,
        untranslated_ranges: u8,
        flags: u16,
        /// What becomes of TOS and traffic class: copied if negative, else its DSCP is replaced.
        traffic_class_4to6: i16,
        traffic_class_6to4: i16,
        /// AFTR: how many networks B4s have.
        b4_networks: u8,
        mesh_ranges: u8,
        inside_mtu: u32,
        outside_mtu: u32,
        /// IPv4 packets without DF become IPv6 packets of at most this size (RFC 7915 section 4).
        lowest_ipv6_mtu: u32,
        /// Bindings that a subscriber may have.
        bindings_per_subscriber: u32,
        /// Sessions that only the outside has sent in, of a binding and of a subscriber.
        unanswered_per_binding: u32,
        unanswered_per_subscriber: u32,
        /// lwAFTR: how many addresses of its own it has.
        locals: u8,
        /// What bindings and subscribers know it by.
        number: u8,
        claims: u16,
        /// Where it stands in the plan, which changes when others come and go.
        place: u8,
        /// NAT64: how many networks those have who may make bindings; none if anybody may.
        inside_networks: u8,
        /// NAT44: how many entries of `exempt` there are.
        exemptions: u8,
        /// Subscribers are softwires, whatever IPv4 hosts are behind them.
        by_softwire: u8,
        /// Port of remotes whose TCP is the engine's, which rewrites what is said there; as on the wire, 0 if there is
        /// none.
        control_port: u16,
        /// In a cluster: SLICED and so on,
        slicing: u8,
        /// and how many entries of `slices` there are.
        slice_ranges: u8,
        prefix: PrefixRecord,
        /// Bits of an IPv6 address that tell subscribers apart, as on the wire.
        subscriber_mask: [u64; 2],
        allocation: AllocationRecord,
        pool: [PoolRecord; RANGES],
        /// NAT44: who is inside, and what inside hosts reach as they are. SIIT: embedded hosts,
        /// inside ranges alone. lwAFTR: the addresses that it serves.
        inside: [Range; RANGES],
        untranslated: [Range; RANGES],
        exempt: [ExemptRecord; RANGES],
        tunnel: TunnelRecord,
        /// AFTR: addresses of B4s. NAT64: of those who may make bindings.
        networks: [Network; RANGES],
        /// MAP: addresses that an edge reaches without the border relay.
        mesh: [Range; RANGES],
        /// lwAFTR: its addresses.
        local: [[u64; 2]; LOCALS],
        /// In a cluster: ranges of the pool as they are cut into slices.
        slices: [Range; RANGES],
    }
}

/// The halves of an address as they lie in memory.
#[allow(dead_code, reason = "not for the build script")]
#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
pub(crate) const fn halves(bits: u128) -> [u64; 2] {
    [((bits >> 64) as u64).to_be(), (bits as u64).to_be()]
}
