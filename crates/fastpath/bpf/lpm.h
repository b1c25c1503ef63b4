/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Longest-prefix match, the readers' side inside the kernel.
 *
 * The bytes are drawn in crates/tables/src/lpm/mod.rs; the constants repeat lpm/layout.rs, and a test compares
 * the two readers on a million keys. The span is a BPF_F_MMAPABLE array of lines of 64 bytes:
 *
 *	struct {
 *		__uint(type, BPF_MAP_TYPE_ARRAY);
 *		__uint(map_flags, BPF_F_MMAPABLE);
 *		__uint(max_entries, LINES);
 *		__type(key, __u32);
 *		__type(value, struct lpm_line);
 *	} routes SEC(".maps");
 *
 * A lookup takes no lock. What it reads stays whole for
 * as long as the program runs: the writer reuses a replaced block only after a grace period (lpm/epoch.rs).
 */
#ifndef TOMBOLO_LPM_H
#define TOMBOLO_LPM_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define LPM_LINE_WORDS 16
#define LPM_HEADER_WORDS 16
#define LPM_HEADER_ROOT_BITS 2
#define LPM_UNIT_WORDS 4
#define LPM_NODE 0xc0000000U
#define LPM_NONE 0U
/* Each node consumes a bit at least, and the root eight. */
#define LPM_MAX_DEPTH 128

struct lpm_line {
	__u32 word[LPM_LINE_WORDS];
};

/* A key as two numbers, most significant bit first. An IPv4 address stands in the upper half of `first`. */
struct lpm_key {
	__u64 first;
	__u64 second;
};

/* A word of the span; of one outside it, zero: "no route". */
static __always_inline __u32 lpm_word(void *map, __u32 index)
{
	__u32 line_index = index / LPM_LINE_WORDS;
	struct lpm_line *line = bpf_map_lookup_elem(map, &line_index);

	if (!line)
		return 0;
	return *(volatile __u32 *)&line->word[index % LPM_LINE_WORDS];
}

/* BPF has no popcount instruction. */
static __always_inline __u32 lpm_count_ones(__u64 bits)
{
	bits -= (bits >> 1) & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + ((bits >> 2) & 0x3333333333333333ULL);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (bits * 0x0101010101010101ULL) >> 56;
}

/* The 64 bits after the first `consumed`; zeros after the key's end. */
static __always_inline __u64 lpm_window(const struct lpm_key *key, __u32 consumed)
{
	if (consumed < 64)
		return key->first << consumed | key->second >> 1 >> (63 - consumed);
	return key->second << (consumed & 63);
}

/* A walk under way. */
struct lpm_walk {
	void *map;
	struct lpm_key key;
	__u32 consumed;
	__u32 entry;
};

/* One node. A callback of bpf_loop: the verifier looks at it once, not a hundred times. 1 ends the walk. */
static long lpm_step(__u32 depth, struct lpm_walk *walk)
{
	__u64 window, expected, bitmap;
	__u32 at, meta, skip, rest, run;

	(void)depth;
	if (walk->entry < LPM_NODE)
		return 1; /* a route, or none */
	at = (walk->entry - LPM_NODE) * LPM_UNIT_WORDS;
	bitmap = lpm_word(walk->map, at) | (__u64)lpm_word(walk->map, at + 1) << 32;
	expected = lpm_word(walk->map, at + 2) | (__u64)lpm_word(walk->map, at + 3) << 32;
	meta = lpm_word(walk->map, at + 4);
	skip = meta & 63;
	rest = meta >> 8 & 63;
	window = lpm_window(&walk->key, walk->consumed);
	run = 0; /* the fallback, for a key that strays from the skipped bits */
	if (!((window ^ expected) & ~(~0ULL >> skip)))
		run = lpm_count_ones(bitmap << (63 - (window << skip >> rest)));
	walk->entry = lpm_word(walk->map, at + 5 + run);
	walk->consumed += skip + 64 - rest;
	return 0;
}

/* The entry of the longest route that covers the key: 0 for none, else prefix length + 1 in the top byte and
 * the next hop in the lower 24 bits.
 */
static __always_inline __u32 lpm_lookup(void *map, struct lpm_key key)
{
	__u32 root_bits = lpm_word(map, LPM_HEADER_ROOT_BITS) & 31;
	struct lpm_walk walk = { .map = map, .key = key, .consumed = root_bits };

	/* A span that is not set up has no root bits. */
	if (!root_bits)
		return LPM_NONE;
	walk.entry = lpm_word(map, LPM_HEADER_WORDS + (key.first >> (64 - root_bits)));
	if (walk.entry >= LPM_NODE)
		bpf_loop(LPM_MAX_DEPTH, lpm_step, &walk, 0);
	return walk.entry < LPM_NODE ? walk.entry : LPM_NONE;
}

static __always_inline __u32 lpm_next_hop(__u32 entry)
{
	return entry & 0xffffff;
}

#endif
