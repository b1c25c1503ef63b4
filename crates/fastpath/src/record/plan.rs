//! What the configuration decides, as the programs have it.

use super::cluster::{ClusterRecord, HashKeyRecord};
use super::service::{PrefixRecord, Range, ServiceRecord};

tombolo_records::constants! {
    /// Services that the programs know.
    pub(crate) const SERVICES: usize as SERVICES_MAX = 8;
    /// UDP ports of remotes that have times of their own.
    pub(crate) const SHORT_PORTS: usize as SHORT_PORTS_MAX = 8;
    /// IPv4 addresses that hosts inside ask for ports at.
    pub(crate) const PCP_ADDRESSES: usize as PCP_ADDRESSES_MAX = 4;
    /// Prefixes that the well-known prefix must not represent.
    pub(crate) const NON_GLOBALS: usize as NON_GLOBAL_MAX = 16;
}

tombolo_records::records! {
    /// Addresses that are not global, as on the wire.
    plain pub(crate) struct NonGlobal as non_global {
        bits: u32,
        mask: u32,
    }

    /// A UDP port of remotes whose datagrams count as earlier.
    plain pub(crate) struct ShortPortRecord as short_port {
        /// As on the wire.
        port: u16,
        unused: u16,
        /// By so many ticks; 0 if there is no such port.
        earlier: u32,
    }

    /// The whole of it.
    plain pub(crate) struct PlanRecord as plan {
        /// That of the tables' keys.
        hash_key: HashKeyRecord,
        /// Sizes of the tables (crates/tables).
        inside_buckets: u32,
        subscriber_buckets: u32,
        session_lines: u32,
        overflow_lines: u32,
        bindings: u32,
        used_words: u32,
        binding_pairs: u32,
        /// Ticks, by state.
        lifetimes: [u32; 16],
        reuse_after: [u32; 16],
        reuse_port_after: u32,
        short_ports: [ShortPortRecord; SHORT_PORTS],
        /// Secret of identifications and ports.
        secret: [u64; 2],
        /// What becomes of a session: the engine's table (mechanism/napt/session_state.rs).
        steps: [[u8; 8]; 16],
        /// The gateway's own addresses, if it answers for them itself; zero if it does not. As on
        /// the wire.
        own6: [u64; 2],
        own4: u32,
        /// Where hosts inside ask for ports, as on the wire. The first that is zero ends the list.
        pcp4: [u32; PCP_ADDRESSES],
        /// Where the blocks of the table of softwires begin (lwaftr.h): an address / 256.
        softwire_first_block: u32,
        /// Explicit mappings: how many, and their lowest and highest addresses, in the processor's
        /// byte order (of IPv6 the upper halves). Most addresses lie outside, and need no look-up.
        explicit_rows: u32,
        /// What TC translates is routed by the kernel's stack, past netfilter.
        through_stack: u16,
        /// Somebody copies the tables, and is told which bindings change.
        notes_changes: u16,
        /// What the engine's way takes from hop limits besides the engine's own: translate.h.
        hops_beside: u32,
        /// Services, a bit each by place, whose packets from inside come in through the interface that
        /// their source is routed to,
        inside_by_route: u16,
        /// and those for which interfaces are listed. To others they may come in anywhere.
        inside_listed: u16,
        explicit_ipv4: Range,
        /// Addresses between the lowest and the highest of a rule of MAP, likewise.
        map_ipv4: Range,
        explicit_ipv6_first: u64,
        explicit_ipv6_last: u64,
        /// A mask of zero ends the list.
        non_global: [NonGlobal; NON_GLOBALS],
        /// Prefixes in which any service shows IPv4 hosts, the engine's among them. The first that is
        /// absent ends the list.
        prefixes: [PrefixRecord; SERVICES],
        cluster: ClusterRecord,
        services: [ServiceRecord; SERVICES],
    }
}
