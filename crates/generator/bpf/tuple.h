/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A tuple number and the addresses and ports that it stands for. "a" is the left host, "b" the
 * right one.
 */
#ifndef TUPLE_H
#define TUPLE_H

/* Which template frame `number` has, where frames have three lengths. Without a branch: each would
 * double the paths that the verifier follows.
 */
static __always_inline __u32 imix_template(__u32 number)
{
	__u32 place = number % IMIX_FRAMES * IMIX_STEP % IMIX_FRAMES;
	__u32 is_not_short = (IMIX_SHORT - 1 - place) >> 31;
	__u32 is_longest = (IMIX_SHORT + IMIX_MIDDLE - 1 - place) >> 31;
	return is_not_short * TEMPLATE_MIDDLE + is_longest * (TEMPLATE_LONGEST - TEMPLATE_MIDDLE);
}

struct tuple {
	__u32 a_host;
	__u32 b_host;
	__u32 a_index; /* which port of the a host's own */
	__u16 b_port;
};

/* Divides and gives the remainder: BPF, and most processors, would divide twice for the two. */
static __always_inline __u32 take(__u32 *number, __u32 divisor)
{
	__u32 quotient = *number / divisor, remainder = *number - quotient * divisor;
	*number = quotient;
	return remainder;
}

static __always_inline void decompose(const struct tuple_shape *shape, __u32 number,
				      struct tuple *t)
{
	t->a_index = take(&number, shape->a_ports);
	t->b_port = shape->b_first + (__u16)take(&number, shape->b_ports);
	t->a_host = shape->a_hosts == 1 ? 0 : take(&number, shape->a_hosts);
	t->b_host = number;
}

/* Port number index of the port set (RFC 7597 section 5.1); plain ranges have psid_shift 16. */
static __always_inline __u16 a_port(const struct tuple_shape *shape, const struct endpoint *a,
				    __u32 index)
{
	__u32 shift = shape->a_psid_shift & 31;
	return shape->a_first + ((index >> shift) << (shape->a_offset_shift & 31)) + a->port_part +
	       (index & ((1u << shift) - 1));
}

#endif
