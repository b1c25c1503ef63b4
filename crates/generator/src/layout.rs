//! The records that the BPF programs share with this process: twins of `bpf/layout.h`, with the
//! same size assertions.

/// Generator programs in the object: the most cores that can send at once.
pub(crate) const LANES: usize = 16;
/// Each lane can serve both directions: streams 2 * lane (forward) and 2 * lane + 1 (reverse).
pub(crate) const STREAMS: usize = 2 * LANES;
pub(crate) const TEMPLATE_BYTES: usize = 104;
pub(crate) const TAG_BYTES: usize = 18;
pub(crate) const TAG_MAGIC: u16 = 0x546f;
pub(crate) const HISTOGRAM_SUB_BITS: u32 = 7;
pub(crate) const HISTOGRAM_BUCKETS: usize = 4480;
pub(crate) const TAGGED_MAX: usize = 65_536;
/// Pauses of a stream that are kept one by one.
pub(crate) const PAUSES_MAX: usize = 128;
pub(crate) const ERRORS: usize = 12;

pub(crate) const STREAM_MIXED: u8 = 1;
pub(crate) const EXPECT_RECORD: u8 = 1;
pub(crate) const STREAM_UNTIMED: u8 = 2;
pub(crate) const EXPECT_IPDV: u8 = 2;
pub(crate) const EXPECT_UNTIMED: u8 = 4;

/// Marks a record that is nothing but numbers, laid out as in C, valid for every bit pattern.
///
/// # Safety
/// Implementors are `repr(C)`, `Copy`, and hold only integers and arrays of them.
pub(crate) unsafe trait Shared: Copy + 'static {
    /// Every field 0.
    fn zeroed() -> Self {
        // SAFETY: the trait's contract says that every bit pattern is a value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! shared {
    ($($name:ty = $size:expr),* $(,)?) => { $(
        // SAFETY: repr(C), Copy, integers only; the size below equals the one asserted in layout.h.
        unsafe impl Shared for $name {}
        const _: () = assert!(std::mem::size_of::<$name>() == $size);
    )* };
}

/// What a test frame looks like on one side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Ethernet, IPv4, UDP.
    Ipv4 = 4,
    /// Ethernet, IPv6, UDP.
    Ipv6 = 6,
    /// Ethernet, IPv6, IPv4, UDP (RFC 2473), as on a softwire.
    Ipv4InIpv6 = 46,
}

impl FrameKind {
    /// Bytes of Ethernet and IP headers before the UDP header.
    pub fn udp_offset(self) -> usize {
        match self {
            FrameKind::Ipv4 => 34,
            FrameKind::Ipv6 => 54,
            FrameKind::Ipv4InIpv6 => 74,
        }
    }

