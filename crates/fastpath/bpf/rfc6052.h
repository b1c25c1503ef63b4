/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* IPv4-embedded IPv6 addresses: crates/wire/src/rfc6052.rs, which draws them. */
#ifndef TOMBOLO_RFC6052_H
#define TOMBOLO_RFC6052_H

#include "plan.h"

/* The prefix matches. The u octet may have any value (RFC 6052 section 2.3). */
static __always_inline bool is_in_prefix(const volatile struct prefix *prefix,
					 const __u64 address[2])
{
	return prefix->present && !((address[0] ^ prefix->bits[0]) & prefix->mask[0]) &&
	       !((address[1] ^ prefix->bits[1]) & prefix->mask[1]);
}

/* The IPv4 address in an IPv6 address that lies in the prefix. */
static __always_inline __u32 extract(const volatile struct prefix *prefix, const __u64 address[2])
{
	__u64 high = bpf_be64_to_cpu(address[0]);
	__u64 low = bpf_be64_to_cpu(address[1]) << prefix->gap;

	/* The /96, which nearly everybody uses. */
	if (!prefix->shift)
		return address[1] >> 32;
	if (prefix->shift == 64)
		return bpf_htonl(high);
	return bpf_htonl(high << (64 - prefix->shift) | low >> prefix->shift);
}

static __always_inline void embed(const volatile struct prefix *prefix, __u32 address4,
				  __u64 address[2])
{
	__u64 number = bpf_ntohl(address4), low;

	if (!prefix->shift) {
		address[0] = prefix->bits[0];
		address[1] = prefix->bits[1] | (__u64)address4 << 32;
		return;
	}
	low = prefix->shift == 64 ? 0 : number << prefix->shift >> prefix->gap;
	address[0] = prefix->bits[0] | bpf_cpu_to_be64(number >> (64 - prefix->shift));
	address[1] = prefix->bits[1] | bpf_cpu_to_be64(low);
}

#endif
