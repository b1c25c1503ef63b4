/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The life of a record: crates/tables/src/arena.rs, which says what each step is for.
 *
 *	life     63      32  31         16  15   4  3     0
 *	         | touched  | generation  | tally | stage |
 */
#ifndef TOMBOLO_ARENA_H
#define TOMBOLO_ARENA_H

#include "base.h"

/* A writer that lost so many races in a row leaves the packet to the engine. */
#define RACES_MAX 4

static __always_inline bool is_readable(__u64 life)
{
	__u64 stage = life & LIFE_STAGE;

	return stage == STAGE_LIVE || stage == STAGE_OPENING;
}

/* True if the record that was read under `before` is still the same one. */
static __always_inline bool is_unchanged(__u64 before, __u64 after)
{
	return is_readable(after) && !((before ^ after) & LIFE_GENERATION);
}

/* Notes that something was built upon the record; false if it is not live any more. */
static __always_inline bool touch(__u64 *word, __u32 now)
{
#pragma nounroll
	for (int race = 0; race < RACES_MAX; race++) {
		__u64 life = READ(*word);

		if (!is_readable(life))
			return false;
		if (life >> 32 >= now) {
			ORDER_WORDS();
			return true;
		}
		if (SWAP(word, life, (life & 0xffffffff) | (__u64)now << 32))
			return true;
	}
	return false;
}

/* Makes a published record live. Only its maker calls it, so it races with those alone that touch
 * the record.
 */
static __always_inline void settle_record(__u64 *word)
{
#pragma nounroll
	for (int race = 0; race < 2 * RACES_MAX; race++) {
		__u64 life = READ(*word);

		if ((life & LIFE_STAGE) != STAGE_OPENING)
			return;
		if (SWAP(word, life, (life & ~LIFE_STAGE) | STAGE_LIVE))
			return;
	}
}

/* Adds one to the tally of a record that is live, up to what there is room for; or takes one off,
 * down to none.
 */
static __always_inline void change_tally(__u64 *word, bool more)
{
	__u64 last = more ? LIFE_TALLY : 0;

#pragma nounroll
	for (int race = 0; race < RACES_MAX; race++) {
		__u64 life = READ(*word);

		if (!is_readable(life) || (life & LIFE_TALLY) == last)
			return;
		if (SWAP(word, life, more ? life + LIFE_ONE : life - LIFE_ONE))
			return;
	}
}

#endif
