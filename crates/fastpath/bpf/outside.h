/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* From an outside endpoint to its binding, without hashing: crates/tables/src/outside.rs.
 *
 *	slot, 32 bits    0                      free
 *	                 0 | binding id (31)    taken by the binding
 *	                 1 | tick (31)          closed at that tick, kept back for a while
 */
#ifndef TOMBOLO_OUTSIDE_H
#define TOMBOLO_OUTSIDE_H

#include "plan.h"
#include "tick.h"

#define SLOT_NONE 0xffffffffU
#define SLOTS_OF_A_LINE 16

struct slot_line {
	__u32 slot[SLOTS_OF_A_LINE];
};

SHARED_ARRAY(outside_index, struct slot_line);

static __always_inline __u32 *slot_at(__u32 number)
{
	struct slot_line *line = RECORD(outside_index, number / SLOTS_OF_A_LINE);

	return line ? &line->slot[number % SLOTS_OF_A_LINE] : 0;
}

/* The word of a slot; none where there is no slot. */
static __always_inline __u32 *slot_if_any(__u32 number)
{
	return number == SLOT_NONE ? 0 : slot_at(number);
}

/* The slot of an outside endpoint; SLOT_NONE if the range does not have it. Both in the processor's
 * byte order.
 */
static __always_inline __u32 slot_of(const volatile struct pool_range *range, __u32 address,
				     __u8 space, __u16 port)
{
	__u32 width = (__u32)range->span.last - range->span.first + 1;

	if (port < range->span.first || port > range->span.last)
		return SLOT_NONE;
	return range->first_slot + ((address - range->addresses.first) * 3 + space) * width + port -
	       range->span.first;
}

/* The binding that has the slot; 0 if none has. */
static __always_inline __u32 owner_of_slot(__u32 number)
{
	__u32 *slot = slot_if_any(number);
	__u32 word = slot ? READ(*slot) : 0;

	return word & SLOT_CLOSED ? 0 : word;
}

/* Gives a slot to `id` if it is free, or was closed `reuse_after` ticks ago or more. */
static __always_inline bool claim_slot(__u32 *slot, __u32 id, __u32 now, __u32 reuse_after)
{
	__u32 word = READ(*slot);

	if (word && !(word & SLOT_CLOSED))
		return false;
	if (word && ticks_since(now, word & ~SLOT_CLOSED) < reuse_after)
		return false;
	return SWAP(slot, word, id);
}

#endif
