/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which service a packet is for, and what becomes of it (crates/engine/src/plan.rs, engine.rs). */
#ifndef TOMBOLO_CLASSIFY_H
#define TOMBOLO_CLASSIFY_H

#include "nat44.h"
#include "nat64.h"

#define NO_SERVICE 0xff

/* The first service whose prefix a packet from inside is for. Unrolled, so that the verifier cuts out the services
 * that there are not.
 */
static __always_inline __u8 service_of_ipv6(const __u64 destination[2])
{
#pragma unroll
	for (int n = 0; n < SERVICES_MAX; n++)
		if (plan.services[n].kind == KIND_NAT64 && is_in_prefix(&plan.services[n].prefix, destination))
			return n;
	return NO_SERVICE;
}

/* The first service whose pool has an address; `range` says where. */
static __always_inline __u8 service_of_ipv4(__u32 destination, const volatile struct pool_range **range)
{
#pragma nounroll
	for (__u32 n = 0; n < SERVICES_MAX && plan.services[n].kind != KIND_NONE; n++) {
		*range = pool_range_of(&plan.services[n], bpf_ntohl(destination));
		if (*range)
			return n;
	}
	return NO_SERVICE;
}

static __always_inline struct outcome process_ipv6(const struct packet *packet, __u32 gso_size,
						   struct scratch *scratch, struct rewrite *to)
{
	__u8 number = service_of_ipv6(packet->destination);

	if (number == NO_SERVICE)
		return PASSED(MISS_NOT_OURS);
	return nat64_inside(service_at(number), number, packet, gso_size, scratch, to);
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

static __always_inline struct outcome process_ipv4(const struct packet *packet, __u32 gso_size,
						   struct scratch *scratch, struct rewrite *to)
{
	__u8 number = service_of_ipv4_source(packet->source4, packet->destination4);
	const volatile struct pool_range *range = 0;

	if (number != NO_SERVICE)
		return nat44_inside(service_at(number), number, packet, gso_size, scratch, to);
	number = service_of_ipv4(packet->destination4, &range);
	if (number == NO_SERVICE || !range)
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
	return packet->is_ipv4 ? process_ipv4(packet, gso_size, scratch, to) :
				 process_ipv6(packet, gso_size, scratch, to);
}

#endif
