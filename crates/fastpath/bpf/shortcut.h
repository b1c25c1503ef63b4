/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* From an outside port of UDP to the host that has it, without its binding: crates/tables/src/shortcut.rs,
 * which says when that may be, and what makes it end.
 *
 *	word     63              36  35         16  15           0
 *	         | tick             | subscriber   | inside port |
 */
#ifndef TOMBOLO_SHORTCUT_H
#define TOMBOLO_SHORTCUT_H

#include "binding.h"

PLAN_ARRAY(shortcuts, __u64);

/* The address of a host whose number as a subscriber it has: of a NAT44 the last four bytes. That of many
 * hosts fits into a processor's caches, where subscribers' records do not.
 */
struct known_host {
	__u64 address[2];
};

PLAN_ARRAY(known_hosts, struct known_host);

/* Who a packet from outside is for; as on the wire. */
struct host {
	__u64 address[2];
	__u32 address4;
	__u16 port;
};

/* The shortcut of an outside endpoint, in the processor's byte order; 0 if its service has none. */
static __always_inline __u64 *shortcut_at(const volatile struct pool_range *range, __u32 address,
					  __u16 port)
{
	__u32 width = (__u32)range->span.last - range->span.first + 1;

	if (range->first_shortcut == NO_SHORTCUTS || port < range->span.first ||
	    port > range->span.last)
		return 0;
	return RECORD(shortcuts, range->first_shortcut +
					 (address - range->addresses.first) * width + port -
					 range->span.first);
}

/* Goes by a shortcut, if it is one that still holds at tick `now`. */
static __always_inline bool take_shortcut(const __u64 *place, __u32 now, struct host *host)
{
	__u64 word = READ(*place);
	__u32 age = (now - (__u32)(word >> SHORTCUT_TICK)) & SHORTCUT_TICKS;
	const struct binding *none = RECORD(bindings, 0);
	const struct known_host *known;

	if (!word || age > SHORTCUT_HOLDS || !none)
		return false;
	known = RECORD(known_hosts, word >> SHORTCUT_SUBSCRIBER & SHORTCUT_SUBSCRIBERS);
	if (!known)
		return false;
	host->address[0] = READ(known->address[0]);
	host->address[1] = READ(known->address[1]);
	host->address4 = host->address[1] >> 32;
	host->port = word;
	/* The number may be another subscriber's meanwhile, but not before the shortcut has ended. */
	ORDER_READS();
	return now - age > READ(none->inside[0]);
}

/* The shortcut to `host` by its binding, which a packet has just kept; 0 if there can be none. It holds if
 * the binding is still there afterwards.
 */
static __always_inline __u64 shortcut_by(const struct bound *bound, const struct host *host)
{
	__u32 id = READ(bound->record->subscriber);
	__u64 last = host->address[1] | (__u64)host->address4 << 32,
	      life = READ(bound->record->life);
	struct subscriber *subscriber = RECORD(subscribers, id);
	struct known_host *known = RECORD(known_hosts, id);

	/* One that is being made may yet be undone; and who is one of many that are the subscriber has
	 * another address.
	 */
	if (!id || !subscriber || !known || (life & LIFE_STAGE) != STAGE_LIVE ||
	    life >> 32 < bound->now + LEAD || READ(subscriber->inside[0]) != host->address[0] ||
	    READ(subscriber->inside[1]) != host->address[1] ||
	    READ(subscriber->inside4) != host->address4)
		return 0;
	if (READ(known->address[0]) != host->address[0] || READ(known->address[1]) != last) {
		/* The number may have become another's. Touched, with a binding still, it stays. */
		if (!touch(&subscriber->life, bound->now) || !is_still_bound(bound))
			return 0;
		WRITE(known->address[0], host->address[0]);
		WRITE(known->address[1], last);
		ORDER_WRITES();
	}
	return (__u64)bound->now << SHORTCUT_TICK | (__u64)id << SHORTCUT_SUBSCRIBER | host->port;
}

#endif
