/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Whether a packet from inside came in where its sender is (RFC 3704): through an interface that
 * the configuration calls inside of its service, or through the one that its source is routed to. One that did not
 * is left to the stack, where the gateway's rule decides (crates/io/src/netfilter): it sees several
 * next hops and everything else that routing knows.
 *
 * Where a source is routed to is remembered as next hops are (next_hop.h): for a tick, for the
 * route if one is known, else for the source alone.
 */
#ifndef TOMBOLO_REVERSE_PATH_H
#define TOMBOLO_REVERSE_PATH_H

#include "next_hop.h"

#define WAYS_BACK 1024

struct way_back {
	struct route_key key;
	__u32 tick;
	/* The interface; 0 if there is no way back. */
	__u32 egress;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAYS_BACK);
	__type(key, __u32);
	__type(value, struct way_back);
} ways_back SEC(".maps");

/* The interface that the kernel would send to the source through. Not inlined: once a second for
 * each.
 */
static __noinline __u32 egress_to(void *ctx, __u32 ingress, __u64 first, __u64 second, bool is_ipv6)
{
	struct bpf_fib_lookup ask = question(ingress, first, second, is_ipv6);
	long answer = bpf_fib_lookup(ctx, &ask, sizeof(ask), 0);

	return answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH ?
		       ask.ifindex :
		       0;
}

static __always_inline struct way_back *cached_way_back(const struct route_key *key)
{
	return RECORD(ways_back, place_of(key, WAYS_BACK));
}

/* Of IPv4 the address is `first`, and `second` is 0. Not inlined: services of both families ask. */
static __noinline bool comes_from_where_it_is(void *ctx, __u32 ingress, __u64 first, __u64 second,
					      bool is_ipv6)
{
	struct route_key key = { .address = { first, second }, .ingress = ingress };
	__u32 tick = now_in_ticks(), route = 0;
	bool is_watched = set_generation(&key, tick);
	struct way_back *back, *own;

	back = own = cached_way_back(&key);
	if (!own)
		return false;
	if (own->tick == tick && is_same_key(&own->key, &key))
		return own->egress == ingress;
	if (is_watched)
		route = route_of_key(&key, is_ipv6);
	if (route & (ROUTE_BY_GATEWAY | ROUTE_ON_LINK)) {
		become_key_of_route(&key, route, is_ipv6);
		back = cached_way_back(&key);
		if (!back)
			return false;
	}
	if (back->tick != tick || !is_same_key(&back->key, &key)) {
		back->tick = 0;
		back->key = key;
		back->egress = egress_to(ctx, ingress, first, second, is_ipv6);
		back->tick = tick;
	}
	if (back != own && own->tick != tick) {
		*own = *back;
		own->key.address[0] = first;
		own->key.address[1] = second;
	}
	return back->egress == ingress;
}

/* What a service says of packets from its inside. */
static __always_inline bool is_inside(void *ctx, const struct interface *interface,
				      const volatile struct service *service,
				      const struct packet *packet)
{
	__u32 bit = 1 << service->place % SERVICES_MAX;

	if (plan.inside_listed & bit)
		return interface->inside_of & bit;
	if (!(plan.inside_by_route & bit))
		return true;
	if (packet->is_tunnelled)
		return comes_from_where_it_is(ctx, interface->number, packet->outer_source[0],
					      packet->outer_source[1], true);
	if (packet->is_ipv4)
		return comes_from_where_it_is(ctx, interface->number, packet->source4, 0, false);
	return comes_from_where_it_is(ctx, interface->number, packet->source[0], packet->source[1],
				      true);
}

/* Whether a packet that another node of the cluster is said to have redirected came in where nodes do that. */
static __always_inline bool is_from_core(void *ctx, const struct interface *interface,
					 const struct packet *packet)
{
	if (plan.cluster.core == CORE_LISTED)
		return interface->is_core;
	if (plan.cluster.core != CORE_BY_ROUTE)
		return true;
	return packet->came_by == BY_HEADER &&
	       comes_from_where_it_is(ctx, interface->number,
				      plan.cluster.locators[packet->node % NODES_MAX], 0, true);
}

#endif
