/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Stateful NAT44 (RFC 4787, RFC 5382, RFC 5508): crates/engine/src/service/nat44.rs,
 * mechanism/readdress.rs. Hairpins are the engine's.
 */
#ifndef TOMBOLO_NAT44_H
#define TOMBOLO_NAT44_H

#include "napt.h"
#include "screen.h"
#include "translate.h"

/* Addresses and TTL change, and nothing else of the header. Outbound packets that may be fragmented
 * get a new identification as well, since hosts that share the new source would use the same ones
 * (RFC 6864 section 5.3.1).
 */
static __always_inline bool keep_header(struct scratch *scratch, __u32 mtu)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;

	to->direction = SAME4;
	to->traffic_class = packet->traffic_class;
	to->identification = packet->identification;
	to->fragment_word = packet->fragment_word;
	to->length = packet->length;
	to->size_on_wire = size_on_wire(packet, sizeof(struct iphdr));
	return to->size_on_wire <= mtu;
}

/* A packet from inside gets its outside source. `softwire` is the one that it came in; zeros if it
 * came in none.
 */
static __always_inline struct outcome leave(const volatile struct service *service,
					    struct scratch *scratch, const __u64 softwire[2])
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	struct inside_key key = {
		.address = { softwire[0], softwire[1] },
		.address4 = packet->source4,
		.port = packet->source_port,
		.protocol = protocol_of(packet->space),
		.service = service->number,
		.place = service->place,
	};
	struct outcome outcome;
	struct bound bound;

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	if (pool_range_of(service, bpf_ntohl(packet->destination4)))
		return PASSED(MISS_HAIRPIN);
	outcome = outbound(service, scratch, &key, packet->destination4, &bound);
	if (outcome.verdict != FORWARD)
		return outcome;
	to->side = SIDE_INSIDE;
	to->source4 = READ(bound.record->outside4);
	to->destination4 = packet->destination4;
	to->source_port = READ(bound.record->outside_port);
	to->destination_port = packet->destination_port;
	if (!is_still_bound(&bound))
		return PASSED(MISS_RACE);
	if (!(packet->fragment_word & IPV4_DF))
		to->identification = next_identification(scratch, to->source4, to->destination4);
	return FORWARDED;
}

/* A packet from outside, for `range` of the pool, gets its inside destination, and `softwire` the
 * softwire that leads there, unless it is 0.
 */
static __always_inline struct outcome come_in(const volatile struct service *service,
					      struct scratch *scratch,
					      const volatile struct pool_range *range,
					      __u64 *softwire)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	const struct arrival arrival = { range, packet->destination4, packet->source4 };
	struct outcome outcome;
	struct host host;

	if (is_illegal_ipv4(packet->source4))
		return PASSED(MISS_SCREENED);
	outcome = inbound(service, scratch, &arrival, &host);
	if (outcome.verdict != FORWARD)
		return outcome;
	to->side = SIDE_OUTSIDE;
	to->source4 = packet->source4;
	to->destination4 = host.address4;
	take_inside_port(scratch, &host);
	if (softwire) {
		softwire[0] = host.address[0];
		softwire[1] = host.address[1];
	}
	return FORWARDED;
}

/* Whether a packet from inside keeps its address because of its destination's port
 * (crates/engine/src/mapping/exemptions.rs).
 */
static __always_inline bool is_exempt(const volatile struct service *service,
				      const struct packet *packet)
{
	__u32 address = bpf_ntohl(packet->destination4);
	__u16 port = bpf_ntohs(packet->destination_port);

#pragma nounroll
	for (__u32 n = 0; n < RANGES_MAX && n < service->exemptions; n++) {
		const volatile struct exempt *exempt = &service->exempt[n];

		if (exempt->spaces >> (packet->space & 3) & 1 &&
		    address >= exempt->addresses.first && address <= exempt->addresses.last &&
		    port >= exempt->ports.first && port <= exempt->ports.last)
			return true;
	}
	return false;
}

static __always_inline struct outcome nat44_inside(const volatile struct service *service,
						   struct scratch *scratch)
{
	const __u64 none[2] = { 0, 0 };

	if (service->exemptions && is_exempt(service, &scratch->packet))
		return PASSED(MISS_POLICY);
	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!keep_header(scratch, service->outside_mtu))
		return PASSED(MISS_SIZE);
	return leave(service, scratch, none);
}

static __always_inline struct outcome nat44_outside(const volatile struct service *service,
						    struct scratch *scratch,
						    const volatile struct pool_range *range)
{
	if (must_clamp(service, scratch))
		return PASSED(MISS_POLICY);
	if (!keep_header(scratch, service->inside_mtu))
		return PASSED(MISS_SIZE);
	return come_in(service, scratch, range, 0);
}

#endif
