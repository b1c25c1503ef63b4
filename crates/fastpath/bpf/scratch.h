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
#define REASONS_MAX 64

/* src/counters.rs has the same record; src/layout.rs compares them. */
struct counters {
	/* Packets translated and sent on, by side of origin. */
	__u64 forwarded[2];
	/* Bytes of them, IP headers included, as they came. */
	__u64 forwarded_bytes[2];
	__u64 bindings_made;
	__u64 sessions_made;
	/* Reports that found no room in the ring. */
	__u64 reports_lost;
	/* Of the packets forwarded, those that TC left to the kernel's stack to route. */
	__u64 to_stack;
	/* Packets passed on, by the numbers of src/miss.rs. */
	__u64 passed[REASONS_MAX];
	/* Packets dropped, by the engine's drop reasons. */
	__u64 dropped[REASONS_MAX];
};

struct scratch {
	struct counters counters;
	__u32 used_word;
	__u32 unused;
	__u64 drawn;
	__u16 identifications[IDENTIFICATIONS];
	/* The packet at hand: a program's stack is small. */
	struct packet packet;
	struct rewrite rewrite;
};

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
