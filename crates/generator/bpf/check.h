/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reading one frame and finding everything that is wrong with it. Nothing of a frame is believed
 * before its checksum of UDP or TCP is right; then the tag says which frame it is, and so what every other
 * field has to be.
 */
#ifndef CHECK_H
#define CHECK_H

/* Where things are in the frame that arrived. All pointers are into the packet. */
struct arrival {
	void *link;
	void *ip;    /* outermost header */
	void *inner; /* the IPv4 header, or 0 */
	__u8 *transport;
	__u8 *tag;
	__u8 kind;
	__u8 hop_limit;
	__u8 inner_hop_limit;
	__u16 ip_bytes;
	__u16 transport_offset; /* from the start of the frame */
};

enum arrival_kind { ARRIVAL_TEST, ARRIVAL_ICMP, ARRIVAL_FOREIGN };

static __always_inline __u16 read16(const void *p)
{
	return bpf_ntohs(*(const __u16 *)p);
}

static __always_inline __u32 read32(const void *p)
{
	return bpf_ntohl(*(const __u32 *)p);
}

/* The tag must be there, behind the header of UDP or TCP. That header's length is added, not asked
 * for: a branch would double the paths that the verifier follows. The barrier keeps the compiler
 * from adding it again for each field, as the verifier knows only this one sum to be in the frame.
 */
static __always_inline enum arrival_kind find_tag(struct arrival *a, const struct expectation *e,
						  void *end)
{
	__u8 *tag = a->transport + (e->transport_bytes & 31);
	barrier_var(tag);
	a->tag = tag;
	if (tag + TAG_BYTES > (__u8 *)end || read16(tag) != TAG_MAGIC)
		return ARRIVAL_FOREIGN;
	return ARRIVAL_TEST;
}

static __always_inline enum arrival_kind parse(void *data, void *end, const struct expectation *e,
					       struct arrival *a)
{
	__u8 *p = data;
	if (data + 60 > end)
		return ARRIVAL_FOREIGN;
	a->link = data;
	__u16 ether = read16(p + 12);
	if (ether == 0x0800) {
		if (p[23] == 1)
			return ARRIVAL_ICMP;
		if (p[14] != 0x45 || p[23] != e->protocol || (read16(p + 20) & 0x3fff))
			return ARRIVAL_FOREIGN;
		a->kind = KIND_IPV4;
		a->ip = p + 14;
		a->inner = p + 14;
		a->hop_limit = p[22];
		a->inner_hop_limit = p[22];
		a->ip_bytes = read16(p + 16);
		a->transport_offset = 34;
		a->transport = p + 34;
		return find_tag(a, e, end);
	}
	if (ether != 0x86dd || data + 80 > end)
		return ARRIVAL_FOREIGN;
	if (p[20] == 58)
		return ARRIVAL_ICMP;
	a->ip = p + 14;
	a->hop_limit = p[21];
	a->ip_bytes = read16(p + 18) + 40;
	if (p[20] == e->protocol) {
		a->kind = KIND_IPV6;
		a->inner = 0;
		a->inner_hop_limit = 0;
		a->transport_offset = 54;
		a->transport = p + 54;
		return find_tag(a, e, end);
	}
	if (p[20] != 4 || data + 100 > end || p[54] != 0x45 || p[63] != e->protocol)
		return ARRIVAL_FOREIGN;
	a->kind = KIND_IPV4_IN_IPV6;
	a->inner = p + 54;
	a->inner_hop_limit = p[62];
	a->transport_offset = 74;
	a->transport = p + 74;
	return find_tag(a, e, end);
}

