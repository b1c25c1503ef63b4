/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The single parse of a packet: what the fast path takes, in a small struct
 * (crates/engine/src/parse.rs).
 *
 * Taken are whole TCP segments, UDP datagrams and ICMP echoes directly behind an IPv6 header, or
 * behind an IPv4 header without options. Everything else, damaged packets included, is left to the
 * engine, which knows what to do with each.
 */
#ifndef TOMBOLO_PARSE_H
#define TOMBOLO_PARSE_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "checksum.h"
#include "cluster.h"

#define IPV4_FRAGMENT bpf_htons(0x3fff) /* more fragments, or an offset */
#define IPV4_DF bpf_htons(0x4000)

/* Offsets behind the transport header's first byte. */
#define TCP_CHECKSUM 16
#define UDP_CHECKSUM 6
#define ICMP_CHECKSUM 2
#define ICMP_IDENTIFIER 4

/* <linux/icmp.h> wants a C library of its own. */
#define ICMP_ECHO_REQUEST 8
#define ICMP_ECHO_REPLY 0
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

/* An echo, of either family (RFC 792, RFC 4443 section 4). */
struct echo {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be16 identifier;
	__be16 sequence;
};

struct packet {
	/* Addresses; of IPv4 in the first word of each. */
	union {
		__u64 source[2];
		__u32 source4;
	};
	union {
		__u64 destination[2];
		__u32 destination4;
	};
	/* Ports; an echo has its identifier in both. */
	__u16 source_port;
	__u16 destination_port;
	/* Bytes of the packet, IP header included. */
	__u32 length;
	/* Payload of each segment of a super-packet; 0 for an ordinary packet. */
	__u32 gso_size;
	/* Bytes of the frame behind the packet (Ethernet padding). */
	__u32 padding;
	/* The checksum of TCP, UDP or ICMP. */
	__u16 checksum;
	/* IPv4: flags and fragment offset. */
	__u16 fragment_word;
	__u16 identification;
	__u8 space;
	/* What a TCP segment is to its session: EVENT_*. */
	__u8 event;
	__u8 hop_limit;
	__u8 traffic_class;
	/* An echo: its type and code. */
	__u8 icmp_type;
	__u8 icmp_code;
	/* Bytes of the transport header. */
	__u8 transport_header;
	bool is_ipv4;
	/* A SYN, whatever else it is: it announces a segment size. */
	bool announces;
	/* It came in a softwire: these are the outer header's addresses and class, and all other
	 * fields are the inner packet's.
	 */
	bool is_tunnelled;
	__u8 outer_class;
	__u64 outer_source[2];
	__u64 outer_destination[2];
	/* In a cluster: how it came from another node (enum means), in a header from which one, how
	 * often it was redirected, and whether it has another traffic class since it came out of the
	 * header.
	 */
	__u8 came_by;
	__u8 node;
	__u8 hops;
	bool has_other_class;
	/* The softwire's. */
	__u8 outer_hop_limit;
};

static __always_inline __u8 tcp_event(const struct tcphdr *tcp)
{
	if (tcp->rst)
		return EVENT_RST;
	if (tcp->syn)
		return EVENT_SYN;
	return tcp->fin ? EVENT_FIN : EVENT_OTHER;
}

static __always_inline bool parse_tcp(struct packet *packet, const void *transport, const void *end,
				      __u32 room)
{
	const struct tcphdr *tcp = transport;

	if ((const void *)(tcp + 1) > end || room < sizeof(*tcp) || tcp->doff < 5)
		return false;
	packet->space = SPACE_TCP;
	packet->source_port = tcp->source;
	packet->destination_port = tcp->dest;
	packet->event = tcp_event(tcp);
	packet->announces = tcp->syn;
	packet->checksum = tcp->check;
	packet->transport_header = tcp->doff * 4;
	return true;
}

/* The length field is checked as it is: super-packets of UDP, where it counts one segment, are not
 * taken.
 */
static __always_inline bool parse_udp(struct packet *packet, const void *transport, const void *end,
				      __u32 room)
{
	const struct udphdr *udp = transport;
	__u32 length;

	if ((const void *)(udp + 1) > end || room < sizeof(*udp))
		return false;
	length = bpf_ntohs(udp->len);
	if (length < sizeof(*udp) || length > room)
		return false;
	packet->space = SPACE_UDP;
	packet->source_port = udp->source;
	packet->destination_port = udp->dest;
	packet->event = EVENT_OTHER;
	packet->announces = false;
	packet->checksum = udp->check;
	packet->transport_header = sizeof(*udp);
	return true;
}

