/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the configuration decides, as constants of the program.
 *
 * The loader writes the plan into read-only data before the verifier sees the program. The verifier
 * knows the values, so what a plan does not use costs nothing: its branches are cut out. A reload
 * loads new programs and replaces the old ones, link by link, each in one instant; no packet sees
 * half of two plans.
 *
 * Its records are in src/record/plan.rs and service.rs.
 */
#ifndef TOMBOLO_PLAN_H
#define TOMBOLO_PLAN_H

#include "base.h"

const volatile struct plan plan;

/* A service by its number, for the verifier. */
static __always_inline const volatile struct service *service_at(__u32 number)
{
	return &plan.services[number % SERVICES_MAX];
}

/* The range of the pool that has an outside address (in the processor's byte order); none if it has
 * not.
 */
static __always_inline const volatile struct pool_range *
pool_range_of(const volatile struct service *service, __u32 address)
{
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->pool_ranges; n++) {
		const volatile struct pool_range *range = &service->pool[n];

		if (address >= range->addresses.first && address <= range->addresses.last)
			return range;
	}
	return 0;
}

/* Whether one of `count` ranges has an address (in the processor's byte order). */
static __always_inline bool is_among(const volatile struct range ranges[RANGES_MAX], __u32 count,
				     __u32 address)
{
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < count; n++)
		if (address >= ranges[n].first && address <= ranges[n].last)
			return true;
	return false;
}

/* Whether one of the first `count` networks of a service has an address. */
static __always_inline bool is_in_networks(const volatile struct service *service, __u32 count,
					   const __u64 address[2])
{
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < count; n++) {
		const volatile struct network *network = &service->networks[n];

		if (!((address[0] ^ network->bits[0]) & network->mask[0]) &&
		    !((address[1] ^ network->bits[1]) & network->mask[1]))
			return true;
	}
	return false;
}

#endif