/* Sum of the pseudo header, the header of UDP or TCP, and the tag: everything but the filler. */
static __always_inline __u64 head_sum(const struct arrival *a, const struct expectation *e)
{
	__u64 sum = 0;
	if (a->kind == KIND_IPV6) {
		const __u64 *w = (const __u64 *)((__u8 *)a->ip + 8);
		sum = add64(add64(add64(add64(sum, w[0]), w[1]), w[2]), w[3]);
	} else {
		const __u32 *w = a->inner;
		sum = (__u64)w[3] + w[4];
	}
	const __u64 *w = (const __u64 *)a->transport, *tag = (const __u64 *)a->tag;
	sum = add64(sum, w[0]) + bpf_htons(e->protocol);
	if (e->protocol == PROTOCOL_TCP)
		sum = add64(sum, w[1]) + ((const __u32 *)w)[4] +
		      bpf_htons(14 + a->ip_bytes - a->transport_offset);
	else
		sum += ((const __u16 *)w)[2];
	sum = add64(add64(sum, tag[0]), tag[1]);
	return sum + ((const __u16 *)tag)[8];
}

static __always_inline int ipv4_header_is_sound(const void *ip)
{
	const __u32 *w = ip;
	return fold((__u64)w[0] + w[1] + w[2] + w[3] + w[4]) == 0xffff;
}

static __always_inline int same128(const void *x, const void *y)
{
	const __u64 *a = x, *b = y;
	return a[0] == b[0] && a[1] == b[1];
}

/* Whether the frame's address `which` (0 source, 1 destination) is that of the endpoint as seen on
 * this side.
 */
static __always_inline int address_is(const struct arrival *a, int which, const __u8 *address,
				      __u32 inner_be)
{
	if (a->kind == KIND_IPV4)
		return ((const __u32 *)a->ip)[3 + which] == *(const __u32 *)address;
	if (!same128((__u8 *)a->ip + 8 + 16 * which, address))
		return 0;
	return a->kind != KIND_IPV4_IN_IPV6 || ((const __u32 *)a->inner)[3 + which] == inner_be;
}

static __always_inline int source_in_pool(const struct arrival *a, const struct expectation *e)
{
	if (a->kind == KIND_IPV6)
		return 0;
	__u32 source = read32((__u8 *)a->inner + 12);
	return source >= e->pool_first && source <= e->pool_last;
}

/* What is wrong with a frame, a bit each, lies in a map and not in a register: the verifier forgets
 * what is written there, and need not follow the rest of the program once for each set of errors.
 */
#define BAD(which) (*wrong |= 1u << (which))

/* 1 if any bit is set. Without a branch, and hidden from the compiler, which would make one: each
 * field that is checked with one would double the paths that the verifier follows.
 */
static __always_inline __u32 is_set(__u64 bits)
{
	bits |= -bits;
	asm volatile("" : "+r"(bits));
	return bits >> 63;
}

/* Fields that are the same in all frames. What is not checked has a mask of zeros. */
static __always_inline __u32 link_errors(const struct arrival *a, const struct expectation *e)
{
	const __u32 *is = a->link, *has = (const __u32 *)e->link;
	const __u32 *mask = (const __u32 *)e->link_mask;
	__u32 differs = ((is[0] ^ has[0]) & mask[0]) | ((is[1] ^ has[1]) & mask[1]) |
			((is[2] ^ has[2]) & mask[2]);
	return is_set(differs) << ERROR_LINK_ADDRESS;
}

static __always_inline __u32 ipv6_errors(const struct arrival *a, const struct expectation *e)
{
	__u32 differs = *(const __u32 *)a->ip ^ e->ipv6_word;
	return is_set(differs & e->traffic_class_mask) << ERROR_TRAFFIC_CLASS |
	       is_set(differs & e->flow_label_mask) << ERROR_FLOW_LABEL;
}

static __always_inline __u32 ipv4_errors(const struct arrival *a, const struct expectation *e)
{
	const __u32 *is = a->inner;
	__u32 differs = is[1] ^ e->ipv4_word;
	return is_set((is[0] ^ e->tos_word) & e->tos_mask) << ERROR_TRAFFIC_CLASS |
	       is_set(differs & e->dont_fragment_mask) << ERROR_DONT_FRAGMENT |
	       is_set(differs & e->identification_mask) << ERROR_IDENTIFICATION;
}

