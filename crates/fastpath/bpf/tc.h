/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Writes a translated packet into its socket buffer, in TC. A super-packet is translated whole and
 * keeps its segmentation (bpf_skb_change_proto). Then it is sent to its neighbour; or, where the
 * next hop is not certain, the kernel's stack routes it: neighbours, MTU and the decrement of the
 * hop limit are its business. Where the stack would not take it, nothing is written: the engine
 * has it.
 */
#ifndef TOMBOLO_TC_H
#define TOMBOLO_TC_H

#include "next_hop.h"
#include "redirect.h"

static __always_inline __u32 checksum_offset(__u8 space)
{
	return space == SPACE_TCP ? TCP_CHECKSUM :
	       space == SPACE_UDP ? UDP_CHECKSUM :
				    ICMP_CHECKSUM;
}

/* Brings checksum and ports in line. The kernel knows whether the checksum is complete or was left
 * to the card.
 */
static __always_inline bool store_transport(struct __sk_buff *skb, __u32 at,
					    const struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	struct change change = change_of(packet, to);
	__u32 field = at + checksum_offset(packet->space);
	__u64 mangled = packet->space == SPACE_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u16 ports[2] = { to->source_port, to->destination_port };
	__u8 type = translated_icmp_type(packet, to->direction);

	if (packet->space == SPACE_ICMP)
		return !bpf_l4_csum_replace(skb, field, 0, change.transport, 0) &&
		       !bpf_skb_store_bytes(skb, at, &type, 1, 0) &&
		       !bpf_skb_store_bytes(skb, at + ICMP_IDENTIFIER, &to->source_port, 2, 0);
	return !bpf_l4_csum_replace(skb, field, 0, change.pseudo, BPF_F_PSEUDO_HDR | mangled) &&
	       !bpf_l4_csum_replace(skb, field, 0, change.transport, mangled) &&
	       !bpf_skb_store_bytes(skb, at, ports, sizeof(ports), 0);
}

/* BPF_F_ADJ_ROOM_DECAP_L3_IPV4, which Linux has since 6.3 and its headers in Debian 12 have not.
 * Without it softwires end in the engine.
 */
#define DECAPSULATE_TO_IPV4 (1ULL << 7)

/* Takes off the header of a softwire, that in which another node has redirected the packet, or both; or makes
 * room for one. A super-packet keeps its segments: they were found to fit.
 */
static __always_inline bool decapsulate(struct __sk_buff *skb, const struct packet *packet)
{
	int headers = packet->is_tunnelled && came_in_header(packet) ? 2 : 1;
	__u64 to_ipv4 = packet->is_ipv4 ? DECAPSULATE_TO_IPV4 : 0;

	return !bpf_skb_adjust_room(skb, -headers * (int)sizeof(struct ipv6hdr), BPF_ADJ_ROOM_MAC,
				    BPF_F_ADJ_ROOM_FIXED_GSO | to_ipv4);
}

static __always_inline bool encapsulate(struct __sk_buff *skb)
{
	return !bpf_skb_adjust_room(skb, sizeof(struct ipv6hdr), BPF_ADJ_ROOM_MAC,
				    BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
}

/* The addresses of the link, and what is behind them. Without a next hop the former are left to the stack. */
static __always_inline bool store_link(struct __sk_buff *skb, bool is_ipv6,
				       const struct next_hop *hop)
{
	struct ethhdr ethernet = { .h_proto = is_ipv6 ? bpf_htons(ETH_P_IPV6) :
							bpf_htons(ETH_P_IP) };

	if (!hop)
		return !bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto),
					    &ethernet.h_proto, sizeof(__be16), 0);
	__builtin_memcpy(&ethernet, hop->macs, sizeof(hop->macs));
	return !bpf_skb_store_bytes(skb, 0, &ethernet, sizeof(ethernet), 0);
}

/* The IP header at `at`, complete, and whatever stands in front of it. Without a next hop, the last
 * decrement of the first IP header and the addresses of the link are left to the stack.
 */
static __always_inline bool store_headers(struct __sk_buff *skb, __u32 at,
					  const struct scratch *scratch, const struct next_hop *hop)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	bool is_ipv6 = to->direction == TO6 || to->encapsulate;
	__u8 of_stack = hop ? 0 : 1;
	__u8 hops = hops_taken(packet, to) - (to->encapsulate ? 0 : of_stack);

	if (to->direction == TO6) {
		struct ipv6hdr ip;

		write_ipv6(&ip, packet, to, hops);
		if (bpf_skb_store_bytes(skb, at, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM))
			return false;
	} else {
		struct iphdr ip;

		write_ipv4(&ip, packet, to, hops);
		if (bpf_skb_store_bytes(skb, at, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM))
			return false;
	}
	if (to->encapsulate) {
		struct ipv6hdr outer;

		write_outer(&outer, to, 1 - of_stack);
		if (bpf_skb_store_bytes(skb, ETH_HLEN, &outer, sizeof(outer), BPF_F_RECOMPUTE_CSUM))
			return false;
	}
	return store_link(skb, is_ipv6, hop);
}

