/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What may not be translated at all: crates/engine/src/mechanism/screen.rs. The engine counts it by
 * reason and sends the ICMP error.
 */
#ifndef TOMBOLO_SCREEN_H
#define TOMBOLO_SCREEN_H

#include "scratch.h"

/* 0/8, 127/8, and what is not unicast. */
static __always_inline bool is_illegal_ipv4(__u32 address)
{
	__u8 first = address;

	return first == 0 || first == 127 || first >= 224;
}

/* Multicast, link-local, ::/96 and IPv4-mapped addresses. */
static __always_inline bool is_illegal_source_ipv6(const __u64 address[2])
{
	__u8 first = address[0], second = address[0] >> 8;
	__u32 third_word = address[1];

	if (first == 0xff || (first == 0xfe && (second & 0xc0) == 0x80))
		return true;
	return !address[0] && (!third_word || third_word == bpf_htonl(0xffff));
}

/* No router forwards between link-local addresses (RFC 3927 section 7). */
static __always_inline bool is_link_local_ipv4(__u32 address)
{
	return (address & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000);
}

/* A prefix must not stand for link-local addresses, and the well-known one not for any that are not
 * global (RFC 6052 section 3.1).
 */
static __always_inline bool is_forbidden(const volatile struct service *service, __u32 address)
{
	bool forbidden = false;

	if (is_link_local_ipv4(address))
		return true;
	if (!(service->flags & SERVICE_STRICT))
		return false;
#pragma unroll
	for (int n = 0; n < NON_GLOBAL_MAX; n++)
		forbidden |= plan.non_global[n].mask &&
			     !((address ^ plan.non_global[n].bits) & plan.non_global[n].mask);
	return forbidden;
}

/* The engine lowers the segment size that a SYN announces. */
static __always_inline bool must_clamp(const volatile struct service *service,
				       const struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;

	return service->flags & SERVICE_CLAMPS && packet->space == SPACE_TCP && packet->announces;
}

/* Where hosts inside ask for ports: crates/engine/src/pcp.rs, service/aftr.rs. */
static __always_inline bool is_asked_at(__u32 destination)
{
#pragma unroll
	for (int n = 0; n < PCP_ADDRESSES_MAX && plan.pcp4[n]; n++)
		if (plan.pcp4[n] == destination)
			return true;
	return false;
}

/* For the gateway itself, where no interface of the host has its addresses. */
static __always_inline bool is_own(const struct packet *packet)
{
	const __u64 *destination = packet->is_tunnelled ? packet->outer_destination :
							  packet->destination;

	if (packet->is_ipv4 && !packet->is_tunnelled)
		return (plan.own4 && packet->destination4 == plan.own4) ||
		       is_asked_at(packet->destination4);
	return (plan.own6[0] || plan.own6[1]) && destination[0] == plan.own6[0] &&
	       destination[1] == plan.own6[1];
}

#endif