/* What a gateway leaves as it is of a segment. */
static __always_inline __u32 tcp_errors(const struct arrival *a, const struct expectation *e)
{
	const __u32 *is = (const __u32 *)a->transport, *has = (const __u32 *)e->tcp;
	__u32 differs = (is[1] ^ has[0]) | (is[2] ^ has[1]) | (is[3] ^ has[2]);
	return is_set(differs) << ERROR_TCP_HEADER;
}

/* Families, lengths, hop limits and other fields: what does not depend on the tuple. */
static __always_inline void check_headers(const struct arrival *a, const struct expectation *e,
					  int background, __u16 ip_bytes, int is_whole,
					  volatile __u32 *wrong)
{
	__u8 kind = background ? KIND_IPV6 : e->kind;
	__u8 hop_limit = background ? e->background_hop_limit : e->hop_limit;
	if (a->kind != kind) {
		BAD(ERROR_FAMILY);
		return;
	}
	if (a->ip_bytes != ip_bytes || !is_whole)
		BAD(ERROR_LENGTH);
	if (hop_limit && a->hop_limit != hop_limit)
		BAD(ERROR_HOP_LIMIT);
	if (kind == KIND_IPV4_IN_IPV6 && e->inner_hop_limit &&
	    a->inner_hop_limit != e->inner_hop_limit)
		BAD(ERROR_HOP_LIMIT);
	*wrong |= link_errors(a, e);
	if (a->kind != KIND_IPV4)
		*wrong |= ipv6_errors(a, e);
	if (a->kind != KIND_IPV6)
		*wrong |= ipv4_errors(a, e);
	if (e->protocol == PROTOCOL_TCP)
		*wrong |= tcp_errors(a, e);
}

/* 1 if the source port is none of the customer edge's (RFC 7597 section 5.1); where there is no set,
 * mask and least are 0.
 */
static __always_inline __u32 port_not_in_set(const struct expectation *e, __u16 port)
{
	return is_set(((port & e->port_mask) ^ e->port_value) |
		      ((__u32)port - e->port_least) >> 31);
}

/* Addresses and ports of a foreground frame, from its tuple. Direction 0 goes from a to b. */
static __always_inline void check_tuple(const struct arrival *a, const struct expectation *e,
					int reverse, const struct tuple *t,
					const struct endpoint *host_a,
					const struct endpoint *host_b, volatile __u32 *wrong)
{
	__u16 sport = read16(a->transport), dport = read16(a->transport + 2);
	__u16 port = a_port(&e->shape, host_a, t->a_index);
	if (reverse) {
		if (e->source_rule == SOURCE_EXACT &&
		    !address_is(a, 0, host_b->left, host_b->left_inner))
			BAD(ERROR_SOURCE);
		if (!address_is(a, 1, host_a->left, host_a->left_inner))
			BAD(ERROR_DESTINATION);
		if (e->source_port_rule == PORT_EXACT && sport != t->b_port)
			BAD(ERROR_SOURCE_PORT);
		if (dport != port)
			BAD(ERROR_DESTINATION_PORT);
	} else {
		if (e->source_rule == SOURCE_EXACT &&
		    !address_is(a, 0, host_a->right, host_a->right_inner))
			BAD(ERROR_SOURCE);
		if (e->source_rule == SOURCE_POOL && !source_in_pool(a, e))
			BAD(ERROR_SOURCE);
		if (!address_is(a, 1, host_b->right, host_b->right_inner))
			BAD(ERROR_DESTINATION);
		if (e->source_port_rule == PORT_EXACT && sport != port)
			BAD(ERROR_SOURCE_PORT);
		*wrong |= port_not_in_set(e, sport) << ERROR_SOURCE_PORT;
		if (dport != t->b_port)
			BAD(ERROR_DESTINATION_PORT);
	}
}

static __always_inline void check_background(const struct arrival *a, const struct expectation *e,
					     volatile __u32 *wrong)
{
	if (a->kind != KIND_IPV6)
		return;
	if (!same128((__u8 *)a->ip + 8, e->background_source))
		BAD(ERROR_SOURCE);
	if (!same128((__u8 *)a->ip + 24, e->background_destination))
		BAD(ERROR_DESTINATION);
}

#endif
