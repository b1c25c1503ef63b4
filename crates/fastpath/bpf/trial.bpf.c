// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The fast path on packets of a test: as tombolo_xdp, but without interface and neighbour. */
#include "dispatch.h"
#include "scratch.h"
#include "xdp.h"

static const __u8 macs[12] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1 };

/* XDP_TX stands for a packet that was translated. */
SEC("xdp")
int trial_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct scratch *scratch = RECORD(per_processor, 0);
	struct packet *packet;
	struct ethhdr *ethernet = data;
	struct outcome outcome;
	bool parsed;

	if (!scratch || (void *)(ethernet + 1) > end)
		return XDP_ABORTED;
	packet = &scratch->packet;
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		parsed = parse_ipv6(packet, data + ETH_HLEN, end, end - data - ETH_HLEN);
	else
		parsed = parse_ipv4(packet, data + ETH_HLEN, end, end - data - ETH_HLEN);
	if (!parsed)
		return XDP_PASS;
	packet->gso_size = 0;
	outcome = process(scratch);
	if (outcome.verdict == PASS) {
		scratch->counters.passed[outcome.miss % MISSES_MAX]++;
		return XDP_PASS;
	}
	return write_xdp(ctx, scratch, macs) ? XDP_TX : XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
