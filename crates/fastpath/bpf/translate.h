/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What a packet becomes: headers and checksums, the same for XDP (xdp.h) and TC (tc.h), which
 * differ in how bytes are written (RFC 7915; crates/engine/src/mechanism/translate/headers.rs,
 * readdress.rs, transport.rs).
 */
#ifndef TOMBOLO_TRANSLATE_H
#define TOMBOLO_TRANSLATE_H

#include "ecn.h"
#include "hash.h"
#include "scratch.h"

/* Largest IPv4 packet that leaves without DF when its IPv6 original was whole (RFC 7915 section
 * 5.1).
 */
#define LARGEST_WITHOUT_DF (IPV6_MINIMUM_MTU - sizeof(struct ipv6hdr) + sizeof(struct iphdr))

/* Differences of the transport checksum: what its pseudo-header covers, and what stands in the
 * transport. A checksum that was left to the card (CHECKSUM_PARTIAL) holds the pseudo-header alone.
 */
struct change {
	__u16 pseudo;
	__u16 transport;
};

static __always_inline __u16 word_of(__u8 first, __u8 second)
{
	return first | (__u16)second << 8;
}

/* An echo has other numbers in the other family. */
static __always_inline __u8 translated_icmp_type(const struct packet *packet, __u8 direction)
{
	if (direction == TO4)
		return packet->icmp_type == ICMPV6_ECHO_REQUEST ? ICMP_ECHO_REQUEST :
								  ICMP_ECHO_REPLY;
	if (direction == TO6)
		return packet->icmp_type == ICMP_ECHO_REQUEST ? ICMPV6_ECHO_REQUEST :
								ICMPV6_ECHO_REPLY;
	return packet->icmp_type;
}

/* ICMPv6 has a pseudo-header and ICMP has none (RFC 7915 sections 4.2, 5.2). It counts as transport
 * here: no card leaves the checksum of an echo to others.
 */
static __always_inline struct change change_of_echo(const struct packet *packet,
						    const struct rewrite *to, __u64 addresses6)
{
	__u64 old = (__u64)word_of(packet->icmp_type, packet->icmp_code) + packet->source_port;
	__u64 new = (__u64)word_of(translated_icmp_type(packet, to->direction), packet->icmp_code) +
		    to->source_port;
	__u32 header = packet->is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u64 pseudo = addresses6 + bpf_htonl(packet->length - header) + bpf_htons(IPPROTO_ICMPV6);

	if (to->direction == TO4)
		old += pseudo;
	if (to->direction == TO6)
		new += pseudo;
	return (struct change){ .pseudo = 0, .transport = difference(old, new) };
}

static __always_inline struct change change_of(const struct packet *packet,
					       const struct rewrite *to)
{
	__u64 old = packet->is_ipv4 ?
			    (__u64)packet->source4 + packet->destination4 :
			    sum_of_ipv6(packet->source) + sum_of_ipv6(packet->destination);
	__u64 new = to->direction == TO6 ? sum_of_ipv6(to->source) + sum_of_ipv6(to->destination) :
					   (__u64)to->source4 + to->destination4;
	__u64 old_ports = (__u64)packet->source_port + packet->destination_port;
	__u64 new_ports = (__u64)to->source_port + to->destination_port;

	if (packet->space == SPACE_ICMP)
		return change_of_echo(packet, to, packet->is_ipv4 ? new : old);
	return (struct change){ .pseudo = difference(old, new),
				.transport = difference(old_ports, new_ports) };
}

/* The DSCP that is configured, and ECN as it came. */
static __always_inline __u8 class_of(__s16 configured, __u8 received)
{
	return configured < 0 ? received : (configured & DSCP) | (received & ECN);
}

/* A keyed walk for each pair of hosts (RFC 7739 section 5.3; mechanism/identification.rs).
 * Processors walk apart.
 */
static __always_inline __u16 next_identification(struct scratch *scratch, __u32 source,
						 __u32 destination)
{
	__u64 h = mix(((__u64)source << 32 | destination) ^ plan.secret[1]);
	__u16 *counter = &scratch->identifications[(h >> 32) % IDENTIFICATIONS];

	*counter += 1;
	return (__u16)h + *counter + ((__u16)bpf_get_smp_processor_id() << 10);
}

