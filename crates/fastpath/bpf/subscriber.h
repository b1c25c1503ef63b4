/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Subscribers: crates/tables/src/subscriber.rs. The engine admits and grants; here they are found
 * and counted, and the blocks of ports that they have are read. Rates are the engine's.
 */
#ifndef TOMBOLO_SUBSCRIBER_H
#define TOMBOLO_SUBSCRIBER_H

#include "arena.h"
#include "index.h"

SHARED_ARRAY(subscribers, struct subscriber);
SHARED_ARRAY(subscriber_index, struct index_bucket);

static __always_inline bool is_subscriber(const struct subscriber *record, const __u64 inside[2],
					  __u32 inside4, __u8 service)
{
	return READ(record->inside[0]) == inside[0] && READ(record->inside[1]) == inside[1] &&
	       READ(record->inside4) == inside4 && READ(record->service) == service;
}

/* A subscriber that is admitted already. Its number goes to `id`. */
static __always_inline struct subscriber *find_subscriber(const __u64 inside[2], __u32 inside4,
							  __u8 service, __u32 *id)
{
	__u64 h = hash(inside[0], inside[1], (__u64)inside4 << 8 | service);
	struct buckets at = buckets_of(h, plan.subscriber_buckets);
	struct index_bucket *bucket = RECORD(subscriber_index, at.first);
	struct subscriber *record;
	__u32 tag = tag_of(h);

	*id = bucket ? find_tag(bucket, tag) : 0;
	if (!*id) {
		bucket = RECORD(subscriber_index, at.second);
		*id = bucket ? find_tag(bucket, tag) : 0;
	}
	record = *id ? RECORD(subscribers, *id) : 0;
	if (!record || !is_subscriber(record, inside, inside4, service) ||
	    !is_readable(READ(record->life)))
		return 0;
	return record;
}

#endif
