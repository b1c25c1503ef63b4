/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Bindings: crates/tables/src/binding.rs, and how one is made in several tables at once: tables.rs.
 */
#ifndef TOMBOLO_BINDING_H
#define TOMBOLO_BINDING_H

#include "arena.h"
#include "index.h"
#include "outside.h"
#include "scratch.h"
#include "subscriber.h"

SHARED_ARRAY(bindings, struct binding);
SHARED_ARRAY(bindings_used, __u64);
SHARED_ARRAY(inside_index, struct index_bucket);

/* Who is bound. */
struct inside_key {
	__u64 address[2];
	__u32 address4;
	__u16 port;
	__u8 protocol;
	__u8 service;
};

/* A binding that was found: what is read of its record counts only if it is still the same one
 * afterwards.
 */
struct bound {
	struct binding *record;
	__u64 life;
	__u32 id;
	/* The tick of the packet that looks. */
	__u32 now;
};

static __always_inline __u8 protocol_of(__u8 space)
{
	return space == SPACE_TCP ? IPPROTO_TCP : space == SPACE_UDP ? IPPROTO_UDP : IPPROTO_ICMP;
}

static __always_inline __u64 inside_hash(const struct inside_key *key)
{
	__u64 tail = key->address4 | (__u64)key->port << 32 | (__u64)key->protocol << 48 |
		     (__u64)key->service << 56;

	return hash(key->address[0], key->address[1], tail);
}

/* Looks at the record of binding `id`; false if it is not live. */
static __always_inline bool look_at_binding(__u32 id, struct bound *bound)
{
	struct binding *record = RECORD(bindings, id);

	if (!record)
		return false;
	bound->record = record;
	bound->id = id;
	bound->life = READ(record->life);
	/* What follows is the record as it was published, or a later one. */
	ORDER_READS();
	return is_readable(bound->life);
}

/* To be asked when all that is wanted of the record was read. */
static __always_inline bool is_still_bound(const struct bound *bound)
{
	ORDER_READS();
	return is_unchanged(bound->life, READ(bound->record->life));
}

static __always_inline bool is_bound_to(const struct binding *record, const struct inside_key *key)
{
	return READ(record->inside[0]) == key->address[0] &&
	       READ(record->inside[1]) == key->address[1] &&
	       READ(record->inside4) == key->address4 && READ(record->inside_port) == key->port &&
	       READ(record->protocol) == key->protocol && READ(record->service) == key->service;
}

/* The binding of an inside endpoint. */
static __always_inline bool find_inside(const struct inside_key *key, struct bound *bound)
{
	__u64 h = inside_hash(key);
	struct buckets at = buckets_of(h, plan.inside_buckets);
	struct index_bucket *bucket = RECORD(inside_index, at.first);
	__u32 tag = tag_of(h);
	__u32 id = bucket ? find_tag(bucket, tag) : 0;

	if (!id) {
		bucket = RECORD(inside_index, at.second);
		id = bucket ? find_tag(bucket, tag) : 0;
	}
	return id && look_at_binding(id, bound) && is_bound_to(bound->record, key);
}

/* The binding that has an outside slot. */
static __always_inline bool find_outside(__u32 slot, __u8 protocol, __u8 service,
					 struct bound *bound)
{
	__u32 id = owner_of_slot(slot);

	return id && look_at_binding(id, bound) && READ(bound->record->outside_slot) == slot &&
	       READ(bound->record->protocol) == protocol && READ(bound->record->service) == service;
}

/* How many words of the bitmap are looked at for a free record. */
#define USED_WORDS_TRIED 8

/* Claims a free record; 0 if none was found near the last one of this processor. */
__noinline __u32 claim_binding(void)
{
	struct scratch *scratch = RECORD(per_processor, 0);
	__u32 at;

	if (!scratch)
		return 0;
	at = scratch->used_word;
	for (int tried = 0; tried < USED_WORDS_TRIED; tried++, at++) {
		__u64 *word, taken, bit;
		struct binding *record;
		__u32 id;

		if (at >= plan.used_words)
			at = 0;
		word = RECORD(bindings_used, at);
		if (!word)
			return 0;
		/* Number 0 stands for "none". */
		taken = READ(*word) | (at == 0);
		if (taken == ~0ULL)
			continue;
		bit = lowest_zero(taken);
		id = at * 64 + bit;
		if (id > plan.bindings)
			continue;
		scratch->used_word = at;
		if (__sync_fetch_and_or(word, 1ULL << bit) >> bit & 1)
			continue;
		record = RECORD(bindings, id);
		if (!record)
			return 0;
		WRITE(record->life, ((READ(record->life) + LIFE_ONE_GENERATION) & LIFE_GENERATION) |
					    STAGE_BUILDING);
		/* Whoever sees what fills the record sees that it is another one. */
		ORDER_WORDS();
		return id;
	}
	scratch->used_word = at;
	return 0;
}

static __always_inline void free_binding(struct binding *record, __u32 id)
{
	__u64 *word = RECORD(bindings_used, id / 64);

	WRITE(record->life, (READ(record->life) & LIFE_GENERATION) | STAGE_FREE);
	/* The next one to claim the record writes its life behind this. The compiler may make an
	 * atomic operation of the line below that orders nothing.
	 */
	ORDER_WORDS();
	if (word)
		__sync_fetch_and_and(word, ~(1ULL << id % 64));
}

/* What a binding is made of beside its key. */
struct new_binding {
	__u32 outside4;
	__u16 outside_port;
	__u32 outside_slot;
	__u32 subscriber;
	__u32 now;
};

/* Fills a claimed record and makes it readable. */
static __always_inline void publish_binding(struct binding *record, const struct inside_key *key,
					    const struct new_binding *made)
{
	WRITE(record->inside[0], key->address[0]);
	WRITE(record->inside[1], key->address[1]);
	WRITE(record->inside4, key->address4);
	WRITE(record->outside4, made->outside4);
	WRITE(record->inside_port, key->port);
	WRITE(record->outside_port, made->outside_port);
	WRITE(record->protocol, key->protocol);
	WRITE(record->service, key->service);
	WRITE(record->flags, 0);
	WRITE(record->subscriber, made->subscriber);
	WRITE(record->outside_slot, made->outside_slot);
	WRITE(record->created, made->now);
	WRITE(record->unused, 0);
	WRITE(record->unanswered, 0);
	ORDER_WRITES();
	WRITE(record->life,
	      (READ(record->life) & LIFE_GENERATION) | STAGE_OPENING | (__u64)made->now << 32);
}

#endif
