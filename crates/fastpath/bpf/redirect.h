/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Packets that another node of the cluster serves: crates/engine/src/mechanism/redirect.rs.
 *
 * 	as it came		--> | IPv6: own locator:: -> locator::1 | packet |
 * 	in a header, ::1	--> | IPv6: own locator:: -> locator::2 | packet |
 * 	of a softwire		--> | IPv6: B4 -> locator::a            | rest   |
 * 	of a softwire, ::a	--> | IPv6: B4 -> locator::b            | rest   |
 *
 * xdp.h and tc.h write it. On the engine's way the kernel takes a hop where a packet goes to the TUN device,
 * and one where it comes out of it: of a packet that gets a header, the first from its own, the other from that
 * header. Of what has a header already both take theirs.
 */
#ifndef TOMBOLO_REDIRECT_H
#define TOMBOLO_REDIRECT_H

#include "cluster.h"
#include "translate.h"

#define REDIRECT_HOP_LIMIT 64
#define FLOW_LABEL 0xfffffULL

/* Words of an address in the processor's byte order. */
static __always_inline __u64 flow_of_addresses(__u64 a, __u64 b, __u64 c, __u64 d, __u32 ports)
{
	__u64 source = hash_by(&plan.cluster.flow_key, a, b, ports);

	return hash_by(&plan.cluster.flow_key, c, d, source);
}

/* The flow label of a packet in a header more (RFC 6438), by its flow. */
static __always_inline __u32 flow_label_of(const struct packet *packet)
{
	__u32 ports = (__u32)bpf_ntohs(packet->source_port) << 16 |
		      bpf_ntohs(packet->destination_port);
	const __u64 *source = packet->source, *destination = packet->destination;
	__u64 flow;

	if (packet->is_tunnelled) {
		source = packet->outer_source;
		destination = packet->outer_destination;
		ports = 0;
	} else if (packet->is_ipv4) {
		flow = flow_of_addresses(0, bpf_ntohl(packet->source4), 0,
					 bpf_ntohl(packet->destination4), ports);
		return flow >> 32 & FLOW_LABEL;
	}
	flow = flow_of_addresses(bpf_be64_to_cpu(source[0]), bpf_be64_to_cpu(source[1]),
				 bpf_be64_to_cpu(destination[0]), bpf_be64_to_cpu(destination[1]),
				 ports);
	return flow >> 32 & FLOW_LABEL;
}

/* Whether a packet goes to the one end of subscribers' softwires, and so to the same at another node by another
 * destination.
 */
static __always_inline bool goes_by_destination(const struct packet *packet)
{
	return packet->is_tunnelled && plan.cluster.takes_softwires &&
	       packet->outer_destination[0] == plan.cluster.softwire_end[0] &&
	       packet->outer_destination[1] == plan.cluster.softwire_end[1];
}

/* Addresses and sizes of a packet that is sent as it is. */
static __always_inline void keep_whole(struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	__u32 header = packet->is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	to->direction = packet->is_ipv4 ? SAME4 : TO6;
	to->keeps_transport = true;
	to->source_port = packet->source_port;
	to->destination_port = packet->destination_port;
	to->source[0] = packet->source[0];
	to->source[1] = packet->source[1];
	to->destination[0] = packet->destination[0];
	to->destination[1] = packet->destination[1];
	to->length = packet->length;
	to->size_on_wire = size_on_wire(packet, header);
}

/* Sends a packet that came from `side` to another node, to the place in the slices' table. */
static __always_inline struct outcome redirect(struct scratch *scratch, __u32 place, __u8 side)
{
	const struct packet *packet = &scratch->packet;
	struct rewrite *to = &scratch->rewrite;
	__u32 node = place - PLACE_NODES;

	if (place == PLACE_NOWHERE || node >= plan.cluster.nodes || packet->hops >= MOST_HOPS)
		return PASSED(MISS_SLICE);
	keep_whole(scratch);
	to->side = side;
	to->node = node;
	to->encapsulate = true;
	if (goes_by_destination(packet)) {
		if (packet->came_by == BY_HEADER)
			return PASSED(MISS_SLICE);
		if (packet->outer_hop_limit <= plan.hops_beside)
			return PASSED(MISS_HOP_LIMIT);
		to->redirected = BY_DESTINATION;
	} else {
		/* Its own header would have to be written as well. */
		if (packet->has_other_class)
			return PASSED(MISS_SLICE);
		to->redirected = BY_HEADER;
		to->flow_label = flow_label_of(packet);
		if (packet->is_tunnelled) {
			to->length += sizeof(struct ipv6hdr);
			to->size_on_wire += sizeof(struct ipv6hdr);
		}
	}
	to->outer_source[0] = own_locator();
	to->outer_source[1] = 0;
	to->outer_destination[0] = plan.cluster.locators[node % NODES_MAX];
	to->outer_destination[1] = place_in_locator(to->redirected, packet->hops + 1);
	return FORWARDED;
}

static __always_inline bool is_redirected(const struct rewrite *to)
{
	return has_slices() && to->redirected;
}

/* The header in which a packet goes to another node. */
static __always_inline void write_redirecting(struct ipv6hdr *ip, const struct scratch *scratch,
					      __u8 hops)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	__u8 class = packet->is_tunnelled ? packet->outer_class : packet->traffic_class;

	*(__be32 *)ip = bpf_htonl(0x60000000U | (__u32) class << 20 | to->flow_label);
	ip->payload_len = bpf_htons(to->length);
	ip->nexthdr = packet->is_ipv4 && !packet->is_tunnelled ? IPPROTO_IPIP : IPPROTO_IPV6;
	ip->hop_limit = REDIRECT_HOP_LIMIT - hops;
	__builtin_memcpy(&ip->saddr, to->outer_source, 16);
	__builtin_memcpy(&ip->daddr, to->outer_destination, 16);
}

#endif
