/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Address and port translation with state: crates/engine/src/mechanism/napt/state.rs, in the kernel.
 *
 * Known sessions are moved on and refreshed; bindings (bind.h) and sessions are made where that is
 * mechanical. Left to the engine: admitting a subscriber, what is near a limit or contested,
 * sessions that have died, permissions of address-dependent filtering.
 */
#ifndef TOMBOLO_NAPT_H
#define TOMBOLO_NAPT_H

#include "ahead.h"
#include "bind.h"
#include "first.h"
#include "parse.h"
#include "session.h"
#include "shortcut.h"

/* True if `port` of the remote says that a helper listens to the connection: napt/helped.rs. */
static __always_inline bool is_helped(const volatile struct service *service, __u8 space,
				      __u16 port)
{
	return space == SPACE_TCP && service->control_port && service->control_port == port;
}

/* True if the packet may make state: anything but TCP, and SYN. */
static __always_inline bool opens(const struct packet *packet)
{
	return packet->space != SPACE_TCP || packet->event == EVENT_SYN;
}

static __always_inline bool filters_by_address(const volatile struct service *service, __u8 space)
{
	return service->flags & (SERVICE_ADDRESS_DEPENDENT << space);
}

/* Whether packets make sessions: napt/policy.rs. */
static __always_inline bool keeps_sessions(const volatile struct service *service, __u8 space)
{
	return space == SPACE_TCP || service->flags & SERVICE_KEEPS_SESSIONS ||
	       filters_by_address(service, space);
}

static __always_inline __u8 initial_state(__u8 space, __u8 side)
{
	if (space == SPACE_UDP)
		return STATE_UDP;
	if (space == SPACE_ICMP)
		return STATE_ICMP;
	return side == SIDE_INSIDE ? STATE_INSIDE_INIT : STATE_OUTSIDE_INIT;
}

/* What a state counts as after `idle` ticks of silence; 0 if the session is dead. */
static __always_inline __u8 effective_state(__u8 state, __u32 idle)
{
	if (idle < plan.lifetimes[state & 15])
		return state;
	if (state == STATE_ESTABLISHED && idle < plan.reuse_after[STATE_ESTABLISHED])
		return STATE_TRANS;
	return 0;
}

static __always_inline bool is_reset(__u8 state)
{
	return state == STATE_RESET || state == STATE_RESET_INSIDE || state == STATE_RESET_OUTSIDE;
}

/* The tick that a packet counts as for what it keeps, to or from `port` of a remote: an earlier one where
 * the port has a time of its own (napt/short_ports.rs). The verifier cuts out the entries that there are not.
 */
static __always_inline __u32 counts_as(__u8 space, __u16 port, __u32 now)
{
	if (!plan.short_ports[0].earlier || space != SPACE_UDP)
		return now;
#pragma unroll
	for (int n = 0; n < SHORT_PORTS_MAX; n++) {
		__u32 earlier = plan.short_ports[n].earlier;

		if (earlier && plan.short_ports[n].port == port)
			return now > earlier ? now - earlier : 1;
	}
	return now;
}

/* A session that was found, in its entry or in the binding's record, and what was read of it. */
struct sighting {
	__u64 *place;
	__u32 *seen_at;
	/* Its word without the lower half. */
	__u64 key;
	__u64 word;
	__u32 seen;
	__u8 effective;
};

/* The session of a packet on a binding, if there is one. */
static __always_inline bool find(const struct bound *bound, const struct session_key *key,
				 __u8 space, struct sighting *sighting)
{
	struct session *entry;

	sighting->key = first_key(key);
	if (space == SPACE_TCP && is_first(READ(bound->record->first), sighting->key)) {
		sighting->place = &bound->record->first;
		sighting->seen_at = &bound->record->seen;
		return true;
	}
	entry = find_session(key);
	if (!entry)
		return false;
	sighting->key = key->word;
	sighting->place = &entry->word;
	sighting->seen_at = &entry->seen;
	return true;
}

