/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* From a key to the id of a record: crates/tables/src/index.rs, which says how several writers
 * agree.
 *
 * 	entry    63          32  31       30         0
 * 	         |    tag     | pending |     id     |      0 = free
 */
#ifndef TOMBOLO_INDEX_H
#define TOMBOLO_INDEX_H

#include "hash.h"

/* The first live entry of a bucket with `tag`; 0 if there is none. Whether its record has the key,
 * the caller looks: of two records with one tag in one bucket (once in 10^8 look-ups) the second is
 * left to the engine.
 */
static __always_inline __u32 find_tag(struct index_bucket *bucket, __u32 tag)
{
	__u64 wanted = (__u64)tag << 1;

#pragma unroll
	for (int n = 0; n < 8; n++) {
		__u64 word = READ(bucket->entry[n]);

		if (word >> 31 == wanted)
			return word & INDEX_ID;
	}
	return 0;
}

static __always_inline __u64 free_entries(struct index_bucket *bucket)
{
	__u64 count = 0;

#pragma unroll
	for (int n = 0; n < 8; n++)
		count += is_zero(READ(bucket->entry[n]) >> 1);
	return count;
}

/* Publishes a pending word in a bucket; none if the bucket is full. */
static __always_inline __u64 *publish_entry(struct index_bucket *bucket, __u64 word)
{
#pragma unroll
	for (int n = 0; n < 8; n++)
		if (READ(bucket->entry[n]) == 0 && SWAP(&bucket->entry[n], 0ULL, word))
			return &bucket->entry[n];
	return 0;
}

/* Entries with the tag, pending or not. */
static __always_inline __u64 entries_with(struct index_bucket *bucket, __u32 tag)
{
	__u64 count = 0;

#pragma unroll
	for (int n = 0; n < 8; n++)
		count += is_zero((READ(bucket->entry[n]) >> 32) ^ tag);
	return count;
}

/* Puts `id` under `hash` if no other entry has the tag; the record must be complete. Where another
 * writer is at the same key, or the tag is there already, this one takes its entry back and leaves
 * the packet to the engine: giving up is always allowed, and waiting is not for programs.
 */
static __always_inline bool insert_entry(struct index_bucket *first, struct index_bucket *second,
					 __u32 tag, __u32 id)
{
	__u64 live = (__u64)tag << 32 | id, count;
	struct index_bucket *chosen = is_less(free_entries(first), free_entries(second)) ? second :
											   first;
	__u64 *mine = publish_entry(chosen, live | INDEX_PENDING);

	if (!mine)
		return false;
	count = entries_with(first, tag);
	if (first != second)
		count += entries_with(second, tag);
	if (count > 1) {
		SWAP(mine, live | INDEX_PENDING, 0ULL);
		return false;
	}
	return SWAP(mine, live | INDEX_PENDING, live);
}

#endif
