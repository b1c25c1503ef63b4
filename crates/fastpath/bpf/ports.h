/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The ports of an outside address that are handed out, and the place that each has among them:
 * crates/engine/src/mapping/port_ranges.rs. Ports in the processor's byte order.
 *
 *	group    first                       first + step
 *	         | length ports |            | length ports |          ...     `runs` of them
 *	places   0 ...          length - 1   length ...
 */
#ifndef TOMBOLO_PORTS_H
#define TOMBOLO_PORTS_H

#include "base.h"

/* Places in a row. */
struct places {
	__u32 first;
	__u32 count;
};

/* A port, and the first and the last one of its run. */
struct port_in_run {
	__u32 port;
	__u32 first;
	__u32 last;
};

/* A port that was drawn: its slot, SLOT_NONE if none suits, and between which ports all might have been drawn as
 * well.
 */
struct drawn_port {
	__u32 slot;
	__u16 port;
	__u16 first;
	__u16 last;
	__u16 unused;
};

/* How many ports of a group lie below `port`. */
static __always_inline __u32 ports_of_group_below(const volatile struct port_runs *group,
						  __u32 port)
{
	__u32 offset, length = group->length, run = 0;

	if (port <= group->first)
		return 0;
	offset = port - group->first;
	if (group->runs > 1) {
		run = offset / group->step;
		if (run >= group->runs)
			return group->runs * length;
		offset -= run * group->step;
	}
	return run * length + (offset < length ? offset : length);
}

/* How many of the ports lie below `port`, which may be 65536. */
static __always_inline __u32 ports_below(const volatile struct pool_ports *ports, __u32 port)
{
	__u32 below = 0;

#pragma nounroll
	for (__u32 n = 0; n < PORT_GROUPS_MAX && n < ports->groups; n++)
		below += ports_of_group_below(&ports->group[n], port);
	return below;
}

/* The places of those ports that are in block `number` of `size` ports: block_ports in
 * crates/engine/src/mapping/pool.rs.
 */
static __always_inline struct places places_of_block(const volatile struct pool_ports *ports,
						     __u32 size, __u32 number)
{
	__u32 first = number * size, below;

	if (first > 65535)
		return (struct places){ 0, 0 };
	below = ports_below(ports, first);
	return (struct places){ below, ports_below(ports, first + size) - below };
}

/* The port at a place; false if there is none. */
static __always_inline bool find_port(const volatile struct pool_ports *ports, __u32 place,
				      struct port_in_run *found)
{
#pragma nounroll
	for (__u32 n = 0; n < PORT_GROUPS_MAX && n < ports->groups; n++) {
		const volatile struct port_runs *group = &ports->group[n];
		__u32 length = group->length, count = group->runs * length, run = 0;

		if (place >= count) {
			place -= count;
			continue;
		}
		if (group->runs > 1)
			run = place / length;
		found->first = group->first + run * group->step;
		found->last = found->first + length - 1;
		found->port = found->first + place - run * length;
		return true;
	}
	return false;
}

#endif