/* Looks at the session that was found; false if it is dead. */
static __always_inline bool look_at_session(struct sighting *sighting, __u32 now)
{
	/* It was found by its remote. */
	ORDER_WORDS();
	sighting->word = READ(*sighting->place);
	sighting->seen = READ(*sighting->seen_at);
	sighting->effective =
		effective_state(state_of(sighting->word), ticks_since(now, sighting->seen));
	return sighting->effective && !(sighting->word & SESSION_PENDING) &&
	       !((sighting->word ^ sighting->key) >> 16);
}

/* One less, but not less than none. */
#define TAKE_ONE_OFF(place)                                        \
	for (int race_ = 0; race_ < RACES_MAX; race_++) {          \
		typeof(place) count_ = READ(place);                \
                                                                   \
		if (!count_ || SWAP(&(place), count_, count_ - 1)) \
			break;                                     \
	}

/* The subscriber of a binding; none of a static one. */
static __always_inline struct subscriber *subscriber_of(const struct bound *bound)
{
	__u32 id = READ(bound->record->subscriber);

	return id ? RECORD(subscribers, id) : 0;
}

/* Sessions that only the outside has sent in are counted for binding and subscriber (tables.rs):
 * whether it may open one more.
 */
static __always_inline bool is_within_budget(const volatile struct service *service,
					     const struct bound *bound)
{
	struct subscriber *subscriber = subscriber_of(bound);

	if ((READ(bound->record->life) & LIFE_TALLY) / LIFE_ONE >= service->unanswered_per_binding)
		return false;
	return !subscriber || READ(subscriber->unanswered) < service->unanswered_per_subscriber;
}

static __always_inline void count_unanswered(const struct bound *bound)
{
	struct subscriber *subscriber = subscriber_of(bound);

	change_tally(&bound->record->life, true);
	if (subscriber)
		__sync_fetch_and_add(&subscriber->unanswered, 1);
}

/* The inside has answered one. */
static __always_inline void count_answer(const struct bound *bound)
{
	struct subscriber *subscriber = subscriber_of(bound);

	change_tally(&bound->record->life, false);
	if (subscriber)
		TAKE_ONE_OFF(subscriber->unanswered);
}

/* Whether nothing has touched a binding for its lifetime: unless a session keeps it, it is over, and
 * only nobody has swept it up. What comes in by it is the engine's business, so that while no gateway
 * runs bindings close to the outside when their time is over.
 */
static __always_inline bool is_overdue(const struct bound *bound, __u8 space)
{
	/* That of TCP has no lifetime of its own (engine, napt/times.rs): as long as an opening or a
	 * closing may take.
	 */
	__u8 state = space == SPACE_TCP ? STATE_TRANS : initial_state(space, SIDE_OUTSIDE);

	return ticks_since(bound->now, bound->life >> 32) >= plan.lifetimes[state & 15] &&
	       !(READ(bound->record->flags) & BINDING_STATIC);
}

/* A packet from `side` uses a binding that needs no session: tables.rs, Tables::keep. */
static __always_inline struct outcome keep(const volatile struct service *service,
					   const struct bound *bound, __u8 space, __u8 side)
{
	struct binding *record = bound->record;
	__u32 lifetime = plan.lifetimes[initial_state(space, side)], kept = bound->counts_as;

	if (side == SIDE_OUTSIDE && ticks_since(bound->counts_as, READ(record->seen)) >= lifetime) {
		struct subscriber *subscriber = subscriber_of(bound);

		if (subscriber &&
		    READ(subscriber->unanswered) >= service->unanswered_per_subscriber)
			return FORWARDED;
	}
	/* No exchange, which would cost as much as the rest: who retires the record meanwhile either
	 * sees that it was touched, or the caller sees, since it looks at the record again, that it is
	 * gone.
	 */
	if (side == SIDE_OUTSIDE && lifetime >= KEPT_AHEAD && bound->counts_as == bound->now)
		kept += LEAD;
	if (READ(record->life) >> 32 < kept)
		WRITE(*((__u32 *)&record->life + 1), kept);
	if (side == SIDE_INSIDE && READ(record->seen) < bound->counts_as)
		WRITE(record->seen, bound->counts_as);
	return FORWARDED;
}

