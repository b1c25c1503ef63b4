// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The fast path: packets that need no judgement are translated where they arrive.
 *
 * 	frame --> tombolo_xdp --hit--> out of the interface that the route says
 * 	              | pass
 * 	              v
 * 	          tombolo_tc  --hit--> out of the interface that the route says, if it is certain;
 * 	              |                else the kernel's stack, which routes the translated packet, if it
 * 	              |                takes it where it came in
 * 	              | pass
 * 	              v
 * 	          the kernel's route to the TUN device, and the engine
 *
 * A packet passes arrival.h, parse.h, classify.h, in a cluster slice.h and redirect.h, nat64.h (or another service: nat44.h, siit.h, softwire.h,
 * map_t_ce.h), napt.h with the tables (binding.h, session.h, subscriber.h, outside.h), translate.h,
 * and then xdp.h or tc.h, which write it.
 *
 * Both programs may run on several processors, beside the engine, on the same tables.
 */
#include <linux/pkt_cls.h>

#include "arrival.h"
#include "dispatch.h"
#include "next_hop.h"
#include "tap.h"
#include "tc.h"
#include "xdp.h"

static __always_inline void count_pass(struct scratch *scratch, __u8 miss)
{
	scratch->counters.passed[miss % MISSES_MAX]++;
}

static __always_inline void count_forward(struct scratch *scratch)
{
	struct forwarded *service = &scratch->counters.services[scratch->rewrite.service];
	__u8 side = scratch->rewrite.side & 1;

	if (came_in_header(&scratch->packet))
		scratch->counters.redirected[1][scratch->packet.node % NODES_MAX]++;
	if (is_redirected(&scratch->rewrite)) {
		scratch->counters.redirected[0][scratch->rewrite.node % NODES_MAX]++;
		return;
	}
	service->packets[side]++;
	service->bytes[side] += scratch->packet.length;
}

/* Parses a frame that is for this station. */
static __always_inline bool parse_frame(struct packet *packet, void *data, void *end,
					__u32 frame_length, const struct interface *interface)
{
	struct ethhdr *ethernet = data;
	__u32 available = frame_length - ETH_HLEN;

	if ((void *)(ethernet + 1) > end || !is_same_mac(ethernet->h_dest, interface->mac))
		return false;
	if (ethernet->h_proto != bpf_htons(ETH_P_IPV6) && ethernet->h_proto != bpf_htons(ETH_P_IP))
		return false;
	return parse_packet(packet, data + ETH_HLEN, end, available,
			    ethernet->h_proto == bpf_htons(ETH_P_IPV6));
}

SEC("xdp")
int tombolo_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct interface *interface = interface_of(ctx->ingress_ifindex);
	struct scratch *scratch = RECORD(per_processor, 0);
	struct packet *packet;
	struct rewrite *to;
	struct outcome outcome;
	struct next_hop *hop;

	if (!scratch || !interface)
		return XDP_PASS;
	packet = &scratch->packet;
	to = &scratch->rewrite;
	if (!parse_frame(packet, data, end, end - data, interface))
		return XDP_PASS;
	packet->gso_size = 0;
	outcome = process(ctx, interface, scratch);
	if (outcome.verdict == FORWARD) {
		hop = next_hop_of(ctx, ctx->ingress_ifindex, to);
		if (!hop || !(hop->flags & NEXT_HOP_XDP_SENDS) || !fits(hop, to))
			outcome = PASSED(MISS_NO_NEXT_HOP);
		else if (hop->flags & NEXT_HOP_IS_UNUSED)
			outcome = PASSED(MISS_NEIGHBOUR);
	}
	if (outcome.verdict == PASS) {
		count_pass(scratch, outcome.miss);
		tap_passed(ctx, TAP_XDP, ctx->ingress_ifindex, scratch, outcome.miss);
		return XDP_PASS;
	}
	tap_received(ctx, TAP_XDP, ctx->ingress_ifindex, scratch);
	if (!write_xdp(ctx, scratch, hop->macs))
		return XDP_ABORTED;
	tap_sent(ctx, TAP_XDP, scratch);
	count_forward(scratch);
	return bpf_redirect(hop->egress, 0);
}

/* TC_ACT_UNSPEC lets programs behind this one see the packet. */
SEC("classifier")
int tombolo_tc(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct interface *interface = interface_of(skb->ifindex);
	struct scratch *scratch = RECORD(per_processor, 0);
	struct packet *packet;
	struct rewrite *to;
	struct outcome outcome;
	struct next_hop *hop;
	bool changed = false, use_neighbours = false;

	/* A tagged frame belongs to another interface. */
	if (!scratch || !interface || skb->vlan_present)
		return TC_ACT_UNSPEC;
	packet = &scratch->packet;
	to = &scratch->rewrite;
	if (!parse_frame(packet, data, end, skb->len, interface))
		return TC_ACT_UNSPEC;
	/* Of super-packets the kernel can change only those of TCP to the other protocol. */
	if (skb->gso_segs > 1 && packet->space != SPACE_TCP)
		return TC_ACT_UNSPEC;
	packet->gso_size = skb->gso_segs > 1 ? skb->gso_size : 0;
	outcome = process(skb, interface, scratch);
	if (outcome.verdict == PASS) {
		count_pass(scratch, outcome.miss);
		tap_passed(skb, TAP_TC, skb->ifindex, scratch, outcome.miss);
		return TC_ACT_UNSPEC;
	}
	hop = plan.through_stack ? 0 : next_hop_of(skb, skb->ifindex, to);
	if (hop && hop->flags & NEXT_HOP_IS_UNUSED) {
		hop->flags &= ~NEXT_HOP_IS_UNUSED;
		use_neighbours = true;
	}
	if (hop && (!(hop->flags & NEXT_HOP_IS_CERTAIN) || !fits(hop, to)))
		hop = 0;
	if (!hop && !stack_takes(interface, packet, to)) {
		count_pass(scratch, MISS_STACK_REFUSES);
		tap_passed(skb, TAP_TC, skb->ifindex, scratch, MISS_STACK_REFUSES);
		return TC_ACT_UNSPEC;
	}
	tap_received(skb, TAP_TC, skb->ifindex, scratch);
	if (!write_skb(skb, scratch, hop, &changed))
		return changed ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	tap_sent(skb, TAP_TC, scratch);
	count_forward(scratch);
	if (hop)
		return send_skb(hop, use_neighbours);
	scratch->counters.to_stack++;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
