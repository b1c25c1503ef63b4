/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* New bindings of subscribers that were admitted: crates/engine/src/mechanism/napt/bind.rs, in the
 * kernel.
 *
 * The engine has granted an outside address, and where there are blocks of ports, some of these. The
 * port is drawn here:
 *
 *	port by port     any port of the address that is handed out
 *	in blocks        one of a block that the subscriber has
 *	deterministic    one of its share
 *
 * In a cluster a port of the first kind is drawn while this node may grant it (slice.h); the others are the
 * subscriber's already.
 *
 * A few are drawn, each of those that suit the inside port best. If none of them is free the engine
 * looks at all, hands out one that suits less or one that is kept back, grants another block, or
 * refuses. Rates of new bindings are the engine's, too.
 */
#ifndef TOMBOLO_BIND_H
#define TOMBOLO_BIND_H

#include "ahead.h"
#include "binding.h"
#include "parse.h"
#include "ports.h"
#include "share.h"
#include "slice.h"

static __always_inline __u64 draw(struct scratch *scratch)
{
	/* The kernel's numbers are good but not secret; what is mixed in is. */
	scratch->drawn = mix(scratch->drawn + bpf_get_prandom_u32() + plan.secret[0]);
	return scratch->drawn;
}

/* How many outside ports are drawn. An address, a block or a share that is nearly full is the
 * engine's business.
 */
#define PORTS_DRAWN 8

/* A block of those that a subscriber has, each as its place in the address plus one, chosen by a
 * random number; 0 if it has none.
 */
static __always_inline __u32 draw_block(__u64 blocks, __u32 random)
{
	__u64 held = 0;

#pragma unroll
	for (int n = 0; n < MOST_BLOCKS; n++)
		held += 1 - is_zero(blocks >> 16 * n & 0xffff);
	return blocks >> 16 * (random * held >> 32) & 0xffff;
}

/* Whether ports are nobody's before one is drawn. */
static __always_inline bool draws_one_by_one(const volatile struct service *service)
{
	return !service->allocation.share_size && !service->allocation.block_size;
}

/* Where a subscriber may have a port of its outside address: in its share, in one of its blocks, or
 * anywhere.
 */
static __always_inline struct places places_for(const volatile struct service *service,
						const volatile struct pool_ports *ports,
						const struct subscriber *subscriber, __u32 address,
						const struct inside_key *key, __u32 random)
{
	const volatile struct allocation *allocation = &service->allocation;

	if (allocation->share_size) {
		int first = first_place_of_share(key, address);

		return (struct places){ first, first < 0 ? 0 : allocation->share_size };
	}
	if (allocation->block_size) {
		__u32 block = draw_block(READ(subscriber->blocks), random);

		if (!block)
			return (struct places){ 0, 0 };
		return places_of_block(ports, allocation->block_size, block - 1);
	}
	return (struct places){ 0, ports->count };
}

/* Draws one of the ports at `places` that suits the inside port best (RFC 4787 REQ-3 and REQ-4;
 * mapping/pool.rs, pass 0), with those of its run that are at `places` too; false if the draw does not.
 */
static __always_inline bool draw_port(const volatile struct service *service, __u32 space,
				      const volatile struct pool_ports *ports,
				      const struct places *places, __u16 inside_port, __u32 random,
				      struct port_in_run *drawn)
{
	__u32 before = (__u64)random * places->count >> 32, after;

	if (!places->count || !find_port(ports, places->first + before, drawn))
		return false;
	after = places->count - 1 - before;
	if (drawn->port - drawn->first > before)
		drawn->first = drawn->port - before;
	if (drawn->last - drawn->port > after)
		drawn->last = drawn->port + after;
	/* The other one of the two that differ in the last bit, if it may be had as well. */
	if ((drawn->port ^ inside_port) & 1 && space == SPACE_UDP &&
	    service->flags & SERVICE_PARITY)
		drawn->port ^= 1;
	return true;
}

/* Leaves those of the ports that may stand for an inside one. */
static __always_inline void keep_suitable(struct port_in_run *drawn, __u16 inside_port)
{
	__u32 first = inside_port < 1024 ? 1 : 1024, last = inside_port < 1024 ? 1023 : 65535;

	if (drawn->first < first)
		drawn->first = first;
	if (drawn->last > last)
		drawn->last = last;
}