/* Whoever refreshes a session, or opens one, renews the permission of its remote address (RFC 6146
 * section 3.5.1): napt/state.rs, permit. False where there is none: the engine gives it. Global: the
 * verifier looks at it once.
 */
__noinline bool renew_permission(__u32 binding, __u32 remote, __u32 now, __u32 counts_as)
{
	struct session_key key = session_key(binding, remote, 0, SPACE_UDP);
	struct session *permission = find_session(&key);
	__u64 word;
	__u8 state;

	if (!permission)
		return false;
	word = READ(permission->word);
	state = state_of(word);
	if (state != STATE_PERMISSION && state != STATE_PERMISSION_TCP)
		return false;
	/* It is of this binding, and alive. */
	ORDER_WORDS();
	if ((word ^ key.word) >> 16 || word & SESSION_PENDING ||
	    ticks_since(now, READ(permission->seen)) >= plan.lifetimes[state])
		return false;
	if (READ(permission->seen) < counts_as)
		WRITE(permission->seen, counts_as);
	return true;
}

/* The same where the service filters by address; true elsewhere. */
static __always_inline bool permits(const volatile struct service *service,
				    const struct bound *bound, const struct session_key *session,
				    __u8 space)
{
	return !filters_by_address(service, space) ||
	       renew_permission(bound->id, session->remote, bound->now, bound->counts_as);
}

/* Moves a session on by a packet. A tick's first packet writes when it was seen; other packets
 * write nothing.
 */
static __always_inline struct outcome advance(const volatile struct service *service,
					      const struct packet *packet,
					      const struct session_key *session,
					      const struct sighting *at, const struct bound *bound,
					      __u8 side)
{
	__u8 state = state_of(at->word), event = packet->event,
	     step = plan.steps[at->effective & 15][(side * 4 + event) & 7],
	     next = step & ~STEP_REFRESH;
	bool refreshes = step & STEP_REFRESH && at->seen != bound->counts_as;
	bool answers = side == SIDE_INSIDE && at->word & SESSION_UNANSWERED &&
		       next != STATE_OUTSIDE_INIT && next != STATE_OUTSIDE_INIT_HELD;
	__u64 word = (at->word & ~SESSION_STATE) | (__u64)next << 8;

	/* Where a SYN is held, the engine has it; and what a limit counts from now on. */
	if (state == STATE_OUTSIDE_INIT_HELD || (answers && service->flags & SERVICE_ENGINE_OPENS))
		return PASSED(MISS_POLICY);
	if (refreshes && !permits(service, bound, session, packet->space))
		return PASSED(MISS_PERMISSION);
	if (answers)
		word &= ~(__u64)SESSION_UNANSWERED;
	/* An RST from outside may be anybody's: the engine will have the host inside asked. */
	if (side == SIDE_OUTSIDE && event == EVENT_RST && is_reset(next))
		word |= SESSION_DOUBTED;
	if (word != at->word && !replace_word(at->place, at->word, word))
		return PASSED(MISS_RACE);
	/* A copy of the binding is worth more by that. */
	if (next == STATE_ESTABLISHED && state != STATE_ESTABLISHED)
		note_change(bound->id);
	if (answers)
		count_answer(bound);
	if (refreshes)
		WRITE(*at->seen_at, bound->counts_as);
	return FORWARDED;
}

/* Whether a session may be made here. */
static __always_inline bool may_open(const volatile struct service *service, __u8 space)
{
	if (service->flags & SERVICE_ENGINE_OPENS)
		return false;
	return !(service->flags & SERVICE_ENGINE_OPENS_TCP && space == SPACE_TCP);
}

/* Puts a session where it belongs: the first one of a TCP binding into the binding's record. */
static __always_inline int insert_session(const struct bound *bound, const struct session_key *key,
					  __u8 space, __u32 low)
{
	if (space == SPACE_TCP) {
		int opened = open_first(bound->record, first_key(key), low, bound->now);

		if (opened != FIRST_TAKEN)
			return opened == FIRST_OPENED ? OPENED : NOT_OPENED;
	}
	return open_session(key, low, bound->counts_as);
}

