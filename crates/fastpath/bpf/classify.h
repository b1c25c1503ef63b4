/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which service a packet is for, and what becomes of it (crates/engine/src/plan.rs, engine.rs). */
#ifndef TOMBOLO_CLASSIFY_H
#define TOMBOLO_CLASSIFY_H

#include "lwaftr.h"
#include "map_br.h"
#include "map_t_ce.h"
#include "siit.h"

#define NO_SERVICE 0xff

/* The first service that an IPv6 packet is for. Unrolled, so that the verifier cuts out the
 * services that there are not.
 */
static __always_inline __u8 service_of_ipv6(const __u64 destination[2])
{
#pragma unroll
	for (int n = 0; n < SERVICES_MAX; n++) {
		const volatile struct service *service = &plan.services[n];

		if (service->kind == KIND_NAT64 && is_in_prefix(&service->prefix, destination))
			return n;
		if (service->kind == KIND_SIIT && siit_claims_ipv6(service, destination))
			return n;
		if (tunnel_claims(service, destination))
			return n;
		if (service->kind == KIND_MAP_T_BR && is_in_prefix(&service->prefix, destination))
			return n;
		if (service->kind == KIND_LWAFTR && lwaftr_claims(service, destination))
			return n;
	}
	return NO_SERVICE;
}

/* A pool that packets from outside are addressed to; an edge's comes through its softwire. */
static __always_inline bool has_open_pool(__u8 kind)
{
	return kind == KIND_NAT64 || kind == KIND_NAT44 || kind == KIND_AFTR;
}

/* A service that knows its packets by their sources. */
static __always_inline bool has_sources(__u8 kind)
{
	return kind == KIND_NAT44 || kind == KIND_B4 || kind == KIND_LWB4 || kind == KIND_MAP_E_CE ||
	       kind == KIND_MAP_T_CE;
}

/* The first service that an IPv4 packet is for; `range` says where in its pool, `rule` which of its
 * rules.
 */
static __always_inline __u8 service_of_ipv4(__u32 destination, const volatile struct pool_range **range, __u32 *rule)
{
#pragma nounroll
	for (__u32 n = 0; n < SERVICES_MAX && plan.services[n].kind != KIND_NONE; n++) {
		if (has_open_pool(plan.services[n].kind)) {
			*range = pool_range_of(&plan.services[n], bpf_ntohl(destination));
			if (*range)
				return n;
		}
		if (plan.services[n].kind == KIND_SIIT && siit_claims_ipv4(&plan.services[n], destination))
			return n;
		if (plan.services[n].kind == KIND_LWAFTR &&
		    is_among(plan.services[n].inside, plan.services[n].inside_ranges, bpf_ntohl(destination)))
			return n;
		if (plan.services[n].kind != KIND_MAP_E_BR && plan.services[n].kind != KIND_MAP_T_BR)
			continue;
		*rule = map_entry_of_ipv4(destination);
		if (*rule != LPM_NONE)
			return n;
	}
	return NO_SERVICE;
}

/* The first service that translates what an IPv4 host inside sends. Unrolled as above. */
static __always_inline __u8 service_of_ipv4_source(__u32 source, __u32 destination)
{
#pragma unroll
	for (int n = 0; n < SERVICES_MAX; n++)
		if (has_sources(plan.services[n].kind) &&
		    is_from_inside(&plan.services[n], bpf_ntohl(source), bpf_ntohl(destination)))
			return n;
	return NO_SERVICE;
}

static __always_inline struct outcome process_ipv6(const struct packet *packet, __u32 gso_size,
						   struct scratch *scratch, struct rewrite *to)
{
	__u8 number = service_of_ipv6(packet->destination);

	if (number == NO_SERVICE)
		return PASSED(MISS_NOT_OURS);
	if (service_at(number)->kind == KIND_SIIT)
		return siit_from_ipv6(service_at(number), packet, gso_size, scratch, to);
	if (service_at(number)->kind == KIND_MAP_T_CE)
		return map_t_ce_outside(service_at(number), number, packet, gso_size, scratch, to);
	if (service_at(number)->kind == KIND_MAP_T_BR)
		return map_t_inside(service_at(number), packet, gso_size, scratch, to);
	if (service_at(number)->kind == KIND_NAT64)
		return nat64_inside(service_at(number), number, packet, gso_size, scratch, to);
	/* To the end of a softwire, but in none. */
	return PASSED(MISS_NOT_OURS);
}