/* Takes hops of the packet at `at`, which is sent to another node as it is. */
static __always_inline bool take_hops_skb(struct __sk_buff *skb, __u32 at,
					  const struct scratch *scratch, __u8 hops)
{
	const struct packet *packet = &scratch->packet;
	__u8 limit = (packet->is_tunnelled ? packet->outer_hop_limit : packet->hop_limit) - hops;
	__u32 field = at + offsetof(struct ipv6hdr, hop_limit);

	if (!hops)
		return true;
	if (packet->is_ipv4 && !packet->is_tunnelled) {
		__u8 protocol = protocol_of(packet->space);

		field = at + offsetof(struct iphdr, ttl);
		if (bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check),
					word_of(packet->hop_limit, protocol),
					word_of(limit, protocol), sizeof(__be16)))
			return false;
		/* The sum over the header is the same again. */
		return !bpf_skb_store_bytes(skb, field, &limit, 1, 0);
	}
	return !bpf_skb_store_bytes(skb, field, &limit, 1, BPF_F_RECOMPUTE_CSUM);
}

/* Writes a packet for another node of the cluster, as `write_skb`. Only a packet without such a header needs room for
 * one.
 */
static __always_inline bool redirect_skb(struct __sk_buff *skb, const struct scratch *scratch,
					 const struct next_hop *hop, bool *changed)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	__u8 of_stack = hop ? 0 : 1, beside = plan.hops_beside;
	struct ipv6hdr outer;

	if (to->redirected == BY_DESTINATION) {
		*changed = true;
		return !bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, daddr),
					    to->outer_destination, 16, BPF_F_RECOMPUTE_CSUM) &&
		       take_hops_skb(skb, ETH_HLEN, scratch, beside ? beside - of_stack : 0) &&
		       store_link(skb, true, hop);
	}
	if (packet->came_by != BY_HEADER && !encapsulate(skb))
		return false;
	*changed = true;
	if (packet->came_by != BY_HEADER &&
	    !take_hops_skb(skb, ETH_HLEN + sizeof(outer), scratch, beside / 2))
		return false;
	write_redirecting(&outer, scratch, 1 - of_stack);
	return !bpf_skb_store_bytes(skb, ETH_HLEN, &outer, sizeof(outer), BPF_F_RECOMPUTE_CSUM) &&
	       store_link(skb, true, hop);
}

/* Writes the packet. Its first step can fail (no memory, or a packet that went through a softwire
 * already) and then leaves the packet as it was: unless `*changed`, it can still be passed on.
 */
static __always_inline bool write_skb(struct __sk_buff *skb, const struct scratch *scratch,
				      const struct next_hop *hop, bool *changed)
{
	const struct packet *packet = &scratch->packet;
	const struct rewrite *to = &scratch->rewrite;
	__u32 at = ETH_HLEN + (to->encapsulate ? sizeof(struct ipv6hdr) : 0);
	__u32 transport =
		at + (to->direction == TO6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	if (is_redirected(to))
		return redirect_skb(skb, scratch, hop, changed);
	if (packet->is_tunnelled || came_in_header(packet)) {
		if (!swaps_headers(packet, to) && !decapsulate(skb, packet))
			return false;
		*changed = true;
	}
	if (to->encapsulate && !swaps_headers(packet, to) && !encapsulate(skb))
		return false;
	if (to->direction == TO4 && bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0))
		return false;
	if (to->direction == TO6 && bpf_skb_change_proto(skb, bpf_htons(ETH_P_IPV6), 0))
		return false;
	*changed = true;
	return store_headers(skb, at, scratch, hop) &&
	       (to->keeps_transport || store_transport(skb, transport, scratch));
}

/* Whether the kernel's stack forwards the packet as it leaves, which it takes for one that came in by
 * the same interface. That may have one protocol alone: links below 1280 bytes have no IPv6.
 */
static __always_inline bool stack_takes(const struct interface *interface,
					const struct packet *packet, const struct rewrite *to)
{
	__u8 refuses = interface->stack_refuses;

	if (to->direction == TO6 || to->encapsulate)
		return !(refuses & REFUSES_IPV6);
	if (refuses & REFUSES_IPV4)
		return false;
	if (refuses & CHECKS_SOURCES)
		return packet->is_ipv4 && !packet->is_tunnelled && !came_in_header(packet) &&
		       to->source4 == packet->source4;
	return true;
}

/* Sends it. The kernel's table of neighbours asks anew for those that it has not heard of lately,
 * when it is used.
 */
static __always_inline int send_skb(const struct next_hop *hop, bool use_neighbours)
{
	struct bpf_redir_neigh to = { .nh_family = hop->neighbour_family };

	if (!use_neighbours)
		return bpf_redirect(hop->egress, 0);
	__builtin_memcpy(to.ipv6_nh, hop->neighbour, 16);
	return bpf_redirect_neigh(hop->egress, &to, sizeof(to), 0);
}

#endif
