//! The records that the BPF programs share with this process. The build script writes their header
//! from here. Everything is in host byte order unless it is said otherwise.

tombolo_records::constants! {
    /// Generator programs in the object, one for each sending core.
    pub(crate) const LANES: usize = 16;
    /// Each lane can serve both directions: streams 2 * lane (forward) and 2 * lane + 1 (reverse).
    pub(crate) const STREAMS: usize = 2 * LANES;
    /// The longest header (Ethernet, IPv6, IPv4, TCP: 94) and the tag, in 64-bit words.
    pub(crate) const TEMPLATE_BYTES: usize = 112;
    pub(crate) const TAG_BYTES: usize = 18;
    /// "To".
    pub(crate) const TAG_MAGIC: u16 = 0x546f;
    /// 128 buckets an octave: 0.8 %.
    pub(crate) const HISTOGRAM_SUB_BITS: u32 = 7;
    /// Delays up to 2^41 ns, about 36 minutes.
    pub(crate) const HISTOGRAM_BUCKETS: usize = 4480;
    pub(crate) const TAGGED_MAX: usize = 65_536;
    /// Pauses of a stream that are kept one by one.
    pub(crate) const PAUSES_MAX: usize = 128;
    /// Frames that one call makes for user space, at most; longer bursts take several calls.
    pub(crate) const MADE_FRAMES: usize = 64;
    /// A burst later than this makes a pause.
    pub(crate) const PAUSE_NS: u64 = 1_000_000;

    /// Shapes of a frame.
    pub(crate) const KIND_IPV4: u8 = FrameKind::Ipv4 as u8;
    pub(crate) const KIND_IPV6: u8 = FrameKind::Ipv6 as u8;
    pub(crate) const KIND_IPV4_IN_IPV6: u8 = FrameKind::Ipv4InIpv6 as u8;

    /// What is in the IP packet.
    pub(crate) const PROTOCOL_TCP: u8 = 6;
    pub(crate) const PROTOCOL_UDP: u8 = 17;
    pub(crate) const TCP_HEADER: u8 = 20;
    pub(crate) const UDP_HEADER: u8 = 8;

    /// How a stream chooses the four tuple of its frame k. permutation(k): each tuple exactly once.
    pub(crate) const ORDER_ENUMERATE: u32 = 0;
    /// hash(k) scaled to the number of tuples: uniform, with repetition.
    pub(crate) const ORDER_RANDOM: u32 = 1;
    /// Record permutation(k): each recorded tuple exactly once.
    pub(crate) const ORDER_RECORDS_ONCE: u32 = 2;
    /// Record hash(k).
    pub(crate) const ORDER_RECORDS_RANDOM: u32 = 3;

    /// Which source address is right.
    pub(crate) const SOURCE_ANY: u8 = 0;
    pub(crate) const SOURCE_EXACT: u8 = 1;
    pub(crate) const SOURCE_POOL: u8 = 2;
    /// Which source port is right.
    pub(crate) const PORT_ANY: u8 = 0;
    pub(crate) const PORT_EXACT: u8 = 1;

    /// Bits of the tag's kind byte.
    pub(crate) const TAG_REVERSE: u8 = 1;
    pub(crate) const TAG_BACKGROUND: u8 = 2;
    pub(crate) const TAG_TIMED: u8 = 4;

    /// Bits of a stream's flags. Two frame lengths share the pages: rewrite the filler near the
    /// headers.
    pub(crate) const STREAM_MIXED: u8 = 1;
    /// Frames carry the time of their burst.
    pub(crate) const STREAM_UNTIMED: u8 = 2;
    /// Frames of three lengths.
    pub(crate) const STREAM_IMIX: u8 = 4;

    /// Bits of an expectation's flags.
    pub(crate) const EXPECT_RECORD: u8 = 1;
    pub(crate) const EXPECT_IPDV: u8 = 2;
    /// Delays are not counted.
    pub(crate) const EXPECT_UNTIMED: u8 = 4;
    /// Frames have three lengths.
    pub(crate) const EXPECT_IMIX: u8 = 8;

    /// Of so many successive frames of three lengths, these are short and these of middle length:
    /// the simple IMIX, 7 : 4 : 1. The step spreads them evenly.
    pub(crate) const IMIX_FRAMES: u32 = 12;
    pub(crate) const IMIX_SHORT: u32 = 7;
    pub(crate) const IMIX_MIDDLE: u32 = 4;
    pub(crate) const IMIX_STEP: u32 = 5;

    /// Templates of a stream, in their order there.
    pub(crate) const TEMPLATE_FOREGROUND: usize = 0;
    pub(crate) const TEMPLATE_BACKGROUND: usize = 1;
    pub(crate) const TEMPLATE_MIDDLE: usize = 2;
    pub(crate) const TEMPLATE_LONGEST: usize = 3;

    /// The last frames of a direction whose delays are kept for those of their neighbours.
    pub(crate) const RECENT: usize = 4096;

    /// Counters of a wrong frame.
    pub(crate) const ERROR_UDP_CHECKSUM: u8 = FrameError::UdpChecksum as u8;
    pub(crate) const ERROR_IP_CHECKSUM: u8 = FrameError::IpChecksum as u8;
    pub(crate) const ERROR_FILLER: u8 = FrameError::Filler as u8;
    pub(crate) const ERROR_FAMILY: u8 = FrameError::Family as u8;
    pub(crate) const ERROR_LENGTH: u8 = FrameError::Length as u8;
    pub(crate) const ERROR_HOP_LIMIT: u8 = FrameError::HopLimit as u8;
    pub(crate) const ERROR_SOURCE: u8 = FrameError::Source as u8;
    pub(crate) const ERROR_DESTINATION: u8 = FrameError::Destination as u8;
    pub(crate) const ERROR_SOURCE_PORT: u8 = FrameError::SourcePort as u8;
    pub(crate) const ERROR_DESTINATION_PORT: u8 = FrameError::DestinationPort as u8;
    pub(crate) const ERROR_DIRECTION: u8 = FrameError::Direction as u8;
    pub(crate) const ERROR_NUMBER: u8 = FrameError::Number as u8;
    pub(crate) const ERROR_TRAFFIC_CLASS: u8 = FrameError::TrafficClass as u8;
    pub(crate) const ERROR_DONT_FRAGMENT: u8 = FrameError::DontFragment as u8;
    pub(crate) const ERROR_IDENTIFICATION: u8 = FrameError::Identification as u8;
    pub(crate) const ERROR_FLOW_LABEL: u8 = FrameError::FlowLabel as u8;
    pub(crate) const ERROR_LINK_ADDRESS: u8 = FrameError::LinkAddress as u8;
    pub(crate) const ERROR_LATE: u8 = FrameError::Late as u8;
    pub(crate) const ERROR_TCP_HEADER: u8 = FrameError::TcpHeader as u8;
    pub(crate) const ERRORS: usize = FrameError::ALL.len();
}

