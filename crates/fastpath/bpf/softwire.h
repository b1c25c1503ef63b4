/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The ends of softwires, IPv4 inside IPv6 (RFC 2473): DS-Lite's B4 and AFTR, the lwB4, the
 * customer's edge of MAP-E. crates/engine/src/mechanism/softwire.rs, service/b4.rs, aftr.rs,
 * lwb4.rs, map_e_ce.rs.
 *
 * 	plain    --> nat44.h or nothing --> encapsulate
 * 	softwire --> decapsulate --> nat44.h or nothing --> plain
 *
 * What does not fit the softwire, fragments, errors, and packets that turn round are the engine's.
 */
#ifndef TOMBOLO_SOFTWIRE_H
#define TOMBOLO_SOFTWIRE_H

#include "nat44.h"

#define DSCP 0xfc
#define ECN 0x03
#define ECN_ECT_1 1
#define ECN_ECT_0 2
#define ECN_CE 3

static __always_inline bool is_address(const volatile __u64 one[2], const __u64 other[2])
{
	return one[0] == other[0] && one[1] == other[1];
}

static __always_inline bool is_softwire_end(__u8 kind)
{
	return kind == KIND_B4 || kind == KIND_AFTR || kind == KIND_LWB4 || kind == KIND_MAP_E_CE ||
	       kind == KIND_MAP_E_BR;
}

/* IPv6 packets to its address are the service's. */
static __always_inline bool tunnel_claims(const volatile struct service *service, const __u64 destination[2])
{
	return (is_softwire_end(service->kind) || service->kind == KIND_MAP_T_CE) &&
	       is_address(service->tunnel.local, destination);
}

/* TOS of a packet that leaves the softwire (RFC 6040 section 4.2); negative if it has to be
 * dropped.
 */
static __always_inline int inner_class(const volatile struct tunnel *tunnel, const struct packet *packet)
{
	__u8 ecn = packet->traffic_class & ECN, outer_ecn = packet->outer_class & ECN;
	__u8 dscp = (tunnel->traffic_class < 0 ? packet->outer_class : packet->traffic_class) & DSCP;

	if (outer_ecn == ECN_CE)
		return ecn ? dscp | ECN_CE : -1;
	if (ecn == ECN_ECT_0 && outer_ecn == ECN_ECT_1)
		ecn = ECN_ECT_1;
	return dscp | ecn;
}

/* Puts the decided packet into the softwire to `first` and `second`, the halves of the other end's
 * address.
 */
static __always_inline void enter(const volatile struct service *service, struct rewrite *to, __u64 first, __u64 second)
{
	const volatile struct tunnel *tunnel = &service->tunnel;
	__s16 class = tunnel->traffic_class;

	to->encapsulate = true;
	to->outer_class = class < 0 ? to->traffic_class : (class & DSCP) | (to->traffic_class & ECN);
	to->outer_hop_limit = tunnel->hop_limit;
	to->outer_source[0] = tunnel->local[0];
	to->outer_source[1] = tunnel->local[1];
	to->outer_destination[0] = first;
	to->outer_destination[1] = second;
}

/* The packet as it is, for a service that only carries it. */
static __always_inline void keep_addresses(const struct packet *packet, struct rewrite *to)
{
	to->source4 = packet->source4;
	to->destination4 = packet->destination4;
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	to->keeps_transport = true;
}

/* From outside into the softwire to `remote`, as it is but for a hop. */
static __always_inline struct outcome carry_in(const volatile struct service *service, const struct packet *packet,
					       __u32 gso_size, const __u64 remote[2], struct rewrite *to)
{
	if (must_clamp(service, packet))
		return PASSED(MISS_POLICY);
	if (!keep_header(packet, to, service->tunnel.mtu, gso_size))
		return PASSED(MISS_SIZE);
	to->side = OUTSIDE;
	keep_addresses(packet, to);
	enter(service, to, remote[0], remote[1]);
	return FORWARDED;
}

/* From inside, out of its softwire, as it is but for a hop. The caller has asked whether its class
 * may be told (`inner_class`).
 */
static __always_inline struct outcome carry_out(const volatile struct service *service, const struct packet *packet,
						__u32 gso_size, struct rewrite *to)
{
	if (must_clamp(service, packet))
		return PASSED(MISS_POLICY);
	keep_header(packet, to, 0xffff, gso_size);
	to->traffic_class = inner_class(&service->tunnel, packet);
	to->side = INSIDE;
	keep_addresses(packet, to);
	return FORWARDED;
}

/* RFC 6333 section 5: no translation, no state. A B4 carries as the provider's ends do, but for the
 * side.
 */
