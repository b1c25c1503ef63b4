/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The nodes of a cluster, and the addresses by which they redirect packets to each other:
 * crates/engine/src/cluster.rs.
 *
 * 	locator::	source of what a node redirects
 * 	locator::1	a packet in a header more: it may be redirected once more,
 * 	locator::2	and is served here
 * 	locator::a	the same of packets of softwires, which keep their source
 * 	locator::b
 */
#ifndef TOMBOLO_CLUSTER_H
#define TOMBOLO_CLUSTER_H

#include "plan.h"

/* How a packet comes from another node, or goes there. */
enum means {
	NOT_REDIRECTED = 0,
	/* In a header more. */
	BY_HEADER = 1,
	/* With another destination: a packet of a softwire. */
	BY_DESTINATION = 2,
};

/* How often nodes redirect a packet. */
#define MOST_HOPS 2

/* Without a cluster that has slices the verifier cuts out whatever asks for one. */
static __always_inline bool has_slices(void)
{
	return plan.cluster.nodes;
}

static __always_inline __u64 own_locator(void)
{
	return plan.cluster.locators[plan.cluster.own % NODES_MAX];
}

/* The second half of the address in a locator to which packets go that have been redirected so often, as on
 * the wire.
 */
static __always_inline __u64 place_in_locator(__u8 means, __u8 hops)
{
	return (__u64)(means == BY_HEADER ? hops : 9 + hops) << 56;
}

/* The number of the node that redirects from this locator; negative if none of the others does. */
static __always_inline int node_at(__u64 locator)
{
#pragma nounroll
	for (__u32 n = 0; n < NODES_MAX && n < plan.cluster.nodes; n++)
		if (plan.cluster.locators[n] == locator && n != plan.cluster.own)
			return n;
	return -1;
}

#endif
