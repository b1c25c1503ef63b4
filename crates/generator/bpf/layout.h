/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Records that the programs share with user space. Each has its twin in src/layout.rs; the sizes
 * are asserted on both sides. Everything is in host byte order unless a name ends in _be or the
 * field holds address bytes.
 */
#ifndef LAYOUT_H
#define LAYOUT_H

#define LANES 16              /* generator programs, one for each sending core */
#define STREAMS (2 * LANES)   /* each can serve both directions: streams 2 * lane and 2 * lane + 1 */
#define TEMPLATE_BYTES 104    /* longest header (Ethernet, IPv6, IPv4, UDP: 82) and the 18-byte tag, in 64-bit words */
#define TAG_BYTES 18
#define HISTOGRAM_SUB_BITS 7  /* 128 buckets an octave: 0.8 % */
#define HISTOGRAM_BUCKETS 4480 /* delays up to 2^41 ns, about 36 minutes */
#define TAGGED_MAX 65536
#define PAUSES_MAX 128      /* pauses of a stream that are kept one by one */
#define PAUSE_NS 1000000    /* a burst later than this makes a pause */

/* Shape of a frame on one side of the gateway. */
enum frame_kind { KIND_IPV4 = 4, KIND_IPV6 = 6, KIND_IPV4_IN_IPV6 = 46 };

/* How a stream chooses the four tuple of its frame k. */
enum tuple_order {
	ORDER_ENUMERATE = 0,      /* permutation(k): each tuple exactly once */
	ORDER_RANDOM = 1,         /* hash(k) scaled to the number of tuples: uniform, with repetition */
	ORDER_RECORDS_ONCE = 2,   /* record permutation(k): each recorded tuple exactly once */
	ORDER_RECORDS_RANDOM = 3, /* record hash(k) */
};

enum source_rule { SOURCE_ANY = 0, SOURCE_EXACT = 1, SOURCE_POOL = 2 };
enum port_rule { PORT_ANY = 0, PORT_EXACT = 1 };

/* Bits of the tag's kind byte. */
#define TAG_REVERSE 0x01
#define TAG_BACKGROUND 0x02
#define TAG_TIMED 0x04

/* Bits of stream.flags. */
#define STREAM_UNTIMED 0x02 /* frames carry the time of their burst */
#define STREAM_MIXED 0x01 /* two frame lengths share the pages: rewrite the filler near the headers */

/* Bits of expectation.flags. */
#define EXPECT_RECORD 0x01
#define EXPECT_IPDV 0x02
#define EXPECT_UNTIMED 0x04 /* delays are not counted */

/* A bijection of [0, size). */
struct permutation {
	__u32 size;
	__u32 low_bits;
	__u32 high_bits;
	__u32 reserved;
	__u32 keys[4];
};

/* How a tuple number decomposes: a port, b port, a host, b host, least significant first. */
struct tuple_shape {
	__u32 a_ports;
	__u32 b_ports;
	__u32 a_hosts;
	__u32 b_hosts;
	__u16 a_first;
	__u16 b_first;
	__u8 a_psid_shift;   /* RFC 7597 "m": contiguous ports of a set; 16 when ports are not shared */
	__u8 a_offset_shift; /* 16 - "a" */
	__u16 reserved;
};

/* One host, as it is addressed on each side of the gateway. IPv4 in the first four bytes. */
struct endpoint {
	__u8 left[16];
	__u8 right[16];
	__u32 left_inner_be;  /* the IPv4 address inside an IPv4-in-IPv6 frame */
	__u32 right_inner_be;
	__u16 port_part; /* PSID << psid_shift */
	__u16 reserved;
	__u32 reserved2[5]; /* a host has a cache line of its own */
};

struct frame_template {
	__u8 bytes[TEMPLATE_BYTES];
	__u32 udp_sum; /* ones' complement sum of what never changes below the UDP checksum */
	__u32 ip_sum;  /* the same of the IPv4 header */
	__u16 length;  /* bytes without FCS */
	__u8 kind;
	__u8 reserved[5];
};

struct stream {
	__u64 start_ns;      /* CLOCK_MONOTONIC */
	__u64 period;        /* ns between frames, 32.32 fixed point; 0: as fast as possible */
	__u64 second_period; /* used from frame second_from on */
	__u64 batch_gap_ns;  /* shortest distance of two bursts while catching up */
	__u64 late_ns;       /* a burst later than this counts as late */
	__u32 frames;
	__u32 second_from;
	__u32 index_offset; /* frame i of the stream has the number index_offset + i * index_stride */
	__u32 index_stride;
	__u32 burst;
	__u32 order;
	__u32 timed_from; /* number of the first timed frame */
	__u32 timed_every; /* 0: none */
	__u32 mix_n;
	__u32 mix_m;
	__u32 seed;
	__u8 trial;
	__u8 direction; /* 0: left to right */
	__u8 flags;
	__u8 reserved;
	struct permutation permutation;
	struct tuple_shape shape;
	struct frame_template foreground;
	struct frame_template background;
};

