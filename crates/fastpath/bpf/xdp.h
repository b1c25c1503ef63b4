/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Writes a translated packet into its frame, in XDP: one linear buffer with room in front. */
#ifndef TOMBOLO_XDP_H
#define TOMBOLO_XDP_H

#include "redirect.h"

/* The checksum field of the packet as it leaves. A datagram without checksum, which only IPv4 has,
 * stays without.
 */
static __always_inline __u16 final_checksum(const struct packet *packet, const struct rewrite *to)
{
	struct change change = change_of(packet, to);
	__u16 field;

	if (packet->space == SPACE_UDP && !packet->checksum)
		return 0;
	field = updated(packet->checksum, (__u64)change.pseudo + change.transport);
	return packet->space == SPACE_UDP && !field ? 0xffff : field;
}

/* Ports and checksum, where the transport header stands before the head moves. */
static __always_inline bool write_transport(void *transport, void *end,
					    const struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	struct tcphdr *tcp = transport;
	struct udphdr *udp = transport;
	struct echo *echo = transport;
	__u16 checksum = final_checksum(packet, to);

	if (packet->space == SPACE_TCP) {
		if ((void *)(tcp + 1) > end)
			return false;
		tcp->source = to->source_port;
		tcp->dest = to->destination_port;
		tcp->check = checksum;
		return true;
	}
	if ((void *)(udp + 1) > end)
		return false;
	if (packet->space == SPACE_UDP) {
		udp->source = to->source_port;
		udp->dest = to->destination_port;
		udp->check = checksum;
		return true;
	}
	echo->type = translated_icmp_type(packet, to->direction);
	echo->identifier = to->source_port;
	echo->checksum = checksum;
	return true;
}

/* Takes so many hops of what comes first in the frame. */
static __always_inline bool take_hops_xdp(void *first, void *end, const struct scratch *scratch,
					  __u8 hops)
{
	const struct packet *packet = &scratch->packet;

	if (packet->is_ipv4 && !packet->is_tunnelled) {
		struct iphdr *ip = first;
		__u16 before, after;

		if ((void *)(ip + 1) > end)
			return false;
		before = word_of(ip->ttl, ip->protocol);
		ip->ttl -= hops;
		after = word_of(ip->ttl, ip->protocol);
		ip->check = updated(ip->check, difference(before, after));
	} else {
		struct ipv6hdr *ip = first;

		if ((void *)(ip + 1) > end)
			return false;
		ip->hop_limit -= hops;
	}
	return true;
}

/* Writes a packet for another node of the cluster; false as `write_xdp`. */
static __always_inline bool redirect_xdp(struct xdp_md *ctx, const struct scratch *scratch,
					 const __u8 macs[12])
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	__u8 hops = to->redirected == BY_DESTINATION ? plan.hops_beside : plan.hops_beside / 2;
	struct ethhdr *ethernet;
	struct ipv6hdr *outer;
	void *data, *end;

	if (packet->padding && bpf_xdp_adjust_tail(ctx, -(int)packet->padding))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (packet->came_by != BY_HEADER) {
		if (!take_hops_xdp(data + ETH_HLEN, end, scratch, hops))
			return false;
		if (to->redirected == BY_HEADER &&
		    bpf_xdp_adjust_head(ctx, -(int)sizeof(struct ipv6hdr)))
			return false;
	}
	ethernet = data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	outer = data + ETH_HLEN;
	if ((void *)(outer + 1) > end)
		return false;
	if (to->redirected == BY_HEADER)
		write_redirecting(outer, scratch, 1);
	else
		__builtin_memcpy(&outer->daddr, to->outer_destination, 16);
	ethernet->h_proto = bpf_htons(ETH_P_IPV6);
	__builtin_memcpy(ethernet, macs, 12);
	return true;
}

/* Writes the packet; false if a bound that the verifier has to see does not hold. Once the head has
 * moved, the frame cannot be passed on any more: what fails then is lost.
 */
static __always_inline bool write_xdp(struct xdp_md *ctx, const struct scratch *scratch,
				      const __u8 macs[12])
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	bool swaps = swaps_headers(packet, to);
	__u8 hops = hops_taken(packet, to);
	struct ethhdr *ethernet;
	void *data, *end;

	if (is_redirected(to))
		return redirect_xdp(ctx, scratch, macs);
	if (came_in_header(packet) && !swaps && bpf_xdp_adjust_head(ctx, sizeof(struct ipv6hdr)))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (to->keeps_transport) {
		;
	} else if (packet->is_tunnelled || swaps) {
		if (!write_transport(data + ETH_HLEN + sizeof(struct ipv6hdr) +
					     sizeof(struct iphdr),
				     end, scratch))
			return false;
	} else if (packet->is_ipv4) {
		if (!write_transport(data + ETH_HLEN + sizeof(struct iphdr), end, scratch))
			return false;
	} else {
		if (!write_transport(data + ETH_HLEN + sizeof(struct ipv6hdr), end, scratch))
			return false;
	}
	if (packet->padding && bpf_xdp_adjust_tail(ctx, -(int)packet->padding))
		return false;
	if (to->direction == TO4 &&
	    bpf_xdp_adjust_head(ctx, sizeof(struct ipv6hdr) - sizeof(struct iphdr)))
		return false;
	if (to->direction == TO6 &&
	    bpf_xdp_adjust_head(ctx, (int)sizeof(struct iphdr) - (int)sizeof(struct ipv6hdr)))
		return false;
	if (packet->is_tunnelled && bpf_xdp_adjust_head(ctx, sizeof(struct ipv6hdr)))
		return false;
	if (to->encapsulate && !swaps && bpf_xdp_adjust_head(ctx, -(int)sizeof(struct ipv6hdr)))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	if (to->encapsulate) {
		struct ipv6hdr *outer = data + ETH_HLEN;
		struct iphdr *ip = (void *)(outer + 1);

		if ((void *)(ip + 1) > end)
			return false;
		write_outer(outer, to, 1);
		write_ipv4(ip, packet, to, hops);
		ethernet->h_proto = bpf_htons(ETH_P_IPV6);
	} else if (to->direction == TO6) {
		struct ipv6hdr *ip = data + ETH_HLEN;

		if ((void *)(ip + 1) > end)
			return false;
		write_ipv6(ip, packet, to, hops);
		ethernet->h_proto = bpf_htons(ETH_P_IPV6);
	} else {
		struct iphdr *ip = data + ETH_HLEN;

		if ((void *)(ip + 1) > end)
			return false;
		write_ipv4(ip, packet, to, hops);
		ethernet->h_proto = bpf_htons(ETH_P_IP);
	}
	__builtin_memcpy(ethernet, macs, 12);
	return true;
}

#endif
