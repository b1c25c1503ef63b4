/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The way out: which interface and neighbour a packet leaves by, for XDP. The kernel's own route look-up says it
 * (bpf_fib_lookup: rules, routes and neighbours as everybody else sees them), and each processor remembers the answer
 * for a tick, about a second: the look-up costs as much as the rest of the packet.
 *
 * What it is remembered for is the gateway that the destination's route names (route.h), so that a million subscribers behind a
 * few routers are a few ways; or the destination alone, where the route does not name one.
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

struct way {
	struct way_key key;
	__u32 tick;
	/* Where it leads. */
	__u32 egress;
	__u32 mtu;
	/* Destination and source, as in an Ethernet header. */
	__u8 macs[12];
	__u32 unused[4];
};

_Static_assert(sizeof(struct way) == 64, "a way is a cache line long");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* Asks the kernel. Not inlined: once a second and way. */
static __noinline bool ask_for_way(struct xdp_md *ctx, struct way *way, __u64 first, __u64 second, bool is_ipv6)
{
	const __u64 destination[2] = { first, second };
	struct bpf_fib_lookup ask = { .ifindex = ctx->ingress_ifindex };
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
	if (!egress || !egress->xdp_sends)
		return false;
	way->egress = ask.ifindex;
	way->mtu = ask.mtu_result;
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

/* The way of a packet, if its neighbour is resolved and XDP can send there. */
static __always_inline struct way *way_of(struct xdp_md *ctx, const struct rewrite *to)
{
	bool is_ipv6 = to->direction == TO6 || to->encapsulate;
	const __u64 *destination = to->encapsulate ? to->outer_destination : to->destination;
	__u64 first = is_ipv6 ? destination[0] : to->destination4, second = is_ipv6 ? destination[1] : 0;
	struct way_key key = { .destination = { first, second }, .ingress = ctx->ingress_ifindex };
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
	if (next_hop & ROUTE_UNIFORM) {
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
		way->tick = tick;
	}
	/* The first destinations of a tick get places of their own, which saves a few of them the look-up of the route. */
	if (way != own && own->tick != tick) {
		*own = *way;
		own->key.destination[0] = first;
		own->key.destination[1] = second;
	}
	return way;
}

#endif
