/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Paths to the far ends of softwires whose MTU is less than their service was told:
 * crates/tables/src/path_mtu.rs. The engine learns them, and fragments and refuses by them; what would
 * not fit is left to it.
 */
#ifndef TOMBOLO_PATH_MTU_H
#define TOMBOLO_PATH_MTU_H

#include "hash.h"
#include "tick.h"
#include "translate.h"

SHARED_ARRAY(path_mtus, struct path_line);
SHARED_ARRAY(path_mtu_watch, __u64);

/* What the line at `place` knows of the path to an address; 0 if nothing. */
static __always_inline __u32 known_mtu(__u32 place, __u64 first, __u64 second, __u32 now)
{
	struct path_line *line = RECORD(path_mtus, place);
	__u64 known, after;
	bool is_it;

	if (!line)
		return 0;
	known = READ(line->known);
	ORDER_READS();
	is_it = READ(line->address[0]) == first && READ(line->address[1]) == second;
	ORDER_READS();
	after = READ(line->known);
	return is_it && known == after && known >> 32 > now ? (__u32)known : 0;
}

/* Not inlined: most gateways never hear of a small path. */
static __noinline bool is_too_large_for(__u64 first, __u64 second, __u32 size)
{
	struct buckets places = buckets_of(hash(first, second, 0), PATHS_MAX);
	__u32 now = now_in_ticks(), mtu = known_mtu(places.first, first, second, now);

	if (!mtu)
		mtu = known_mtu(places.second, first, second, now);
	return mtu && size > mtu;
}

/* Whether the decided packet is larger in its softwire than what every path takes, and some path is
 * known to be small.
 */
static __always_inline bool may_be_too_large(const struct rewrite *to)
{
	__u64 *watch;

	if (to->size_on_wire + sizeof(struct ipv6hdr) <= IPV6_MINIMUM_MTU)
		return false;
	watch = RECORD(path_mtu_watch, 0);
	return watch && READ(*watch) > now_in_ticks();
}

/* Whether it is larger than the path to the other end of its softwire takes, as far as is known. */
static __always_inline bool is_too_large_for_path(const struct rewrite *to, __u64 first,
						  __u64 second)
{
	return may_be_too_large(to) &&
	       is_too_large_for(first, second, to->size_on_wire + sizeof(struct ipv6hdr));
}

#endif
