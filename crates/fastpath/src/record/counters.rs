//! What the programs keep on each processor.

use super::cluster::NODES;

tombolo_records::constants! {
    /// Reasons for passing a packet on that have a counter.
    pub(crate) const MISSES: usize as MISSES_MAX = 64;
    /// Numbers that services may have.
    pub(crate) const NUMBERS: usize as SERVICE_NUMBERS = 256;
    /// Bytes that the programs keep for themselves behind the counters (scratch.h).
    pub(crate) const SCRATCH_BYTES: usize = 1288;
}

tombolo_records::records! {
    plain pub(crate) struct ForwardedRecord as forwarded {
        /// Packets translated and sent on, by side of origin.
        packets: [u64; 2],
        /// Bytes of them, IP headers included, as they came.
        bytes: [u64; 2],
    }

    plain pub(crate) struct CountersRecord as counters {
        /// By the number of the service.
        services: [ForwardedRecord; NUMBERS],
        bindings_made: u64,
        sessions_made: u64,
        /// Of the packets forwarded, those that TC left to the kernel's stack to route.
        to_stack: u64,
        /// Packets passed on, by the numbers of src/miss.rs.
        passed: [u64; MISSES],
        /// Packets that were redirected to each node of the cluster, and by each to this one.
        redirected: [[u64; NODES]; 2],
    }

    /// What is shared of `struct scratch`.
    plain pub(crate) struct ScratchRecord as shared_scratch {
        counters: CountersRecord,
        private: [u8; SCRATCH_BYTES],
    }
}
