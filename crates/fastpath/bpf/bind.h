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

/* The number that was drawn ahead, if one was and nobody has used it yet; else a new one. */
static __always_inline __u64 take_drawn(struct scratch *scratch)
{
	if (!(scratch->expected & DRAWN_AHEAD))
		return draw(scratch);
	scratch->expected &= ~DRAWN_AHEAD;
	return scratch->drawn;
}

/* How many outside ports are tried. An address, a block or a share that is nearly full is the
 * engine's business.
 */
#define PORTS_TRIED 8

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
						const struct subscriber *subscriber,
						const struct inside_key *key, __u32 random)
{
	const volatile struct allocation *allocation = &service->allocation;

	if (allocation->share_size) {
		int first = first_place_of_share(key, bpf_ntohl(READ(subscriber->outside4)));

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
 * mapping/pool.rs, pass 0); negative if the draw does not.
 */
static __always_inline int draw_port(const volatile struct service *service, __u32 space,
				     const volatile struct pool_ports *ports,
				     const struct places *places, __u16 inside_port, __u32 random)
{
	__u32 place = places->first + ((__u64)random * places->count >> 32);
	struct port_in_run found;

	if (!places->count || !find_port(ports, place, &found))
		return -1;
	if ((found.port ^ inside_port) & 1 && space == SPACE_UDP &&
	    service->flags & SERVICE_PARITY) {
		/* The other one of the two that differ in the last bit, if it may be had as well. */
		place += found.port & 1 ? -1U : 1U;
		found.port ^= 1;
		if (place - places->first >= places->count || found.port < found.first ||
		    found.port > found.last)
			return -1;
	}
	return found.port;
}

/* Whether an outside port may stand for an inside one. */
static __always_inline bool suits(__u32 port, __u16 inside_port)
{
	return port && (port < 1024) == (inside_port < 1024);
}

/* Ticks for which a closed port is kept back: napt/times.rs, port_rest. The verifier cuts out what is asked in clusters. */
static __always_inline __u32 port_rest(const volatile struct service *service, __u32 space)
{
	if (plan.cluster.rest && draws_one_by_one(service))
		return plan.cluster.rest;
	/* RFC 6888 REQ-8 (a) and (c). */
	return space == SPACE_TCP ? 0 : plan.reuse_port_after;
}

#define NO_PORT_DRAWN ((__u64)SLOT_NONE << 32)

/* The port that a random number draws for an inside endpoint of a subscriber, with its slot in the upper half,
 * SLOT_NONE if none suits.
 */
static __always_inline __u64 port_drawn_by(__u64 random, const volatile struct service *service,
					   const struct subscriber *subscriber,
					   const struct inside_key *key, __u32 space)
{
	__u32 address = bpf_ntohl(READ(subscriber->outside4)), kind = space & 3, slot;
	const volatile struct pool_range *range = pool_range_of(service, address);
	const volatile struct pool_ports *ports;
	struct places places;
	int port;

	if (!range)
		return NO_PORT_DRAWN;
	/* Hidden: clang would set its bits where those of the range's place are always clear, instead of
	 * adding, and of a number made so the verifier knows a bound beyond the plan's end.
	 */
	barrier_var(kind);
	ports = &range->handed_out[kind];
	places = places_for(service, ports, subscriber, key, random);
	port = draw_port(service, space, ports, &places, bpf_ntohs(key->port), random >> 32);
	if (port < 0 || (space != SPACE_ICMP && !suits(port, bpf_ntohs(key->port))))
		return NO_PORT_DRAWN;
	slot = slot_of(range, address, space, port);
	return (__u64)slot << 32 | port;
}

/* Claims the outside port for binding `id` of a subscriber that `random` draws, if it is free; negative if it
 * is not.
 *
 * A global function, so that the verifier looks at one draw and not at each way through several. What
 * it needs fourth is one word, since before 6.13 it may take 128 bytes of stack and no more.
 */
__noinline int claim_drawn_port(const struct inside_key *key, __u32 subscriber_id, __u32 space,
				__u64 now_and_id, __u64 random)
{
	struct subscriber *subscriber = RECORD(subscribers, subscriber_id);
	const volatile struct service *service;
	__u64 drawn;
	__u32 *word;

	if (!key || !subscriber)
		return -1;
	service = service_at(key->place);
	drawn = port_drawn_by(random, service, subscriber, key, space);
	word = slot_if_any(drawn >> 32);
	if (!word || !claim_slot(word, now_and_id, now_and_id >> 32, port_rest(service, space)))
		return -1;
	return (__u32)drawn;
}

/* Claims an outside port for binding `id`; negative if no draw was free. */
static __always_inline int claim_port(struct scratch *scratch, const struct inside_key *key,
				      __u32 subscriber_id, __u32 space, __u32 id, __u32 now)
{
	int port = -1;

#pragma nounroll
	for (int tried = 0; tried < PORTS_TRIED && port < 0; tried++)
		port = claim_drawn_port(key, subscriber_id, space, (__u64)now << 32 | id,
					take_drawn(scratch));
	return port;
}

/* Makes a binding on a claimed record and slot; false if another writer is at the same inside
 * endpoint.
 */
__noinline int link_binding(const struct inside_key *wanted, __u32 id)
{
	struct index_bucket *first, *second;
	struct binding *record = RECORD(bindings, id);
	struct inside_key key;
	struct buckets at;
	__u64 h;

	if (!wanted || !record)
		return false;
	key = *wanted;
	h = inside_hash(&key);
	at = buckets_of(h, plan.inside_buckets);
	first = RECORD(inside_index, at.first);
	second = RECORD(inside_index, at.second);
	if (!first || !second || !insert_entry(first, second, tag_of(h), id))
		return false;
	settle_record(&record->life);
	return true;
}

/* Makes a binding of a subscriber that was found: its number, or a miss, negative. */
static __always_inline int bind_for(struct scratch *scratch, struct subscriber *subscriber,
				    __u32 subscriber_id, const struct inside_key *key, __u32 space,
				    __u32 now, __u32 counts_as)
{
	__u32 outside4 = READ(subscriber->outside4), slot, *word;
	const volatile struct pool_range *range =
		pool_range_of(service_at(key->place), bpf_ntohl(outside4));
	__u32 id = claim_binding(inside_hash(key));
	struct binding *record = id ? RECORD(bindings, id) : 0;
	int port;

	if (!record)
		return -MISS_NO_RECORD;
	port = range ? claim_port(scratch, key, subscriber_id, space, id, now) : -1;
	if (port < 0) {
		free_binding(record, id);
		return -MISS_NO_PORT;
	}
	slot = slot_of(range, bpf_ntohl(outside4), space, port);
	/* Counted before it can be read: whoever counts again meanwhile (audit.rs) finds too few, and
	 * whoever removes it takes it off.
	 */
	__sync_fetch_and_add(&subscriber->counts, 1);
	publish_binding(record, key,
			&(struct new_binding){ outside4, bpf_htons(port), slot, subscriber_id, now,
					       counts_as });
	if (link_binding(key, id)) {
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
 * not, or is going.
 */
static __always_inline struct subscriber *use_subscriber(const volatile struct service *service,
							 const struct inside_key *key, __u32 now,
							 __u32 *id)
{
	struct subscriber_key owner = subscriber_key(service, key);
	struct subscriber *subscriber = find_subscriber(&owner, id);

	if (!subscriber || (plan.notes_changes && READ(subscriber->flags) & SUBSCRIBER_COPIED) ||
	    !touch(&subscriber->life, now))
		return 0;
	/* The record may have become another's before it was touched. From then on it stays. */
	return is_subscriber(subscriber, &owner) ? subscriber : 0;
}

/* Looks at all that a new binding will wait for, so that the processor waits for what is far away at once, and not
 * for one line after the other: the subscriber, where the record may be, the index, and the slot of the port that is
 * drawn. Nothing is taken from any of it.
 *
 * A processor goes on for one or two hundred instructions while it waits: all addresses are worked out first, but
 * for the slot's, which follows from what the subscriber's record says.
 */
__noinline int look_ahead(const struct inside_key *key, __u32 space)
{
	struct scratch *scratch = RECORD(per_processor, 0);
	const volatile struct service *service;
	struct subscriber *subscriber;
	struct index_bucket *index[2];
	struct subscriber_key owner;
	struct binding *record[4];
	struct buckets at;
	__u32 id, *slot;
	__u64 h;

	if (!key || !scratch)
		return 0;
	if (!(scratch->expected & DRAWN_AHEAD)) {
		draw(scratch);
		scratch->expected |= DRAWN_AHEAD;
	}
	service = service_at(key->place);
	owner = subscriber_key(service, key);
	h = inside_hash(key);
	at = buckets_of(h, plan.binding_pairs);
	record[0] = RECORD(bindings, at.first * 2);
	record[1] = RECORD(bindings, at.first * 2 + 1);
	record[2] = RECORD(bindings, at.second * 2);
	record[3] = RECORD(bindings, at.second * 2 + 1);
	at = buckets_of(h, plan.inside_buckets);
	index[0] = RECORD(inside_index, at.first);
	index[1] = RECORD(inside_index, at.second);
	id = find_subscriber_number(subscriber_hash(&owner));
	subscriber = RECORD(subscribers, id);
	if (!subscriber || !record[0] || !record[1] || !record[2] || !record[3] || !index[0] ||
	    !index[1])
		return 0;
	LOOK_AT(subscriber->life);
	LOOK_AT(record[0]->life);
	LOOK_AT(record[1]->life);
	LOOK_AT(record[2]->life);
	LOOK_AT(record[3]->life);
	LOOK_AT(index[0]->entry[0]);
	LOOK_AT(index[1]->entry[0]);
	slot = slot_if_any(port_drawn_by(scratch->drawn, service, subscriber, key, space) >> 32);
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
	int id;

	if (!key || !scratch)
		return -MISS_RACE;
	service = service_at(key->place);
	if (!is_admitted(service, key))
		return -MISS_POLICY;
	subscriber = use_subscriber(service, key, now, &subscriber_id);
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
