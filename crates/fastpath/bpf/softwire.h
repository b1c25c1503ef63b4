/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the ends of softwires have in common, IPv4 inside IPv6 (RFC 2473):
 * crates/engine/src/mechanism/tunnel/softwire.rs.
 *
 * 	plain    --> nat44.h or nothing --> encapsulate
 * 	softwire --> decapsulate --> nat44.h or nothing --> plain
 *
 * What does not fit the softwire, fragments, ICMP errors and hairpins are the engine's.
 */
#ifndef TOMBOLO_SOFTWIRE_H
#define TOMBOLO_SOFTWIRE_H

#include "nat44.h"
#include "path_mtu.h"

static __always_inline bool is_address(const volatile __u64 one[2], const __u64 other[2])
{
	return one[0] == other[0] && one[1] == other[1];
}

/* 192.0.0.0/29, of which nothing goes on outside. The engine answers, as this end of the softwire or
 * with an ICMP error (RFC 6333 section 5.7).
 */
static __always_inline bool is_service_continuity(__u32 address)
{
	return (bpf_ntohl(address) & ~7U) == 0xc0000000;
}

/* TOS of a packet that leaves the softwire (RFC 6040 section 4.2); negative if it has to be
 * dropped.
 */
static __always_inline int inner_class(const volatile struct tunnel *tunnel,
				       const struct packet *packet)
{
	int ecn = emerging_ecn(packet->outer_class, packet->traffic_class);
	__u8 dscp = (tunnel->traffic_class < 0 ? packet->outer_class : packet->traffic_class) &
		    DSCP;

	return ecn < 0 ? ecn : dscp | ecn;
}

/* Puts the decided packet into the softwire to `first` and `second`, the halves of the other end's
 * address.
 */
static __always_inline void enter(const volatile struct service *service, struct rewrite *to,
				  __u64 first, __u64 second)
{
	const volatile struct tunnel *tunnel = &service->tunnel;
	__s16 class = tunnel->traffic_class;

	to->encapsulate = true;
	to->outer_class = class_of(class, to->traffic_class);
	to->outer_hop_limit = tunnel->hop_limit;
	to->outer_source[0] = tunnel->local[0];
	to->outer_source[1] = tunnel->local[1];
	to->outer_destination[0] = first;
	to->outer_destination[1] = second;
}

/* The packet as it is, for a service that only carries it. */
static __always_inline void keep_addresses(struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;

	to->source4 = packet->source4;
	to->destination4 = packet->destination4;
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	to->keeps_transport = true;
}

/* From outside into the softwire to `remote`, as it is but for a hop. */
static __always_inline struct outcome carry_in(const volatile struct service *service,
					       struct scratch *scratch, const __u64 remote[2])
{
	struct rewrite *to = &scratch->rewrite;

	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!keep_header(scratch, service->tunnel.mtu) ||
	    is_too_large_for_path(to, remote[0], remote[1]))
		return PASSED(MISS_SIZE);
	to->side = SIDE_OUTSIDE;
	keep_addresses(scratch);
	enter(service, to, remote[0], remote[1]);
	return FORWARDED;
}

/* From inside, out of its softwire, as it is but for a hop. It is not one that `inner_class` drops.
 */
static __always_inline struct outcome carry_out(const volatile struct service *service,
						struct scratch *scratch)
{
	struct rewrite *to = &scratch->rewrite;

	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	keep_header(scratch, 0xffff);
	to->traffic_class = inner_class(&service->tunnel, &scratch->packet);
	to->side = SIDE_INSIDE;
	keep_addresses(scratch);
	return FORWARDED;
}

#endif
