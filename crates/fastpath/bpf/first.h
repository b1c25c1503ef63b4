/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The first session of a TCP binding, in the binding's record: crates/tables/src/first.rs.
 *
 * 	word     63        32  31          16  15    8  7     0
 * 	         |  remote   | remote port  | state | flags |	     0 = there was none yet
 */
#ifndef TOMBOLO_FIRST_H
#define TOMBOLO_FIRST_H

#include "binding.h"
#include "session.h"

/* Its word without the lower half. */
static __always_inline __u64 first_key(const struct session_key *key)
{
	return (__u64)key->remote << 32 | (key->word & SESSION_PORT);
}

static __always_inline bool is_first(__u64 word, __u64 key)
{
	return !((word ^ key) >> 16) && word & SESSION_STATE;
}

/* What came of opening the first session. */
enum opened_first {
	FIRST_OPENED = 0,
	/* Another session is, or was, the first. */
	FIRST_TAKEN = 1,
	/* Another writer was at it. */
	FIRST_RACED = 2,
};

/* Opens it with state and flags `low`, unless another one was there in the binding's life. */
static __always_inline int open_first(struct binding *record, __u64 key, __u32 low, __u32 now)
{
	__u64 word = READ(record->first);

	if (word && (word ^ key) >> 16)
		return FIRST_TAKEN;
	if (word & SESSION_STATE)
		return FIRST_RACED;
	if (READ(record->seen) != now)
		WRITE(record->seen, now);
	return SWAP(&record->first, word, key | low) ? FIRST_OPENED : FIRST_RACED;
}

/* It is over; its key stays. False if the word is another. */
static __always_inline bool end_first(struct binding *record, __u64 word)
{
	return SWAP(&record->first, word, word & (FIRST_REMOTE | SESSION_PORT));
}

#endif
