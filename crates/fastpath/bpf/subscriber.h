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

/* Who it is. */
struct subscriber_key {
	__u64 address[2];
	__u32 address4;
	__u8 service;
};

static __always_inline bool is_subscriber(const struct subscriber *record,
					  const struct subscriber_key *key)
{
	return READ(record->inside[0]) == key->address[0] &&
	       READ(record->inside[1]) == key->address[1] &&
	       READ(record->inside4) == key->address4 && READ(record->service) == key->service;
}

static __always_inline __u64 subscriber_hash(const struct subscriber_key *key)
{
	return hash(key->address[0], key->address[1], (__u64)key->address4 << 8 | key->service);
}

/* The number that the index has for a subscriber with this hash; 0 if it has none. */
static __always_inline __u32 find_subscriber_number(__u64 h)
{
	struct buckets at = buckets_of(h, plan.subscriber_buckets);
	struct index_bucket *first = RECORD(subscriber_index, at.first),
			    *second = RECORD(subscriber_index, at.second);
	__u32 tag = tag_of(h), id;

	if (!first || !second)
		return 0;
	/* Half of them are in the second one: it comes while the first one is waited for. */
	LOOK_AT(second->entry[0]);
	id = find_tag(first, tag);
	return id ? id : find_tag(second, tag);
}

/* A subscriber that is admitted already; `known` is its number, or 0. The number goes to `id`. */
static __always_inline struct subscriber *find_subscriber(const struct subscriber_key *key,
							  __u32 known, __u32 *id)
{
	struct subscriber *record;

	*id = known ? known : find_subscriber_number(subscriber_hash(key));
	record = *id ? RECORD(subscribers, *id) : 0;
	if (!record || !is_subscriber(record, key) || !is_readable(READ(record->life)))
		return 0;
	return record;
}

#endif
