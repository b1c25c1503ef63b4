/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The tables' clock: ticks of 2^30 ns of the monotonic clock (crates/tables/src/tick.rs).
 *
 * The coarse clock lags by at most a timer interrupt, of a tick that is a second; reading it costs
 * a load, where the fine one costs a tenth of a packet.
 */
#ifndef TOMBOLO_TICK_H
#define TOMBOLO_TICK_H

#include "base.h"

static __always_inline __u32 now_in_ticks(void)
{
	return bpf_ktime_get_coarse_ns() >> TICK_SHIFT;
}

/* Ticks since `earlier`; none if it lies in the future. */
static __always_inline __u32 ticks_since(__u32 now, __u32 earlier)
{
	return now > earlier ? now - earlier : 0;
}

#endif