/// What a test frame looks like on one side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Ethernet, IPv4.
    Ipv4 = 4,
    /// Ethernet, IPv6.
    Ipv6 = 6,
    /// Ethernet, IPv6, IPv4 (RFC 2473), as on a softwire.
    Ipv4InIpv6 = 46,
}

impl FrameKind {
    /// Bytes of Ethernet and IP headers before the header of UDP or TCP.
    pub fn transport_offset(self) -> u16 {
        match self {
            FrameKind::Ipv4 => 34,
            FrameKind::Ipv6 => 54,
            FrameKind::Ipv4InIpv6 => 74,
        }
    }

    /// The shortest frame of UDP that has room for the tag, in bytes with FCS: 64, 84 or 104.
    pub fn shortest(self) -> u16 {
        match self {
            FrameKind::Ipv4 => 64,
            FrameKind::Ipv6 => 84,
            FrameKind::Ipv4InIpv6 => 104,
        }
    }
}

/// A way for a frame to be wrong. A frame can be wrong in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameError {
    /// Checksum of UDP or TCP; such a frame is not read any further.
    UdpChecksum,
    /// IPv4 header checksum.
    IpChecksum,
    /// Payload after the tag, on the sampled frames.
    Filler,
    /// IPv4 where IPv6 was expected, encapsulated where not, or the reverse.
    Family,
    /// Length in the IP header.
    Length,
    /// TTL or hop limit.
    HopLimit,
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// Came back to the port that sent it.
    Direction,
    /// A number or tuple that was never sent.
    Number,
    /// Type of service or traffic class.
    TrafficClass,
    /// The "don't fragment" bit.
    DontFragment,
    /// Identification of an IPv4 header.
    Identification,
    /// Flow label.
    FlowLabel,
    /// Link-layer source or destination.
    LinkAddress,
    /// Took longer than the frame timeout, so that it counts as lost.
    Late,
    /// Sequence number, acknowledgement, flags or window of TCP.
    TcpHeader,
}

