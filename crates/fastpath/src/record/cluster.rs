//! The cluster as the programs have it: who the nodes are, and which of them serves which slice.

use std::sync::atomic::{AtomicU32, AtomicU64};

tombolo_records::constants! {
    /// Nodes of a cluster, at most.
    pub(crate) const NODES: usize as NODES_MAX = 16;

    /// Slices that a line of their table has.
    pub(crate) const SLICES_OF_A_LINE: usize = 16;
    /// Lines of a table, of which there are two.
    pub(crate) const SLICE_LINES: usize = 16;
    /// The line behind them. Its first word says which of the two counts.
    pub(crate) const SLICE_CHOICE: usize = 32;

    /// Slices of which a line says until when ports may be drawn.
    pub(crate) const GRANTS_OF_A_LINE: usize = 8;
    /// Lines with all slices.
    pub(crate) const GRANT_LINES: usize = 32;

    /// Where packets of a slice go. Nowhere from here: the engine says why.
    pub(crate) const PLACE_NOWHERE: u32 = 0;
    /// This node serves them.
    pub(crate) const PLACE_HERE: u32 = 1;
    /// The first node does; the others follow.
    pub(crate) const PLACE_NODES: u32 = 2;

    /// Where packets come in that other nodes redirect: anywhere,
    pub(crate) const CORE_ANYWHERE: u8 = 0;
    /// through the interface that the other node's locator is routed to,
    pub(crate) const CORE_BY_ROUTE: u8 = 1;
    /// through those that are listed.
    pub(crate) const CORE_LISTED: u8 = 2;

    /// Bits of a service's `slicing`. Its subscribers and addresses have slices.
    pub(crate) const SLICED: u8 = 1;
    /// Some subscribers were given theirs.
    pub(crate) const SLICED_PINS: u8 = 2;
    /// Which slice a subscriber has the engine knows alone. This node has bindings of its own slices only, so
    /// what finds one is served here.
    pub(crate) const SLICED_BY_ENGINE: u8 = 4;
}

tombolo_records::records! {
    /// A secret of keyed hashing (crates/tables/src/hash.rs).
    plain pub(crate) struct HashKeyRecord as hash_key {
        halves: [u32; 6],
        offset: u64,
    }

    /// A cluster with slices; zeros without one.
    plain pub(crate) struct ClusterRecord as cluster {
        /// How many nodes there are; 0 if nothing is redirected.
        nodes: u8,
        /// The number of this one.
        own: u8,
        /// Where packets come in that other nodes redirect: CORE_*.
        core: u8,
        /// Packets of softwires are redirected as they are.
        takes_softwires: u8,
        /// How many slices there are, a power of two.
        slices: u32,
        /// Ticks for which a port rests that is nobody's before it is drawn, of any protocol, where nodes have copies of each other's
        /// tables; 0 where they have none.
        rest: u32,
        unused: u32,
        slice_key: HashKeyRecord,
        /// That of flow labels.
        flow_key: HashKeyRecord,
        /// The one address that subscribers' softwires end at; zeros if there is none.
        softwire_end: [u64; 2],
        /// First halves of the nodes' locators, as on the wire. The others are zero.
        locators: [u64; NODES],
    }

    /// Where the packets of some slices go, each as PLACE_*.
    line pub(crate) struct SliceLine as slice_line {
        place: [AtomicU32; SLICES_OF_A_LINE],
    }

    /// Until when ports of some slices may be drawn that are nobody's, in nanoseconds of the monotonic clock; 0: not at all.
    line pub(crate) struct GrantLine as grant_line {
        until: [AtomicU64; GRANTS_OF_A_LINE],
    }

    /// A subscriber that was given a slice: as on the wire, as much of its addresses as tells subscribers apart.
    plain pub(crate) struct PinKey as slice_pin {
        address: [u64; 2],
        address4: u32,
        /// Where its service stands in the plan.
        place: u32,
    }
}
