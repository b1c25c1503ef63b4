/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The way out: which interface and neighbour a packet leaves by. The kernel's own route look-up
 * says it (bpf_fib_lookup: rules, routes and neighbours as everybody else sees them), and each
 * processor remembers the answer for a tick, about a second: the look-up costs as much as the rest
 * of the packet.
 *
 * What it is remembered for is the gateway that the destination's route names (route.h), so that a
 * million subscribers behind a few routers are a few ways; or the destination alone, where the
 * route does not name one.
 */
#ifndef TOMBOLO_WAY_H
#define TOMBOLO_WAY_H

#include "interface.h"
#include "route.h"
#include "tick.h"
#include "translate.h"

#define WAYS 1024
#define FAMILY_IPV4 2
#define FAMILY_IPV6 10

struct way_key {
	/* The destination; or WAY_OF_ROUTE, and family and next hop. */
	__u64 destination[2];
	__u32 ingress;
	/* Of the mirrored routes. */
	__u32 generation;
};

/* Begins no address that is routed: multicast of every scope, and more. */
#define WAY_OF_ROUTE (~0ULL)

enum way_flag {
	/* XDP can send there. */
	WAY_XDP_SENDS = 1,
	/* Of all that a packet carries, its destination alone decides that it goes there. */
	WAY_IS_CERTAIN = 2,
	/* The kernel's table of neighbours was not used to send there for some ticks, and so does
	 * not ask whether the neighbour is still there. TC's next packet uses it.
	 */
	WAY_IS_UNUSED = 4,
};

#define WAY_USE_EVERY 8 /* ticks */

struct way {
	struct way_key key;
	__u32 tick;
	/* Where it leads. */
	__u32 egress;
	__u16 mtu;
	__u8 flags;
	/* The neighbour. */
	__u8 next_hop_family;
	__u32 next_hop[4];
	/* Destination and source, as in an Ethernet header. */
	__u8 macs[12];
};

_Static_assert(sizeof(struct way) == 64, "a way is a cache line long");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* Asks the kernel. Not inlined: once a second and way. */
static __noinline bool ask_for_way(void *ctx, struct way *way, __u64 first, __u64 second, bool is_ipv6)
{
	const __u64 destination[2] = { first, second };
	struct bpf_fib_lookup ask = { .ifindex = way->key.ingress };
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
	way->egress = ask.ifindex;
	way->mtu = ask.mtu_result;
	way->flags = egress->xdp_sends ? WAY_XDP_SENDS : 0;
	way->next_hop_family = ask.family;
	__builtin_memcpy(way->next_hop, ask.ipv6_dst, 16);
	__builtin_memcpy(way->macs, ask.dmac, 6);
	__builtin_memcpy(way->macs + 6, ask.smac, 6);
	return true;
}

static __always_inline bool is_same_way(const struct way_key *a, const struct way_key *b)
{
	return a->destination[0] == b->destination[0] && a->destination[1] == b->destination[1] &&
	       a->ingress == b->ingress && a->generation == b->generation;
}

static __always_inline struct way *way_for(const struct way_key *key)
{
	return RECORD(ways, mix(key->destination[0] + key->destination[1]) % WAYS);
}

/* The way of a packet, if its neighbour is resolved. `ctx` is that of XDP or of TC. */
static __always_inline struct way *way_of(void *ctx, __u32 ingress, const struct rewrite *to)
{
	bool is_ipv6 = to->direction == TO6 || to->encapsulate;
	const __u64 *destination = to->encapsulate ? to->outer_destination : to->destination;
	__u64 first = is_ipv6 ? destination[0] : to->destination4, second = is_ipv6 ? destination[1] : 0;
	struct way_key key = { .destination = { first, second }, .ingress = ingress };
	struct route_watch *watch = RECORD(route_watch, 0);
	__u32 tick = now_in_ticks(), next_hop = 0;
	bool is_watched = watch && READ(watch->until) > tick;
	struct way *way, *own;

	if (is_watched)
		key.generation = READ(watch->generation);
	way = own = way_for(&key);
	if (!own)
		return 0;
	if (own->tick == tick && is_same_way(&own->key, &key))
		return own;
	if (is_watched)
		next_hop = is_ipv6 ? route_of_ipv6(first, second) : route_of_ipv4(first);
	if (next_hop & ROUTE_BY_GATEWAY) {
		key.destination[0] = WAY_OF_ROUTE;
		key.destination[1] = (__u64)is_ipv6 << 32 | next_hop;
		way = way_for(&key);
		if (!way)
			return 0;
	}
	if (way->tick != tick || !is_same_way(&way->key, &key)) {
		way->tick = 0;
		way->key = key;
		if (!ask_for_way(ctx, way, first, second, is_ipv6))
			return 0;
		if (next_hop & (ROUTE_BY_GATEWAY | ROUTE_ON_LINK))
			way->flags |= WAY_IS_CERTAIN;
		if (tick % WAY_USE_EVERY == 0)
			way->flags |= WAY_IS_UNUSED;
		way->tick = tick;
	}
	/* The first destinations of a tick get places of their own, which saves a few of them the
	 * look-up of the route.
	 */
	if (way != own && own->tick != tick) {
		*own = *way;
		own->key.destination[0] = first;
		own->key.destination[1] = second;
	}
	return way;
}

/* Whether the packet, or the largest segment of a super-packet, is no larger than its way takes. */
static __always_inline bool fits(const struct way *way, const struct rewrite *to)
{
	return to->size_on_wire + (to->encapsulate ? sizeof(struct ipv6hdr) : 0) <= way->mtu;
}

#endif