impl FrameError {
    /// All, in the order of the program's counters.
    pub const ALL: [FrameError; 19] = [
        FrameError::UdpChecksum,
        FrameError::IpChecksum,
        FrameError::Filler,
        FrameError::Family,
        FrameError::Length,
        FrameError::HopLimit,
        FrameError::Source,
        FrameError::Destination,
        FrameError::SourcePort,
        FrameError::DestinationPort,
        FrameError::Direction,
        FrameError::Number,
        FrameError::TrafficClass,
        FrameError::DontFragment,
        FrameError::Identification,
        FrameError::FlowLabel,
        FrameError::LinkAddress,
        FrameError::Late,
        FrameError::TcpHeader,
    ];

    /// Its name in result files.
    pub fn name(self) -> &'static str {
        match self {
            FrameError::UdpChecksum => "udp_checksum",
            FrameError::IpChecksum => "ip_checksum",
            FrameError::Filler => "payload",
            FrameError::Family => "family",
            FrameError::Length => "length",
            FrameError::HopLimit => "hop_limit",
            FrameError::Source => "source",
            FrameError::Destination => "destination",
            FrameError::SourcePort => "source_port",
            FrameError::DestinationPort => "destination_port",
            FrameError::Direction => "direction",
            FrameError::Number => "number",
            FrameError::TrafficClass => "traffic_class",
            FrameError::DontFragment => "dont_fragment",
            FrameError::Identification => "identification",
            FrameError::FlowLabel => "flow_label",
            FrameError::LinkAddress => "link_address",
            FrameError::Late => "delay",
            FrameError::TcpHeader => "tcp_header",
        }
    }
}

