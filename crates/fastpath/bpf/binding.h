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
SHARED_ARRAY(bindings_changed, __u64);
SHARED_ARRAY(bindings_changed_words, __u64);

/* Who is bound. */
struct inside_key {
	__u64 address[2];
	__u32 address4;
	__u16 port;
	__u8 protocol;
	__u8 service;
	/* Where the service stands in the plan: no part of the key. */
	__u64 place;
};

/* A binding that was found: what is read of its record counts only if it is still the same one
 * afterwards.
 */
struct bound {
	struct binding *record;
	__u64 life;
	__u32 id;
	/* The tick of the packet that looks, and the one that it counts as for what it keeps. */
	__u32 now;
	__u32 counts_as;
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

/* Bits of the fourth word of a record that belong to the key: port, protocol, service. */
#define KEY_OF_PORTS 0x0000ffff0000ffffULL

/* 1 if the record is settled and has the key, without a branch. */
static __always_inline __u64 is_settled_as(const struct binding *record,
					   const struct inside_key *key, __u64 ports)
{
	__u64 differs = (READ(record->inside[0]) ^ key->address[0]) |
			(READ(record->inside[1]) ^ key->address[1]) |
			(READ(record->inside4) ^ key->address4) |
			((READ(*(const __u64 *)&record->inside_port) ^ ports) & KEY_OF_PORTS) |
			((READ(record->life) & LIFE_STAGE) ^ STAGE_LIVE);

	return is_zero((differs | differs >> 32) & 0xffffffff);
}

/* The number of the record of a pair that is settled and has the key; 0 if neither is. Both lines are
 * asked for before the first is waited for.
 */
static __always_inline __u32 find_in_pair(__u32 pair, const struct inside_key *key)
{
	__u64 ports = key->port | (__u64)key->protocol << 32 | (__u64)key->service << 40;
	struct binding *a = RECORD(bindings, pair * 2), *b = RECORD(bindings, pair * 2 + 1);

	if (!a || !b)
		return 0;
	return (-is_settled_as(a, key, ports) & pair * 2) |
	       (-is_settled_as(b, key, ports) & (pair * 2 + 1));
}

/* The number of a binding whose record is at home (crates/tables/src/home.rs); 0 if it is not. */
static __always_inline __u32 find_at_home(const struct inside_key *key, __u64 hash)
{
	struct buckets home = buckets_of(hash, plan.binding_pairs);
	__u32 number = find_in_pair(home.first, key);

	return number ? number : find_in_pair(home.second, key);
}

/* The binding of an inside endpoint, by the index. */
static __noinline __u32 find_in_index(__u64 h)
{
	struct buckets at = buckets_of(h, plan.inside_buckets);
	struct index_bucket *bucket = RECORD(inside_index, at.first);
	__u32 tag = tag_of(h);
	__u32 id = bucket ? find_tag(bucket, tag) : 0;

	if (id)
		return id;
	bucket = RECORD(inside_index, at.second);
	return bucket ? find_tag(bucket, tag) : 0;
}

/* The binding of an inside endpoint. */
static __always_inline bool find_inside(const struct inside_key *key, struct bound *bound)
{
	__u64 h = inside_hash(key);
	__u32 id = find_at_home(key, h);

	if (!id)
		id = find_in_index(h);
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

/* Whether a binding is a copy of what another node of the cluster has, and only the engine knows who serves it.
 * Else the packet would have been redirected (slice.h), but that this node serves in the other one's place.
 */
static __always_inline bool is_copied(const volatile struct service *service,
				      const struct bound *bound)
{
	if (!plan.notes_changes || !(READ(bound->record->flags) & BINDING_COPIED))
		return false;
	return !(service->slicing & SLICED) || service->slicing & SLICED_BY_ENGINE;
}

/* How many words of the bitmap are looked at for a free record. */
#define USED_WORDS_TRIED 8

/* Claims record `id`, if it is free. */
static __always_inline bool claim_binding_at(__u32 id)
{
	__u64 *word = RECORD(bindings_used, id / 64), bit = 1ULL << id % 64;
	struct binding *record = RECORD(bindings, id);

	if (!word || !record || !id || id > plan.bindings || READ(*word) & bit)
		return false;
	if (__sync_fetch_and_or(word, bit) & bit)
		return false;
	WRITE(record->life,
	      ((READ(record->life) + LIFE_ONE_GENERATION) & LIFE_GENERATION) | STAGE_BUILDING);
	/* Whoever sees what fills the record sees that it is another one. */
	ORDER_WORDS();
	return true;
}

/* Claims a record of a pair; 0 if none is free. */
static __always_inline __u32 claim_in_pair(__u32 pair)
{
	if (claim_binding_at(pair * 2))
		return pair * 2;
	return claim_binding_at(pair * 2 + 1) ? pair * 2 + 1 : 0;
}

/* Claims a record of word `at` of the bitmap; 0 if none is free, or somebody else was faster. */
__noinline __u32 claim_in_word(__u32 at)
{
	__u64 *word = RECORD(bindings_used, at), taken;
	__u32 id;

	if (!word)
		return 0;
	/* Number 0 stands for "none". */
	taken = READ(*word) | (at == 0);
	if (taken == ~0ULL)
		return 0;
	id = at * 64 + lowest_zero(taken);
	return claim_binding_at(id) ? id : 0;
}

/* Claims a free record for a binding with this hash: at home, or near the last one of this processor;
 * 0 if none was found.
 */
__noinline __u32 claim_binding(__u64 hash)
{
	struct scratch *scratch = RECORD(per_processor, 0);
	struct buckets home = buckets_of(hash, plan.binding_pairs);
	__u32 at, claimed;

	if (!scratch)
		return 0;
	claimed = claim_in_pair(home.first);
	if (!claimed)
		claimed = claim_in_pair(home.second);
	if (claimed)
		return claimed;
	at = scratch->used_word;
#pragma nounroll
	for (int tried = 0; tried < USED_WORDS_TRIED; tried++, at++) {
		if (at >= plan.used_words)
			at = 0;
		claimed = claim_in_word(at);
		if (claimed)
			break;
	}
	scratch->used_word = at;
	return claimed;
}

/* Notes that binding `id` has changed, where somebody copies the tables: crates/tables/src/changes.rs. An
 * exchange whose result is used orders everything around it.
 */
static __always_inline void note_change(__u32 id)
{
	__u64 *word, *summary, bit = 1ULL << id % 64, of_summary = 1ULL << id / 4096 % 64;

	if (!plan.notes_changes)
		return;
	word = RECORD(bindings_changed, id / 64);
	summary = RECORD(bindings_changed_words, id / (64 * 4096));
	if (!word || !summary || __sync_fetch_and_or(word, bit) & bit)
		return;
	if (!(READ(*summary) & of_summary))
		__sync_fetch_and_or(summary, of_summary);
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
	__u32 counts_as;
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
	WRITE(record->seen, made->now);
	WRITE(record->first, 0);
	ORDER_WRITES();
	WRITE(record->life, (READ(record->life) & LIFE_GENERATION) | STAGE_OPENING |
				    (__u64)made->counts_as << 32);
}

#endif
