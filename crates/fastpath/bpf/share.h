/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Shares of ports that are computed (RFC 7422): crates/engine/src/mapping/allocation.rs,
 * deterministic.rs.
 */
#ifndef TOMBOLO_SHARE_H
#define TOMBOLO_SHARE_H

#include "binding.h"
#include "plan.h"

#define NO_NUMBER 0xffffffffU

/* Counts the addresses of a range (in the processor's byte order) up to `address`; false if it is
 * not among them.
 */
static __always_inline bool count_up_to(const volatile struct range *range, __u32 address,
					__u32 *number)
{
	if (address >= range->first && address <= range->last) {
		*number += address - range->first;
		return true;
	}
	*number += range->last - range->first + 1;
	return false;
}

/* The number of a host among those inside; NO_NUMBER if it is none of them. */
static __always_inline __u32 number_of_host(const volatile struct service *service, __u32 address)
{
	__u32 number = 0;

#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->inside_ranges; n++)
		if (count_up_to(&service->inside[n], address, &number))
			return number;
	return NO_NUMBER;
}

/* The number of an outside address; NO_NUMBER if the pool does not have it. */
static __always_inline __u32 number_of_outside(const volatile struct service *service,
					       __u32 address)
{
	__u32 number = 0;

#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->pool_ranges; n++)
		if (count_up_to(&service->pool[n].addresses, address, &number))
			return number;
	return NO_NUMBER;
}

/* The number of a prefix of IPv6; NO_NUMBER if it lies too far from the first one, or before it. */
static __always_inline __u32 number_of_prefix(const volatile struct allocation *allocation,
					      const __u64 address[2])
{
	__u64 first_high = bpf_be64_to_cpu(allocation->first[0]),
	      first_low = bpf_be64_to_cpu(allocation->first[1]), high = bpf_be64_to_cpu(address[0]),
	      low = bpf_be64_to_cpu(address[1]), number;
	__u32 shift = allocation->host_bits;

	if (high < first_high || (high == first_high && low < first_low))
		return NO_NUMBER;
	high -= first_high + (low < first_low);
	low -= first_low;
	if (shift >= 64)
		number = high >> (shift & 63);
	else if (high >> shift)
		return NO_NUMBER;
	else
		number = shift ? high << (64 - shift) | low >> shift : low;
	return number < NO_NUMBER ? number : NO_NUMBER;
}

/* Which share a subscriber has, of which outside address, by their numbers. */
struct share {
	__u32 address;
	__u32 number;
};

/* The share of the subscriber that a host is of; false if it has none. */
static __always_inline bool share_of_host(const volatile struct service *service,
					  const __u64 address[2], __u32 address4,
					  struct share *share)
{
	const volatile struct allocation *allocation = &service->allocation;
	__u32 number;

	if (allocation->are_hosts)
		number = number_of_host(service, bpf_ntohl(address4));
	else
		number = number_of_prefix(allocation, address);
	if (number >= allocation->subscribers)
		return false;
	if (allocation->addresses_in_turn) {
		share->address = number % allocation->addresses_in_turn;
		share->number = number / allocation->addresses_in_turn;
	} else {
		share->address = number / allocation->shares_of_address;
		share->number = number % allocation->shares_of_address;
	}
	return true;
}

/* The first place of a subscriber's share, whose inside endpoint `key` is, among the ports of its
 * outside address `outside` (in the processor's byte order); negative if it has none there: the plan is
 * another one than when it was admitted.
 */
__noinline int first_place_of_share(const struct inside_key *key, __u32 outside)
{
	const volatile struct service *service;
	struct share share;

	if (!key)
		return -1;
	service = service_at(key->place);
	if (!share_of_host(service, key->address, key->address4, &share) ||
	    number_of_outside(service, outside) != share.address)
		return -1;
	return share.number * service->allocation.share_size;
}

/* The outside address (in the processor's byte order) of the share of a host's subscriber; false if it has none. */
static __always_inline bool outside_of_share(const volatile struct service *service,
					     const __u64 address[2], __u32 address4, __u32 *outside)
{
	struct share share;

	if (!share_of_host(service, address, address4, &share))
		return false;
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->pool_ranges; n++) {
		const volatile struct range *range = &service->pool[n].addresses;
		__u32 count = range->last - range->first + 1;

		if (share.address < count) {
			*outside = range->first + share.address;
			return true;
		}
		share.address -= count;
	}
	return false;
}

#endif
