/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The Internet checksum by difference (RFC 1071 section 2 (B), RFC 1624 section 3).
 *
 * Sums are of 16-bit words as they lie in memory: swapping the bytes of every word swaps the bytes
 * of the sum, so no word has to be swapped. A sum that is not folded has room for 2^31 additions of
 * 32 bits.
 */
#ifndef TOMBOLO_CHECKSUM_H
#define TOMBOLO_CHECKSUM_H

#include "base.h"

static __always_inline __u64 sum_of_u64(__u64 words)
{
	return (words & 0xffffffff) + (words >> 32);
}

static __always_inline __u64 sum_of_ipv6(const __u64 address[2])
{
	return sum_of_u64(address[0]) + sum_of_u64(address[1]);
}

/* 0 only if nothing but zeros was added. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* What is to be added where data with the sum `old` is replaced by data with the sum `new`. */
static __always_inline __u16 difference(__u64 old, __u64 new)
{
	return fold((__u64)fold(new) + (__u16)~fold(old));
}

/* A checksum field after a change (RFC 1624, equation 3). */
static __always_inline __u16 updated(__u16 field, __u64 difference)
{
	return ~fold((__u64)(__u16)~field + difference);
}

#endif
