// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What the kernel allows, and what a table allows: each frame goes on as it came, at once, or after
 * one entry of a table has been read, which the frame's addresses and ports choose, or after that entry,
 * and before it the slot that says where it is, or after both have been claimed. The benchmark measures
 * them beside what translates, on the same rig.
 */
#include "base.h"
#include "hash.h"

/* Where to. */
const volatile __u32 exit_interface;
/* What an entry takes, in words of 8 bytes, and how many there are. */
const volatile __u32 entry_words;
const volatile __u32 entry_count;

/* How many slots there are; 0 where the frame itself says which entry. */
const volatile __u32 slot_count;

/* Zeros. Their sizes are set when they are made. */
MAPPED_ARRAY(words, __u64, );
MAPPED_ARRAY(slots, __u32, );

SEC("xdp")
int bare_redirect(struct xdp_md *ctx)
{
	(void)ctx;
	return bpf_redirect(exit_interface, 0);
}

/* Addresses and ports of a frame: what differs between flows of the benchmark, whichever end has them. */
static __always_inline bool read_flow(struct xdp_md *ctx, __u64 *flow)
{
	const __u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	bool is_ipv6 = frame + 58 <= end && frame[12] == 0x86;
	__u32 source, destination;
	__u16 source_port, destination_port;

	if (frame + 38 > end)
		return false;
	if (is_ipv6) {
		__builtin_memcpy(&source, frame + 34, sizeof(source));
		__builtin_memcpy(&destination, frame + 50, sizeof(destination));
		__builtin_memcpy(&source_port, frame + 54, sizeof(source_port));
		__builtin_memcpy(&destination_port, frame + 56, sizeof(destination_port));
	} else {
		__builtin_memcpy(&source, frame + 26, sizeof(source));
		__builtin_memcpy(&destination, frame + 30, sizeof(destination));
		__builtin_memcpy(&source_port, frame + 34, sizeof(source_port));
		__builtin_memcpy(&destination_port, frame + 36, sizeof(destination_port));
	}
	*flow = (__u64)(source ^ destination) << 16 | (__u16)(source_port ^ destination_port);
	return true;
}

/* No field of the frame is looked at but these, none is changed, and no key is compared: a
 * translation does all this as well.
 */
SEC("xdp")
int redirect_by_entry(struct xdp_md *ctx)
{
	__u64 flow;
	__u32 index, found = 0;
	const __u64 *word;

	if (!read_flow(ctx, &flow))
		return XDP_PASS;
	if (slot_count) {
		const __u32 *slot;

		index = buckets_of(mix(flow), slot_count).first;
		slot = bpf_map_lookup_elem(&slots, &index);
		if (!slot)
			return XDP_PASS;
		/* The entry waits for it. */
		found = READ(*slot);
		flow = ~flow;
	}
	index = (buckets_of(mix(flow), entry_count).first + found) * entry_words;
	word = bpf_map_lookup_elem(&words, &index);
	if (!word)
		return XDP_PASS;
	/* The frame waits for it. */
	return bpf_redirect(exit_interface + READ(*word), 0);
}

/* What a new binding takes at the least: its entry, which what comes from inside has to find, and the slot of
 * its outside port, which what comes from outside has to find, and which no other processor may have taken.
 * Both are asked for at once.
 */
SEC("xdp")
int redirect_by_claim(struct xdp_md *ctx)
{
	__u64 flow, before;
	__u32 index, place, taken, *slot;
	__u64 *word;

	if (!read_flow(ctx, &flow))
		return XDP_PASS;
	index = buckets_of(mix(flow), entry_count).first * entry_words;
	place = buckets_of(mix(~flow), slot_count).first;
	word = bpf_map_lookup_elem(&words, &index);
	slot = bpf_map_lookup_elem(&slots, &place);
	if (!word || !slot)
		return XDP_PASS;
	before = READ(*word);
	taken = READ(*slot);
	if (!__sync_bool_compare_and_swap(slot, taken, taken + 1))
		return XDP_PASS;
	WRITE(*word, before + 1);
	return bpf_redirect(exit_interface, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
