/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What becomes of a packet (crates/engine/src/engine.rs): its service's code decides. */
#ifndef TOMBOLO_DISPATCH_H
#define TOMBOLO_DISPATCH_H

#include "aftr.h"
#include "b4.h"
#include "classify.h"
#include "edge.h"
#include "lwaftr.h"
#include "map_br.h"
#include "map_t_ce.h"
#include "nat44.h"
#include "nat64.h"
#include "redirect.h"
#include "reverse_path.h"
#include "siit.h"
#include "slice.h"

#define not_ours(...) PASSED(MISS_NOT_OURS)

/* Each service's code, by the packets that it takes. What comes from outside has one more argument
 * where the service claims it by pool or rule.
 */
// clang-format off
#define SERVICES(X) \
	/*          IPv6              in a softwire  from inside      IPv4 from outside */ \
	X(NAT64,    nat64_inside,     not_ours,      not_ours,        nat64_outside, claim->range) \
	X(NAT44,    not_ours,         not_ours,      nat44_inside,    nat44_outside, claim->range) \
	X(SIIT,     siit_from_ipv6,   not_ours,      not_ours,        siit_from_ipv4) \
	X(B4,       not_ours,         b4_outside,    b4_inside,       not_ours) \
	X(AFTR,     not_ours,         aftr_inside,   not_ours,        aftr_outside, claim->range) \
	X(EDGE,     not_ours,         edge_outside,  edge_inside,     not_ours) \
	X(LWAFTR,   not_ours,         lwaftr_inside, not_ours,        lwaftr_outside) \
	X(MAP_E_BR, not_ours,         map_e_inside,  not_ours,        map_e_outside, claim->rule) \
	X(MAP_T_BR, map_t_inside,     not_ours,      not_ours,        map_t_outside, claim->rule) \
	X(MAP_T_CE, map_t_ce_outside, not_ours,      map_t_ce_inside, not_ours)
// clang-format on

#define IPV6(kind, ipv6, tunnelled, inside, outside, ...) \
	case KIND_##kind:                                 \
		return ipv6(service, scratch);
#define TUNNELLED(kind, ipv6, tunnelled, inside, outside, ...) \
	case KIND_##kind:                                      \
		return tunnelled(service, scratch);
#define IPV4_INSIDE(kind, ipv6, tunnelled, inside, outside, ...) \
	case KIND_##kind:                                        \
		return inside(service, scratch);
