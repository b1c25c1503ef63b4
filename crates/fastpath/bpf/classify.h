/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which service a packet is for: the first that claims it (crates/engine/src/plan.rs). What a
 * service claims is in its record, bit by bit.
 */
#ifndef TOMBOLO_CLASSIFY_H
#define TOMBOLO_CLASSIFY_H

#include "lwaftr.h"
#include "map_rule.h"
#include "siit.h"

#define NO_SERVICE 0xff

/* How a service claims an IPv4 destination. */
struct claim {
	/* With its pool: this range of it. */
	const volatile struct pool_range *range;
	/* With this entry of its rules. */
	__u32 rule;
};

static __always_inline bool claims_ipv6(const volatile struct service *service,
					const __u64 destination[2])
{
	__u16 claims = service->claims;

	return (claims & CLAIM_PREFIX && is_in_prefix(&service->prefix, destination)) ||
	       (claims & CLAIM_LOCAL && is_address(service->tunnel.local, destination)) ||
	       (claims & CLAIM_LOCALS && is_among_locals(service, destination)) ||
	       (claims & CLAIM_MAPPED_IPV6 && row_of_ipv6(destination[0], destination[1]));
}

/* The first service that an IPv6 packet is for. Unrolled, so that the verifier cuts out the
 * services that there are not.
 */
static __always_inline __u8 service_of_ipv6(const __u64 destination[2])
{
#pragma unroll
	for (int n = 0; n < SERVICES_MAX; n++)
		if (claims_ipv6(&plan.services[n], destination))
			return n;
	return NO_SERVICE;
}

static __always_inline bool claims_ipv4(const volatile struct service *service, __u32 destination,
					struct claim *claim)
{
	__u16 claims = service->claims;

	if (claims & CLAIM_POOL) {
		claim->range = pool_range_of(service, bpf_ntohl(destination));
		if (claim->range)
			return true;
	}
	if (claims & CLAIM_INSIDE &&
	    is_among(service->inside, service->inside_ranges, bpf_ntohl(destination)))
		return true;
	if (claims & (CLAIM_MAPPED_IPV4 | CLAIM_UNMAPPED_IPV4) &&
	    claims & (row_of_ipv4(destination) ? CLAIM_MAPPED_IPV4 : CLAIM_UNMAPPED_IPV4))
		return true;
	if (!(claims & CLAIM_RULES))
		return false;
	claim->rule = map_entry_of_ipv4(destination);
	return claim->rule != LPM_NONE;
}

/* The first service that an IPv4 packet is for. */
static __always_inline __u8 service_of_ipv4(__u32 destination, struct claim *claim)
{
#pragma nounroll
	for (__u32 n = 0; n < SERVICES_MAX && plan.services[n].kind != KIND_NONE; n++)
		if (claims_ipv4(&plan.services[n], destination, claim))
			return n;
	return NO_SERVICE;
}

/* From inside, and to be translated. */
static __always_inline bool is_from_inside(const volatile struct service *service, __u32 source,
					   __u32 destination)
{
	return is_among(service->inside, service->inside_ranges, source) &&
	       !is_among(service->inside, service->inside_ranges, destination) &&
	       !is_among(service->untranslated, service->untranslated_ranges, destination);
}

/* The first service that translates what an IPv4 host inside sends. Unrolled as above. */
static __always_inline __u8 service_of_ipv4_source(__u32 source, __u32 destination)
{
#pragma unroll
	for (int n = 0; n < SERVICES_MAX; n++)
		if (plan.services[n].claims & CLAIM_SOURCES &&
		    is_from_inside(&plan.services[n], bpf_ntohl(source), bpf_ntohl(destination)))
			return n;
	return NO_SERVICE;
}

#endif
