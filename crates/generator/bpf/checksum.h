/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The Internet checksum (RFC 1071) over 64-bit accumulators; sums are of native-order words, as the
 * RFC allows.
 */
#ifndef CHECKSUM_H
#define CHECKSUM_H

static __always_inline __u64 add64(__u64 sum, __u64 word)
{
	return sum + (__u32)word + (word >> 32);
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* A checksum that comes out as 0 is sent as 0xffff (RFC 768, RFC 8200 section 8.1). */
static __always_inline __u16 udp_checksum(__u64 sum)
{
	__u16 c = ~fold(sum);
	return c ? c : 0xffff;
}

#endif
