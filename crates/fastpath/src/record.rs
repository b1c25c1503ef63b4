//! The plan's records: `bpf/plan.h` in Rust.

/// Services that the programs know.
pub(crate) const SERVICES: usize = 8;
/// Ranges of each kind that a service may have.
pub(crate) const RANGES: usize = 8;
/// Addresses of its own that a lwAFTR may have.
pub(crate) const LOCALS: usize = 8;
/// Prefixes that the well-known prefix must not represent.
pub(crate) const NON_GLOBALS: usize = 16;

pub(crate) const KIND_NAT64: u8 = 1;
pub(crate) const KIND_NAT44: u8 = 2;
pub(crate) const KIND_SIIT: u8 = 3;
pub(crate) const KIND_ENGINE: u8 = 4;
pub(crate) const KIND_B4: u8 = 5;
pub(crate) const KIND_AFTR: u8 = 6;
pub(crate) const KIND_EDGE: u8 = 7;
pub(crate) const KIND_MAP_T_CE: u8 = 8;
pub(crate) const KIND_LWAFTR: u8 = 9;
pub(crate) const KIND_MAP_E_BR: u8 = 10;
pub(crate) const KIND_MAP_T_BR: u8 = 11;

pub(crate) const CLAIM_PREFIX: u16 = 1;
pub(crate) const CLAIM_LOCAL: u16 = 2;
pub(crate) const CLAIM_LOCALS: u16 = 4;
pub(crate) const CLAIM_MAPPED_IPV6: u16 = 8;
pub(crate) const CLAIM_POOL: u16 = 16;
pub(crate) const CLAIM_INSIDE: u16 = 32;
pub(crate) const CLAIM_MAPPED_IPV4: u16 = 64;
pub(crate) const CLAIM_UNMAPPED_IPV4: u16 = 128;
pub(crate) const CLAIM_RULES: u16 = 256;
pub(crate) const CLAIM_SOURCES: u16 = 512;

pub(crate) const STRICT: u16 = 1;
pub(crate) const ENDS_SOFTWIRES: u16 = 2;
/// Of TCP; those of UDP and ICMP are the next bits.
pub(crate) const ADDRESS_DEPENDENT: u16 = 4096;
pub(crate) const NO_INBOUND_TCP: u16 = 4;
pub(crate) const PARITY: u16 = 8;
pub(crate) const HAIRPIN_INTRINSIC: u16 = 16;
pub(crate) const HAIRPIN_SIMPLE: u16 = 32;
pub(crate) const CLAT: u16 = 64;
pub(crate) const ENGINE_BINDS: u16 = 128;
pub(crate) const ENGINE_OPENS: u16 = 256;
pub(crate) const ENGINE_OPENS_TCP: u16 = 512;
pub(crate) const CLAMPS: u16 = 1024;