tombolo_records::records! {
    /// A bijection of [0, size).
    plain pub(crate) struct PermutationRecord as permutation {
        size: u32,
        low_bits: u32,
        high_bits: u32,
        reserved: u32,
        keys: [u32; 4],
    }

    /// How a tuple number decomposes into ports and hosts: a port, b port, a host, b host, least
    /// significant first.
    ///
    /// The "a" hosts are on the left of the gateway, the "b" hosts on the right. A port set of RFC
    /// 7597 section 5.1 is described by the two shifts and the host's [`Endpoint::port_part`].
    plain pub struct TupleShape as tuple_shape {
        /// Ports of each "a" host.
        a_ports: u32,
        /// Ports of each "b" host.
        b_ports: u32,
        /// Number of "a" hosts.
        a_hosts: u32,
        /// Number of "b" hosts.
        b_hosts: u32,
        /// First port of an "a" host; with port sets, the first value of the offset bits in place
        /// (0 for contiguous sets).
        a_first: u16,
        /// First port of a "b" host.
        b_first: u16,
        /// Bits of the contiguous part of a port set (RFC 7597 "m"); 16 when hosts do not share
        /// addresses.
        a_psid_shift: u8,
        /// 16 minus the PSID offset (RFC 7597 "a"); 16 when hosts do not share addresses.
        a_offset_shift: u8,
        /// Always 0.
        reserved: u16,
    }

    /// One host and its addresses on both sides of the gateway. An IPv4 address stands in the first
    /// four bytes.
    plain pub struct Endpoint as endpoint {
        /// As it is addressed on the left side.
        left: [u8; 16],
        /// As it is addressed on the right side.
        right: [u8; 16],
        /// The address inside an IPv4-in-IPv6 frame on the left side.
        left_inner: [u8; 4] as __u32,
        /// The address inside an IPv4-in-IPv6 frame on the right side.
        right_inner: [u8; 4] as __u32,
        /// The PSID in its place in the port number; 0 when the address is not shared.
        port_part: u16,
        /// Always 0.
        reserved: u16,
        /// Always 0: a host has a cache line of its own.
        reserved2: [u32; 5],
    }

    plain pub(crate) struct FrameTemplate as frame_template {
        bytes: [u8; TEMPLATE_BYTES],
        /// Ones' complement sum of what never changes below the checksum of UDP or TCP.
        transport_sum: u32,
        /// The same of the IPv4 header.
        ip_sum: u32,
        /// Bytes without FCS.
        length: u16,
        kind: u8,
        protocol: u8,
        reserved: [u8; 4],
    }

    plain pub(crate) struct Stream as stream {
        /// CLOCK_MONOTONIC.
        start_ns: u64,
        /// Nanoseconds between frames, 32.32 fixed point; 0: as fast as possible.
        period: u64,
        /// Used from frame second_from on.
        second_period: u64,
        /// Shortest distance of two bursts while catching up.
        batch_gap_ns: u64,
        /// A burst later than this counts as late.
        late_ns: u64,
        frames: u32,
        second_from: u32,
        /// Frame i of the stream has the number index_offset + i * index_stride.
        index_offset: u32,
        index_stride: u32,
        burst: u32,
        order: u32,
        /// Number of the first timed frame.
        timed_from: u32,
        /// 0: none.
        timed_every: u32,
        mix_n: u32,
        mix_m: u32,
        seed: u32,
        /// Random tuples are of those that have begun; all have by this frame. 0: all have at once.
        all_begun: u32,
        reserved2: u32,
        trial: u8,
        /// 0: left to right.
        direction: u8,
        flags: u8,
        reserved: u8,
        permutation: PermutationRecord,
        shape: TupleShape,
        foreground: FrameTemplate,
        background: FrameTemplate,
        /// Foreground frames of the other two lengths; the four templates are chosen from by number.
        middle: FrameTemplate,
        longest: FrameTemplate,
    }

    /// Written by the generator program, by one CPU only.
    plain pub(crate) struct StreamState as stream_state {
        due_ns: u64,
        earliest_ns: u64,
        first_ns: u64,
        last_ns: u64,
        late_max_ns: u64,
        late_bursts: u64,
        bursts: u64,
        /// Frames that could not be built; always 0 unless there is a bug.
        failed: u64,
        due_fraction: u32,
        sent: u32,
        background: u32,
        stopped: u32,
        /// Pauses so far; what is beyond PAUSES_MAX widens the last one kept.
        pauses: u32,
        /// Since the last pause no burst has been on time.
        in_pause: u32,
        /// When the last burst began.
        burst_ns: u64,
        reserved: [u64; 4],
    }

    /// Frames that a pause of the sending core made late: [first, end), numbers of the direction.
    plain pub struct Pause as pause {
        /// Number of the first one.
        first: u32,
        /// One past the number of the last one.
        end: u32,
        /// How late the latest was, ns.
        late_max_ns: u64,
        /// When the first left, ns of CLOCK_MONOTONIC.
        at_ns: u64,
    }

    /// Written by the generator program, by one CPU only.
    plain pub(crate) struct LaneState as lane_state {
        /// Calls left in the kernel's batch.
        position: u32,
        /// Whether the batch is being sent.
        sending: u32,
        /// Of which direction.
        stream: u32,
        /// Calls in a batch.
        burst: u32,
        reserved: [u64; 6],
    }

    /// A frame that user space sends: the program makes its headers and its tag. What follows is
    /// filler, and already where the frame will be sent from.
    plain pub(crate) struct Made as made {
        bytes: [u8; TEMPLATE_BYTES],
        /// Of the frame, without FCS.
        length: u32,
        /// The port that it leaves through: 0 the left one.
        port: u32,
    }

    plain pub(crate) struct Expectation as expectation {
        active: u8,
        kind: u8,
        trial: u8,
        flags: u8,
        source_rule: u8,
        source_port_rule: u8,
        /// 0: not checked.
        hop_limit: u8,
        /// Of the IPv4 header inside IPv6; 0: not checked.
        inner_hop_limit: u8,
        pool_first: u32,
        pool_last: u32,
        /// The filler is verified where (number & mask) == 0.
        sample_mask: u32,
        index_stride: u32,
        timed_from: u32,
        timed_every: u32,
        /// First 64-bit word of this direction.
        bitmap_first: u64,
        /// Numbers expected: [0, frames).
        frames: u32,
        background_hop_limit: u8,
        protocol: u8,
        /// Bytes of the header of UDP or TCP.
        transport_bytes: u8,
        reserved: u8,
        /// Words of each sending core's frames in the bitmap.
        lane_words: u32,
        background_source: [u8; 16],
        background_destination: [u8; 16],
        shape: TupleShape,
        /// The first word of an IPv6 header, the second of an IPv4 header, and the first of it, as
        /// on the wire, and the bits of their fields; of those that are not checked, none.
        ipv6_word: [u8; 4] as __u32,
        traffic_class_mask: [u8; 4] as __u32,
        flow_label_mask: [u8; 4] as __u32,
        ipv4_word: [u8; 4] as __u32,
        identification_mask: [u8; 4] as __u32,
        dont_fragment_mask: [u8; 4] as __u32,
        tos_word: [u8; 4] as __u32,
        tos_mask: [u8; 4] as __u32,
        /// Destination and source, and which bytes of them are checked.
        link: [u8; 12],
        link_mask: [u8; 12],
        /// Of TCP: sequence number, acknowledgement, and flags and window.
        tcp: [u8; 12],
        /// A source port is of the set if it has these bits as in `port_value`, and is `port_least`
        /// or more.
        port_mask: u16,
        port_value: u16,
        port_least: u16,
        reserved2: u16,
        /// A frame that takes longer is late; 2^62 where none is.
        timeout_ns: u64,
        /// Length of the outermost IP packet, bytes, and the sum of what follows the tag: by template,
        /// in the order of the stream's.
        ip_bytes: [u16; 4],
        filler_sums: [u32; 4],
    }

    /// One for each direction and sending core, on whichever CPU its frames arrive.
    plain pub(crate) struct Arrived as arrived {
        /// The highest number that has arrived.
        highest: u32,
        /// Always 0: it has a cache line of its own. Cores that write in one in turn wait for each other.
        reserved: [u32; 15],
    }

    /// One for each direction and CPU; written by that CPU only.
    plain pub(crate) struct Counters as counters {
        /// First arrivals without any error.
        received: u64,
        /// First arrivals with at least one error.
        errored: u64,
        /// Frames whose checksum of UDP or TCP is wrong, so that their number cannot be trusted.
        unreadable: u64,
        duplicates: u64,
        reordered: u64,
        /// Of another trial.
        stray: u64,
        /// Not a test frame; left to the kernel.
        foreign: u64,
        icmp: u64,
        background: u64,
        bytes: u64,
        first_ns: u64,
        last_ns: u64,
        delay_min_ns: u64,
        delay_max_ns: u64,
        delay_sum_ns: u64,
        gap_max_ns: u64,
        gap_max_at_ns: u64,
        /// Hop limit of the last foreground frame.
        ttl_seen: u64,
        /// What is wrong with the frame that is looked at, a bit of each ERROR_*.
        wrong: u32,
        reserved: u32,
        /// By ERROR_*, and room for more.
        errors: [u64; 24],
    }

    plain pub(crate) struct Histogram as histogram {
        buckets: [u64; HISTOGRAM_BUCKETS],
    }

    /// What the responder learned of one tuple: addresses and ports as they left the gateway, all
    /// big-endian.
    plain pub struct Record as record {
        /// The gateway's outside address.
        source: [u8; 4] as __u32,
        /// The responder's address.
        destination: [u8; 4] as __u32,
        /// The gateway's outside port.
        source_port: [u8; 2] as __u16,
        /// The responder's port.
        destination_port: [u8; 2] as __u16,
        /// Number of the tuple plus one; 0 where nothing was recorded.
        tuple_plus_one: u32,
    }

    plain pub(crate) struct Control as control {
        stop: u32,
        cpus: u32,
        /// The tester's process.
        process: u32,
        reserved: u32,
        /// Live frames of this run that a port's driver did not take.
        refused: u64,
        reserved2: [u64; 5],
    }
}

impl TupleShape {
    /// Plain port ranges: `a_ports` from `a_first`, `b_ports` from `b_first`, one host on each
    /// side.
    pub fn plain(a_first: u16, a_ports: u32, b_first: u16, b_ports: u32) -> TupleShape {
        let (a_hosts, b_hosts) = (1, 1);
        TupleShape {
            a_ports,
            b_ports,
            a_hosts,
            b_hosts,
            a_first,
            b_first,
            a_psid_shift: 16,
            a_offset_shift: 16,
            reserved: 0,
        }
    }

    /// Number of four tuples: the product of ports and hosts.
    pub fn tuples(&self) -> u64 {
        u64::from(self.a_ports) * u64::from(self.b_ports) * u64::from(self.a_hosts) * u64::from(self.b_hosts)
    }
}