    /// The shortest frame that has room for the tag, in bytes with FCS: 64, 84 or 104.
    pub fn shortest(self) -> u16 {
        match self {
            FrameKind::Ipv4 => 64,
            FrameKind::Ipv6 => 84,
            FrameKind::Ipv4InIpv6 => 104,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PermutationRecord {
    pub(crate) size: u32,
    pub(crate) low_bits: u32,
    pub(crate) high_bits: u32,
    pub(crate) reserved: u32,
    pub(crate) keys: [u32; 4],
}

/// How a tuple number decomposes into ports and hosts: a port, b port, a host, b host, least
/// significant first.
///
/// The "a" hosts are on the left of the gateway, the "b" hosts on the right. A port set of RFC 7597
/// section 5.1 is described by the two shifts and the host's [`Endpoint::port_part`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TupleShape {
    /// Ports of each "a" host.
    pub a_ports: u32,
    /// Ports of each "b" host.
    pub b_ports: u32,
    /// Number of "a" hosts.
    pub a_hosts: u32,
    /// Number of "b" hosts.
    pub b_hosts: u32,
    /// First port of an "a" host; with port sets, the first value of the offset bits in place (0
    /// for contiguous sets).
    pub a_first: u16,
    /// First port of a "b" host.
    pub b_first: u16,
    /// Bits of the contiguous part of a port set (RFC 7597 "m"); 16 when hosts do not share
    /// addresses.
    pub a_psid_shift: u8,
    /// 16 minus the PSID offset (RFC 7597 "a"); 16 when hosts do not share addresses.
    pub a_offset_shift: u8,
    /// Always 0.
    pub reserved: u16,
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

/// One host and its addresses on both sides of the gateway. An IPv4 address stands in the first
/// four bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Endpoint {
    /// As it is addressed on the left side.
    pub left: [u8; 16],
    /// As it is addressed on the right side.
    pub right: [u8; 16],
    /// The address inside an IPv4-in-IPv6 frame on the left side.
    pub left_inner: [u8; 4],
    /// The address inside an IPv4-in-IPv6 frame on the right side.
    pub right_inner: [u8; 4],
    /// The PSID in its place in the port number; 0 when the address is not shared.
    pub port_part: u16,
    /// Always 0.
    pub reserved: u16,
    /// Always 0: a host has a cache line of its own.
    pub reserved2: [u32; 5],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FrameTemplate {
    pub(crate) bytes: [u8; TEMPLATE_BYTES],
    pub(crate) udp_sum: u32,
    pub(crate) ip_sum: u32,
    pub(crate) length: u16,
    pub(crate) kind: u8,
    pub(crate) reserved: [u8; 5],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Stream {
    pub(crate) start_ns: u64,
    pub(crate) period: u64,
    pub(crate) second_period: u64,
    pub(crate) batch_gap_ns: u64,
    pub(crate) late_ns: u64,
    pub(crate) frames: u32,
    pub(crate) second_from: u32,
    pub(crate) index_offset: u32,
    pub(crate) index_stride: u32,
    pub(crate) burst: u32,
    pub(crate) order: u32,
    pub(crate) timed_from: u32,
    pub(crate) timed_every: u32,
    pub(crate) mix_n: u32,
    pub(crate) mix_m: u32,
    pub(crate) seed: u32,
    pub(crate) trial: u8,
    pub(crate) direction: u8,
    pub(crate) flags: u8,
    pub(crate) reserved: u8,
    pub(crate) permutation: PermutationRecord,
    pub(crate) shape: TupleShape,
    pub(crate) foreground: FrameTemplate,
    pub(crate) background: FrameTemplate,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StreamState {
    pub(crate) due_ns: u64,
    pub(crate) earliest_ns: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) late_max_ns: u64,
    pub(crate) late_bursts: u64,
    pub(crate) bursts: u64,
    pub(crate) failed: u64,
    pub(crate) due_fraction: u32,
    pub(crate) sent: u32,
    pub(crate) background: u32,
    pub(crate) stopped: u32,
    pub(crate) pauses: u32,
    pub(crate) in_pause: u32,
    pub(crate) burst_ns: u64,
    pub(crate) reserved: [u64; 4],
}

/// Frames that a pause of the sending core made late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Pause {
    /// Number of the first one.
    pub first: u32,
    /// One past the number of the last one.
    pub end: u32,
    /// How late the latest was, ns.
    pub late_max_ns: u64,
    /// When the first left, ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaneState {
    pub(crate) position: u32,
    pub(crate) sending: u32,
    pub(crate) stream: u32,
    pub(crate) burst: u32,
    pub(crate) reserved: [u64; 6],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Expectation {
    pub(crate) active: u8,
    pub(crate) kind: u8,
    pub(crate) trial: u8,
    pub(crate) flags: u8,
    pub(crate) source_rule: u8,
    pub(crate) source_port_rule: u8,
    pub(crate) hop_limit: u8,
    pub(crate) inner_hop_limit: u8,
    pub(crate) pool_first: u32,
    pub(crate) pool_last: u32,
    pub(crate) ip_bytes: u16,
    pub(crate) background_ip_bytes: u16,
    pub(crate) filler_sum: u32,
    pub(crate) sample_mask: u32,
    pub(crate) index_stride: u32,
    pub(crate) timed_from: u32,
    pub(crate) timed_every: u32,
    pub(crate) bitmap_first: u64,
    pub(crate) frames: u32,
    pub(crate) background_hop_limit: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) background_filler_sum: u32,
    pub(crate) lane_words: u32,
    pub(crate) background_source: [u8; 16],
    pub(crate) background_destination: [u8; 16],
    pub(crate) shape: TupleShape,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Counters {
    pub(crate) received: u64,
    pub(crate) errored: u64,
    pub(crate) unreadable: u64,
    pub(crate) duplicates: u64,
    pub(crate) reordered: u64,
    pub(crate) stray: u64,
    pub(crate) foreign: u64,
    pub(crate) icmp: u64,
    pub(crate) background: u64,
    pub(crate) bytes: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) delay_min_ns: u64,
    pub(crate) delay_max_ns: u64,
    pub(crate) delay_sum_ns: u64,
    pub(crate) gap_max_ns: u64,
    pub(crate) gap_max_at_ns: u64,
    pub(crate) ttl_seen: u64,
    pub(crate) errors: [u64; 16],
    pub(crate) highest: [u32; LANES],
    pub(crate) previous: [u32; LANES],
    pub(crate) previous_delay: [u64; LANES],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Histogram {
    pub(crate) buckets: [u64; HISTOGRAM_BUCKETS],
}

/// What the responder learned of one tuple: addresses and ports as they left the gateway, all
/// big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// The gateway's outside address.
    pub source: [u8; 4],
    /// The responder's address.
    pub destination: [u8; 4],
    /// The gateway's outside port, big-endian.
    pub source_port: [u8; 2],
    /// The responder's port, big-endian.
    pub destination_port: [u8; 2],
    /// Number of the tuple plus one; 0 where nothing was recorded.
    pub tuple_plus_one: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Control {
    pub(crate) stop: u32,
    pub(crate) cpus: u32,
    pub(crate) reserved: [u64; 7],
}

shared! {
    PermutationRecord = 32,
    TupleShape = 24,
    Endpoint = 64,
    FrameTemplate = 120,
    Stream = 384,
    StreamState = 128,
    Pause = 24,
    LaneState = 64,
    Expectation = 120,
    Counters = 528,
    Histogram = HISTOGRAM_BUCKETS * 8,
    Record = 16,
    Control = 64,
    u64 = 8,
}
