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

/* The number of `lo` in every network namespace. */
#define LOOPBACK 1

struct next_hop {
	struct route_key key;
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

/* What the kernel is asked about an address; of IPv4 it is `first`. */
static __always_inline struct bpf_fib_lookup question(__u32 ingress, __u64 first, __u64 second,
						      bool is_ipv6)
{
	const __u64 address[2] = { first, second };
	struct bpf_fib_lookup ask = { .ifindex = ingress };

	if (is_ipv6) {
		ask.family = FAMILY_IPV6;
		__builtin_memcpy(ask.ipv6_dst, address, 16);
	} else {
		ask.family = FAMILY_IPV4;
		ask.ipv4_dst = first;
	}
	return ask;
}

/* Asks the kernel. Where the interface that the packet came in by forwards nothing of the protocol
 * that it leaves in, as one without IPv6, the question is that of the host itself: the TUN device,
 * from which the engine's packets come, is another interface as well. Not inlined: once a second for
 * each next hop.
 */
static __noinline bool ask_kernel(void *ctx, struct next_hop *hop, __u64 first, __u64 second,
				  bool is_ipv6)
{
	struct bpf_fib_lookup ask = question(hop->key.ingress, first, second, is_ipv6);
	struct interface *egress;
	long answer;

	/* Its answer has the MTU of the route only if a length is asked for. */
	ask.tot_len = 1;
	answer = bpf_fib_lookup(ctx, &ask, sizeof(ask), 0);
	if (answer == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		ask = question(LOOPBACK, first, second, is_ipv6);
		ask.tot_len = 1;
		answer = bpf_fib_lookup(ctx, &ask, sizeof(ask), 0);
	}
	if (answer != BPF_FIB_LKUP_RET_SUCCESS)
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

static __always_inline struct next_hop *cached_next_hop(const struct route_key *key)
{
	return RECORD(next_hops, place_of(key, NEXT_HOPS));
}

/* The next hop of a packet, if the neighbour is resolved. `ctx` is that of XDP or of TC. */
static __always_inline struct next_hop *next_hop_of(void *ctx, __u32 ingress,
						    const struct rewrite *to)
{
	bool is_ipv6 = to->direction == TO6 || to->encapsulate;
	const __u64 *destination = to->encapsulate ? to->outer_destination : to->destination;
	__u64 first = is_ipv6 ? destination[0] : to->destination4,
	      second = is_ipv6 ? destination[1] : 0;
	struct route_key key = { .address = { first, second }, .ingress = ingress };
	__u32 tick = now_in_ticks(), route = 0;
	bool is_watched = set_generation(&key, tick);
	struct next_hop *hop, *own;

	hop = own = cached_next_hop(&key);
	if (!own)
		return 0;
	if (own->tick == tick && is_same_key(&own->key, &key))
		return own;
	if (is_watched)
		route = route_of_key(&key, is_ipv6);
	if (route & ROUTE_BY_GATEWAY) {
		become_key_of_route(&key, route, is_ipv6);
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
		own->key.address[0] = first;
		own->key.address[1] = second;
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
