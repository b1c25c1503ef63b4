/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The next hop: which interface and neighbour a packet leaves by. The kernel's own route look-up
 * says it (bpf_fib_lookup: rules, routes and neighbours as everybody else sees them), and each
 * processor remembers the answer for a tick, about a second: the look-up costs as much as the rest
 * of the packet.
 *
 * An answer is remembered for the gateway that the destination's route names (route.h), so that a
 * million subscribers behind a few routers have a few next hops; or, where the route does not name
 * one, for the destination alone.
 */
#ifndef TOMBOLO_NEXT_HOP_H
#define TOMBOLO_NEXT_HOP_H

#include "interface.h"
#include "route.h"
#include "tick.h"
#include "translate.h"

#define NEXT_HOPS 1024
#define FAMILY_IPV4 2
#define FAMILY_IPV6 10

struct next_hop_key {
	/* The destination; or KEY_OF_ROUTE, and the route's family and number. */
	__u64 destination[2];
	__u32 ingress;
	/* Of the mirrored routes. */
	__u32 generation;
};

/* Begins no address that is routed: multicast of every scope, and more. */
#define KEY_OF_ROUTE (~0ULL)

enum next_hop_flag {
	/* XDP can send there. */
	NEXT_HOP_XDP_SENDS = 1,
	/* Of all that a packet carries, its destination alone decides that it goes there. */
	NEXT_HOP_IS_CERTAIN = 2,
	/* Nothing was sent there through the kernel's table of neighbours for some ticks, so the
	 * table does not ask whether the neighbour is still there. TC's next packet goes that
	 * way.
	 */
	NEXT_HOP_IS_UNUSED = 4,
};

#define NEIGHBOUR_USE_EVERY 8 /* ticks */

struct next_hop {
	struct next_hop_key key;
	__u32 tick;
	/* Where it leads. */
	__u32 egress;
	__u16 mtu;
	__u8 flags;
	__u8 neighbour_family;
	__u32 neighbour[4];
	/* Destination and source, as in an Ethernet header. */
	__u8 macs[12];
};

_Static_assert(sizeof(struct next_hop) == 64, "a next hop is a cache line long");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NEXT_HOPS);
	__type(key, __u32);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/* Asks the kernel. Not inlined: once a second for each next hop. */
static __noinline bool ask_kernel(void *ctx, struct next_hop *hop, __u64 first, __u64 second,
				  bool is_ipv6)
{
	const __u64 destination[2] = { first, second };
	struct bpf_fib_lookup ask = { .ifindex = hop->key.ingress };
	struct interface *egress;

	if (is_ipv6) {
		ask.family = FAMILY_IPV6;
		__builtin_memcpy(ask.ipv6_dst, destination, 16);
	} else {
		ask.family = FAMILY_IPV4;
		ask.ipv4_dst = first;
	}
	/* Its answer has the MTU of the route only if a length is asked for. */
	ask.tot_len = 1;
	if (bpf_fib_lookup(ctx, &ask, sizeof(ask), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return false;
	egress = interface_of(ask.ifindex);
	if (!egress)
		return false;
	hop->egress = ask.ifindex;
	hop->mtu = ask.mtu_result;
	hop->flags = egress->xdp_sends ? NEXT_HOP_XDP_SENDS : 0;
	hop->neighbour_family = ask.family;
	__builtin_memcpy(hop->neighbour, ask.ipv6_dst, 16);
	__builtin_memcpy(hop->macs, ask.dmac, 6);
	__builtin_memcpy(hop->macs + 6, ask.smac, 6);
	return true;
}

static __always_inline bool is_same_key(const struct next_hop_key *a, const struct next_hop_key *b)
{
	return a->destination[0] == b->destination[0] && a->destination[1] == b->destination[1] &&
	       a->ingress == b->ingress && a->generation == b->generation;
}

static __always_inline struct next_hop *cached_next_hop(const struct next_hop_key *key)
{
	return RECORD(next_hops, mix(key->destination[0] + key->destination[1]) % NEXT_HOPS);
}

/* The next hop of a packet, if the neighbour is resolved. `ctx` is that of XDP or of TC. */
static __always_inline struct next_hop *next_hop_of(void *ctx, __u32 ingress,
						    const struct rewrite *to)
{
	bool is_ipv6 = to->direction == TO6 || to->encapsulate;
	const __u64 *destination = to->encapsulate ? to->outer_destination : to->destination;
	__u64 first = is_ipv6 ? destination[0] : to->destination4,
	      second = is_ipv6 ? destination[1] : 0;
	struct next_hop_key key = { .destination = { first, second }, .ingress = ingress };
	struct route_watch *watch = RECORD(route_watch, 0);
	__u32 tick = now_in_ticks(), route = 0;
	bool is_watched = watch && READ(watch->until) > tick;
	struct next_hop *hop, *own;

	if (is_watched)
		key.generation = READ(watch->generation);
	hop = own = cached_next_hop(&key);
	if (!own)
		return 0;
	if (own->tick == tick && is_same_key(&own->key, &key))
		return own;
	/* Routes at least as new as the generation under which their answer is remembered. */
	ORDER_WORDS();
	if (is_watched)
		route = is_ipv6 ? route_of_ipv6(first, second) : route_of_ipv4(first);
	if (route & ROUTE_BY_GATEWAY) {
		key.destination[0] = KEY_OF_ROUTE;
		key.destination[1] = (__u64)is_ipv6 << 32 | route;
		hop = cached_next_hop(&key);
		if (!hop)
			return 0;
	}
	if (hop->tick != tick || !is_same_key(&hop->key, &key)) {
		hop->tick = 0;
		hop->key = key;
		if (!ask_kernel(ctx, hop, first, second, is_ipv6))
			return 0;
		if (route & (ROUTE_BY_GATEWAY | ROUTE_ON_LINK))
			hop->flags |= NEXT_HOP_IS_CERTAIN;
		if (tick % NEIGHBOUR_USE_EVERY == 0)
			hop->flags |= NEXT_HOP_IS_UNUSED;
		hop->tick = tick;
	}
	/* The first destinations of a tick get entries of their own, which saves a few of them the
	 * look-up of the route.
	 */
	if (hop != own && own->tick != tick) {
		*own = *hop;
		own->key.destination[0] = first;
		own->key.destination[1] = second;
	}
	return hop;
}

/* Whether the packet, or the largest segment of a super-packet, is no larger than the next hop
 * takes.
 */
static __always_inline bool fits(const struct next_hop *hop, const struct rewrite *to)
{
	return to->size_on_wire + (to->encapsulate ? sizeof(struct ipv6hdr) : 0) <= hop->mtu;
}

#endif