/* Ticks for which a closed port is kept back: napt/times.rs, port_rest. The verifier cuts out what is asked in clusters. */
static __always_inline __u32 port_rest(const volatile struct service *service, __u32 space)
{
	if (plan.cluster.rest && draws_one_by_one(service))
		return plan.cluster.rest;
	/* RFC 6888 REQ-8 (a) and (c). */
	return space == SPACE_TCP ? 0 : plan.reuse_port_after;
}

#define NO_PORT_DRAWN ((struct drawn_port){ .slot = SLOT_NONE })

/* The port of an outside address that a random number draws for an inside endpoint of a subscriber. */
static __always_inline struct drawn_port port_drawn_by(__u64 random,
						       const volatile struct service *service,
						       const struct subscriber *subscriber,
						       __u32 address, const struct inside_key *key,
						       __u32 space)
{
	const volatile struct pool_range *range = pool_range_of(service, address);
	const volatile struct pool_ports *ports;
	__u16 inside_port = bpf_ntohs(key->port);
	struct port_in_run drawn;
	struct places places;
	__u32 kind = space & 3;

	if (!range)
		return NO_PORT_DRAWN;
	/* Hidden: clang would set its bits where those of the range's place are always clear, instead of
	 * adding, and of a number made so the verifier knows a bound beyond the plan's end.
	 */
	barrier_var(kind);
	ports = &range->handed_out[kind];
	places = places_for(service, ports, subscriber, address, key, random);
	if (!draw_port(service, space, ports, &places, inside_port, random >> 32, &drawn))
		return NO_PORT_DRAWN;
	if (space != SPACE_ICMP)
		keep_suitable(&drawn, inside_port);
	if (drawn.port < drawn.first || drawn.port > drawn.last)
		return NO_PORT_DRAWN;
	return (struct drawn_port){ slot_of(range, address, space, drawn.port), drawn.port,
				    drawn.first, drawn.last, 0 };
}

/* Draws a port for an inside endpoint of a subscriber by a random number, and leaves it in scratch.ahead; false if
 * there is nothing to draw for.
 *
 * A global function, as the next one, so that the verifier looks at one draw and not at each way through several.
 */
__noinline int draw_ahead(const struct inside_key *key, __u32 subscriber_id, __u32 space,
			  __u64 random)
{
	struct subscriber *subscriber = RECORD(subscribers, subscriber_id);
	struct scratch *scratch = RECORD(per_processor, 0);
	const volatile struct service *service;
	__u32 address;

	if (!key || !subscriber || !scratch)
		return false;
	service = service_at(key->place);
	address = bpf_ntohl(READ(subscriber->outside4));
	scratch->ahead.port = port_drawn_by(random, service, subscriber, address, key, space);
	/* Which blocks a subscriber has is asked when it is certain that it stays. */
	scratch->ahead.address = service->allocation.block_size ? 0 : address;
	return true;
}

/* Claims the slot of the port that was drawn, or, where somebody has it, of another one in the same line of
 * memory, which has been waited for already (RFC 6056 section 3.3.1 goes on from a port that is taken as well).
 * Every other one, for the sake of parity. The port; negative if all are taken.
 */
__noinline int claim_drawn(__u32 id, __u32 now, __u32 rest)
{
	struct scratch *scratch = RECORD(per_processor, 0);
	struct drawn_port drawn;
	struct slot_line *line;
	__u32 own, at;

	if (!scratch || scratch->ahead.port.slot == SLOT_NONE)
		return -1;
	drawn = scratch->ahead.port;
	line = RECORD(outside_index, drawn.slot / SLOTS_OF_A_LINE);
	if (!line)
		return -1;
	at = own = drawn.slot % SLOTS_OF_A_LINE;
#pragma nounroll
	for (int tried = 0; tried < SLOTS_OF_A_LINE / 2; tried++) {
		__u32 port = drawn.port - own + at;

		if (port >= drawn.first && port <= drawn.last &&
		    claim_slot(&line->slot[at], id, now, rest))
			return port;
		at = (at + 2) % SLOTS_OF_A_LINE;
	}
	return -1;
}

