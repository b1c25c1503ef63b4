/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Longest-prefix match, the readers' side inside the kernel.
 *
 * The bytes are drawn in crates/tables/src/lpm/mod.rs, the constants are those of lpm/layout.rs,
 * and a test compares the two readers on a million keys. The span is a BPF_F_MMAPABLE array of
 * lines of 64 bytes:
 *
 * 	struct {
 * 		__uint(type, BPF_MAP_TYPE_ARRAY);
 * 		__uint(map_flags, BPF_F_MMAPABLE);
 * 		__uint(max_entries, LINES);
 * 		__type(key, __u32);
 * 		__type(value, struct lpm_line);
 * 	} routes SEC(".maps");
 *
 * A lookup takes no lock. What it reads stays whole for as long as the program runs: the writer
 * reuses a replaced block only after a grace period (lpm/epoch.rs).
 */
#ifndef TOMBOLO_LPM_H
#define TOMBOLO_LPM_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "generated.h"

struct lpm_line {
	__u32 word[LPM_LINE_WORDS];
};

/* A key as two numbers, most significant bit first. An IPv4 address stands in the upper half of
 * `first`.
 */
struct lpm_key {
	__u64 first;
	__u64 second;
};

/* A word of the span; none if it is outside. `map` has to be known where this is compiled into:
 * then the kernel makes a bounds check and a multiplication of the call, else an indirect call for
 * each word.
 */
static __always_inline volatile __u32 *lpm_word(void *map, __u32 index)
{
	__u32 line_index = index / LPM_LINE_WORDS;
	struct lpm_line *line = bpf_map_lookup_elem(map, &line_index);

	return line ? &line->word[index % LPM_LINE_WORDS] : 0;
}

/* Bitmap and expected bits of the node at a unit's boundary, which are in one line; none if it is
 * outside.
 */
static __always_inline volatile __u64 *lpm_node(void *map, __u32 unit)
{
	__u32 line_index = unit / (LPM_LINE_WORDS / LPM_UNIT_WORDS);
	struct lpm_line *line = bpf_map_lookup_elem(map, &line_index);

	return line ? (volatile __u64 *)&line
			       ->word[unit % (LPM_LINE_WORDS / LPM_UNIT_WORDS) * LPM_UNIT_WORDS] :
		      0;
}

/* BPF has no popcount instruction. */
static __always_inline __u32 lpm_count_ones(__u64 bits)
{
	bits -= (bits >> 1) & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + ((bits >> 2) & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (bits * 0x0101010101010101ULL) >> 56;
}

/* The key without its first `bits`, of which there are 63 at most. */
static __always_inline struct lpm_key lpm_consume(struct lpm_key key, __u32 bits)
{
	return (struct lpm_key){
		.first = key.first << bits | key.second >> 1 >> (63 - bits),
		.second = key.second << bits,
	};
}

/* All ones if `bits` is zero, else zero; without a branch, which the verifier would follow in each
 * turn of the loop.
 */
static __always_inline __u64 lpm_ones_if_zero(__u64 bits)
{
	return ((bits | -bits) >> 63) - 1;
}

/* The entry of the longest route that covers the key: 0 for none, else prefix length + 1 in the top
 * byte and the next hop in the lower 24 bits. To be called from a function that the verifier looks
 * at once (__noinline, global): it follows the loop to its end.
 */
static __always_inline __u32 lpm_lookup(void *map, struct lpm_key key)
{
	volatile __u32 *word = lpm_word(map, LPM_HEADER_ROOT_BITS);
	__u32 root_bits = word ? *word & 31 : 0, entry;

	/* A span that is not set up has no root bits. */
	if (!root_bits)
		return LPM_NONE;
	word = lpm_word(map, LPM_HEADER_WORDS + (key.first >> (64 - root_bits)));
	if (!word)
		return LPM_NONE;
	entry = *word;
	key = lpm_consume(key, root_bits);
#pragma nounroll
	for (int depth = 0; depth < LPM_MAX_DEPTH && entry >= LPM_NODE; depth++) {
		__u32 unit = entry - LPM_NODE, skip, rest, run;
		volatile __u64 *node = lpm_node(map, unit);
		volatile __u32 *meta = lpm_word(map, unit * LPM_UNIT_WORDS + LPM_FALLBACK - 1);
		__u64 stray;

		if (!node || !meta)
			return LPM_NONE;
		skip = *meta & 63;
		rest = *meta >> 8 & 63;
		stray = (key.first ^ node[1]) & ~(~0ULL >> skip);
		key = lpm_consume(key, skip);
		/* A key that strays from the skipped bits gets the fallback, before the first
		 * entry.
		 */
		run = lpm_count_ones(node[0] << (63 - (key.first >> rest))) &
		      lpm_ones_if_zero(stray);
		word = lpm_word(map, unit * LPM_UNIT_WORDS + LPM_FALLBACK + run);
		if (!word)
			return LPM_NONE;
		entry = *word;
		key = lpm_consume(key, -rest & 63);
	}
	return entry < LPM_NODE ? entry : LPM_NONE;
}

static __always_inline __u32 lpm_next_hop(__u32 entry)
{
	return entry & 0xffffff;
}

#endif
