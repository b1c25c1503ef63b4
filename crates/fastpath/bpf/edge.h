/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A customer's edge, a NAT44 in front of one softwire: the lwB4 (RFC 7596), the CE of MAP-E (RFC
 * 7597). crates/engine/src/service/lwb4.rs, map_e_ce.rs. What goes to other edges directly is the
 * engine's.
 */
#ifndef TOMBOLO_EDGE_H
#define TOMBOLO_EDGE_H

#include "nat44.h"
#include "softwire.h"

static __always_inline struct outcome edge_inside(const volatile struct service *service,
						  struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	const __u64 none[2] = { 0, 0 };
	struct outcome outcome;

	if (is_among(service->mesh, service->mesh_ranges, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_HAIRPIN);
	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!keep_header(scratch, service->tunnel.mtu) ||
	    is_too_large_for_path(to, service->tunnel.remote[0], service->tunnel.remote[1]))
		return PASSED(MISS_SIZE);
	outcome = leave(service, scratch, none);
	if (outcome.verdict == FORWARD)
		enter(service, to, service->tunnel.remote[0], service->tunnel.remote[1]);
	return outcome;
}

static __always_inline struct outcome edge_outside(const volatile struct service *service,
						   struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	const volatile struct pool_range *range;

	if (!is_address(service->tunnel.remote, packet->outer_source))
		return PASSED(MISS_SCREENED);
	range = pool_range_of(service, bpf_ntohl(packet->destination4));
	if (!range)
		return PASSED(MISS_NOT_OURS);
	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!keep_header(scratch, service->inside_mtu))
		return PASSED(MISS_SIZE);
	to->traffic_class = inner_class(&service->tunnel, packet);
	return come_in(service, scratch, range, 0);
}

#endif