/* Claims an outside port for binding `id`, first the one that was drawn ahead; negative if no draw was free. */
static __always_inline int claim_port(struct scratch *scratch, const struct inside_key *key,
				      __u32 subscriber_id, __u32 address, __u32 space, __u32 id,
				      __u32 now)
{
	__u32 rest = port_rest(service_at(key->place), space);
	int port = -1;

#pragma nounroll
	for (int tried = 0; tried < PORTS_DRAWN && port < 0; tried++) {
		if (scratch->ahead.address != address &&
		    !draw_ahead(key, subscriber_id, space, draw(scratch)))
			break;
		scratch->ahead.address = 0;
		port = claim_drawn(id, now, rest);
	}
	return port;
}

/* Makes a binding on a claimed record and slot; false if another writer is at an inside endpoint with
 * the same hash.
 */
__noinline int link_binding(__u64 hash, __u32 id)
{
	struct buckets at = buckets_of(hash, plan.inside_buckets);
	struct index_bucket *first = RECORD(inside_index, at.first),
			    *second = RECORD(inside_index, at.second);
	struct binding *record = RECORD(bindings, id);

	if (!record || !first || !second || !insert_entry(first, second, tag_of(hash), id))
		return false;
	settle_record(&record->life);
	return true;
}

/* Makes a binding of a subscriber that was found: its number, or a miss, negative. */
static __always_inline int bind_for(struct scratch *scratch, struct subscriber *subscriber,
				    __u32 subscriber_id, const struct inside_key *key, __u32 space,
				    __u32 now, __u32 counts_as)
{
	__u32 outside4 = READ(subscriber->outside4), address = bpf_ntohl(outside4), slot, *word;
	const volatile struct pool_range *range = pool_range_of(service_at(key->place), address);
	__u32 id = claim_binding(scratch->ahead.hash);
	struct binding *record = id ? RECORD(bindings, id) : 0;
	int port;

	if (!record)
		return -MISS_NO_RECORD;
	port = range ? claim_port(scratch, key, subscriber_id, address, space, id, now) : -1;
	if (port < 0) {
		free_binding(record, id);
		return -MISS_NO_PORT;
	}
	slot = slot_of(range, address, space, port);
	/* Counted before it can be read: whoever counts again meanwhile (audit.rs) finds too few, and
	 * whoever removes it takes it off.
	 */
	__sync_fetch_and_add(&subscriber->counts, 1);
	publish_binding(record, key,
			&(struct new_binding){ outside4, bpf_htons(port), slot, subscriber_id, now,
					       counts_as });
	if (link_binding(scratch->ahead.hash, id)) {
		note_change(id);
		return id;
	}
	__sync_fetch_and_add(&subscriber->counts, -1ULL);
	word = slot_at(slot);
	if (word)
		SWAP(word, id, 0U);
	free_binding(record, id);
	return -MISS_RACE;
}

/* Whether a host may make bindings: nat64.rs, `inside`. Who has one already was asked when it was made, so
 * that no other packet costs anything.
 */
static __always_inline bool is_admitted(const volatile struct service *service,
					const struct inside_key *key)
{
	__u32 count = service->inside_networks;

	return !count || is_in_networks(service, count, key->address);
}

/* Who the subscriber of an inside endpoint is (napt/policy.rs, SubscriberIs::key). */
static __always_inline struct subscriber_key subscriber_key(const volatile struct service *service,
							    const struct inside_key *key)
{
	return (struct subscriber_key){
		.address = { key->address[0] & service->subscriber_mask[0],
			     key->address[1] & service->subscriber_mask[1] },
		.address4 = service->by_softwire ? 0 : key->address4,
		.service = key->service,
	};
}

/* Finds the subscriber of an inside endpoint, which was admitted, and notes that it is used: none if it was
 * not, or is going. Its number may be known, or 0.
 */
static __always_inline struct subscriber *use_subscriber(const volatile struct service *service,
							 const struct inside_key *key, __u32 known,
							 __u32 now, __u32 *id)
{
	struct subscriber_key owner = subscriber_key(service, key);
	struct subscriber *subscriber = find_subscriber(&owner, known, id);

	if (!subscriber || (plan.notes_changes && READ(subscriber->flags) & SUBSCRIBER_COPIED) ||
	    !touch(&subscriber->life, now))
		return 0;
	/* The record may have become another's before it was touched. From then on it stays. */
	return is_subscriber(subscriber, &owner) ? subscriber : 0;
}

