/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The AFTR of DS-Lite (RFC 6333 section 8): a NAT44 whose subscribers come through softwires.
 * crates/engine/src/service/aftr.rs.
 */
#ifndef TOMBOLO_AFTR_H
#define TOMBOLO_AFTR_H

#include "nat44.h"
#include "softwire.h"

static __always_inline struct outcome aftr_inside(const volatile struct service *service,
						  struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;

	if (!is_in_networks(service, service->b4_networks, packet->outer_source) ||
	    !is_among(service->inside, service->inside_ranges, bpf_ntohl(packet->source4)) ||
	    is_service_continuity(packet->destination4) || is_asked_at(packet->destination4))
		return PASSED(MISS_SCREENED);
	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!keep_header(scratch, service->outside_mtu))
		return PASSED(MISS_SIZE);
	to->traffic_class = inner_class(&service->tunnel, packet);
	return leave(service, scratch, packet->outer_source);
}

static __always_inline struct outcome aftr_outside(const volatile struct service *service,
						   struct scratch *scratch,
						   const volatile struct pool_range *range)
{
	struct rewrite *to = &scratch->rewrite;
	struct outcome outcome;
	__u64 softwire[2];

	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!keep_header(scratch, service->tunnel.mtu))
		return PASSED(MISS_SIZE);
	/* Which path it takes is not known before its binding is found, and then it is too late. One
	 * with DF goes to the router that refuses it.
	 */
	if (!(to->fragment_word & IPV4_DF) && may_be_too_large(to))
		return PASSED(MISS_SIZE);
	outcome = come_in(service, scratch, range, softwire);
	if (outcome.verdict == FORWARD)
		enter(service, to, softwire[0], softwire[1]);
	return outcome;
}

#endif
