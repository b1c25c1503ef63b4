/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What each processor keeps for itself: counters, and where its searches ended. One cache line
 * after another, so that the path of a known session touches one.
 */
#ifndef TOMBOLO_SCRATCH_H
#define TOMBOLO_SCRATCH_H

#include "parse.h"
#include "plan.h"
#include "ports.h"
#include "rewrite.h"

#define IDENTIFICATIONS 512

/* What was worked out for the binding that an inside endpoint is likely to need (look_ahead in bind.h). Nothing
 * was taken yet: whoever goes by it asks whether it still holds.
 */
struct ahead {
	/* Whose it is. */
	__u64 hash;
	/* The number that the index has for the subscriber; 0 if it was not asked, or has none. */
	__u32 subscriber;
	/* The outside address that the port was drawn for, in the processor's byte order; 0 if it was used,
	 * or may not be.
	 */
	__u32 address;
	struct drawn_port port;
};

/* src/record/counters.rs has the counters; the rest is the program's own. */
struct scratch {
	struct counters counters;
	__u32 used_word;
	/* Bindings made one after the other (ahead.h). */
	__u32 made_in_a_row;
	__u64 drawn;
	struct ahead ahead;
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