/* Looks at all that a new binding will wait for, so that the processor waits for what is far away at once, and not
 * for one line after the other: the subscriber, where the record may be, which records are free, the index, and the
 * slot of the port that is drawn. Nothing is taken from any of it; what was found out is in scratch.ahead.
 *
 * A processor goes on for one or two hundred instructions while it waits: all addresses are worked out first, but
 * for the slot's, which follows from what the subscriber's record says.
 */
__noinline int look_ahead(const struct inside_key *key, __u32 space)
{
	struct scratch *scratch = RECORD(per_processor, 0);
	const volatile struct service *service;
	struct index_bucket *index[2];
	struct subscriber *subscriber;
	struct subscriber_key owner;
	struct binding *record[4];
	struct buckets at;
	__u64 h, *used[2];
	__u32 *slot;

	if (!key || !scratch)
		return 0;
	service = service_at(key->place);
	owner = subscriber_key(service, key);
	h = inside_hash(key);
	scratch->ahead.hash = h;
	scratch->ahead.subscriber = find_subscriber_number(subscriber_hash(&owner));
	scratch->ahead.address = 0;
	scratch->ahead.port = NO_PORT_DRAWN;
	at = buckets_of(h, plan.binding_pairs);
	record[0] = RECORD(bindings, at.first * 2);
	record[1] = RECORD(bindings, at.first * 2 + 1);
	record[2] = RECORD(bindings, at.second * 2);
	record[3] = RECORD(bindings, at.second * 2 + 1);
	used[0] = RECORD(bindings_used, at.first / 32);
	used[1] = RECORD(bindings_used, at.second / 32);
	at = buckets_of(h, plan.inside_buckets);
	index[0] = RECORD(inside_index, at.first);
	index[1] = RECORD(inside_index, at.second);
	subscriber = RECORD(subscribers, scratch->ahead.subscriber);
	if (!subscriber || !record[0] || !record[1] || !record[2] || !record[3] || !used[0] ||
	    !used[1] || !index[0] || !index[1])
		return 0;
	LOOK_AT(subscriber->life);
	LOOK_AT(record[0]->life);
	LOOK_AT(record[1]->life);
	LOOK_AT(record[2]->life);
	LOOK_AT(record[3]->life);
	LOOK_AT(index[0]->entry[0]);
	LOOK_AT(index[1]->entry[0]);
	LOOK_AT(*used[0]);
	LOOK_AT(*used[1]);
	draw_ahead(key, scratch->ahead.subscriber, space, draw(scratch));
	slot = slot_if_any(scratch->ahead.port.slot);
	if (slot)
		LOOK_AT(*slot);
	return 0;
}

/* Makes a binding for an inside endpoint of a subscriber that was admitted: its number, or a miss,
 * negative.
 */
__noinline int bind(const struct inside_key *key, __u32 space, __u32 now, __u32 counts_as)
{
	struct scratch *scratch = RECORD(per_processor, 0);
	const volatile struct service *service;
	struct subscriber *subscriber;
	__u32 subscriber_id;
	__u64 hash;
	int id;

	if (!key || !scratch)
		return -MISS_RACE;
	service = service_at(key->place);
	if (!is_admitted(service, key))
		return -MISS_POLICY;
	hash = inside_hash(key);
	if (scratch->ahead.hash != hash)
		scratch->ahead = (struct ahead){ .hash = hash };
	subscriber = use_subscriber(service, key, scratch->ahead.subscriber, now, &subscriber_id);
	if (!subscriber)
		return -MISS_NO_SUBSCRIBER;
	if ((__u32)READ(subscriber->counts) >= service->bindings_per_subscriber)
		return -MISS_LIMIT;
	if (service->allocation.block_size && !READ(subscriber->blocks))
		return -MISS_NO_PORT;
	if (draws_one_by_one(service) &&
	    !may_grant_ports(service, bpf_ntohl(READ(subscriber->outside4))))
		return -MISS_NOT_GRANTING;
	id = bind_for(scratch, subscriber, subscriber_id, key, space, now, counts_as);
	if (id > 0)
		scratch->counters.bindings_made++;
	return id;
}

#endif
