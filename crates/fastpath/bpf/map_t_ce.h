/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The customer's edge of MAP-T (RFC 7599): a NAT44 in front of a stateless translation.
 * crates/engine/src/service/map_t_ce.rs. What goes to other edges directly, and comes from them,
 * is the engine's.
 */
#ifndef TOMBOLO_MAP_T_CE_H
#define TOMBOLO_MAP_T_CE_H

#include "nat64.h"
#include "softwire.h"

static __always_inline struct outcome map_t_ce_inside(const volatile struct service *service,
						      struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	const __u64 none[2] = { 0, 0 };
	struct outcome outcome;

	if (packet->space == SPACE_UDP && !packet->checksum)
		return PASSED(MISS_UDP_CHECKSUM);
	if (is_among(service->mesh, service->mesh_ranges, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_HAIRPIN);
	if (is_forbidden(service, packet->destination4))
		return PASSED(MISS_SCREENED);
	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!fit_to6(service, scratch))
		return PASSED(MISS_SIZE);
	outcome = leave(service, scratch, none);
	if (outcome.verdict != FORWARD)
		return outcome;
	to->direction = TO6;
	to->traffic_class = class_of(service->traffic_class_4to6, packet->traffic_class);
	to->source[0] = service->tunnel.local[0];
	to->source[1] = service->tunnel.local[1];
	embed(&service->prefix, packet->destination4, to->destination);
	return FORWARDED;
}

static __always_inline struct outcome map_t_ce_outside(const volatile struct service *service,
						       struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	/* Its one address, with the ports of its set. */
	const volatile struct pool_range *range = &service->pool[0];
	const struct arrival arrival = {
		.range = range,
		.address = bpf_htonl(range->addresses.first),
		.remote = extract(&service->prefix, packet->source),
	};
	struct outcome outcome;
	struct host host;
	__u8 miss;

	if (!is_in_prefix(&service->prefix, packet->source) || is_illegal_ipv4(arrival.remote) ||
	    is_forbidden(service, arrival.remote) || is_illegal_source_ipv6(packet->source))
		return PASSED(MISS_SCREENED);
	miss = untranslated(service, scratch);
	if (miss)
		return PASSED(miss);
	if (!fit_to4(service, scratch))
		return PASSED(MISS_SIZE);
	outcome = inbound(service, scratch, &arrival, &host);
	if (outcome.verdict != FORWARD)
		return outcome;
	to->source4 = arrival.remote;
	to->destination4 = host.address4;
	take_inside_port(scratch, &host);
	become_ipv4(service, scratch, SIDE_OUTSIDE);
	to->identification = next_identification(scratch, to->source4, to->destination4);
	return FORWARDED;
}

#endif