/* What a packet loses of its hop limit: one, and as much as on the engine's way, where the kernel
 * forwards it into the TUN device and out of it. In front of a softwire, and behind it, one of
 * these two meets the outer header.
 */
static __always_inline __u8 hops_of(bool is_beside_softwire)
{
	return 1 + (is_beside_softwire ? plan.hops_beside / 2 : plan.hops_beside);
}

/* Whether it came in a header from another node, which is taken off. */
static __always_inline bool came_in_header(const struct packet *packet)
{
	return has_slices() && packet->came_by == BY_HEADER;
}

/* Whether a header is taken off and another one put on: the one takes the other's room. */
static __always_inline bool swaps_headers(const struct packet *packet, const struct rewrite *to)
{
	return came_in_header(packet) && to->encapsulate;
}

static __always_inline __u8 hops_taken(const struct packet *packet, const struct rewrite *to)
{
	/* Both meet other headers. */
	if (swaps_headers(packet, to))
		return 1;
	return hops_of(packet->is_tunnelled || to->encapsulate || came_in_header(packet));
}

static __always_inline void write_ipv6(struct ipv6hdr *ip, const struct packet *packet,
				       const struct rewrite *to, __u8 hops)
{
	__u8 next = packet->space == SPACE_ICMP ? IPPROTO_ICMPV6 :
		    packet->space == SPACE_TCP	? IPPROTO_TCP :
						  IPPROTO_UDP;

	*(__be32 *)ip = bpf_htonl(0x60000000U | (__u32)to->traffic_class << 20);
	ip->payload_len = bpf_htons(to->length - sizeof(*ip));
	ip->nexthdr = next;
	ip->hop_limit = packet->hop_limit - hops;
	__builtin_memcpy(&ip->saddr, to->source, 16);
	__builtin_memcpy(&ip->daddr, to->destination, 16);
}

/* `hops` is how much of the TTL is taken here; the header checksum is complete. */
static __always_inline void write_ipv4(struct iphdr *ip, const struct packet *packet,
				       const struct rewrite *to, __u8 hops)
{
	__u8 protocol = packet->space == SPACE_ICMP ? IPPROTO_ICMP :
			packet->space == SPACE_TCP  ? IPPROTO_TCP :
						      IPPROTO_UDP;
	__u8 ttl = packet->hop_limit - hops;
	__u64 sum = word_of(0x45, to->traffic_class) + (__u64)bpf_htons(to->length) +
		    to->identification + to->fragment_word + word_of(ttl, protocol) + to->source4 +
		    to->destination4;

	*(__u16 *)ip = word_of(0x45, to->traffic_class);
	ip->tot_len = bpf_htons(to->length);
	ip->id = to->identification;
	ip->frag_off = to->fragment_word;
	ip->ttl = ttl;
	ip->protocol = protocol;
	ip->check = ~fold(sum);
	ip->saddr = to->source4;
	ip->daddr = to->destination4;
}

/* The header of a softwire in front of a packet of `length` bytes. */
static __always_inline void write_outer(struct ipv6hdr *ip, const struct rewrite *to, __u8 hops)
{
	*(__be32 *)ip = bpf_htonl(0x60000000U | (__u32)to->outer_class << 20);
	ip->payload_len = bpf_htons(to->length);
	ip->nexthdr = IPPROTO_IPIP;
	ip->hop_limit = to->outer_hop_limit - hops;
	__builtin_memcpy(&ip->saddr, to->outer_source, 16);
	__builtin_memcpy(&ip->daddr, to->outer_destination, 16);
}

/* The bytes that a packet, or the largest segment of a super-packet, has behind `header` bytes of
 * IP.
 */
static __always_inline __u32 size_on_wire(const struct packet *packet, __u32 header)
{
	__u32 own_header = packet->is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 whole = packet->length - own_header + header;
	__u32 segment = header + packet->transport_header + packet->gso_size;

	return packet->gso_size && segment < whole ? segment : whole;
}

#endif
