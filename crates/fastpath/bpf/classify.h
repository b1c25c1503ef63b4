/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which service a packet is for, and what becomes of it (crates/engine/src/plan.rs, engine.rs). */
#ifndef TOMBOLO_CLASSIFY_H
#define TOMBOLO_CLASSIFY_H

#include "siit.h"

#define NO_SERVICE 0xff

/* The first service that an IPv6 packet is for. Unrolled, so that the verifier cuts out the services that there are not. */
static __always_inline __u8 service_of_ipv6(const __u64 destination[2])
{
#pragma unroll
	for (int n = 0; n < SERVICES_MAX; n++) {
		const volatile struct service *service = &plan.services[n];

		if (service->kind == KIND_NAT64 && is_in_prefix(&service->prefix, destination))
			return n;
		if (service->kind == KIND_SIIT && siit_claims_ipv6(service, destination))
			return n;
	}
	return NO_SERVICE;
}

/* The first service that an IPv4 packet is for; `range` says where in its pool. */
static __always_inline __u8 service_of_ipv4(__u32 destination, const volatile struct pool_range **range)
{
#pragma nounroll
	for (__u32 n = 0; n < SERVICES_MAX && plan.services[n].kind != KIND_NONE; n++) {
		*range = pool_range_of(&plan.services[n], bpf_ntohl(destination));
		if (*range)
			return n;
		if (plan.services[n].kind == KIND_SIIT && siit_claims_ipv4(&plan.services[n], destination))
			return n;
	}
	return NO_SERVICE;
}

/* The first service that translates what an IPv4 host inside sends. Unrolled as above. */
static __always_inline __u8 service_of_ipv4_source(__u32 source, __u32 destination)
{
#pragma unroll
	for (int n = 0; n < SERVICES_MAX; n++)
		if (plan.services[n].kind == KIND_NAT44 &&
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
	return nat64_inside(service_at(number), number, packet, gso_size, scratch, to);
}

static __always_inline struct outcome process_ipv4(const struct packet *packet, __u32 gso_size,
						   struct scratch *scratch, struct rewrite *to)
{
	__u8 number = service_of_ipv4_source(packet->source4, packet->destination4);
	const volatile struct pool_range *range = 0;

	if (number != NO_SERVICE)
		return nat44_inside(service_at(number), number, packet, gso_size, scratch, to);
	number = service_of_ipv4(packet->destination4, &range);
	if (number == NO_SERVICE)
		return PASSED(MISS_NOT_OURS);
	if (service_at(number)->kind == KIND_SIIT)
		return siit_from_ipv4(service_at(number), packet, gso_size, to);
	if (!range)
		return PASSED(MISS_NOT_OURS);
	if (service_at(number)->kind == KIND_NAT44)
		return nat44_outside(service_at(number), number, range, packet, gso_size, scratch, to);
	return nat64_outside(service_at(number), number, range, packet, gso_size, scratch, to);
}

/* Decides about a packet, and moves its session on. What it becomes goes to `to`. `gso_size` is the payload of each
 * segment of a super-packet, 0 for an ordinary one.
 */
static __always_inline struct outcome process(const struct packet *packet, __u32 gso_size, struct scratch *scratch,
					      struct rewrite *to)
{
	if (packet->hop_limit <= 1)
		return PASSED(MISS_HOP_LIMIT);
	if (is_own(packet))
		return PASSED(MISS_NOT_OURS);
	return packet->is_ipv4 ? process_ipv4(packet, gso_size, scratch, to) :
				 process_ipv6(packet, gso_size, scratch, to);
}

#endif