static __always_inline bool parse_echo(struct packet *packet, const void *transport,
				       const void *end, __u32 room)
{
	const struct echo *echo = transport;
	__u8 request = packet->is_ipv4 ? ICMP_ECHO_REQUEST : ICMPV6_ECHO_REQUEST;
	__u8 reply = packet->is_ipv4 ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY;

	if ((const void *)(echo + 1) > end || room < sizeof(*echo))
		return false;
	if (echo->type != request && echo->type != reply)
		return false;
	/* The sum of an ICMPv4 reply of nothing but zeros is zero, which a difference cannot tell from
	 * 0xffff: the engine looks at all of it (mechanism/translate/transport.rs).
	 */
	if (echo->type == reply && !echo->sequence)
		return false;
	packet->space = SPACE_ICMP;
	packet->source_port = echo->identifier;
	packet->destination_port = echo->identifier;
	packet->event = EVENT_OTHER;
	packet->announces = false;
	packet->checksum = echo->checksum;
	packet->icmp_type = echo->type;
	packet->icmp_code = echo->code;
	packet->transport_header = sizeof(*echo);
	return true;
}

static __always_inline bool ipv4_checksum_verifies(const struct iphdr *ip)
{
	const __u32 *words = (const __u32 *)ip;

	return fold((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) == 0xffff;
}

/* `available` are the bytes of the frame from the IP header on; of a super-packet, only the first
 * of them are in the linear buffer.
 */
static __always_inline bool parse_ipv4(struct packet *packet, const struct iphdr *ip,
				       const void *end, __u32 available)
{
	__u32 length = bpf_ntohs(ip->tot_len);
	const void *transport = ip + 1;
	__u32 room = length - sizeof(*ip);

	if (transport > end || *(const __u8 *)ip != 0x45 || length < sizeof(*ip) ||
	    length > available)
		return false;
	if (ip->frag_off & IPV4_FRAGMENT || !ipv4_checksum_verifies(ip))
		return false;
	packet->is_ipv4 = true;
	packet->is_tunnelled = false;
	packet->length = length;
	packet->padding = available - length;
	packet->hop_limit = ip->ttl;
	packet->traffic_class = ip->tos;
	packet->fragment_word = ip->frag_off;
	packet->identification = ip->id;
	packet->source4 = ip->saddr;
	packet->destination4 = ip->daddr;
	switch (ip->protocol) {
	case IPPROTO_UDP:
		return parse_udp(packet, transport, end, room);
	case IPPROTO_TCP:
		return parse_tcp(packet, transport, end, room);
	case IPPROTO_ICMP:
		return parse_echo(packet, transport, end, room);
	default:
		return false;
	}
}

/* A packet in a softwire (RFC 2473), alone and without extension headers; `room` are the bytes
 * behind the outer header. If the outer hop limit has run out, the kernel's stack refuses it.
 */
static __always_inline bool parse_softwire(struct packet *packet, const struct ipv6hdr *outer,
					   const void *end, __u32 room, __u32 padding)
{
	if (outer->hop_limit <= 1 || !parse_ipv4(packet, (const void *)(outer + 1), end, room) ||
	    packet->padding)
		return false;
	packet->is_tunnelled = true;
	packet->padding = padding;
	packet->outer_class = outer->priority << 4 | outer->flow_lbl[0] >> 4;
	if (has_slices())
		packet->outer_hop_limit = outer->hop_limit;
	__builtin_memcpy(packet->outer_source, &outer->saddr, 16);
	__builtin_memcpy(packet->outer_destination, &outer->daddr, 16);
	return true;
}

static __always_inline bool parse_ipv6(struct packet *packet, const struct ipv6hdr *ip,
				       const void *end, __u32 available)
{
	__u32 room = bpf_ntohs(ip->payload_len);
	const void *transport = ip + 1;

	if (transport > end || ip->version != 6 || sizeof(*ip) + room > available)
		return false;
	if (ip->nexthdr == IPPROTO_IPIP)
		return parse_softwire(packet, ip, end, room, available - sizeof(*ip) - room);
	packet->is_ipv4 = false;
	packet->is_tunnelled = false;
	packet->length = sizeof(*ip) + room;
	packet->padding = available - packet->length;
	packet->hop_limit = ip->hop_limit;
	packet->traffic_class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	__builtin_memcpy(packet->source, &ip->saddr, 16);
	__builtin_memcpy(packet->destination, &ip->daddr, 16);
	switch (ip->nexthdr) {
	case IPPROTO_UDP:
		return parse_udp(packet, transport, end, room);
	case IPPROTO_TCP:
		return parse_tcp(packet, transport, end, room);
	case IPPROTO_ICMPV6:
		return parse_echo(packet, transport, end, room);
	default:
		return false;
	}
}

#endif
