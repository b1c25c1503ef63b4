// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The fast path on packets of a test: as tombolo_xdp, but without interface and neighbour. And
 * what else tests compare with Rust.
 */
#include "arrival.h"
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
	const struct interface anywhere = {};

	if (!scratch || (void *)(ethernet + 1) > end)
		return XDP_ABORTED;
	packet = &scratch->packet;
	if (!parse_packet(packet, data + ETH_HLEN, end, end - data - ETH_HLEN,
			  ethernet->h_proto == bpf_htons(ETH_P_IPV6)))
		return XDP_PASS;
	packet->gso_size = 0;
	outcome = process(ctx, &anywhere, scratch);
	if (outcome.verdict == PASS) {
		scratch->counters.passed[outcome.miss % MISSES_MAX]++;
		return XDP_PASS;
	}
	return write_xdp(ctx, scratch, macs) ? XDP_TX : XDP_ABORTED;
}

/* The hash of three words and what is made of it, in place of the words: for the test that compares
 * it with Rust's. The fourth word is the count of buckets.
 */
SEC("xdp")
int trial_hash(struct xdp_md *ctx)
{
	__u64 *words = (void *)(long)ctx->data;
	struct buckets at;
	__u64 h;

	if ((void *)(words + 4) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	h = hash(words[0], words[1], words[2]);
	at = buckets_of(h, words[3]);
	words[0] = h;
	words[1] = tag_of(h);
	words[2] = rehash(h);
	words[3] = (__u64)at.second << 32 | at.first;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
