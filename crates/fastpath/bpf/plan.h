/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the configuration decides, as constants of the program.
 *
 * The loader writes the plan into read-only data before the verifier sees the program. The verifier
 * knows the values, so what a plan does not use costs nothing: its branches are cut out. A reload
 * loads new programs and replaces the old ones, link by link, each in one instant; no packet sees
 * half of two plans.
 *
 * src/plan.rs has the same records; src/layout.rs compares them.
 */
#ifndef TOMBOLO_PLAN_H
#define TOMBOLO_PLAN_H

#include "base.h"

#define SERVICES_MAX 8
#define RANGES_MAX 8
#define NON_GLOBAL_MAX 16
#define LOCALS_MAX 8

/* Which code takes a service's packets (dispatch.h). */
enum service_kind {
	KIND_NONE = 0,
	KIND_NAT64 = 1,
	KIND_NAT44 = 2,
	KIND_SIIT = 3,
	/* Left to the engine, but earlier in the list than others: its packets are not theirs. */
	KIND_ENGINE = 4,
	KIND_B4 = 5,
	KIND_AFTR = 6,
	/* A NAT44 in front of one softwire: the lwB4 and the customer's edge of MAP-E. */
	KIND_EDGE = 7,
	KIND_MAP_T_CE = 8,
	KIND_LWAFTR = 9,
	KIND_MAP_E_BR = 10,
	KIND_MAP_T_BR = 11,
};

/* Bits of `claims`: which packets are a service's (classify.h). */
enum service_claim {
	/* IPv6 packets to addresses in `prefix`. */
	CLAIM_PREFIX = 1,
	/* To `tunnel.local`. */
	CLAIM_LOCAL = 2,
	/* To one of the addresses in `local`. */
	CLAIM_LOCALS = 4,
	/* To addresses that have an explicit mapping. */
	CLAIM_MAPPED_IPV6 = 8,
	/* IPv4 packets to addresses of the pool. A customer's edge has a pool, too, but what is for
	 * it comes in IPv6.
	 */
	CLAIM_POOL = 16,
	/* To addresses in `inside`. */
	CLAIM_INSIDE = 32,
	/* To addresses that have an explicit mapping, or that have none. */
	CLAIM_MAPPED_IPV4 = 64,
	CLAIM_UNMAPPED_IPV4 = 128,
	/* To addresses of the MAP domain. */
	CLAIM_RULES = 256,
	/* IPv4 packets from addresses in `inside`, to others. */
	CLAIM_SOURCES = 512,
};

/* Bits of `flags`. */
enum service_flag {
	/* The well-known prefix must not stand for addresses that are not global (RFC 6052 section
	 * 3.1).
	 */
	SERVICE_STRICT = 1,
	/* IPv4 packets come to it in softwires. */
	SERVICE_ENDS_SOFTWIRES = 2,
	/* TCP may not be opened from outside. */
	SERVICE_NO_INBOUND_TCP = 4,
	/* UDP ports keep their parity (RFC 4787 REQ-4). */
	SERVICE_PARITY = 8,
	/* Hairpins (RFC 7757 section 4). */
	SERVICE_HAIRPIN_INTRINSIC = 16,
	SERVICE_HAIRPIN_SIMPLE = 32,
	/* IPv4 hosts are inside (the CLAT). */
	SERVICE_CLAT = 64,
	/* The engine makes the bindings: ports come in portions, or at a limited rate, or to
	 * subscribers that are prefixes.
	 */
	SERVICE_ENGINE_BINDS = 128,
	/* The engine makes the sessions: they are counted. */
	SERVICE_ENGINE_OPENS = 256,
	/* The engine opens TCP: a SYN from outside may be waiting for it. */
	SERVICE_ENGINE_OPENS_TCP = 512,
	/* The segment size that a SYN announces may have to be lowered. */
	SERVICE_CLAMPS = 1024,
	/* Filtering by remote address (RFC 4787 REQ-8) of TCP; UDP's and ICMP's are the next bits.
	 * What makes or renews a permission is the engine's.
	 */
	SERVICE_ADDRESS_DEPENDENT = 4096,
};

/* IPv4 addresses from `first` to `last`, in the processor's byte order. */
struct range {
	__u32 first;
	__u32 last;
};

/* Ports from `first` to `last`, in the processor's byte order. None if `first` is the larger. */
struct ports {
	__u16 first;
	__u16 last;
};

/* Outside addresses that share their ports (crates/engine/src/mapping/pool.rs). */
struct pool_range {
	struct range addresses;
	__u32 first_slot;
	/* Ports that have a slot. */
	struct ports span;
	/* Ports that are handed out here, by space (the fourth is for the verifier); the engine may
	 * know more.
	 */
	struct ports handed_out[4];
};

/* A translation prefix (RFC 6052 section 2.2; crates/wire/src/rfc6052.rs). */
struct prefix {
	/* As on the wire. The mask covers the prefix and the u octet. */
	__u64 bits[2];
	__u64 mask[2];
	/* Zero bits behind the IPv4 address, were there no u octet. */
	__u8 shift;
	/* By how much what lies behind the u octet moves. */
	__u8 gap;
	/* There is a prefix. */
	__u8 present;
	__u8 unused[5];
};

