/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The border relays of MAP-E (RFC 7597) and MAP-T (RFC 7599):
 * crates/engine/src/service/map_e_br.rs, map_t_br.rs. Hairpins from one subscriber to another, and
 * ICMP errors, are the engine's.
 */
#ifndef TOMBOLO_MAP_BR_H
#define TOMBOLO_MAP_BR_H

#include "map_rule.h"
#include "nat64.h"
#include "softwire.h"

static __always_inline void to_host_order(const __u64 wire[2], __u64 address[2])
{
	address[0] = bpf_be64_to_cpu(wire[0]);
	address[1] = bpf_be64_to_cpu(wire[1]);
}

/* MAP-E, out of a softwire: the outer source must be the MAP address of who owns inner source and
 * port, or of a host of it where a prefix is assigned.
 */
static __always_inline struct outcome map_e_inside(const volatile struct service *service,
						   struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct map_rule *rule =
		map_rule_of(map_entry_of_ipv6(packet->outer_source[0], packet->outer_source[1]));
	struct map_share share;
	__u64 edge[2];
	__u32 host;

	if (!rule)
		return PASSED(MISS_NO_MAPPING);
	to_host_order(packet->outer_source, edge);
	if (!map_host_at(rule, edge, &share, &host) ||
	    !map_owns(rule, &share, bpf_ntohl(packet->source4), bpf_ntohs(packet->source_port)))
		return PASSED(MISS_SPOOFED);
	if (map_entry_of_ipv4(packet->destination4) != LPM_NONE)
		return PASSED(MISS_HAIRPIN);
	if (is_service_continuity(packet->destination4))
		return PASSED(MISS_SCREENED);
	return carry_out(service, scratch);
}

/* The address of the subscriber's host that has the destination and its port. `entry` is that of
 * the destination.
 */
static __always_inline bool map_destination(__u32 entry, const struct packet *packet,
					    bool is_translated, __u64 address[2])
{
	__u32 destination = bpf_ntohl(packet->destination4);
	__u16 port = bpf_ntohs(packet->destination_port);
	struct map_rule *rule = map_rule_with(entry, port);
	struct map_share share;
	__u64 found[2];

	if (!rule || !map_share_of(rule, destination, port, &share))
		return false;
	map_address(rule, &share, is_translated ? destination : share.ipv4, found);
	address[0] = bpf_cpu_to_be64(found[0]);
	address[1] = bpf_cpu_to_be64(found[1]);
	return true;
}

/* From outside only forged packets have a subscriber's source. */
static __always_inline bool is_forged(const struct packet *packet)
{
	return map_entry_of_ipv4(packet->source4) != LPM_NONE;
}

/* MAP-E, from outside. */
static __always_inline struct outcome map_e_outside(const volatile struct service *service,
						    struct scratch *scratch, __u32 entry)
{
	const struct packet *packet = &scratch->packet;
	__u64 remote[2];

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4))
		return PASSED(MISS_SCREENED);
	if (is_forged(packet))
		return PASSED(MISS_SPOOFED);
	if (!map_destination(entry, packet, false, remote))
		return PASSED(MISS_NO_MAPPING);
	return carry_in(service, scratch, remote);
}

/* MAP-T, from the domain. */
static __always_inline struct outcome map_t_inside(const volatile struct service *service,
						   struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	struct map_rule *rule;
	struct map_share share;
	__u64 source[2];
	__u32 host;
	__u8 miss;

	if (is_illegal_source_ipv6(packet->source))
		return PASSED(MISS_SCREENED);
	miss = untranslated(service, scratch);
	if (miss)
		return PASSED(miss);
	rule = map_rule_of(map_entry_of_ipv6(packet->source[0], packet->source[1]));
	if (!rule)
		return PASSED(MISS_NO_MAPPING);
	to_host_order(packet->source, source);
	if (!map_host_at(rule, source, &share, &host) ||
	    !map_owns(rule, &share, host, bpf_ntohs(packet->source_port)))
		return PASSED(MISS_SPOOFED);
	to->source4 = bpf_htonl(host);
	to->destination4 = extract(&service->prefix, packet->destination);
	if (is_illegal_ipv4(to->destination4) || is_forbidden(service, to->destination4))
		return PASSED(MISS_SCREENED);
	if (map_entry_of_ipv4(to->destination4) != LPM_NONE)
		return PASSED(MISS_HAIRPIN);
	if (!fit_to4(service, scratch))
		return PASSED(MISS_SIZE);
	become_ipv4(service, scratch, SIDE_INSIDE);
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	to->identification = next_identification(scratch, to->source4, to->destination4);
	return FORWARDED;
}

/* MAP-T, from outside. */
static __always_inline struct outcome map_t_outside(const volatile struct service *service,
						    struct scratch *scratch, __u32 entry)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	__u8 miss;

	if (is_illegal_ipv4(packet->source4) || is_illegal_ipv4(packet->destination4) ||
	    is_forbidden(service, packet->source4))
		return PASSED(MISS_SCREENED);
	miss = untranslated(service, scratch);
	if (miss)
		return PASSED(miss);
	if (is_forged(packet))
		return PASSED(MISS_SPOOFED);
	if (!fit_to6(service, scratch))
		return PASSED(MISS_SIZE);
	if (!map_destination(entry, packet, true, to->destination))
		return PASSED(MISS_NO_MAPPING);
	embed(&service->prefix, packet->source4, to->source);
	become_ipv6(service, scratch, SIDE_OUTSIDE);
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	return FORWARDED;
}

#endif