static __always_inline struct outcome process_tunnelled(const struct packet *packet, __u32 gso_size,
							struct scratch *scratch, struct rewrite *to)
{
	__u8 number = service_of_ipv6(packet->outer_destination);
	const volatile struct service *service;

	if (number == NO_SERVICE)
		return PASSED(MISS_NOT_OURS);
	service = service_at(number);
	if (service->kind != KIND_LWAFTR && !is_softwire_end(service->kind))
		return PASSED(MISS_NOT_OURS);
	if (inner_class(&service->tunnel, packet) < 0)
		return PASSED(MISS_SCREENED);
	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	if (service->kind == KIND_LWAFTR)
		return lwaftr_inside(service, packet, gso_size, to);
	if (service->kind == KIND_MAP_E_BR)
		return map_e_inside(service, packet, gso_size, to);
	return out_of_softwire(service, number, packet, gso_size, scratch, to);
}

/* From a host inside. */
static __always_inline struct outcome process_ipv4_inside(__u8 number, const struct packet *packet, __u32 gso_size,
							  struct scratch *scratch, struct rewrite *to)
{
	const volatile struct service *service = service_at(number);

	if (service->kind == KIND_NAT44)
		return nat44_inside(service, number, packet, gso_size, scratch, to);
	if (service->kind == KIND_B4)
		return b4_inside(service, packet, gso_size, to);
	if (service->kind == KIND_MAP_T_CE)
		return map_t_ce_inside(service, number, packet, gso_size, scratch, to);
	return edge_inside(service, number, packet, gso_size, scratch, to);
}

static __always_inline struct outcome process_ipv4(const struct packet *packet, __u32 gso_size,
						   struct scratch *scratch, struct rewrite *to)
{
	__u8 number = service_of_ipv4_source(packet->source4, packet->destination4);
	const volatile struct pool_range *range = 0;
	__u32 rule = LPM_NONE;

	if (number != NO_SERVICE)
		return process_ipv4_inside(number, packet, gso_size, scratch, to);
	number = service_of_ipv4(packet->destination4, &range, &rule);
	if (number == NO_SERVICE)
		return PASSED(MISS_NOT_OURS);
	if (service_at(number)->kind == KIND_SIIT)
		return siit_from_ipv4(service_at(number), packet, gso_size, to);
	if (service_at(number)->kind == KIND_LWAFTR)
		return lwaftr_outside(service_at(number), packet, gso_size, to);
	if (service_at(number)->kind == KIND_MAP_E_BR)
		return map_e_outside(service_at(number), rule, packet, gso_size, to);
	if (service_at(number)->kind == KIND_MAP_T_BR)
		return map_t_outside(service_at(number), rule, packet, gso_size, to);
	if (!range)
		return PASSED(MISS_NOT_OURS);
	if (service_at(number)->kind == KIND_NAT44)
		return nat44_outside(service_at(number), number, range, packet, gso_size, scratch, to);
	if (service_at(number)->kind == KIND_AFTR)
		return aftr_outside(service_at(number), number, range, packet, gso_size, scratch, to);
	return nat64_outside(service_at(number), number, range, packet, gso_size, scratch, to);
}

/* Decides about a packet, and moves its session on. What it becomes goes to `to`. `gso_size` is the
 * payload of each segment of a super-packet, 0 for an ordinary one.
 */
static __always_inline struct outcome process(const struct packet *packet, __u32 gso_size, struct scratch *scratch,
					      struct rewrite *to)
{
	to->keeps_transport = false;
	to->encapsulate = false;
	if (packet->hop_limit <= 1)
		return PASSED(MISS_HOP_LIMIT);
	if (is_own(packet))
		return PASSED(MISS_NOT_OURS);
	if (packet->is_tunnelled)
		return process_tunnelled(packet, gso_size, scratch, to);
	return packet->is_ipv4 ? process_ipv4(packet, gso_size, scratch, to) :
				 process_ipv6(packet, gso_size, scratch, to);
}

#endif
