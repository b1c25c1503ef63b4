/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Writing one test frame over whatever the page held before. The page pool gives pages back that a
 * gateway changed, so every byte of the headers and the tag is written each time; the filler is
 * left as the kernel copied it.
 *
 * The tag, the first 18 bytes of the payload of UDP or TCP, big-endian:
 *
 *    0       2       3      4           8            12          18
 *    +-------+-------+------+-----------+------------+-----------+
 *    | magic | trial | kind |   tuple   |   number   |  time ns  |
 *    +-------+-------+------+-----------+------------+-----------+
 */
#ifndef BUILD_H
#define BUILD_H

#define BEYOND_UDP (TCP_HEADER - UDP_HEADER)

/* The changing fields, in network order as they go into the frame. */
struct fields {
	__u8 *source; /* address of the outermost header */
	__u8 *destination;
	__u32 inner_source_be; /* IPv4-in-IPv6 only */
	__u32 inner_destination_be;
	__u16 source_port_be;
	__u16 destination_port_be;
	__u32 tuple;
	__u32 number;
	__u8 kind;
	__u64 learned[4]; /* where source and destination point for a recorded tuple */
};

static __always_inline void copy_template(void *data, const __u64 *from, int bytes)
{
	__u64 *to = data;
#pragma unroll
	for (int i = 0; i < bytes / 8; i++)
		to[i] = from[i];
	if (bytes & 4)
		((__u32 *)data)[bytes / 4 - 1] = ((const __u32 *)from)[bytes / 4 - 1];
}

/* Ports, checksum and tag; `sum` already holds the addresses and everything constant. */
static __always_inline void finish(void *transport, const struct fields *f, __u64 sum, __u64 now,
				   const int is_tcp)
{
	__u16 *u = transport;
	__u8 *tag = (__u8 *)transport + (is_tcp ? TCP_HEADER : UDP_HEADER);
	u[0] = f->source_port_be;
	u[1] = f->destination_port_be;
	__u8 *kind = tag + 3;
	*kind = f->kind;
	__u32 *words = (__u32 *)(tag + 4);
	words[0] = bpf_htonl(f->tuple);
	words[1] = bpf_htonl(f->number);
	__u16 *high = (__u16 *)(tag + 12);
	__u32 *low = (__u32 *)(tag + 14);
	*high = bpf_htons((__u16)(now >> 32));
	*low = bpf_htonl((__u32)now);
	sum += (__u64)u[0] + u[1] + bpf_htons(f->kind) + words[0] + words[1] + *high + *low;
	if (is_tcp)
		u[8] = ~fold(sum);
	else
		u[3] = udp_checksum(sum);
}

static __always_inline void finish_ipv4(void *ip, __u32 ip_sum, __u32 source_be,
					__u32 destination_be)
{
	__u32 *words = ip;
	words[3] = source_be;
	words[4] = destination_be;
	((__u16 *)ip)[5] = ~fold((__u64)ip_sum + source_be + destination_be);
}

static __always_inline __u64 copy_ipv6_addresses(void *ip, const struct fields *f)
{
	__u64 *to = (__u64 *)((__u8 *)ip + 8);
	const __u64 *s = (const __u64 *)f->source, *d = (const __u64 *)f->destination;
	to[0] = s[0];
	to[1] = s[1];
	to[2] = d[0];
	to[3] = d[1];
	return add64(add64(add64(add64(0, s[0]), s[1]), d[0]), d[1]);
}

/* Returns 0, or -1 if the page is too short. `is_tcp` is known to the compiler. */
static __always_inline int build_transport(void *data, void *end, const struct frame_template *t,
					   const struct fields *f, __u64 now, const int is_tcp)
{
	const __u64 *from = (const __u64 *)t->bytes;
	const int more = is_tcp ? BEYOND_UDP : 0;
	if (t->kind == KIND_IPV4) {
		if (data + 60 + more > end)
			return -1;
		copy_template(data, from, 60 + more);
		__u32 s = *(__u32 *)f->source, d = *(__u32 *)f->destination;
		finish_ipv4(data + 14, t->ip_sum, s, d);
		finish(data + 34, f, (__u64)t->transport_sum + s + d, now, is_tcp);
	} else if (t->kind == KIND_IPV6) {
		if (data + 80 + more > end)
			return -1;
		copy_template(data, from, 80 + more);
		__u64 sum = copy_ipv6_addresses(data + 14, f);
		finish(data + 54, f, sum + t->transport_sum, now, is_tcp);
	} else {
		if (data + 100 + more > end)
			return -1;
		copy_template(data, from, 100 + more);
		copy_ipv6_addresses(data + 14, f);
		finish_ipv4(data + 54, t->ip_sum, f->inner_source_be, f->inner_destination_be);
		finish(data + 74, f,
		       (__u64)t->transport_sum + f->inner_source_be + f->inner_destination_be, now,
		       is_tcp);
	}
	return 0;
}

static __always_inline int build(void *data, void *end, const struct frame_template *t,
				 const struct fields *f, __u64 now)
{
	if (t->protocol == PROTOCOL_TCP)
		return build_transport(data, end, t, f, now, 1);
	return build_transport(data, end, t, f, now, 0);
}

/* The filler byte at distance o from the start of the frame is o itself, so frames of two kinds can
 * share a page.
 */
static __always_inline void restore_filler(void *data, void *end, const struct frame_template *t)
{
	__u8 *bytes = data;
	__u32 more = t->protocol == PROTOCOL_TCP ? BEYOND_UDP : 0;
	__u32 o = more + (t->kind == KIND_IPV4 ? 60 : t->kind == KIND_IPV6 ? 80 : 100);
#pragma nounroll
	for (; o < 100 + more; o++) {
		if ((void *)(bytes + o + 1) > end)
			return;
		bytes[o] = (__u8)o;
	}
}

#endif