static __always_inline struct outcome b4_inside(const volatile struct service *service, const struct packet *packet,
						__u32 gso_size, struct rewrite *to)
{
	const __u64 aftr[2] = { service->tunnel.remote[0], service->tunnel.remote[1] };
	struct outcome outcome;

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	outcome = carry_in(service, packet, gso_size, aftr, to);
	to->side = INSIDE;
	return outcome;
}

static __always_inline struct outcome b4_outside(const volatile struct service *service, const struct packet *packet,
						 __u32 gso_size, struct rewrite *to)
{
	struct outcome outcome;

	if (!is_among(service->inside, service->inside_ranges, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_NOT_OURS);
	outcome = carry_out(service, packet, gso_size, to);
	to->side = OUTSIDE;
	return outcome;
}

static __always_inline bool is_b4(const volatile struct service *service, const __u64 address[2])
{
#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->b4_networks; n++) {
		const volatile struct network *network = &service->b4s[n];

		if (!((address[0] ^ network->bits[0]) & network->mask[0]) &&
		    !((address[1] ^ network->bits[1]) & network->mask[1]))
			return true;
	}
	return false;
}

/* RFC 6333 section 8: a NAT44 whose subscribers come through softwires. */
static __always_inline struct outcome aftr_inside(const volatile struct service *service, __u8 number,
						  const struct packet *packet, __u32 gso_size,
						  struct scratch *scratch, struct rewrite *to)
{
	if (!is_among(service->inside, service->inside_ranges, bpf_ntohl(packet->source4)))
		return PASSED(MISS_SCREENED);
	if (must_clamp(service, packet))
		return PASSED(MISS_POLICY);
	if (!keep_header(packet, to, service->outside_mtu, gso_size))
		return PASSED(MISS_SIZE);
	to->traffic_class = inner_class(&service->tunnel, packet);
	return leave(service, number, packet, packet->outer_source, scratch, to);
}

static __always_inline struct outcome aftr_outside(const volatile struct service *service, __u8 number,
						   const volatile struct pool_range *range,
						   const struct packet *packet, __u32 gso_size,
						   struct scratch *scratch, struct rewrite *to)
{
	struct outcome outcome;
	__u64 softwire[2];

	if (must_clamp(service, packet))
		return PASSED(MISS_POLICY);
	if (!keep_header(packet, to, service->tunnel.mtu, gso_size))
		return PASSED(MISS_SIZE);
	outcome = come_in(service, number, range, packet, softwire, scratch, to);
	if (outcome.verdict == FORWARD)
		enter(service, to, softwire[0], softwire[1]);
	return outcome;
}

/* The lwB4 and the customer's edge of MAP-E: a NAT44 in front of one softwire. */
static __always_inline struct outcome edge_inside(const volatile struct service *service, __u8 number,
						  const struct packet *packet, __u32 gso_size,
						  struct scratch *scratch, struct rewrite *to)
{
	const __u64 none[2] = { 0, 0 };
	struct outcome outcome;

	if (is_among(service->mesh, service->mesh_ranges, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_HAIRPIN);
	if (must_clamp(service, packet))
		return PASSED(MISS_POLICY);
	if (!keep_header(packet, to, service->tunnel.mtu, gso_size))
		return PASSED(MISS_SIZE);
	outcome = leave(service, number, packet, none, scratch, to);
	if (outcome.verdict == FORWARD)
		enter(service, to, service->tunnel.remote[0], service->tunnel.remote[1]);
	return outcome;
}

static __always_inline struct outcome edge_outside(const volatile struct service *service, __u8 number,
						   const struct packet *packet, __u32 gso_size,
						   struct scratch *scratch, struct rewrite *to)
{
	const volatile struct pool_range *range = pool_range_of(service, bpf_ntohl(packet->destination4));

	if (!range)
		return PASSED(MISS_NOT_OURS);
	if (must_clamp(service, packet))
		return PASSED(MISS_POLICY);
	if (!keep_header(packet, to, service->inside_mtu, gso_size))
		return PASSED(MISS_SIZE);
	to->traffic_class = inner_class(&service->tunnel, packet);
	return come_in(service, number, range, packet, 0, scratch, to);
}

/* A packet that came in a softwire to `service`, with legal addresses and a class that may be told.
 */
static __always_inline struct outcome out_of_softwire(const volatile struct service *service, __u8 number,
						      const struct packet *packet, __u32 gso_size,
						      struct scratch *scratch, struct rewrite *to)
{
	if (service->kind == KIND_AFTR) {
		if (!is_b4(service, packet->outer_source))
			return PASSED(MISS_SCREENED);
		return aftr_inside(service, number, packet, gso_size, scratch, to);
	}
	if (!is_address(service->tunnel.remote, packet->outer_source))
		return PASSED(MISS_SCREENED);
	if (service->kind == KIND_B4)
		return b4_outside(service, packet, gso_size, to);
	return edge_outside(service, number, packet, gso_size, scratch, to);
}

#endif
