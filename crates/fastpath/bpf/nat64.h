/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Stateful NAT64 (RFC 6146): crates/engine/src/service/nat64.rs. Hairpins are the engine's. */
#ifndef TOMBOLO_NAT64_H
#define TOMBOLO_NAT64_H

#include "napt.h"
#include "rfc6052.h"
#include "screen.h"
#include "translate.h"

/* Why the transport of a packet is not translated here; 0 if it is. */
static __always_inline __u8 untranslated(const volatile struct service *service,
					 const struct scratch *scratch)
{
	if (scratch->packet.space == SPACE_UDP && !scratch->packet.checksum)
		return MISS_UDP_CHECKSUM;
	return must_clamp(service, scratch) ? MISS_POLICY : 0;
}

/* IPv4's half of a translation: sizes (RFC 7915 section 5.1.1), DF and identification (section 5.1,
 * RFC 8021). A packet that does not fit is fragmented or refused by the engine.
 */
static __always_inline bool fit_to4(const volatile struct service *service, struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	__u32 size = size_on_wire(packet, sizeof(struct iphdr));

	to->length = packet->length - sizeof(struct ipv6hdr) + sizeof(struct iphdr);
	to->size_on_wire = size;
	to->fragment_word = size <= LARGEST_WITHOUT_DF ? 0 : IPV4_DF;
	return size <= service->outside_mtu && to->length <= 0xffff;
}

static __always_inline bool fit_to6(const volatile struct service *service, struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	__u32 mtu = service->inside_mtu, limit = mtu < IPV6_MINIMUM_MTU ? IPV6_MINIMUM_MTU : mtu;
	__u32 size = size_on_wire(packet, sizeof(struct ipv6hdr));

	if (!(packet->fragment_word & IPV4_DF) && limit > service->lowest_ipv6_mtu)
		limit = service->lowest_ipv6_mtu;
	to->length = packet->length - sizeof(struct iphdr) + sizeof(struct ipv6hdr);
	to->size_on_wire = size;
	return size <= limit;
}

/* The other family's header, for a packet that came from `side`. */
static __always_inline void become_ipv4(const volatile struct service *service,
					struct scratch *scratch, __u8 side)
{
	struct rewrite *to = &scratch->rewrite;

	to->direction = TO4;
	to->side = side;
	to->traffic_class = class_of(service->traffic_class_6to4, scratch->packet.traffic_class);
}

static __always_inline void become_ipv6(const volatile struct service *service,
					struct scratch *scratch, __u8 side)
{
	struct rewrite *to = &scratch->rewrite;

	to->direction = TO6;
	to->side = side;
	to->traffic_class = class_of(service->traffic_class_4to6, scratch->packet.traffic_class);
}

/* Whether an address lies in a prefix of any service: what comes from there has come round, or the
 * engine knows better (RFC 6146 section 3.5).
 */
static __always_inline bool is_in_any_prefix(const __u64 address[2])
{
#pragma nounroll
	for (__u32 n = 0; n < SERVICES_MAX && plan.prefixes[n].present; n++)
		if (is_in_prefix(&plan.prefixes[n], address))
			return true;
	return false;
}

static __always_inline struct outcome nat64_inside(const volatile struct service *service,
						   struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	__u32 remote = extract(&service->prefix, packet->destination);
	struct inside_key key = {
		.address = { packet->source[0], packet->source[1] },
		.port = packet->source_port,
		.protocol = protocol_of(packet->space),
		.service = service->number,
		.place = service->place,
	};
	struct outcome outcome;
	struct bound bound;
	__u8 miss;

	if (is_in_any_prefix(packet->source) || is_illegal_source_ipv6(packet->source) ||
	    is_illegal_ipv4(remote) || is_forbidden(service, remote))
		return PASSED(MISS_SCREENED);
	miss = untranslated(service, scratch);
	if (miss)
		return PASSED(miss);
	if (pool_range_of(service, bpf_ntohl(remote)))
		return PASSED(MISS_HAIRPIN);
	if (!fit_to4(service, scratch))
		return PASSED(MISS_SIZE);
	outcome = outbound(service, scratch, &key, remote, &bound);
	if (outcome.verdict != FORWARD)
		return outcome;
	become_ipv4(service, scratch, SIDE_INSIDE);
	to->source4 = READ(bound.record->outside4);
	to->destination4 = remote;
	to->source_port = READ(bound.record->outside_port);
	to->destination_port = packet->destination_port;
	if (!is_still_bound(&bound))
		return PASSED(MISS_RACE);
	to->identification = next_identification(scratch, to->source4, to->destination4);
	return FORWARDED;
}

static __always_inline struct outcome nat64_outside(const volatile struct service *service,
						    struct scratch *scratch,
						    const volatile struct pool_range *range)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	const struct arrival arrival = { range, packet->destination4, packet->source4 };
	struct outcome outcome;
	struct host host;
	__u8 miss;

	if (is_illegal_ipv4(packet->source4) || is_forbidden(service, packet->source4))
		return PASSED(MISS_SCREENED);
	miss = untranslated(service, scratch);
	if (miss)
		return PASSED(miss);
	if (!fit_to6(service, scratch))
		return PASSED(MISS_SIZE);
	outcome = inbound(service, scratch, &arrival, &host);
	if (outcome.verdict != FORWARD)
		return outcome;
	become_ipv6(service, scratch, SIDE_OUTSIDE);
	embed(&service->prefix, packet->source4, to->source);
	to->destination[0] = host.address[0];
	to->destination[1] = host.address[1];
	take_inside_port(scratch, &host);
	return FORWARDED;
}

#endif