/// Addresses, in the processor's byte order.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Range {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// Ports, in the processor's byte order.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Ports {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl Ports {
    pub(crate) const NONE: Self = Self { first: 1, last: 0 };
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PoolRecord {
    pub(crate) addresses: Range,
    pub(crate) first_slot: u32,
    pub(crate) span: Ports,
    pub(crate) handed_out: [Ports; 4],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PrefixRecord {
    pub(crate) bits: [u64; 2],
    pub(crate) mask: [u64; 2],
    pub(crate) shift: u8,
    pub(crate) gap: u8,
    pub(crate) present: u8,
    pub(crate) unused: [u8; 5],
}

/// This end of a softwire.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct TunnelRecord {
    pub(crate) local: [u64; 2],
    pub(crate) remote: [u64; 2],
    pub(crate) mtu: u32,
    pub(crate) traffic_class: i16,
    pub(crate) hop_limit: u8,
    pub(crate) unused: u8,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Network {
    pub(crate) bits: [u64; 2],
    pub(crate) mask: [u64; 2],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ServiceRecord {
    pub(crate) kind: u8,
    pub(crate) pool_ranges: u8,
    pub(crate) inside_ranges: u8,
    pub(crate) untranslated_ranges: u8,
    pub(crate) flags: u16,
    pub(crate) traffic_class_4to6: i16,
    pub(crate) traffic_class_6to4: i16,
    pub(crate) b4_networks: u8,
    pub(crate) mesh_ranges: u8,
    pub(crate) inside_mtu: u32,
    pub(crate) outside_mtu: u32,
    pub(crate) lowest_ipv6_mtu: u32,
    pub(crate) bindings_per_subscriber: u32,
    pub(crate) locals: u8,
    pub(crate) number: u8,
    pub(crate) claims: u16,
    pub(crate) prefix: PrefixRecord,
    pub(crate) pool: [PoolRecord; RANGES],
    pub(crate) inside: [Range; RANGES],
    pub(crate) untranslated: [Range; RANGES],
    pub(crate) tunnel: TunnelRecord,
    pub(crate) b4s: [Network; RANGES],
    pub(crate) mesh: [Range; RANGES],
    pub(crate) local: [[u64; 2]; LOCALS],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct NonGlobal {
    pub(crate) bits: u32,
    pub(crate) mask: u32,
}

/// `struct plan`: the whole of it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanRecord {
    pub(crate) hash_key: [u64; 4],
    pub(crate) inside_buckets: u32,
    pub(crate) subscriber_buckets: u32,
    pub(crate) session_lines: u32,
    pub(crate) overflow_lines: u32,
    pub(crate) bindings: u32,
    pub(crate) used_words: u32,
    pub(crate) lifetimes: [u32; 16],
    pub(crate) reuse_after: [u32; 16],
    pub(crate) reuse_port_after: u32,
    pub(crate) report_sessions: u32,
    pub(crate) secret: [u64; 2],
    pub(crate) steps: [[u8; 8]; 16],
    pub(crate) own6: [u64; 2],
    pub(crate) own4: u32,
    /// This and the bounds below are written when the tables have been made ([`crate::lookup`]).
    pub(crate) softwire_first_block: u32,
    pub(crate) explicit_rows: u32,
    pub(crate) through_stack: u32,
    pub(crate) explicit_ipv4: Range,
    pub(crate) map_ipv4: Range,
    pub(crate) explicit_ipv6_first: u64,
    pub(crate) explicit_ipv6_last: u64,
    pub(crate) non_global: [NonGlobal; NON_GLOBALS],
    pub(crate) services: [ServiceRecord; SERVICES],
}

// SAFETY: integers without padding, which the assertion below proves; any bytes are valid.
unsafe impl aya::Pod for PlanRecord {}

const _: () = assert!(
    size_of::<PlanRecord>()
        == 32 + 24 + 128 + 8 + 16 + 128 + 24 + 40 + 8 * NON_GLOBALS + SERVICES * size_of::<ServiceRecord>()
        && size_of::<ServiceRecord>() == 32 + 40 + RANGES * (32 + 8 + 8) + 40 + RANGES * (32 + 8) + LOCALS * 16
);

/// `struct explicit_row`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ExplicitRow {
    pub(crate) ipv6: [u64; 2],
    pub(crate) ipv4: u32,
    pub(crate) suffix: u32,
    pub(crate) shift: u32,
    pub(crate) unused: u32,
}

pub(crate) const BLOCKS_OF_A_LINE: usize = 32;
pub(crate) const LOCALS_OF_A_LINE: usize = 64;

/// `struct softwire_share`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct SoftwireShare {
    pub(crate) first: u32,
    pub(crate) last: u16,
    pub(crate) offset_bits: u8,
    pub(crate) psid_bits: u8,
}

/// `struct softwire_row`.
pub(crate) type SoftwireRecord = [u64; 2];
/// `struct softwire_blocks`.
pub(crate) type SoftwireBlocks = [u16; BLOCKS_OF_A_LINE];
/// `struct softwire_locals`.
pub(crate) type SoftwireLocals = [u8; LOCALS_OF_A_LINE];

/// `struct map_rule`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MapRuleRecord {
    pub(crate) ipv6: [u64; 2],
    pub(crate) behind: u64,
    pub(crate) ipv4: u32,
    pub(crate) ipv4_mask: u32,
    pub(crate) given_psid: u32,
    pub(crate) suffix_bits: u8,
    pub(crate) embedded_psid_bits: u8,
    pub(crate) shift: u8,
    pub(crate) host_bits: u8,
    pub(crate) offset_bits: u8,
    pub(crate) psid_bits: u8,
    pub(crate) unused: u16,
    pub(crate) unused2: u32,
    pub(crate) unused3: u64,
}

/// `struct map_group`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MapGroup {
    pub(crate) first: u32,
    pub(crate) offset_bits: u8,
    pub(crate) psid_bits: u8,
    pub(crate) unused: u16,
}

/// The halves of an address as they lie in memory.
#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
pub(crate) const fn halves(bits: u128) -> [u64; 2] {
    [((bits >> 64) as u64).to_be(), (bits as u64).to_be()]
}