/* Written by the generator program, by one CPU only. */
struct stream_state {
	__u64 due_ns;
	__u64 earliest_ns;
	__u64 first_ns;
	__u64 last_ns;
	__u64 late_max_ns;
	__u64 late_bursts;
	__u64 bursts;
	__u64 failed; /* frames that could not be built; always 0 unless there is a bug */
	__u32 due_fraction;
	__u32 sent;
	__u32 background;
	__u32 stopped;
	__u32 pauses;   /* pauses so far; what is beyond PAUSES_MAX widens the last one kept */
	__u32 in_pause; /* since the last pause no burst has been on time */
	__u64 burst_ns; /* when the last burst began */
	__u64 reserved[4];
};

/* Frames that a pause of the sending core made late: [first, end), numbers of the direction. */
struct pause {
	__u32 first;
	__u32 end;
	__u64 late_max_ns;
	__u64 at_ns; /* when the first of them left */
};

/* Written by the generator program, by one CPU only. */
struct lane_state {
	__u32 position; /* calls left in the kernel's batch */
	__u32 sending;  /* whether the batch is being sent */
	__u32 stream;   /* of which direction */
	__u32 burst;    /* calls in a batch */
	__u64 reserved[6];
};

struct expectation {
	__u8 active;
	__u8 kind;
	__u8 trial;
	__u8 flags;
	__u8 source_rule;
	__u8 source_port_rule;
	__u8 hop_limit;       /* 0: not checked */
	__u8 inner_hop_limit; /* of the IPv4 header inside IPv6; 0: not checked */
	__u32 pool_first;
	__u32 pool_last;
	__u16 ip_bytes; /* length of the outermost IP packet, bytes */
	__u16 background_ip_bytes;
	__u32 filler_sum;
	__u32 sample_mask; /* the filler is verified where (number & mask) == 0 */
	__u32 index_stride;
	__u32 timed_from;
	__u32 timed_every;
	__u64 bitmap_first; /* first 64-bit word of this direction */
	__u32 frames;       /* numbers expected: [0, frames) */
	__u8 background_hop_limit;
	__u8 reserved[3];
	__u32 background_filler_sum;
	__u32 lane_words; /* words of each sending core's frames in the bitmap */
	__u8 background_source[16];
	__u8 background_destination[16];
	struct tuple_shape shape;
};

enum frame_error {
	ERROR_UDP_CHECKSUM,
	ERROR_IP_CHECKSUM,
	ERROR_FILLER,
	ERROR_FAMILY,
	ERROR_LENGTH,
	ERROR_HOP_LIMIT,
	ERROR_SOURCE,
	ERROR_DESTINATION,
	ERROR_SOURCE_PORT,
	ERROR_DESTINATION_PORT,
	ERROR_DIRECTION,
	ERROR_NUMBER,
	ERRORS
};

/* One for each direction and CPU; written by that CPU only. */
struct counters {
	__u64 received;   /* first arrivals without any error */
	__u64 errored;    /* first arrivals with at least one error */
	__u64 unreadable; /* frames whose UDP checksum is wrong, so that their number cannot be trusted */
	__u64 duplicates;
	__u64 reordered;
	__u64 stray;   /* of another trial */
	__u64 foreign; /* not a test frame; left to the kernel */
	__u64 icmp;
	__u64 background;
	__u64 bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 delay_min_ns;
	__u64 delay_max_ns;
	__u64 delay_sum_ns;
	__u64 gap_max_ns;
	__u64 gap_max_at_ns;
	__u64 ttl_seen; /* hop limit of the last good frame */
	__u64 errors[16];
	__u32 highest[LANES];
	__u32 previous[LANES];
	__u64 previous_delay[LANES];
};

struct histogram {
	__u64 buckets[HISTOGRAM_BUCKETS];
};

/* What the responder learned of one tuple: the addresses and ports after the gateway. */
struct record {
	__u32 source_be;
	__u32 destination_be;
	__u16 source_port_be;
	__u16 destination_port_be;
	__u32 tuple_plus_one; /* 0: empty */
};

struct control {
	__u32 stop;
	__u32 cpus;
	__u64 reserved[7];
};

_Static_assert(sizeof(struct permutation) == 32, "permutation");
_Static_assert(sizeof(struct tuple_shape) == 24, "tuple_shape");
_Static_assert(sizeof(struct endpoint) == 64, "endpoint");
_Static_assert(sizeof(struct frame_template) == 120, "frame_template");
_Static_assert(sizeof(struct stream) == 384, "stream");
_Static_assert(sizeof(struct stream_state) == 128, "stream_state");
_Static_assert(sizeof(struct pause) == 24, "pause");
_Static_assert(sizeof(struct lane_state) == 64, "lane_state");
_Static_assert(sizeof(struct expectation) == 120, "expectation");
_Static_assert(sizeof(struct counters) == 528, "counters");
_Static_assert(sizeof(struct record) == 16, "record");
_Static_assert(sizeof(struct control) == 64, "control");

#endif
