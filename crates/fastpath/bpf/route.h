/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which destinations share a next hop: the kernel's routes, mirrored by the gateway's process
 * (src/routes.rs, crates/io/src/netlink). Only what they have in common is asked here; the
 * kernel itself says which interface and neighbour that is (next_hop.h), and where a source is
 * (reverse_path.h). What it says is remembered for a tick, under a key: that of the address, or that
 * of its route where the route alone decides.
 *
 * The mirror counts while the process confirms it, once a second and more often. When it stops, or
 * when destinations alone do not decide (rules, routes that do not fit), XDP asks for each
 * destination by itself, and TC leaves it to the stack.
 */
#ifndef TOMBOLO_ROUTE_H
#define TOMBOLO_ROUTE_H

#include "hash.h"
#include "lpm.h"
#include "tick.h"

SHARED_ARRAY(routes_ipv4, struct lpm_line);
SHARED_ARRAY(routes_ipv6, struct lpm_line);
SHARED_ARRAY(route_watch, struct route_watch);

/* Next hops of addresses as on the wire; 0 if there is no route. */
__noinline __u32 route_of_ipv4(__u32 address)
{
	struct lpm_key key = { .first = (__u64)bpf_ntohl(address) << 32 };

	return lpm_next_hop(lpm_lookup(&routes_ipv4, key));
}

__noinline __u32 route_of_ipv6(__u64 first, __u64 second)
{
	struct lpm_key key = { .first = bpf_be64_to_cpu(first), .second = bpf_be64_to_cpu(second) };

	return lpm_next_hop(lpm_lookup(&routes_ipv6, key));
}

/* What the kernel's answer about an address is remembered under. */
struct route_key {
	/* The address; or KEY_OF_ROUTE, and the route's family and number. */
	__u64 address[2];
	__u32 ingress;
	/* Of the mirrored routes. */
	__u32 generation;
};

/* Begins no address that is routed: multicast of every scope, and more. */
#define KEY_OF_ROUTE (~0ULL)

static __always_inline bool is_same_key(const struct route_key *a, const struct route_key *b)
{
	return a->address[0] == b->address[0] && a->address[1] == b->address[1] &&
	       a->ingress == b->ingress && a->generation == b->generation;
}

/* Where a key's answer is among `count` others. */
static __always_inline __u32 place_of(const struct route_key *key, __u32 count)
{
	return mix(key->address[0] + key->address[1]) % count;
}

/* Gives a key the generation of the mirrored routes. False if they do not count. */
static __always_inline bool set_generation(struct route_key *key, __u32 tick)
{
	struct route_watch *watch = RECORD(route_watch, 0);

	if (!watch || READ(watch->until) <= tick)
		return false;
	key->generation = READ(watch->generation);
	return true;
}

/* The route of the address that is a key's: at least as new as the generation under which the answer
 * about it is remembered.
 */
static __always_inline __u32 route_of_key(const struct route_key *key, bool is_ipv6)
{
	ORDER_WORDS();
	return is_ipv6 ? route_of_ipv6(key->address[0], key->address[1]) :
			 route_of_ipv4(key->address[0]);
}

/* Makes an address's key that of its route. */
static __always_inline void become_key_of_route(struct route_key *key, __u32 route, bool is_ipv6)
{
	key->address[0] = KEY_OF_ROUTE;
	key->address[1] = (__u64)is_ipv6 << 32 | route;
}

#endif