/* Makes a session on a binding. */
static __always_inline struct outcome open(const volatile struct service *service,
					   struct scratch *scratch, const struct bound *bound,
					   const struct session_key *key, __u8 side)
{
	__u8 space = scratch->packet.space;
	__u32 low = (__u32)initial_state(space, side) << 8;
	int opened;

	if (!may_open(service, space))
		return PASSED(MISS_POLICY);
	if (!touch(&bound->record->life, bound->counts_as))
		return PASSED(MISS_SESSION_REFUSED);
	if (side == SIDE_INSIDE) {
		opened = insert_session(bound, key, space, low);
	} else {
		opened = NO_ROOM;
		low |= SESSION_UNANSWERED;
		if (is_within_budget(service, bound))
			opened = insert_session(bound, key, space, low);
		/* A datagram needs no session to come in; that SYNs are too many the engine says. */
		if (opened == NO_ROOM)
			return space == SPACE_TCP ? PASSED(MISS_LIMIT) : FORWARDED;
	}
	if (opened != OPENED)
		return PASSED(MISS_SESSION_REFUSED);
	/* Who removes a binding removes its sessions before the number is another's: either it has
	 * seen this one, or the binding is seen to be gone here (tables.rs).
	 */
	if (!is_still_bound(bound)) {
		if (space != SPACE_TCP || !end_first(bound->record, first_key(key) | low))
			take_back_session(key);
		return PASSED(MISS_RACE);
	}
	if (side == SIDE_OUTSIDE)
		count_unanswered(bound);
	scratch->counters.sessions_made++;
	return FORWARDED;
}

/* A packet from inside to `remote`: the binding that it leaves by. */
static __always_inline struct outcome outbound(const volatile struct service *service,
					       struct scratch *scratch, struct inside_key *key,
					       __u32 remote, struct bound *bound)
{
	const struct packet *packet = &scratch->packet;
	bool address_dependent = filters_by_address(service, packet->space);
	__u32 now = now_in_ticks();
	struct session_key session;
	struct sighting sighting;
	bool found = false;

	if (is_helped(service, packet->space, packet->destination_port))
		return PASSED(MISS_HELPER);
	bound->now = now;
	bound->counts_as = counts_as(packet->space, packet->destination_port, now);
	if (expects_binding(scratch) && opens(packet))
		look_ahead(key, packet->space);
	if (find_inside(key, bound)) {
		expect_none(scratch);
		if (is_copied(service, bound))
			return PASSED(MISS_POLICY);
		if (!keeps_sessions(service, packet->space))
			return keep(service, bound, packet->space, SIDE_INSIDE);
		session = session_key(bound->id, remote, packet->destination_port, packet->space);
		found = find(bound, &session, packet->space, &sighting);
	} else {
		int made;

		if (!opens(packet) || address_dependent)
			return PASSED(MISS_NO_BINDING);
		if (service->flags & SERVICE_ENGINE_BINDS || !may_open(service, packet->space))
			return PASSED(MISS_POLICY);
		made = bind(key, packet->space, now, bound->counts_as);
		if (made <= 0)
			return PASSED(-made);
		expect_another(scratch);
		if (!look_at_binding(made, bound))
			return PASSED(MISS_RACE);
		session = session_key(bound->id, remote, packet->destination_port, packet->space);
		if (!keeps_sessions(service, packet->space))
			return FORWARDED;
	}
	if (found) {
		if (!look_at_session(&sighting, now))
			return PASSED(MISS_SESSION_DEAD);
		return advance(service, packet, &session, &sighting, bound, SIDE_INSIDE);
	}
	/* RFC 6146 section 3.5.2.2, CLOSED: translated, without a session. One that was open at another node
	 * of the cluster goes on as a session, which the engine makes.
	 */
	if (!opens(packet)) {
		if (plan.notes_changes && READ(bound->record->flags) & BINDING_RESUMED)
			return PASSED(MISS_POLICY);
		return FORWARDED;
	}
	if (address_dependent && may_open(service, packet->space) &&
	    !permits(service, bound, &session, packet->space))
		return PASSED(MISS_PERMISSION);
	return open(service, scratch, bound, &session, SIDE_INSIDE);
}

