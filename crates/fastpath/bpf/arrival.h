/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The packet in a frame, out of the header in which another node of the cluster has redirected it:
 * crates/engine/src/mechanism/redirect.rs.
 *
 * 	| IPv6: locator:: -> own locator::1 or ::2 | packet, which is parsed |
 * 	| IPv6: B4        -> own locator::a or ::b | rest of the softwire's packet |
 *
 * Where it came in, and so whether it may have come from a node, reverse_path.h says.
 */
#ifndef TOMBOLO_ARRIVAL_H
#define TOMBOLO_ARRIVAL_H

#include "ecn.h"
#include "parse.h"

/* Notes how an IPv6 packet comes from another node, if it does in a way that is known here. */
static __always_inline void note_redirection(struct packet *packet, const struct ipv6hdr *ip,
					     const void *end)
{
	__u64 source[2], destination[2];
	__u8 last;
	int node;

	if ((const void *)(ip + 1) > end || ip->version != 6 || ip->hop_limit <= 1)
		return;
	__builtin_memcpy(destination, &ip->daddr, 16);
	last = destination[1] >> 56;
	if (destination[0] != own_locator() || destination[1] << 8)
		return;
	if (ip->nexthdr == IPPROTO_IPIP && plan.cluster.takes_softwires &&
	    (last == 0xa || last == 0xb)) {
		packet->came_by = BY_DESTINATION;
		packet->hops = last - 9;
		return;
	}
	if ((ip->nexthdr != IPPROTO_IPIP && ip->nexthdr != IPPROTO_IPV6) ||
	    (last != 1 && last != 2))
		return;
	__builtin_memcpy(source, &ip->saddr, 16);
	node = source[1] ? -1 : node_at(source[0]);
	if (node < 0)
		return;
	packet->came_by = BY_HEADER;
	packet->hops = last;
	packet->node = node;
}

/* Makes of a packet that was parsed the one that it was before it was redirected; `outer_class` and `padding`
 * are those around it. False if it is not whole, or has to be dropped.
 */
static __always_inline bool take_out(struct packet *packet, __u8 outer_class, __u32 padding)
{
	__u8 *class = packet->is_tunnelled ? &packet->outer_class : &packet->traffic_class;
	int ecn = emerging_ecn(outer_class, *class);

	if (packet->padding || ecn < 0)
		return false;
	packet->padding = padding;
	packet->has_other_class = (*class & ECN) != ecn;
	*class = (*class & DSCP) | ecn;
	return true;
}

/* Parses the `available` bytes from the IP header on. */
static __always_inline bool parse_packet(struct packet *packet, const void *ip, const void *end,
					 __u32 available, bool is_ipv6)
{
	__u32 padding = 0;
	__u8 class = 0;

	if (has_slices()) {
		packet->came_by = NOT_REDIRECTED;
		packet->hops = 0;
		packet->has_other_class = false;
	}
	if (has_slices() && is_ipv6) {
		const struct ipv6hdr *outer = ip;

		note_redirection(packet, outer, end);
		if (packet->came_by == BY_HEADER) {
			__u32 room;

			/* For the verifier: it was asked before. */
			if ((const void *)(outer + 1) > end)
				return false;
			room = bpf_ntohs(outer->payload_len);
			if (sizeof(*outer) + room > available)
				return false;
			class = outer->priority << 4 | outer->flow_lbl[0] >> 4;
			padding = available - sizeof(*outer) - room;
			is_ipv6 = outer->nexthdr == IPPROTO_IPV6;
			available = room;
			ip = outer + 1;
		}
	}
	if (!(is_ipv6 ? parse_ipv6(packet, ip, end, available) :
			parse_ipv4(packet, ip, end, available)))
		return false;
	if (!has_slices() || !packet->came_by)
		return true;
	if (packet->came_by == BY_HEADER)
		return take_out(packet, class, padding);
	packet->outer_destination[0] = plan.cluster.softwire_end[0];
	packet->outer_destination[1] = plan.cluster.softwire_end[1];
	return true;
}

#endif
