/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The B4 of DS-Lite (RFC 6333 section 5): no translation, no state.
 * crates/engine/src/service/b4.rs.
 */
#ifndef TOMBOLO_B4_H
#define TOMBOLO_B4_H

#include "softwire.h"

/* It carries packets as the provider's ends do, but for the side. */
static __always_inline struct outcome b4_inside(const volatile struct service *service,
						struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	const __u64 aftr[2] = { service->tunnel.remote[0], service->tunnel.remote[1] };
	struct outcome outcome;

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	outcome = carry_in(service, scratch, aftr);
	scratch->rewrite.side = SIDE_INSIDE;
	return outcome;
}

static __always_inline struct outcome b4_outside(const volatile struct service *service,
						 struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct outcome outcome;

	if (!is_address(service->tunnel.remote, packet->outer_source))
		return PASSED(MISS_SCREENED);
	if (!is_among(service->inside, service->inside_ranges, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_NOT_OURS);
	outcome = carry_out(service, scratch);
	scratch->rewrite.side = SIDE_OUTSIDE;
	return outcome;
}

#endif
