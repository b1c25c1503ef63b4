/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What each processor keeps for itself: counters, and where its searches ended. One cache line
 * after another, so that the path of a known session touches one.
 */
#ifndef TOMBOLO_SCRATCH_H
#define TOMBOLO_SCRATCH_H

#include "parse.h"
#include "plan.h"
#include "rewrite.h"

#define IDENTIFICATIONS 512

/* src/record/counters.rs has the counters; the rest is the program's own. */
struct scratch {
	struct counters counters;
	__u32 used_word;
	/* What is expected of the next packet from inside (ahead.h). */
	__u32 expected;
	__u64 drawn;
	__u16 identifications[IDENTIFICATIONS];
	/* The packet at hand: a program's stack is small. */
	struct packet packet;
	struct rewrite rewrite;
};

_Static_assert(sizeof(struct scratch) == sizeof(struct shared_scratch), "SCRATCH_BYTES");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct scratch);
} per_processor SEC(".maps");

/* The number of the lowest bit that is 0; there must be one. BPF has no instruction for it. */
static __always_inline __u32 lowest_zero(__u64 word)
{
	__u64 bit = ~word & (word + 1);
	__u32 number = 0;

	if (bit >> 32) {
		number += 32;
		bit >>= 32;
	}
	if (bit >> 16) {
		number += 16;
		bit >>= 16;
	}
	if (bit >> 8) {
		number += 8;
		bit >>= 8;
	}
	if (bit >> 4) {
		number += 4;
		bit >>= 4;
	}
	if (bit >> 2) {
		number += 2;
		bit >>= 2;
	}
	return (number + (bit >> 1)) & 63;
}

#endif