/* This end of a softwire (crates/engine/src/mechanism/softwire.rs). Addresses as on the wire. */
struct tunnel {
	__u64 local[2];
	/* The other end. The AFTR has many, those in `b4s`. */
	__u64 remote[2];
	/* Bytes of the largest IPv4 packet that crosses in one packet. */
	__u32 mtu;
	/* The DSCP of this octet for the outer header; copied both ways if negative. */
	__s16 traffic_class;
	__u8 hop_limit;
	__u8 unused;
};

/* IPv6 addresses as on the wire. */
struct network {
	__u64 bits[2];
	__u64 mask[2];
};

/* An IPv6 address, as on the wire. */
struct address6 {
	__u64 half[2];
};

struct service {
	__u8 kind;
	/* How many of the ranges below there are. */
	__u8 pool_ranges;
	__u8 inside_ranges;
	__u8 untranslated_ranges;
	__u16 flags;
	/* What becomes of TOS and traffic class: copied if negative, else replaced. */
	__s16 traffic_class_4to6;
	__s16 traffic_class_6to4;
	__u8 b4_networks;
	__u8 mesh_ranges;
	__u32 inside_mtu;
	__u32 outside_mtu;
	/* IPv4 packets without DF become IPv6 packets of at most this size (RFC 7915 section 4). */
	__u32 lowest_ipv6_mtu;
	/* Bindings that a subscriber may have. */
	__u32 bindings_per_subscriber;
	/* lwAFTR: how many addresses of its own it has. */
	__u8 locals;
	/* Its place in the plan. */
	__u8 number;
	__u16 claims;
	struct prefix prefix;
	struct pool_range pool[RANGES_MAX];
	/* NAT44: who is inside, and what inside hosts reach as they are. SIIT: embedded hosts,
	 * denied addresses. lwAFTR: the subscribers' addresses.
	 */
	struct range inside[RANGES_MAX];
	struct range untranslated[RANGES_MAX];
	struct tunnel tunnel;
	/* AFTR: where softwires may come from. */
	struct network b4s[RANGES_MAX];
	/* The customer's edges of MAP: destinations that other edges have, which the engine reaches
	 * directly.
	 */
	struct range mesh[RANGES_MAX];
	/* lwAFTR: its own addresses. */
	struct address6 local[LOCALS_MAX];
};

struct non_global {
	__u32 bits;
	__u32 mask;
};

struct plan {
	__u64 hash_key[4];
	/* Sizes of the tables (crates/tables). */
	__u32 inside_buckets;
	__u32 subscriber_buckets;
	__u32 session_lines;
	__u32 overflow_lines;
	__u32 bindings;
	__u32 used_words;
	/* Ticks. */
	__u32 lifetimes[16];
	__u32 reuse_after[16];
	__u32 reuse_port_after;
	/* Report each session, not only each binding. */
	__u32 report_sessions;
	/* Secret of identifications and ports. */
	__u64 secret[2];
	/* What becomes of a session: the engine's table (mechanism/session_state.rs). */
	__u8 steps[16][8];
	/* The gateway's own addresses, if it answers for them itself; zero if it does not. As on
	 * the wire.
	 */
	__u64 own6[2];
	__u32 own4;
	/* Where the blocks of the table of softwires begin (lwaftr.h): an address / 256. */
	__u32 softwire_first_block;
	/* Explicit mappings: how many, and their lowest and highest addresses, in the processor's
	 * byte order (of IPv6 the upper halves). Most addresses lie outside, and need no look-up.
	 */
	__u32 explicit_rows;
	/* What TC translates is routed by the kernel's stack, past netfilter. */
	__u32 through_stack;
	struct range explicit_ipv4;
	/* Addresses between the lowest and the highest of a rule of MAP, likewise. */
	struct range map_ipv4;
	__u64 explicit_ipv6_first;
	__u64 explicit_ipv6_last;
	/* Addresses that are not global, as on the wire. A mask of zero ends the list. */
	struct non_global non_global[NON_GLOBAL_MAX];
	struct service services[SERVICES_MAX];
};

const volatile struct plan plan;

/* A service by its number, for the verifier. */
static __always_inline const volatile struct service *service_at(__u32 number)
{
	return &plan.services[number % SERVICES_MAX];
}

/* The range of the pool that has an outside address (in the processor's byte order); none if it has
 * not.
 */
static __always_inline const volatile struct pool_range *pool_range_of(const volatile struct service *service,
								       __u32 address)
{
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->pool_ranges; n++) {
		const volatile struct pool_range *range = &service->pool[n];

		if (address >= range->addresses.first && address <= range->addresses.last)
			return range;
	}
	return 0;
}

/* Whether one of `count` ranges has an address (in the processor's byte order). */
static __always_inline bool is_among(const volatile struct range ranges[RANGES_MAX], __u32 count, __u32 address)
{
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < count; n++)
		if (address >= ranges[n].first && address <= ranges[n].last)
			return true;
	return false;
}

#endif
