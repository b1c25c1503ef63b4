/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A tuple number and the addresses and ports that it stands for. "a" is the left host, "b" the right one. */
#ifndef TUPLE_H
#define TUPLE_H

struct tuple {
	__u32 a_host;
	__u32 b_host;
	__u32 a_index; /* which port of the a host's own */
	__u16 b_port;
};

static __always_inline void decompose(const struct tuple_shape *shape, __u32 number, struct tuple *t)
{
	t->a_index = number % shape->a_ports;
	number /= shape->a_ports;
	t->b_port = shape->b_first + (__u16)(number % shape->b_ports);
	number /= shape->b_ports;
	if (shape->a_hosts == 1) {
		t->a_host = 0;
		t->b_host = number;
	} else {
		t->a_host = number % shape->a_hosts;
		t->b_host = number / shape->a_hosts;
	}
}

/* Port number index of the port set (RFC 7597 section 5.1); plain ranges have psid_shift 16. */
static __always_inline __u16 a_port(const struct tuple_shape *shape, const struct endpoint *a, __u32 index)
{
	__u32 shift = shape->a_psid_shift & 31;
	return shape->a_first + ((index >> shift) << (shape->a_offset_shift & 31)) + a->port_part +
	       (index & ((1u << shift) - 1));
}

#endif