#define IPV4_OUTSIDE(kind, ipv6, tunnelled, inside, outside, ...) \
	case KIND_##kind:                                         \
		return outside(service, scratch, ##__VA_ARGS__);

/* Whether it came from another node, which has seen where it came in. */
static __always_inline bool came_from_node(const struct packet *packet)
{
	return has_slices() && packet->came_by;
}

static __always_inline struct outcome process_ipv6(void *ctx, const struct interface *interface,
						   struct scratch *scratch)
{
	__u8 number = service_of_ipv6(scratch->packet.destination);
	const volatile struct service *service = service_at(number);
	__u32 place;

	if (number == NO_SERVICE)
		return PASSED(MISS_NOT_OURS);
	if (!(service->flags & SERVICE_AT_CUSTOMER) && !came_from_node(&scratch->packet) &&
	    !is_inside(ctx, interface, service, &scratch->packet))
		return PASSED(MISS_REVERSE_PATH);
	scratch->rewrite.service = service->number;
	place = place_of_host(service, scratch->packet.source, 0);
	if (place != PLACE_HERE) {
		/* What has come round is the engine's to drop, at any node. */
		if (is_in_any_prefix(scratch->packet.source))
			return PASSED(MISS_SCREENED);
		return redirect(scratch, place, SIDE_INSIDE);
	}
	switch (service->kind) {
		SERVICES(IPV6)
	default:
		return PASSED(MISS_NOT_OURS);
	}
}

static __always_inline struct outcome
process_tunnelled(void *ctx, const struct interface *interface, struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	__u8 number = service_of_ipv6(packet->outer_destination);
	const volatile struct service *service = service_at(number);
	__u32 place;

	if (number == NO_SERVICE || !(service->flags & SERVICE_ENDS_SOFTWIRES))
		return PASSED(MISS_NOT_OURS);
	if (!(service->flags & SERVICE_AT_CUSTOMER) && !came_from_node(packet) &&
	    !is_inside(ctx, interface, service, packet))
		return PASSED(MISS_REVERSE_PATH);
	scratch->rewrite.service = service->number;
	place = place_of_host(service, packet->outer_source, 0);
	if (place != PLACE_HERE)
		return redirect(scratch, place, SIDE_INSIDE);
	if (inner_class(&service->tunnel, packet) < 0)
		return PASSED(MISS_SCREENED);
	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	switch (service->kind) {
		SERVICES(TUNNELLED)
	default:
		return PASSED(MISS_NOT_OURS);
	}
}

static __always_inline struct outcome process_ipv4_inside(const volatile struct service *service,
							  struct scratch *scratch)
{
	const __u64 none[2] = { 0, 0 };
	__u32 place = place_of_host(service, none, scratch->packet.source4);

	scratch->rewrite.service = service->number;
	if (place != PLACE_HERE)
		return redirect(scratch, place, SIDE_INSIDE);
	switch (service->kind) {
		SERVICES(IPV4_INSIDE)
	default:
		return PASSED(MISS_NOT_OURS);
	}
}

static __always_inline struct outcome process_ipv4_outside(const volatile struct service *service,
							   struct scratch *scratch,
							   const struct claim *claim)
{
	__u32 place = place_of_address(service, scratch->packet.destination4);

	scratch->rewrite.service = service->number;
	if (place != PLACE_HERE)
		return redirect(scratch, place, SIDE_OUTSIDE);
	switch (service->kind) {
		SERVICES(IPV4_OUTSIDE)
	default:
		return PASSED(MISS_NOT_OURS);
	}
}

static __always_inline struct outcome process_ipv4(void *ctx, const struct interface *interface,
						   struct scratch *scratch)
{
	__u32 source = scratch->packet.source4, destination = scratch->packet.destination4;
	__u8 number = service_of_ipv4_source(source, destination);
	struct claim claim = { .rule = LPM_NONE };

	if (number != NO_SERVICE) {
		if (!came_from_node(&scratch->packet) &&
		    !is_inside(ctx, interface, service_at(number), &scratch->packet))
			return PASSED(MISS_REVERSE_PATH);
		return process_ipv4_inside(service_at(number), scratch);
	}
	number = service_of_ipv4(destination, &claim);
	if (number == NO_SERVICE)
		return PASSED(MISS_NOT_OURS);
	if (service_at(number)->flags & SERVICE_AT_CUSTOMER &&
	    !is_inside(ctx, interface, service_at(number), &scratch->packet))
		return PASSED(MISS_REVERSE_PATH);
	return process_ipv4_outside(service_at(number), scratch, &claim);
}

/* Decides about the packet in `scratch`, which came in through `interface`, and moves its session
 * on. The decision is in `rewrite`. `ctx` is that of XDP or of TC.
 */
static __always_inline struct outcome process(void *ctx, const struct interface *interface,
					      struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;

	scratch->rewrite.keeps_transport = false;
	scratch->rewrite.encapsulate = false;
	if (packet->hop_limit <= hops_of(packet->is_tunnelled || came_in_header(packet)))
		return PASSED(MISS_HOP_LIMIT);
	if (has_slices()) {
		scratch->rewrite.redirected = NOT_REDIRECTED;
		if (packet->came_by && !is_from_core(ctx, interface, packet))
			return PASSED(MISS_REVERSE_PATH);
	}
	if (is_own(packet))
		return PASSED(MISS_NOT_OURS);
	if (packet->is_tunnelled)
		return process_tunnelled(ctx, interface, scratch);
	return packet->is_ipv4 ? process_ipv4(ctx, interface, scratch) :
				 process_ipv6(ctx, interface, scratch);
}

#endif
