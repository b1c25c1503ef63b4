/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which destinations share a next hop: the kernel's routes, mirrored by the gateway's process
 * (src/routes.rs, crates/io/src/netlink). Only what they have in common is asked here; the
 * kernel itself says which interface and neighbour that is (next_hop.h).
 *
 * The mirror counts while the process confirms it, once a second and more often. When it stops, or
 * when destinations alone do not decide (rules, routes that do not fit), XDP asks for each
 * destination by itself, and TC leaves it to the stack.
 */
#ifndef TOMBOLO_ROUTE_H
#define TOMBOLO_ROUTE_H

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

#endif
