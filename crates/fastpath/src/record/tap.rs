//! What the programs of a trace show of packets (tap.h).

tombolo_records::constants! {
    /// Bytes of a packet that are shown, from its IP header on.
    pub(crate) const TAP_BYTES: usize as TAP_BYTES = 128;
    /// Prefixes that may be asked for.
    pub(crate) const TAP_PREFIXES: usize as TAP_PREFIXES = 4;
    /// Bytes of the ring in which packets wait for user space.
    pub(crate) const TAP_RING: u32 as TAP_RING_BYTES = 1_048_576;
    /// Of any protocol.
    pub(crate) const TAP_ANY: u32 = 255;
    /// Where it was seen.
    pub(crate) const TAP_XDP: u8 = 0;
    pub(crate) const TAP_TC: u8 = 1;
    /// What became of it: translated and sent on, or passed on.
    pub(crate) const TAP_FORWARDED: u8 = 0;
    pub(crate) const TAP_PASSED: u8 = 1;
}

tombolo_records::records! {
    /// Addresses, as on the wire; of IPv4 in the first words.
    plain pub(crate) struct TapPrefix as tap_prefix {
        bits: [u64; 2],
        mask: [u64; 2],
        is_ipv4: u64,
    }

    /// Which packets are shown: a constant of the programs.
    plain pub(crate) struct TapRecord as tap {
        /// How many prefixes there are; without any, an address may be anything.
        prefixes: u32,
        /// SPACE_*, or TAP_ANY.
        space: u32,
        /// As on the wire; 0 for any.
        port: u32,
        unused: u32,
        any: [TapPrefix; TAP_PREFIXES],
    }

    /// A packet.
    plain pub(crate) struct TapEvent as tap_event {
        /// Nanoseconds of the monotonic clock.
        time: u64,
        /// The interface that it came in through.
        interface: u32,
        /// Bytes of the packet as it came, and as it left.
        received_length: u32,
        sent_length: u32,
        stage: u8,
        fate: u8,
        /// Why it was passed on.
        miss: u8,
        /// Of one that was sent on: SIDE_* and the number of its service.
        side: u8,
        service: u8,
        /// It is wanted, and on its way.
        is_open: u8,
        unused: [u8; 6],
        received: [u8; TAP_BYTES],
        sent: [u8; TAP_BYTES],
    }

    /// What each processor has of it.
    plain pub(crate) struct TapState as tap_state {
        /// Packets that the ring had no room for.
        lost: u64,
        event: TapEvent,
    }
}
