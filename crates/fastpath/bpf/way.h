/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The way out: which interface and neighbour a packet leaves by, for XDP. The kernel's own route look-up says it
 * (bpf_fib_lookup: rules, routes and neighbours as everybody else sees them), and each processor remembers the answer
 * for a tick, about a second: the look-up costs as much as the rest of the packet.
 */
#ifndef TOMBOLO_WAY_H
#define TOMBOLO_WAY_H

#include "interface.h"
#include "tick.h"
#include "translate.h"

#define WAYS 1024
#define FAMILY_IPV4 2
#define FAMILY_IPV6 10

struct way {
	/* What it is found by. */
	__u64 destination[2];
	__u32 ingress;
	__u32 tick;
	/* Where it leads. */
	__u32 egress;
	__u32 mtu;
	/* Destination and source, as in an Ethernet header. */
	__u8 macs[12];
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* Asks the kernel. Not inlined: once a second and destination. */
static __noinline bool ask_for_way(struct xdp_md *ctx, struct way *way, bool is_ipv6)
{
	struct bpf_fib_lookup ask = { .ifindex = ctx->ingress_ifindex };
	struct interface *egress;

	if (is_ipv6) {
		ask.family = FAMILY_IPV6;
		__builtin_memcpy(ask.ipv6_dst, way->destination, 16);
	} else {
		ask.family = FAMILY_IPV4;
		ask.ipv4_dst = way->destination[0];
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

/* The way of a packet, if its neighbour is resolved and XDP can send there. */
static __always_inline struct way *way_of(struct xdp_md *ctx, const struct rewrite *to)
{
	bool is_ipv6 = to->direction == TO6 || to->encapsulate;
	const __u64 *destination = to->encapsulate ? to->outer_destination : to->destination;
	__u64 first = is_ipv6 ? destination[0] : to->destination4, second = is_ipv6 ? destination[1] : 0;
	__u32 tick = now_in_ticks();
	struct way *way = RECORD(ways, mix(first + second) % WAYS);

	if (!way)
		return 0;
	if (way->destination[0] == first && way->destination[1] == second && way->tick == tick &&
	    way->ingress == ctx->ingress_ifindex)
		return way;
	way->tick = 0;
	way->destination[0] = first;
	way->destination[1] = second;
	way->ingress = ctx->ingress_ifindex;
	if (!ask_for_way(ctx, way, is_ipv6))
		return 0;
	way->tick = tick;
	return way;
}

#endif
