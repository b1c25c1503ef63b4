/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which node of a cluster serves a packet of a service with bindings: crates/engine/src/mechanism/slice.rs,
 * mapping/slices.rs.
 *
 * 	from inside	the slice that the subscriber was given; else that of the address of its
 * 			computed share; else the hash of its key
 * 	from outside	the slice of the address that it goes to
 *
 * Where a slice's packets go the gateway's process says, in memory that both have (src/slices.rs): it fills the
 * table that does not count, and then says that it does.
 */
#ifndef TOMBOLO_SLICE_H
#define TOMBOLO_SLICE_H

#include "cluster.h"
#include "hash.h"
#include "share.h"

SHARED_ARRAY(slice_places, struct slice_line);
SHARED_ARRAY(slice_grants, struct grant_line);

/* Made anew with each plan, as large as it needs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct slice_pin);
	__type(value, __u32);
} slice_pins SEC(".maps");

#define NO_SLICE (-1)

static __always_inline __u32 place_of_slice(__u32 slice)
{
	struct slice_line *choice = RECORD(slice_places, SLICE_CHOICE), *line;
	__u32 table;

	if (!choice)
		return PLACE_NOWHERE;
	/* What it says is part of the address of what is loaded next, which so comes after it. */
	table = READ(choice->place[0]) & 1;
	line = RECORD(slice_places, table * SLICE_LINES + slice / SLICES_OF_A_LINE % SLICE_LINES);
	return line ? READ(line->place[slice % SLICES_OF_A_LINE]) : PLACE_NOWHERE;
}

/* The slice of an outside address (in the processor's byte order). */
static __always_inline int slice_of_address(const volatile struct service *service, __u32 address)
{
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->slice_ranges; n++) {
		const volatile struct range *range = &service->slices[n];
		__u64 first = range->first, last = range->last;

		if (address >= first && address <= last)
			return (address - first) * plan.cluster.slices / (last - first + 1);
	}
	return NO_SLICE;
}

/* Whether this node may hand out ports of an outside address (in the processor's byte order) that are nobody's before: it owns the
 * slice, and its lease lasts. By the clock that the engine reads: the coarse one lags, and the lease has no time to spare.
 */
static __always_inline bool may_grant_ports(const volatile struct service *service, __u32 address)
{
	struct grant_line *line;
	int slice;

	if (!has_slices() || !(service->slicing & SLICED))
		return true;
	slice = slice_of_address(service, address);
	if (slice == NO_SLICE)
		return true;
	line = RECORD(slice_grants, (__u32)slice / GRANTS_OF_A_LINE % GRANT_LINES);
	return line && bpf_ktime_get_ns() < READ(line->until[(__u32)slice % GRANTS_OF_A_LINE]);
}

/* The slice that a subscriber was given; NO_SLICE if it was not. */
static __always_inline int pinned_slice(const volatile struct service *service,
					const struct slice_pin *pin)
{
	__u32 *slice;

	if (!(service->slicing & SLICED_PINS))
		return NO_SLICE;
	slice = bpf_map_lookup_elem(&slice_pins, pin);
	return slice ? *slice : NO_SLICE;
}

/* The slice of the subscriber that a host is of: by its IPv6 address, or of a NAT44 by its IPv4 address. */
static __always_inline int slice_of_host(const volatile struct service *service,
					 const __u64 address[2], __u32 address4)
{
	const struct slice_pin pin = {
		.address = { address[0] & service->subscriber_mask[0],
			     address[1] & service->subscriber_mask[1] },
		.address4 = service->by_softwire ? 0 : address4,
		.place = service->place,
	};
	int slice = pinned_slice(service, &pin);

	if (slice != NO_SLICE)
		return slice;
	if (service->allocation.share_size) {
		__u32 outside;

		return outside_of_share(service, address, address4, &outside) ?
			       slice_of_address(service, outside) :
			       NO_SLICE;
	}
	return hash_by(&plan.cluster.slice_key, pin.address[0], pin.address[1], pin.address4) &
	       (plan.cluster.slices - 1);
}

/* Where packets of a slice go; what has none any node serves. */
static __always_inline __u32 place_of_packets(int slice)
{
	return slice == NO_SLICE ? PLACE_HERE : place_of_slice(slice);
}

static __always_inline __u32 place_of_host(const volatile struct service *service,
					   const __u64 address[2], __u32 address4)
{
	if (!has_slices() || !(service->slicing & SLICED) || service->slicing & SLICED_BY_ENGINE)
		return PLACE_HERE;
	return place_of_packets(slice_of_host(service, address, address4));
}

static __always_inline __u32 place_of_address(const volatile struct service *service, __u32 address)
{
	if (!has_slices() || !(service->slicing & SLICED))
		return PLACE_HERE;
	return place_of_packets(slice_of_address(service, bpf_ntohl(address)));
}

#endif