/* Between which addresses a packet comes in from outside; as on the wire. */
struct arrival {
	/* The range of the pool that has `address`. */
	const volatile struct pool_range *range;
	__u32 address;
	__u32 remote;
};

/* A packet from outside: the binding that it comes in by. */
static __always_inline struct outcome come_by_binding(const volatile struct service *service,
						      struct scratch *scratch,
						      const struct arrival *arrival, __u32 now,
						      struct bound *bound)
{
	const struct packet *packet = &scratch->packet;
	__u32 slot;
	struct session_key session;
	struct sighting sighting;
	bool overdue;

	if (is_helped(service, packet->space, packet->source_port))
		return PASSED(MISS_HELPER);
	/* An echo request to the host has any identifier. */
	if (packet->space == SPACE_ICMP && service->claims & CLAIM_NO_ICMP)
		return PASSED(MISS_POLICY);
	slot = slot_of(arrival->range, bpf_ntohl(arrival->address), packet->space,
		       bpf_ntohs(packet->destination_port));
	bound->now = now;
	bound->counts_as = counts_as(packet->space, packet->source_port, now);
	if (!find_outside(slot, protocol_of(packet->space), service->number, bound))
		return PASSED(MISS_NO_BINDING);
	if (is_copied(service, bound))
		return PASSED(MISS_POLICY);
	overdue = is_overdue(bound, packet->space);
	if (!keeps_sessions(service, packet->space))
		return overdue ? PASSED(MISS_BINDING_OVERDUE) :
				 keep(service, bound, packet->space, SIDE_OUTSIDE);
	session = session_key(bound->id, arrival->remote, packet->source_port, packet->space);
	if (find(bound, &session, packet->space, &sighting)) {
		if (!look_at_session(&sighting, now))
			return PASSED(MISS_SESSION_DEAD);
		return advance(service, packet, &session, &sighting, bound, SIDE_OUTSIDE);
	}
	if (overdue)
		return PASSED(MISS_BINDING_OVERDUE);
	if (!(READ(bound->record->flags) & BINDING_STATIC)) {
		if (filters_by_address(service, packet->space))
			return PASSED(MISS_PERMISSION);
		if (service->flags & SERVICE_NO_INBOUND_TCP && packet->space == SPACE_TCP &&
		    packet->event == EVENT_SYN)
			return PASSED(MISS_POLICY);
	}
	if (!opens(packet))
		return FORWARDED;
	return open(service, scratch, bound, &session, SIDE_OUTSIDE);
}

/* A packet from outside: the host that it is for. */
static __always_inline struct outcome inbound(const volatile struct service *service,
					      struct scratch *scratch,
					      const struct arrival *arrival, struct host *host)
{
	const struct packet *packet = &scratch->packet;
	__u32 now = now_in_ticks();
	__u64 *shortcut = 0, word = 0;
	struct outcome outcome;
	struct bound bound;

	if (!arrival->range)
		return PASSED(MISS_NOT_OURS);
	if (packet->space == SPACE_UDP)
		shortcut = shortcut_at(arrival->range, bpf_ntohl(arrival->address),
				       bpf_ntohs(packet->destination_port));
	if (shortcut && take_shortcut(shortcut, now, host))
		return FORWARDED;
	outcome = come_by_binding(service, scratch, arrival, now, &bound);
	if (outcome.verdict != FORWARD)
		return outcome;
	host->address[0] = READ(bound.record->inside[0]);
	host->address[1] = READ(bound.record->inside[1]);
	host->address4 = READ(bound.record->inside4);
	host->port = READ(bound.record->inside_port);
	if (shortcut)
		word = shortcut_by(&bound, host);
	if (!is_still_bound(&bound))
		return PASSED(MISS_RACE);
	if (shortcut && word)
		WRITE(*shortcut, word);
	return FORWARDED;
}

/* The port of the host; an echo has its identifier in both. */
static __always_inline void take_inside_port(struct scratch *scratch, const struct host *host)
{
	const struct packet *packet = &scratch->packet;

	scratch->rewrite.destination_port = host->port;
	scratch->rewrite.source_port = packet->space == SPACE_ICMP ? host->port :
								     packet->source_port;
}

#endif
